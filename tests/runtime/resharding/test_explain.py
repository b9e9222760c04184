"""Collectives in programs of users: lines, bytes, and changes that lower them in the user's own program, too."""

import inspect
import json
import re
import time
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P

import programs_with_shardings as programs
import sporax
from programs_with_shardings import MESH, ROW, on, struct
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.runtime.process.compiled_text import COLLECTIVES, CompiledText
from sporax.runtime.resharding.changes import Changes
from sporax.runtime.resharding.sharded_program import sharded_program

LISTED = partial(sporax.explain_resharding, tries=0, hardware="h100")


def explained(program, **options):
    function, args = program
    return sporax.explain_resharding(function, *args, **{"hardware": "h100", **options})


def kinds(found):
    return sorted((one.operator, one.primitive, one.axes, one.count) for one in found.collectives)


# Program with its mistake, the sharding that the tool finds instead, and the program of the user with that sharding.
MISTAKES = {
    "a constraint between layers": (programs.megatron, "in place of your constraint", (P.UNCONSTRAINED, "model")),
    "the same in a training step": (
        programs.trained_megatron,
        "in place of your constraint",
        (P.UNCONSTRAINED, "model"),
    ),
    "a batch that a reshape gathers": (
        programs.gathered_batch,
        "as the sharding of the argument x",
        (None, "data", None),
    ),
    "a constraint in a loop": (programs.layers_by_scan, "in place of your constraint", ("data", None)),
    "a table by rows": (programs.embedding, "as the sharding of the argument table", (None, "data")),
    "a transposed constraint": (programs.transposed_constraint, "in place of your constraint", ("data", "model")),
    "a way that XLA does not know": (programs.rematerialized, "of the result of add", ("model", "data", None)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_change_for_the_largest_collective_does_in_the_users_program_what_was_counted(name):
    program, how, spec = MISTAKES[name]
    # So many as it takes: the first changes find the others.
    found = explained(
        program(), tries=26 if program in (programs.transposed_constraint, programs.rematerialized) else 8
    )
    remedy = found.collectives[0].remedy
    assert how in str(remedy)
    written = re.sub(
        r"'(\w+)'", r"'\1'", f"P({', '.join('P.UNCONSTRAINED' if e is P.UNCONSTRAINED else repr(e) for e in spec)})"
    )
    assert written in remedy.change
    # The user writes it.
    function, args = program(spec)
    again = LISTED(function, *args)
    assert again.sent_bytes == remedy.sent_bytes < found.sent_bytes
    assert again.seconds == pytest.approx(remedy.seconds)
    assert f"→ {'0 B' if remedy.sent_bytes == 0 else ''}" in str(found)


@pytest.mark.parametrize("program", [programs.data_parallel, partial(programs.layers_by_scan, None)])
def test_what_must_be_has_no_remedy(program):
    found = explained(program(), tries=5)
    assert found.collectives and found.tried
    assert not any(one.remedy for one in found.collectives) and found.together is None
    assert "none lowers the bytes" in str(found)


def test_a_collective_has_line_operator_axes_bytes_and_time():
    function, args = programs.megatron()
    lines, first = inspect.getsourcelines(function.__wrapped__)
    found = LISTED(function, *args)
    gather = found.collectives[0]
    assert (gather.operator, gather.axes, gather.num_members, gather.count) == ("all-gather", ("model",), 2, 1)
    assert gather.place.file == programs.__file__ and lines[gather.place.line - first].strip() == gather.place.code
    assert "gelu" in gather.place.code
    # 16 rows of 64 columns of float32 on each device, sent to the other one.
    assert gather.sent_bytes == gather.local_bytes == 16 * 64 * 4
    assert gather.seconds > 0 and found.seconds == sum(one.seconds for one in found.collectives)
    assert [one.sent_bytes for one in found.collectives] == sorted(
        (one.sent_bytes for one in found.collectives), reverse=True
    )


def test_what_functions_of_jax_need_has_the_line_that_calls_them():
    def spread(x, row):
        y = jnp.where(row > 0, x, 0.0)
        return jax.nn.silu(y)

    args = struct((64, 16), "data", mesh=ROW), struct((64, 16), None, "data", mesh=ROW)
    lines = [one.place.code for one in LISTED(jax.jit(spread, out_shardings=on("data", mesh=ROW)), *args).collectives]
    assert all(lines) and any("jnp.where" in line for line in lines)


def test_a_loop_counts_as_often_as_it_runs_and_one_without_length_once():
    function, args = programs.layers_by_scan(None)
    found = LISTED(function, *args).collectives
    # Forward, backward, and the gradient, in each of six rounds; 0.11 of JAX gathers before it takes the row.
    assert sorted((one.operator, one.count) for one in found) == [
        ("all-gather", 6),
        ("all-gather", 6),
        ("reduce-scatter", 6),
    ]
    assert {one.primitive for one in found} <= {"dot_general", "scan"} and {one.axes for one in found} == {("data",)}

    def until(x, w):
        return jax.lax.while_loop(lambda h: h[0, 0] < 1, lambda h: h @ w + 1, x)

    args = struct((16, 16), mesh=ROW), struct((16, 16), "data", mesh=ROW)
    found = LISTED(jax.jit(until, out_shardings=on(mesh=ROW)), *args)
    inside = [one for one in found.collectives if not one.has_known_count]
    assert inside and all(one.count == 1 for one in inside) and "1 or more" in str(found)


def unheard(program):
    """A program that no earlier run has compiled and stored: XLA warns while it compiles."""
    function, args = program
    function.__wrapped__.__name__ = f"add_{time.time_ns()}"
    return jax.jit(function.__wrapped__, out_shardings=args[-1].sharding), *args


def test_xlas_warning_and_the_text_agree_about_rematerialization(capfd):
    found = LISTED(*unheard(programs.rematerialized()))
    assert "Involuntary full rematerialization" in capfd.readouterr().err
    assert all(one.is_rematerialized for one in found.collectives) and "replicated, then sharded again" in str(found)
    found = LISTED(*unheard(programs.rematerialized(("model", "data", None))))
    assert "Involuntary" not in capfd.readouterr().err
    assert found.collectives and not any(one.is_rematerialized for one in found.collectives)


def test_slices_that_the_user_takes_are_no_rematerialization():
    def rows(x, start):
        return jax.lax.dynamic_slice_in_dim(x, start, 4)

    found = LISTED(jax.jit(rows, out_shardings=on(mesh=ROW)), struct((64, 8), "data", mesh=ROW), jnp.int32(3))
    assert found.collectives and not any(one.is_rematerialized for one in found.collectives)


@pytest.mark.parametrize("hardware", ["h100", "tpu-v5e", "ascend910b-900a2", "cpu"])
def test_times_are_those_of_the_profile_and_bytes_are_not(hardware):
    function, args = programs.data_parallel()
    found = sporax.explain_resharding(function, *args, hardware=hardware, tries=0)
    (one,) = found.collectives
    assert found.hardware == hardware and one.sent_bytes == 2 * 7 * 32 * 16 * 4 // 8
    other = sporax.explain_resharding(function, *args, hardware="l4", tries=0)
    assert one.seconds != other.seconds and one.seconds > 0


def test_functions_of_all_kinds_give_the_same():
    function, args = programs.megatron()
    expected = kinds(LISTED(function, *args))

    def by_keyword(params, *, x, power, name):
        assert name == "loss"
        return function(params, x) ** power

    variants = {
        "bare": LISTED(function.__wrapped__, *args),
        "nested": LISTED(jax.jit(jax.jit(function)), *args),
        "under its mesh": LISTED(function, *args, mesh=MESH),
        "static": LISTED(
            jax.jit(by_keyword, static_argnames=("power", "name")),
            args[0],
            kwargs={"x": args[1], "power": 1, "name": "loss"},
        ),
    }
    assert {name: kinds(found) for name, found in variants.items()} == dict.fromkeys(variants, expected)


def test_arrays_count_as_they_are_sharded():
    table = jax.device_put(np.ones((64, 8), np.float32), on("data", mesh=ROW))
    assert LISTED(lambda x: x + 1, table).collectives == ()
    assert [one.operator for one in LISTED(jax.jit(lambda x: x - x.mean()), table).collectives] == ["all-reduce"]


def closing_over_an_array():
    table = jax.device_put(np.ones((64, 8), np.float32), on("data", mesh=ROW))
    return jax.jit(lambda x: (table * x).sum(0)), (struct((8,), mesh=ROW),)


ALL = [*(program for program, _, _ in MISTAKES.values()), programs.data_parallel, closing_over_an_array]


@pytest.mark.parametrize("program", ALL)
def test_the_program_that_is_read_is_the_one_that_the_user_runs(program):
    function, args = program()
    alone = {"xla_disable_hlo_passes": "cpu-all-reduce-combiner", "xla_backend_optimization_level": 0}
    text = function.lower(*args).compile(compiler_options=alone).as_text()
    expected = Counter(re.findall(rf" ({'|'.join(COLLECTIVES)})\(", text))
    read = CompiledText.of(sharded_program(function, args, {}, None).compiled().as_text())
    assert Counter(one.opcode for _, one in read.collectives()) == expected


def test_a_mesh_by_name_an_abstract_one_and_that_of_the_context():
    def mean(x):
        return jax.lax.with_sharding_constraint(x, P("rows")).mean(0)

    x = jax.ShapeDtypeStruct((64, 8), "float32")
    expected = [("all-reduce", "reduce_sum", ("rows",), 1)]
    assert kinds(LISTED(mean, x, mesh={"rows": 8})) == expected
    abstract = AbstractMesh((8,), ("rows",), axis_types=(AxisType.Auto,))
    assert kinds(LISTED(mean, x, mesh=abstract)) == expected
    with jax.set_mesh(jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Auto,))):
        assert kinds(LISTED(jax.jit(mean), x)) == expected
    placed = jax.ShapeDtypeStruct((64, 8), "float32", sharding=jax.NamedSharding(abstract, P("rows")))
    assert kinds(LISTED(lambda x: x.mean(0), placed)) == expected


TYPED = {
    "no reshard": (programs.typed_megatron, None, "no jax.reshard in place of your constraint"),
    "in a loop": (programs.typed_loop, None, "no jax.reshard in place of your constraint"),
    "an argument": (programs.typed_argument, ("data", None), "P('data', None) in place of P(None, 'data')"),
}


@pytest.mark.parametrize("name", TYPED)
def test_on_explicit_axes_a_change_that_types_allow_does_in_the_users_program_what_was_counted(name):
    program, spec, text = TYPED[name]
    function, args = program()
    found = sporax.explain_resharding(function, *args, mesh=programs.TYPED, hardware="h100", tries=4)
    remedy = found.collectives[0].remedy
    assert text in str(remedy)
    function, args = program(spec)
    again = LISTED(function, *args, mesh=programs.TYPED)
    assert again.sent_bytes == remedy.sent_bytes < found.sent_bytes
    assert again.seconds == pytest.approx(remedy.seconds)


def test_on_explicit_axes_it_is_said_how_many_changes_types_allow():
    def layers(x, w):
        def layer(h, _):
            return jax.sharding.reshard(h @ w, P("data", None)), None

        return jax.lax.scan(layer, x, None, length=3)[0]

    args = [jax.ShapeDtypeStruct(s, "float32", sharding=jax.NamedSharding(programs.TYPED, P(*spec)))
            for s, spec in (((64, 32), ("data", None)), ((32, 32), (None, "model")))]  # fmt: skip
    found = sporax.explain_resharding(jax.jit(layers), *args, mesh=programs.TYPED, hardware="h100", tries=8)
    assert found.collectives and found.tried and not any(one.remedy for one in found.collectives)
    (count,) = re.findall(
        f"Note: axes are explicit: JAX's types allow (.*) of these {found.tried} changes.", str(found)
    )
    assert 0 < int(count) < found.tried  # a carry has one type


def test_arrays_whose_types_say_partial_sums_are_left_as_they_are():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))

    def gradient(w, x):
        weight = jax.reshard(w, P(reduced={"x"}))
        return jax.reshard(jax.grad(lambda w: jnp.sin(x @ w).sum())(weight), P())

    with jax.set_mesh(mesh):
        arguments = jax.device_put(jnp.ones((8, 8)), P()), jax.device_put(jnp.ones((16, 8)), P("x"))
        found = sporax.explain_resharding(gradient, *arguments, hardware="h100")
    (one,) = found.collectives
    assert (one.operator, one.axes) == ("all-reduce", ("x",))
    assert "(P(" not in str(found)  # no constraint on what is partial, only on arguments and results


def test_what_the_user_has_written_in_a_shard_map_is_said_to_be_theirs_and_left():
    def total(x):
        return jax.shard_map(lambda part: jax.lax.psum(part, "data"), mesh=ROW, in_specs=P("data"), out_specs=P())(x)

    found = sporax.explain_resharding(jax.jit(total), struct((64, 8), "data", mesh=ROW))
    (one,) = found.collectives
    assert one.is_written and one.operator == "all-reduce" and not found.tried and "in your shard_map" in str(found)


def test_sixteen_bits_are_counted_as_such():
    function, (w, x) = programs.data_parallel()
    narrow = [jax.ShapeDtypeStruct(one.shape, "bfloat16", sharding=one.sharding) for one in (w, x)]
    (wide,), (half,) = LISTED(function, w, x).collectives, LISTED(function, *narrow).collectives
    assert half.sent_bytes * 2 == wide.sent_bytes


def test_a_limit_of_changes_is_kept_and_said():
    found = explained(programs.megatron(None), tries=2)
    assert found.tried == 2 and found.notes == ("2 changes were the limit, 'tries'; a higher one looks further.",)


def test_json_has_all_of_it():
    found = explained(programs.transposed_constraint(), tries=8)
    read = json.loads(found.to_json())
    assert [one["operator"] for one in read["collectives"]] == [one.operator for one in found.collectives]
    assert read["collectives"][0]["place"]["line"] == found.collectives[0].place.line and read["mesh"] == {
        "data": 4,
        "model": 2,
    }


def test_a_changed_program_computes_the_same():
    function, args = programs.trained_megatron()
    program = sharded_program(function, args, {}, None)
    compiled = program.compiled()
    changes = Changes(program, MESH, compiled.input_shardings[0], compiled.output_shardings)
    numbers = [number for number, entry in program.equations().items() if entry.eqn.primitive.name == "dot_general"]
    change = next(
        change for number in numbers for change in changes.of(number, ["model"]) if len(change.constraints) > 1
    )
    values = [np.random.default_rng(0).normal(size=aval.shape).astype("float32") for aval in program.jaxpr.in_avals]
    given = jax.tree.unflatten(jax.tree.structure(args), values)
    expected = jax.tree.leaves(jax.jit(function.__wrapped__)(*given))
    changed = change.applied(program).compiled()
    actual = changed(*jax.device_put(values, list(changed.input_shardings[0])))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)


def pmean_of_loss(x):
    return jax.lax.pmean(x, "batch")


ERRORS = {
    "no function": (SporaxTypeError, "'fn' must be a function, but got 3", lambda: LISTED(3)),
    "cannot be traced": (
        SporaxValueError,
        "must be a function that jax.jit can trace, but TracerBoolConversionError",
        lambda: LISTED(lambda x: x if x.sum() > 0 else -x, struct((8,), mesh=ROW)),
    ),
    "no mesh": (SporaxValueError, "must have a mesh, but no argument", lambda: LISTED(lambda x: x * 2, jnp.ones(8))),
    "more devices": (
        SporaxValueError,
        "it has 4096 and there are .*explain-sharding --devices 4096",
        lambda: LISTED(lambda x: x * 2, jnp.ones(8), mesh={"data": 4096}),
    ),
    "another mesh": (
        SporaxTypeError,
        "'mesh' must be a jax.sharding.Mesh",
        lambda: LISTED(lambda x: x, jnp.ones(8), mesh=8),
    ),
    "profile": (SporaxValueError, "Did you mean 'h100'", lambda: LISTED(lambda x: x, jnp.ones(8), hardware="h10")),
    "tries": (
        SporaxValueError,
        "'tries' must be",
        lambda: sporax.explain_resharding(lambda x: x, jnp.ones(8), tries=-1),
    ),
    "not the mesh of the program": (
        SporaxValueError,
        "be the mesh of the program's shardings, {'data': 4, 'model': 2} in 'loss', but got {'rows': 8}",
        lambda: LISTED(programs.megatron(None)[0], *programs.megatron(None)[1], mesh={"rows": 8}),
    ),
    "not the mesh of its shard_map": (
        SporaxValueError,
        "be the mesh of the program's shardings, The context mesh.*but got {'rows': 8}",
        lambda: LISTED(jax.pmap(pmean_of_loss, axis_name="batch"), jnp.ones((8, 4)), mesh={"rows": 8}),
    ),
    "axis of pmap": (
        SporaxValueError,
        "collective over the axis 'batch'.*in place of `jax.pmap`",
        lambda: LISTED(pmean_of_loss, struct((8,), mesh=ROW)),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_wrong_is_said(name):
    kind, text, call = ERRORS[name]
    with pytest.raises(kind, match=text):
        call()
