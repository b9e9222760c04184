"""Variables of repeated blocks are taken and returned as stacks, and all blocks are updated at once."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.passes.repeat.block_loops import Looped, looped
from sporax.lowering.passes.repeat.stacked_arguments import with_stacked_arguments
from sporax.lowering.rewriter import closed_jaxpr, flat

BLOCKS = 3


def variables(count=BLOCKS, shift=0.0):
    return [jnp.asarray([1.0, 2.0], jnp.float32) * (number + 1) + shift for number in range(count)]


class Step:
    """A step that reads the stack of its first variables, as a loop does.

    Args:
        function: of lists of variables, and that stack; gives new values of the updated variables and other results.
        updated, read: lists of variables.
    """

    def __init__(self, function, updated, read=(), may_be_stacked=lambda position: True, stack_of=None):
        values = [*updated, *read]
        self.function, self.updated, self.read = function, updated, read
        closed = flat(jax.make_jaxpr(lambda *args: self.run(args[:-1], args[-1]))(*values, jnp.stack(values[:BLOCKS])))
        *arguments, stack = closed.jaxpr.invars
        program = closed_jaxpr(
            closed.jaxpr.constvars, closed.consts, arguments, closed.jaxpr.outvars, closed.jaxpr.eqns
        )
        stacked = arguments[:BLOCKS] if stack_of is None else [arguments[number] for number in stack_of]
        self.result = with_stacked_arguments(
            Looped(program, {tuple(stacked): stack}, {}), len(updated), len(read), may_be_stacked
        )

    def run(self, values, stack):
        first = len(self.updated)
        new, others = self.function(list(values[:first]), list(values[first:]), stack)
        return [*new, *others]

    def operations(self):
        return Counter(eqn.primitive.name for eqn in self.result.program.jaxpr.eqns)

    def check(self):
        """The program of stacks gives what the step gives."""
        expected = self.run([*self.updated, *self.read], jnp.stack([*self.updated, *self.read][:BLOCKS]))
        count = len(self.updated)
        arguments = [*in_groups(self.updated, self.result.updated), *in_groups(self.read, self.result.read)]
        actual = jaxpr_as_fun(self.result.program)(*arguments)
        wanted = [*in_groups(expected[:count], self.result.updated), *expected[count:]]
        for one, other in zip(actual, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def in_groups(values, groups):
    """Stacks of groups, then the values that are in none."""
    grouped = {position for group in groups for position in group}
    return [
        *(jnp.stack([values[position] for position in group]) for group in groups),
        *(value for position, value in enumerate(values) if position not in grouped),
    ]


def test_equal_updates_of_all_blocks_are_one_operation_on_the_stack():
    step = Step(lambda w, r, stack: ([item * r[0] + 1.0 for item in w], [stack.sum()]), variables(), [jnp.float32(0.5)])
    assert (step.result.updated, step.result.read) == (((0, 1, 2),), ())
    assert [var.aval.shape for var in step.result.program.jaxpr.invars] == [(3, 2), ()]
    assert step.operations() == {"mul": 1, "add": 1, "reduce_sum": 1}
    step.check()


def test_moments_that_updates_read_become_a_group_of_their_own():
    def update(values, _, stack):
        weights, moments = values[:BLOCKS], values[BLOCKS:]
        moments = [0.9 * moment + jnp.sin(weight) for weight, moment in zip(weights, moments, strict=True)]
        return [*(weight - moment for weight, moment in zip(weights, moments, strict=True)), *moments], [stack.max()]

    step = Step(update, [*variables(), *variables(shift=0.5)])
    assert step.result.updated == ((0, 1, 2), (3, 4, 5))
    assert step.operations() == {"mul": 1, "sin": 1, "add": 1, "sub": 1, "reduce_max": 1}
    step.check()


def test_rows_in_reverse_are_the_stack_in_reverse_and_neighbours_are_taken_together():
    reverse = Step(lambda w, r, stack: (w[::-1], [stack.sum()]), variables())
    assert reverse.operations()["rev"] == 1
    assert "concatenate" not in reverse.operations()
    reverse.check()
    turned = Step(lambda w, r, stack: ([w[1], w[2], w[0]], [stack.sum()]), variables())
    (joined,) = [eqn for eqn in turned.result.program.jaxpr.eqns if eqn.primitive.name == "concatenate"]
    assert [var.aval.shape for var in joined.invars] == [(2, 2), (1, 2)]
    turned.check()


def test_blocks_that_are_updated_in_other_ways_and_single_reads_give_the_same_values():
    """The new values are stacked; whoever reads one variable gets its row."""
    step = Step(lambda w, r, stack: ([w[0] ** 3, w[1] ** 4, w[2] ** 3], [w[1].sum(), stack.sum()]), variables())
    assert step.result.updated == ((0, 1, 2),)
    assert step.operations()["concatenate"] == 1
    step.check()


@pytest.mark.parametrize(
    ("options", "updated", "read"),
    [
        ({}, variables(2), variables(1)),  # a group is updated as a whole or not at all
        ({"may_be_stacked": lambda position: position != 1}, variables(), ()),
        ({"stack_of": (0, 1)}, variables(), ()),  # too few
        ({"stack_of": (0, 1, 1)}, variables(), ()),
    ],
)
def test_variables_that_can_be_no_group_are_taken_one_by_one(options, updated, read):
    step = Step(lambda w, r, stack: ([item + 1.0 for item in w], []), updated, read, **options)
    assert (step.result.updated, step.result.read) == ((), ())
    assert len(step.result.program.jaxpr.invars) == len(updated) + len(read)
    step.check()


def test_a_training_step_with_loops_takes_stacks_and_gives_the_same():
    def loss(weights, biases, x):
        for weight, bias in zip(weights, biases, strict=True):
            x = jnp.tanh(x @ weight + bias) * 0.5 + jnp.cos(x) + x
        return (x * x).sum()

    def train(weights, biases, x):
        value, gradients = jax.value_and_grad(loss)(weights, biases, x)
        return [weight - 0.1 * slope for weight, slope in zip(weights, gradients, strict=True)], value

    draw = np.random.default_rng(0)
    weights, biases = (
        [jnp.asarray(draw.normal(size=shape), jnp.float32) for _ in range(4)] for shape in ((4, 4), (4,))
    )
    x = jnp.asarray(draw.normal(size=(3, 4)), jnp.float32)
    program = flat(jax.make_jaxpr(train)(weights, biases, x))
    result = with_stacked_arguments(looped(program, program.jaxpr.invars[:8]), 4, 4, lambda position: True)
    # The first block has no gradient of its input to hand on, so it may stay outside.
    assert [len(group) >= BLOCKS for group in (*result.updated, *result.read)] == [True, True]
    expected, value = jax.jit(train)(weights, biases, x)
    arguments = [*in_groups(weights, result.updated), *in_groups(biases, result.read), x]
    *actual, actual_value = jax.jit(jaxpr_as_fun(result.program))(*arguments)
    for one, other in zip(actual, in_groups(expected, result.updated), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(actual_value, value, rtol=1e-5)
