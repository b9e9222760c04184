"""A planned pipeline as a value: its chunks, programs and schedule belong together."""

import pytest


def test_there_is_a_chunk_for_each_place_of_the_route(planned):
    assert [chunk.chunk.number for chunk in planned.chunks] == [*range(len(planned.schedule.route))]
    for chunk in planned.chunks:
        assert len(chunk.plan.operators) == len(chunk.chunk.step.graph.operators)
        assert len(chunk.programs.updates) == planned.num_levels
        programs = chunk.programs
        names = {program.name for program in (programs.prepare, programs.forward, programs.backward, *programs.updates)}
        assert all(name.startswith(chunk.chunk.name) for name in names)


def test_it_cannot_be_changed(planned):
    with pytest.raises(AttributeError):
        planned.reason = "another one"
    assert (planned.reason, dict(planned.options)) == ("", {})
