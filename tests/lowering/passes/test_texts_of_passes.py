"""What each pass writes, as text: a program before and after it, an equation in each line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.ir.marks import SavedMark
from sporax.lowering.marks.host_transfer import run_on_host, to_device, to_host, without_round_trips
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.marks.tags import new_tag, offload_scope
from sporax.lowering.passes.host.file_values import with_filed_arguments
from sporax.lowering.passes.host.offload import in_host_memory, offloaded
from sporax.lowering.passes.host.row_updates import row_update, without_row_updates
from sporax.lowering.passes.recompute.recompute import recompute, without_saved_marks
from sporax.lowering.passes.repeat.block_loops import looped
from sporax.lowering.passes.repeat.stacked_arguments import with_stacked_arguments
from sporax.lowering.rewriter import flat

X = jnp.linspace(0.0, 1.0, 4, dtype=jnp.float32)


def program(function, *args):
    return flat(jax.make_jaxpr(function)(*(args or (X,))))


def backward_of(scope):
    """A backward pass that reads the cosine of the forward pass."""

    def network(x):
        with jax.named_scope(scope):
            (y,) = apply_mark([jnp.sin(x)], SavedMark())
        return y.sum()

    return program(jax.grad(network))


def on_host(x):
    (y,) = run_on_host(lambda x: [jnp.exp(x)], x)
    return y + 1


def round_trip(x):
    return to_device(to_host([x]))[0] + 1


def update(w, g):
    return row_update(lambda gradient, values, _: [values[0] - gradient], g, [w], [])


def blocks(*args):
    """Four equal blocks of seven equations, each with a weight of its own."""
    *weights, x = args
    for weight in weights:
        x = jnp.tanh(jnp.exp(jnp.sin(jnp.cos(jnp.tan(jnp.floor(x * weight))))))
    return x


class File:
    shape, dtype = X.shape, np.dtype("float32")

    def read(self):
        return np.asarray(X)

    def write(self, array):
        raise AssertionError

    def prefetch(self):
        raise AssertionError


def stacked(before):
    return with_stacked_arguments(looped(before, before.jaxpr.invars[:4]), 0, 4, lambda number: True).program


WEIGHTS = [X * number for number in range(1, 5)]
BLOCKS = [
    "in a b c d e",
    *("f = mul e a", "g = floor f", "h = tan g", "i = cos h", "j = sin i", "k = exp j", "l = tanh k"),
    *("m = mul l b", "n = floor m", "o = tan n", "p = cos o", "q = sin p", "r = exp q", "s = tanh r"),
    *("t = mul s c", "u = floor t", "v = tan u", "w = cos v", "x = sin w", "y = exp x", "z = tanh y"),
    *("a1 = mul z d", "b1 = floor a1", "c1 = tan b1", "d1 = cos c1", "e1 = sin d1", "f1 = exp e1", "g1 = tanh f1"),
    "out g1",
]
MARKED = [
    *("in a", "b = sin a", "c = cos a", "d = mark b", "e = reduce_sum d"),
    *("f = broadcast_in_dim 1.0", "g = mul f c", "out g"),
]
UNMARKED = ["in a", "b = sin a", "c = cos a", "d = reduce_sum b", "e = broadcast_in_dim 1.0", "f = mul e c", "out f"]


@pytest.mark.parametrize(
    ("before", "text", "rewrite", "rewritten"),
    [
        pytest.param(
            lambda: backward_of(new_tag().scope),
            MARKED,
            lambda before: recompute(before)[0],
            [*UNMARKED[:5], *("f g = optimization_barrier a e", "h = cos f", "i = mul g h", "out i")],
            id="recompute",
        ),
        pytest.param(lambda: backward_of(new_tag().scope), MARKED, without_saved_marks, UNMARKED, id="kept marks"),
        pytest.param(
            lambda: without_saved_marks(backward_of(offload_scope(0, 1))),
            UNMARKED,
            offloaded,
            [
                *("in a", "b = sin a", "c = cos a", "d = device_put c", "e = reduce_sum b", "f = broadcast_in_dim 1.0"),
                *("g h = optimization_barrier d f", "i = slice h", "j = reshape i", "k = device_put g"),
                *("l = mul f k", "out l"),
            ],
            id="offload",
        ),
        pytest.param(
            lambda: program(on_host),
            ["in a", "b = exp a", "c = add b 1.0", "out c"],
            in_host_memory,
            ["in a", "b = device_put a", "c = exp b", "d = device_put c", "e = add d 1.0", "out e"],
            id="host work",
        ),
        pytest.param(
            lambda: program(round_trip),
            ["in a", "b = device_put a", "c = device_put b", "d = add c 1.0", "out d"],
            without_round_trips,
            ["in a", "b = add a 1.0", "out b"],
            id="round trips",
        ),
        pytest.param(
            lambda: program(update, X, X),
            ["in a b", "c = row_update b a", "out c"],
            without_row_updates,
            ["in a b", "c = sub a b", "out c"],
            id="row updates",
        ),
        pytest.param(
            lambda: program(lambda w, x: w * x, X, X),
            ["in a b", "c = mul a b", "out c"],
            lambda before: with_filed_arguments(before, {0: File()}, 0, 1),
            ["in a b", "c d = io_callback a", "e = mul c b", "out e"],
            id="files",
        ),
        pytest.param(
            lambda: program(blocks, *WEIGHTS, X), BLOCKS, stacked, ["in a b", "c = scan b a", "out c"], id="block loops"
        ),
    ],
)
def test_a_pass_writes_this(lines, before, text, rewrite, rewritten):
    read = before()
    assert lines(read) == text
    assert lines(rewrite(read)) == rewritten
    # What was read is as it was.
    assert lines(read) == text
