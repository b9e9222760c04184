"""Equal collectives as calls of one function: what is counted as equal, in the lowered and in the compiled program, bit by bit."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from sporax.lowering.passes.reused_collectives import with_reuse

UNMERGED = {"xla_disable_hlo_passes": "cpu-all-reduce-combiner", "xla_backend_optimization_level": 0}
OPERATORS = r"(?:all.reduce|all.gather|reduce.scatter|all.to.all|collective.permute)"


class Program:
    """A function of slices on eight devices, as it is and with reuse."""

    def __init__(self, devices, function, arrays, limit=1000):
        mesh = devices((2, 4)).mesh
        spec = PartitionSpec(("a", "b"))
        self.reported = []
        reusing = with_reuse(function, limit, self.reported.append)
        given = [jax.device_put(array, NamedSharding(mesh, spec)) for array in arrays]
        self.lowered, self.compiled, self.results = [], [], []
        for program in (function, reusing):
            mapped = jax.shard_map(program, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
            lowered = jax.jit(mapped).lower(*given)
            compiled = lowered.compile(UNMERGED)
            self.text = lowered.as_text()
            self.lowered.append(len(re.findall(rf"\bstablehlo\.{OPERATORS}", self.text)))
            self.compiled.append(len(re.findall(rf" {OPERATORS}\(", compiled.as_text())))
            self.results.append([np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*given))])
        # The last one that was reported is of the program that was lowered.
        self.reuse = self.reported[-1]
        for plain, other in zip(*self.results, strict=True):
            assert plain.tobytes() == other.tobytes()

    def calls(self, name):
        return len(re.findall(rf"call @reused_{name}\w*\(", self.text))


def arrays(count, rows=16, width=8, dtype=np.float32):
    draw = np.random.default_rng(count)
    return [(draw.normal(size=(rows, width)) * 100).astype(dtype) for _ in range(count)]


def chain(x, *weights):
    """Each all-reduce waits for the one before."""
    for weight in weights:
        x = jnp.tanh(lax.psum(x * weight, "b"))
    return x


def test_a_chain_is_lowered_once_and_called(devices):
    """XLA writes calls out, so the compiled program has as many; the lowered one has one operator in place of six."""
    program = Program(devices, chain, arrays(7))
    assert program.lowered == [6, 1] and program.calls("all_reduce") == 6
    assert program.compiled == [6, 6]
    assert (program.reuse.operators, program.reuse.calls, program.reuse.subgraphs, program.reuse.left) == (6, 6, 1, 1)


def moves(x):
    """One of every kind of operator, of one array."""
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    return [
        lax.psum(x, "b"),
        lax.pmax(x, "b"),
        lax.pmin(x, "a"),
        lax.all_gather(x, "b", axis=1, tiled=True),
        lax.all_gather(x, ("a", "b"), axis=0),
        lax.all_to_all(x, "b", split_axis=1, concat_axis=0, tiled=True),
        lax.psum_scatter(x, "b", scatter_dimension=1, tiled=True),
        lax.ppermute(x, "b", pairs),
        lax.psum(x.astype(jnp.bfloat16), "b"),
    ]


def test_every_kind_keeps_its_bits(devices):
    """Weak types and types of two bytes as well."""
    program = Program(devices, lambda *given: [moves(x) for x in given], arrays(3, rows=16))
    assert program.reuse.operators == program.reuse.calls == 27 and program.reuse.subgraphs == 9
    assert program.lowered == [27, 9]
    assert program.compiled[1] == program.compiled[0]


def test_groups_shapes_and_dtypes_are_classes_of_their_own(devices):
    def function(x, y):
        small = [lax.psum(x, "a"), lax.psum(x, "b"), lax.psum(x[:1], "b"), lax.pmax(x, "b")]
        return [*small, lax.psum(y.astype(jnp.int32), "b"), lax.all_gather(y, "b", axis=1, tiled=True)]

    program = Program(devices, function, arrays(2))
    assert program.reuse.operators == 6 and program.reuse.calls == 0
    assert program.lowered == [6, 6]


@pytest.mark.parametrize(("limit", "calls", "left"), [(2, 2, 7), (3, 3, 6), (5, 5, 4), (7, 7, 3), (1000, 8, 2)])
def test_the_limit_counts_operators(devices, limit, calls, left):
    """It is spent on the largest class first: here five sums, then three gathers; one operator alone is no class."""

    def function(*given):
        whole = [lax.all_gather(x, "b", axis=1, tiled=True) for x in given[:3]]
        return [*whole, *(lax.psum(x, "b") for x in given[3:])]

    program = Program(devices, function, arrays(8), limit=limit)
    assert (program.reuse.calls, program.reuse.left) == (calls, left)
    assert program.lowered == [8, left]


def test_bodies_of_loops_and_branches_take_part(devices):
    def function(x, y):
        def body(carry, row):
            return lax.psum(carry, "b") / 4 + row, lax.pmax(carry, "b")

        first, largest = lax.scan(body, x, jnp.stack([x, y]))
        second = lax.cond(True, lambda v: lax.psum(v, "b"), lambda v: v, y)
        third = lax.fori_loop(0, 3, lambda _, v: lax.psum(jnp.tanh(v), "b"), y)
        return [first, largest[0], second, third, jax.jit(lambda v: lax.psum(v, "b"))(x)]

    program = Program(devices, function, arrays(2))
    assert program.reuse.operators == 5 and program.reuse.calls == 4
    assert program.lowered == [5, 2] and program.calls("all_reduce") == 4


def test_prints_and_calls_that_were_shared_stay(devices, capfd):
    """A function that a program calls twice is one function of the lowered program, before and after."""

    @jax.jit
    def shared(value):
        return lax.psum(jnp.tanh(value), "b")

    def function(x, y):
        jax.debug.print("before", ordered=False)
        return [shared(x), shared(y), lax.psum(x, "b")]

    program = Program(devices, function, arrays(2))
    assert program.reuse.operators == 2 and program.reuse.calls == 2
    assert program.lowered == [2, 1] and program.text.count("func.func private @shared") == 1
    jax.effects_barrier()
    assert "before" in capfd.readouterr().out
