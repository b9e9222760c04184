"""What plans say of memory: per Cell what recomputation saves, and per variable what travels."""

import re

from sporax.lowering.marks.tags import new_tag
from sporax.lowering.passes.recompute.plan_facts import host_notes, recomputation_notes
from sporax.lowering.passes.recompute.recompute import recompute

ACTIVATION = 2 * 4 * 4
"""Bytes of a layer's activation."""


def test_each_cell_has_a_line_in_the_order_of_the_forward_pass(traced):
    scopes = [f"{new_tag().scope}/fc{number}" for number in range(2)]
    notes = recomputation_notes(recompute(traced(scopes)[0])[1])
    assert [note.split(":")[0] for note in notes] == ["recompute layer0.fc0", "recompute layer1.fc1"]
    flops = [float(re.search(r"([\d.e+]+) flops run twice", note).group(1)) for note in notes]
    assert all(count >= 2 * 2 * 4 * 4 for count in flops)  # a product of 2 x 4 and 4 x 4, and more
    assert "0 B are kept" in notes[0]
    assert f"{ACTIVATION} B are kept" in notes[1]


def test_several_calls_of_a_cell_are_added_up(traced):
    call = recompute(traced()[0])[1][0]
    (one,), (two,) = recomputation_notes([call]), recomputation_notes([call, call])
    numbers = [[float(number) for number in re.findall(r"([\d.]+)(?: B|e?\+?\d* flops)", note)] for note in (one, two)]
    assert [2 * number for number in numbers[0]] == numbers[1]


def test_what_a_host_holds_and_what_travels_in_a_step():
    sent = [("to device", 2000), ("to host", 2000), ("to device", 8)]
    assert host_notes(["table", "frozen"], 2008, sent) == [
        "host memory of each device: 2.01 kB of table, frozen",
        "every device sends 2 kB to its host in 1 transfers a step, and fetches 2.01 kB in 2",
    ]
    assert host_notes([], 0, []) == []


def test_a_note_names_a_dozen_variables_at_most():
    (note,) = host_notes([f"w{number}" for number in range(15)], 60, [])
    assert note.endswith("w10, w11 and 3 more")
