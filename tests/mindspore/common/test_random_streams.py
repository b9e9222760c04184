"""Random streams: what a key depends on."""

import jax
import numpy as np

from sporax.mindspore.common._random_streams import Generator, KeySequence, key_of
from sporax.runtime.program.program import Program


def bits(key):
    return np.asarray(jax.random.key_data(key)).tolist()


def test_keys_depend_on_seed_and_number_of_draws_only():
    first, second = Generator(7), Generator(7)
    drawn = [bits(first.next_key()) for _ in range(3)]
    assert drawn == [bits(second.next_key()) for _ in range(3)]
    assert len({tuple(item) for item in drawn}) == 3
    assert bits(Generator(8).next_key()) != drawn[0]


def test_large_seeds_differ_in_their_high_bits():
    assert bits(Generator(1).next_key()) != bits(Generator(1 + (1 << 40)).next_key())


def test_a_compiled_program_draws_what_eager_code_draws_and_moves_the_counter():
    eager, compiled = Generator(3), Generator(3)
    expected = [bits(eager.next_key()) for _ in range(4)]
    program = Program(
        lambda: (jax.random.key_data(compiled.next_key()), jax.random.key_data(compiled.next_key())), "draw"
    )
    actual = [np.asarray(item).tolist() for _ in range(2) for item in program()]
    assert actual == expected


def test_unseeded_streams_differ():
    assert bits(Generator().next_key()) != bits(Generator().next_key())


def test_a_ticket_stands_for_its_key_whatever_is_drawn_in_between():
    sequence, other = KeySequence(5), KeySequence(5)
    ticket = sequence.next_ticket()
    for _ in range(3):
        sequence.next_ticket()
    assert bits(key_of(ticket)) == bits(key_of(other.next_ticket()))
    assert bits(key_of(sequence.next_ticket())) != bits(key_of(ticket))
