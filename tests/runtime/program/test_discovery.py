"""The first trace of a program: variables that it reads and writes, and the program of which these are arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from sporax.runtime.program.discovery import discover
from sporax.runtime.state import frames


class Variable:
    """A holder of an array that hashes by identity, as Parameters do."""

    def __init__(self, *values, **more):
        self.raw = jnp.asarray(values, jnp.float32)
        self.__dict__.update(more)


X = jnp.asarray([10.0, 20.0])


def test_variables_are_found_and_stay_as_they_are():
    read, written, counter, unused = Variable(1, 2), Variable(3, 4), Variable(5, 6), Variable(7, 8)

    def step(arrays):
        frames.write(counter, jnp.zeros(2))  # never read
        frames.write(written, frames.read(written) + frames.read(read) * arrays[0])
        return {"loss": frames.read(written).sum(), "text": "kept"}

    found = discover(step, [X], by_rank=False)
    assert found.written == (counter, written)
    assert found.read == (read,)
    assert unused not in found.frame.found
    assert found.result["text"] == "kept"
    np.testing.assert_array_equal(written.raw, [3, 4])
    assert frames.current_frame() is None


def test_the_program_takes_written_variables_read_ones_and_arrays_in_this_order():
    read, written = Variable(1, 2), Variable(3, 4)

    def step(arrays):
        frames.write(written, frames.read(read) * arrays[0] - frames.read(written))
        return arrays[0].sum()

    program = discover(step, [X], by_rank=False).program()
    new, total = jaxpr_as_fun(program)(jnp.asarray([1.0, 1.0]), jnp.asarray([2.0, 3.0]), X)
    np.testing.assert_array_equal(new, [19, 59])
    assert total == 30


def test_results_that_are_values_of_variables_are_copies():
    """The next step gives the buffers of variables away, but not those of results."""
    read, written = Variable(1, 2), Variable(3, 4)

    def step(arrays):
        frames.write(written, frames.read(written) * 2)
        return [frames.read(written), frames.read(read), arrays[0] + 1]

    jaxpr = discover(step, [X], by_rank=False).program().jaxpr
    new, *results = jaxpr.outvars
    assert len({new, *results, *jaxpr.invars}) == 4 + len(jaxpr.invars)
    assert [eqn.outvars[0] for eqn in jaxpr.eqns if eqn.primitive.name.startswith("copy")] == results[:2]


@pytest.mark.parametrize("place", ["loop", "host"])
def test_variables_in_loops_and_on_the_host_are_found_but_are_no_arguments(place):
    variable = Variable(1, 2, on_host=place == "host")

    def step(arrays):
        if place == "host":
            return frames.read(variable) + arrays[0]
        return jax.lax.fori_loop(0, 3, lambda _, carried: carried + frames.read(variable), arrays[0])

    found = discover(step, [X], by_rank=False)
    assert found.read == (variable,)
    assert found.program() is None
    assert found.frame.tags == ({"host"} if place == "host" else set())


def test_a_variable_without_an_array_yet_is_an_argument_of_its_shape():
    lazy = Variable(unmade=jax.ShapeDtypeStruct((2,), jnp.float32))
    del lazy.raw
    program = discover(lambda arrays: frames.read(lazy) * arrays[0], [X], by_rank=False).program()
    np.testing.assert_array_equal(jaxpr_as_fun(program)(jnp.asarray([2.0, 3.0]), X)[0], [20, 60])
    assert program.consts == []


def test_a_function_that_changed_while_it_was_traced_is_traced_again_from_the_start():
    before, after, tries = Variable(1, 2), Variable(3, 4), []

    def step(arrays):
        tries.append(len(tries))
        if len(tries) == 1:
            frames.write(before, arrays[0])
            raise frames.Retrace
        return frames.read(after) + arrays[0]

    found = discover(step, [X], by_rank=False)
    assert tries == [0, 1]
    assert (found.written, found.read) == ((), (after,))


def test_ranks_that_may_run_different_programs_are_traced_but_have_no_flat_program(join):
    join(rank=2)
    variable = Variable(1, 2)

    def step(arrays):
        return frames.read(variable) + arrays[0]

    by_rank, together = (discover(step, [X], by_rank=answer) for answer in (True, False))
    assert by_rank.read == together.read == (variable,)
    assert by_rank.program() is None
    assert together.program() is not None
