"""Stages, micro batches and the mesh inside a stage are searched together."""

from sporax.ir.hardware import load_profile
from sporax.planner.pipeline.degrees import search_numbers
from sporax.planner.pipeline.partition import Block

LINK = load_profile("cpu").links[-1]


def search(blocks, devices=8, micro=8, rows=8, link=LINK, memory=1e12):
    return search_numbers(blocks, devices, micro, rows, link, memory)


def test_every_combination_that_fits_is_there_and_sorted():
    actual = search([Block(str(n), 1.0, 1e3, 1e6, 1e6) for n in range(8)])
    assert {item.stages for item in actual} == {1, 2, 4, 8}
    assert all(item.stages * item.data * item.model == 8 and item.micro >= item.stages for item in actual)
    assert {(item.data, item.model) for item in actual if item.stages == 2} == {(1, 4), (2, 2), (4, 1)}
    assert [item.seconds for item in actual] == sorted(item.seconds for item in actual)
    assert "(data x model)" in str(actual[0])


def test_small_weights_want_data_parallelism_alone():
    best = search([Block(str(n), 1.0, 1e6, 1e3, 1e6) for n in range(8)])[0]
    assert (best.stages, best.data, best.model) == (1, 8, 1)


def test_weights_that_are_slow_to_reduce_want_stages():
    # One micro batch takes 1 s; gradients of 8 GB take seconds on any link, activations of 1 KB nothing.
    best = search([Block(str(n), 1.0, 1e3, 3.2e12 / 8, 1e3) for n in range(8)], micro=64)[0]
    assert best.data == 1


def test_memory_rules_out_what_does_not_fit():
    blocks = [Block(str(n), 1.0, 1e3, 1e9, 1e3) for n in range(8)]
    actual = search(blocks, memory=1.5e9)
    assert actual
    assert all(item.stages * item.model == 8 for item in actual)
    assert all(item.peak_bytes <= 1.5e9 for item in actual)
