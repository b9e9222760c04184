"""Stages, micro batches and the mesh inside a stage are searched together."""

from sporax.ir.hardware import load_profile
from sporax.planner.pipeline.numbers import search_numbers
from sporax.planner.pipeline.partition import Block

LINK = load_profile("cpu").links[-1]


def search(blocks, devices=8, micro=8, rows=8, link=LINK, memory=1e12):
    return search_numbers(blocks, devices, micro, rows, link, memory)


def test_every_combination_that_fits_is_there_and_sorted():
    found = search([Block(str(n), 1.0, 1e3, 1e6, 1e6) for n in range(8)])
    assert {each.stages for each in found} == {1, 2, 4, 8}
    assert all(each.stages * each.data * each.model == 8 and each.micro >= each.stages for each in found)
    assert {(each.data, each.model) for each in found if each.stages == 2} == {(1, 4), (2, 2), (4, 1)}
    assert [each.seconds for each in found] == sorted(each.seconds for each in found)
    assert "(data x model)" in str(found[0])


def test_small_weights_want_data_parallelism_alone():
    best = search([Block(str(n), 1.0, 1e6, 1e3, 1e6) for n in range(8)])[0]
    assert (best.stages, best.data, best.model) == (1, 8, 1)


def test_weights_that_are_slow_to_reduce_want_stages():
    # One micro batch takes 1 s; gradients of 8 GB take seconds on any link, activations of 1 KB nothing.
    best = search([Block(str(n), 1.0, 1e3, 3.2e12 / 8, 1e3) for n in range(8)], micro=64)[0]
    assert best.data == 1


def test_memory_rules_out_what_does_not_fit():
    blocks = [Block(str(n), 1.0, 1e3, 1e9, 1e3) for n in range(8)]
    found = search(blocks, memory=1.5e9)
    assert found
    assert all(each.stages * each.model == 8 for each in found)
    assert all(each.peak_bytes <= 1.5e9 for each in found)
