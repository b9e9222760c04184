"""Messages between two ranks: what arrives, in an order that all ranks agree on, and derivatives the other way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.ops._collectives import point_to_point
from sporax.mindspore.ops._collectives.point_to_point import Exchange, Message, receive, run, send


def message(peer, shape=(2,), dtype=jnp.float32):
    return Message(peer, shape, dtype)


def test_a_ring_of_exchanges_hands_every_array_on(as_threads):
    def program(rank):
        exchange = Exchange((message((rank + 1) % 3),), (message((rank - 1) % 3),))
        return run(exchange, [jnp.full(2, 10.0 * rank)])[0]

    assert [result.tolist() for result in as_threads(program, range(3))] == [[20, 20], [0, 0], [10, 10]]


def test_several_messages_between_two_ranks_arrive_in_the_order_given(as_threads):
    def program(rank):
        messages = (message(1 - rank), message(1 - rank), message(rank))
        return run(Exchange(messages, messages), [jnp.full(2, 10.0 * rank + number) for number in range(3)])

    first, second = as_threads(program, range(2))
    assert [float(array[0]) for array in first] == [10, 11, 2]  # the last one is a message to itself
    assert [float(array[0]) for array in second] == [0, 1, 12]


def test_the_derivative_of_an_exchange_takes_the_opposite_direction(as_threads):
    def program(rank):
        exchange = Exchange((message(1 - rank),), (message(1 - rank),))
        return jax.grad(lambda x: ((rank + 2) * run(exchange, [x])[0]).sum())(jnp.ones(2))

    first, second = as_threads(program, range(2))
    np.testing.assert_array_equal(first, [3, 3])
    np.testing.assert_array_equal(second, [2, 2])


def test_the_derivative_of_a_receive_is_sent_back(as_threads):
    def program(rank):
        if rank == 0:
            return jax.grad(lambda x: 0 * send(message(1), x).sum())(jnp.ones(2))
        value, slope = jax.value_and_grad(lambda after: (5 * receive(message(0), after)).sum())(jnp.ones(3))
        return jnp.append(slope, value)

    sender, receiver = as_threads(program, range(2))
    np.testing.assert_array_equal(sender, [5, 5])
    np.testing.assert_array_equal(receiver, [0, 0, 0, 10])


def test_integers_travel_and_have_no_derivative(as_threads):
    def program(rank):
        both = (message(1 - rank, (), jnp.int32), message(1 - rank))

        def loss(x):
            number, array = run(Exchange(both, both), [jnp.int32(rank + 3), x])
            return (number * array).sum(), number

        return jax.grad(loss, has_aux=True)(jnp.ones(2))

    (slope, number), _ = as_threads(program, range(2))
    assert int(number) == 4
    np.testing.assert_array_equal(slope, [3, 3])  # rank 1 multiplies what it receives by rank 0's number


def test_all_ranks_agree_on_the_order_by_source_and_destination(join):
    join(rank=1)
    sends, receives = (message(2), message(0), message(2)), (message(2), message(0))
    steps = point_to_point._steps(Exchange(sends, receives))
    assert [(step.source, step.destination) for step in steps] == [(0, 1), (1, 0), (1, 2), (1, 2), (2, 1)]
    assert [step.send for step in steps] == [None, 1, 0, 2, None]
    assert [step.receive for step in steps] == [1, None, None, None, 0]


@pytest.mark.parametrize("exchange", [Exchange((message(4),), ()), Exchange((), (message(4),))])
def test_half_a_message_from_a_rank_to_itself_is_an_error(join, exchange):
    join(rank=4)
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'Send', a message from a rank to itself must be sent and received in one exchange, but rank 4 does only one",
    ):
        run(exchange, [jnp.ones(2)][: len(exchange.sends)])
