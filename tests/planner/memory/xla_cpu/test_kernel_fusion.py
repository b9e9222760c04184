"""What operators become in a compiled program: pieces, kernels, their order."""

import jax
import jax.numpy as jnp
import pytest

from sporax.ir.graph import Role
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.peak import backend_of, live_ranges
from sporax.planner.memory.step_events import Timeline
from sporax.planner.memory.xla_cpu.instructions import Instructions, Kind
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU, kernels_of, of_jaxlib


def shaped(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def kernels(function, *arguments):
    """Of every kernel: names of the operators whose results it writes, and how many bytes it writes."""
    step = ingest(jax.make_jaxpr(function)(*arguments), [(Role.DATA, f"x{n}") for n in range(len(arguments))])
    timeline = Timeline(step.graph)
    instructions = Instructions(timeline)
    actual = kernels_of(instructions, [instructions.number[value] for value in timeline.outputs])
    return [
        (timeline.events[root.event].operator.name, sum(instructions.arrays[write].num_bytes for write in root.writes))
        for kernel in actual
        for root in kernel.roots
    ]


def names(function, *arguments):
    return [name for name, _ in kernels(function, *arguments)]


X, W = shaped(8, 16), shaped(16, 16)


def test_loops_are_fused_into_their_reader():
    assert names(lambda x: jnp.sin(x * 2 + 1), X) == ["sin"]


def test_cheap_loops_are_fused_into_every_reader_and_costly_ones_into_none():
    assert names(lambda x, w: ((x + 1) @ w, x + 1 - jnp.abs(x + 1)), X, W) == ["add", "sub", "dot_general"]

    def shared(x):
        costly = jnp.exp(x)
        return costly + 1, costly * 2

    assert names(shared, X) == ["exp", "add", "mul"]


def test_what_reads_two_arrays_of_full_size_is_written_out_for_all_even_if_one_of_them_has_small_elements():
    def chosen(x, w, y):
        picked = jnp.where(x > 0, y, 0.0)
        return picked @ w, (picked + 1).reshape(4, 2, 16).transpose(1, 0, 2)

    assert names(chosen, X, W, X).count("select_n") == 1
    assert sorted(names(chosen, X, W, X)) == ["dot_general", "select_n", "transpose"]


def test_what_reads_two_arrays_is_written_if_a_kernel_is_between_it_and_a_reader():
    def residual(x, y, w):
        both = x + y
        wave = jnp.sin(both)
        return wave, both + wave @ w

    assert sorted(names(residual, X, X, W)) == ["add", "add", "dot_general", "sin"]


def test_what_reads_two_arrays_is_computed_in_all_readers_that_need_nothing_else_of_it():
    def apart(x, y):
        both = x + y
        return jnp.sin(both), (both * 2).reshape(4, 2, 16).transpose(1, 0, 2)

    assert sorted(names(apart, X, X)) == ["sin", "transpose"]


def test_a_reduction_takes_in_a_product_and_nothing_else():
    assert names(lambda x: (x * x).sum(), X) == ["reduce_sum"]
    assert names(lambda x: (x - 1).sum(), X) == ["sub", "reduce_sum"]


def test_what_nobody_needs_is_not_computed():
    def wasteful(x, w):
        _ = x @ w
        return x + 1

    assert names(wasteful, X, W) == ["add"]


def test_products_read_matrices_in_any_order_and_several_dimensions_in_one():
    assert names(lambda x, w: x @ w.T, X, W) == ["dot_general"]
    assert names(lambda a, b: jnp.einsum("bth,bsh->bts", a, b), shaped(4, 8, 2), shaped(4, 8, 2)) == ["dot_general"]
    assert names(lambda a: a @ a.swapaxes(1, 2), shaped(4, 8, 2)) == ["dot_general"]
    # the columns are two dimensions, or the batch is not the first one
    assert names(lambda a, b: jnp.einsum("mk,bnk->mbn", a, b), X, shaped(4, 8, 16)) == ["dot_general"] * 2
    assert names(lambda a, b: jnp.einsum("tbh,bsh->bts", a, b), shaped(8, 4, 2), shaped(4, 8, 2)) == ["dot_general"] * 2
    # a gradient of a weight: one operand is turned, though the other need not be
    assert names(lambda a, b: jnp.einsum("btm,btn->mn", a, b), shaped(4, 8, 2), shaped(4, 8, 3)) == ["dot_general"] * 2


@pytest.mark.parametrize(("layout", "count"), [(("NHWC", "HWIO", "NHWC"), 1), (("NCHW", "OIHW", "NCHW"), 4)])
def test_convolutions_want_channels_last(layout, count):
    shapes = {
        "NHWC": shaped(2, 8, 8, 3),
        "NCHW": shaped(2, 3, 8, 8),
        "HWIO": shaped(3, 3, 3, 4),
        "OIHW": shaped(4, 3, 3, 3),
    }

    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)

    assert len(kernels(convolve, shapes[layout[0]], shapes[layout[1]])) == count


def test_gradients_of_pooling_make_coordinates():
    def pooled(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (2, 2), "VALID").sum()

    actual = [size for name, size in kernels(jax.grad(pooled), shaped(8, 8)) if name == "select_and_scatter_add"]
    one = 8 * 8 * 4
    # two coordinates of every element and zeros; the extremes with theirs; their places; the result
    assert sorted(actual) == sorted([one, one, one, 3 * one // 4, 2 * one // 4, one])


def test_random_bits_are_made_of_four_words_for_every_element():
    def masked(key, x):
        return jnp.where(jax.random.bits(jax.random.wrap_key_data(key), (8, 16)) > 7, x, 0.0)

    actual = kernels(masked, jax.ShapeDtypeStruct((2,), jnp.uint32), X)
    assert actual == [("random_wrap", 8), ("random_bits", 4 * 8 * 16 * 4), ("select_n", 8 * 16 * 4)]


def test_what_can_run_early_does():
    def late(x, w, v):
        for _ in range(3):
            x = jnp.tanh(x @ w)
        return x @ jnp.exp(v)

    assert names(late, X, W, W).index("exp") == 0 or names(late, X, W, W).index("exp") == 1


def test_reductions_of_single_elements_are_views():
    """As of the gradient of a norm: [8, 16, 1] is summed to [8, 16], and nothing has to wait for that."""
    assert names(lambda x: jnp.exp(x).sum(2) * 2, shaped(8, 16, 1)) == ["mul"]
    assert names(lambda x: jnp.exp(x).sum(2) * 2, shaped(8, 16, 2)) == ["exp", "reduce_sum", "mul"]


def test_views_take_no_memory():
    step = ingest(jax.make_jaxpr(lambda x, w: (x @ w).reshape(4, 32).reshape(128))(X, W))
    assert [item.number for item in live_ranges(step.graph, XLA_CPU)] == [
        *(item.tensor for item in step.graph.inputs),
        2,
    ]
    assert Kind.LOOP not in {instruction.kind for instruction in Instructions(Timeline(step.graph)).instructions}


def test_a_loop_is_one_step_and_what_no_round_changes_is_made_before_it():
    """The weight's copy in float32 is made once, and what only the end needs waits for no round."""

    def loop(x, w):
        wide = w.astype(jnp.float32) * 2
        rounds = jax.lax.scan(lambda h, _: (jnp.tanh(h @ w.T), h.sum()), x, None, length=3)
        return rounds, wide @ wide

    half = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((8, 16), (16, 16))]
    step = ingest(jax.make_jaxpr(loop)(*half), [(Role.DATA, "x"), (Role.DATA, "w")])
    made = XLA_CPU.compiled(Timeline(inline_loops(step.graph).graph)).kernels
    inside = [bool(kernel.loops) for kernel in made]
    assert inside == [False] * inside.index(True) + [True] * sum(inside) + [False] * (inside[::-1].index(True))
    turned = [kernel.loops for kernel in made if kernel.writes and kernel.reads == {1} and not kernel.counts]
    assert turned == [(), ()]


def bhst(x, y):
    return jnp.einsum("bshd,bthd->bhst", x.reshape(2, 4, 2, 16), y.reshape(2, 8, 2, 8)[..., :4].repeat(4, -1))


PRODUCTS = {
    "x @ y": (lambda x, y: x @ y, True),
    "the second one's inner dimension last": (lambda x, y: jnp.einsum("ij,kj->ik", x, y), True),
    "the first one's inner dimension first": (lambda x, y: jnp.einsum("ji,jk->ik", x.reshape(16, 16), y), False),
    "a transposed matrix": (lambda x, y: x @ y.T, False),
    "a vector": (lambda x, y: x[0] @ y, False),
    "one row": (lambda x, y: x[:1] @ y, False),
    "several heads": (bhst, True),
    "two inner dimensions": (lambda x, y: jnp.einsum("ijk,ijl->kl", x.reshape(4, 4, 16), y.reshape(4, 4, 16)), True),
}


@pytest.mark.parametrize(("version", "dtype", "is_newer"), [
    ("0.10.2", "bfloat16", False),
    ("0.11.1", "bfloat16", False),
    ("0.11.2", "bfloat16", True),
    ("0.12.0.1", "bfloat16", True),
    ("0.12.0", "float16", False),
    ("0.11.2rc1", "bfloat16", True),
    ("0.11.2+local", "bfloat16", True),
    ("1.0.0rc1", "bfloat16", True),
])  # fmt: skip
@pytest.mark.parametrize("kind", PRODUCTS)
def test_newer_compilers_multiply_matrices_in_bfloat16_as_they_are(kind, version, dtype, is_newer):
    product, is_native = PRODUCTS[kind]
    operands = jax.ShapeDtypeStruct((16, 16), dtype), jax.ShapeDtypeStruct((16, 16), dtype)
    step = ingest(jax.make_jaxpr(product)(*operands), [(Role.DATA, "x"), (Role.DATA, "y")])
    instructions = Instructions(Timeline(step.graph), of_jaxlib(version).native)
    widened = "float32" in {array.dtype for array in instructions.arrays}
    assert widened != (is_native and is_newer)


def test_rows_of_loops_are_copies_in_float32_for_older_compilers_alone():
    step = ingest(
        jax.make_jaxpr(lambda x, ws: jax.lax.scan(lambda h, w: (h * w, None), x, ws)[0])(
            jax.ShapeDtypeStruct((16, 16), "bfloat16"), jax.ShapeDtypeStruct((3, 16, 16), "bfloat16")
        ),
        [(Role.DATA, "x"), (Role.DATA, "ws")],
    )
    timeline = Timeline(inline_loops(step.graph).graph)
    sizes = {version: max(of_jaxlib(version).compiled(timeline).sizes) for version in ("0.11.1", "0.11.2")}
    assert sizes == {"0.11.1": 3 * 16 * 16 * 4, "0.11.2": 3 * 16 * 16 * 2}


@pytest.mark.parametrize(("platform", "begins_first"), [("cpu", True), ("gpu", False), ("tpu", False)])
def test_stacks_are_there_from_the_start_of_the_program_on_cpus(platform, begins_first):
    """Their zeros wait for nothing, those of a second loop neither; what a loop inside of a loop stacks waits for its round."""

    def rounds(h):
        return jax.lax.scan(lambda h, _: (jnp.tanh(h), h), h, None, length=3)

    def loops(x):
        first = rounds(jax.lax.sort(x @ x))
        second = rounds(first[0] @ x)
        return first[1], second[1], jax.lax.scan(lambda h, _: (rounds(h)[1].sum(0), None), second[0], None, length=2)[0]

    step = ingest(jax.make_jaxpr(loops)(jax.ShapeDtypeStruct((16, 16), jnp.float32)), [(Role.DATA, "x")])
    graph = inline_loops(step.graph).graph
    begins = {life.number: life.begin for life in live_ranges(graph, backend_of(platform))}
    stacks = [tensor for tensor in begins if graph.tensors[tensor].shape == (3, 16, 16)]
    assert len(stacks) == 3
    assert [begins[tensor] == 0 for tensor in stacks] == [begins_first, begins_first, False]
