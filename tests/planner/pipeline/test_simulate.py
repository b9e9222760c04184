"""Simulated times are the closed forms."""

import pytest

from sporax.ir.pipeline_schedule import TaskKind
from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.simulate import ChunkCosts, PipelineCosts, simulate, uniform_costs

SIZES = [(2, 4), (4, 8), (4, 16), (8, 16)]


def outcome(name, stages, micro, chunks=1):
    schedule = generate(name, stages, micro, chunks)
    return simulate(schedule, uniform_costs(schedule))


@pytest.mark.parametrize(("stages", "micro"), SIZES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble_share(name, stages, micro):
    assert outcome(name, stages, micro).bubble_share == pytest.approx((stages - 1) / (micro + stages - 1))


@pytest.mark.parametrize(("stages", "micro"), SIZES)
@pytest.mark.parametrize("chunks", [2, 3])
def test_interleaved_bubble_share(stages, micro, chunks):
    expected = (stages - 1) / (chunks * micro + stages - 1)
    assert outcome("1f1b", stages, micro, chunks).bubble_share == pytest.approx(expected)


@pytest.mark.parametrize(("stages", "micro"), SIZES)
def test_zero_bubble_h1_waits_a_third(stages, micro):
    assert outcome("zero_bubble_h1", stages, micro).seconds == 3 * micro + stages - 1


@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 8), (4, 16)])
def test_zero_bubble_v_waits_only_for_its_first_micro_batch(stages, micro):
    assert outcome("zero_bubble_v", stages, micro, 2).seconds == 6 * micro + stages - 1


def test_memory_of_1f1b_does_not_grow_with_micro_batches():
    assert [stage.peak_saved for stage in outcome("1f1b", 4, 8).stages] == [4, 3, 2, 1]
    assert [stage.peak_saved for stage in outcome("1f1b", 4, 16).stages] == [4, 3, 2, 1]
    assert [stage.peak_saved for stage in outcome("gpipe", 4, 16).stages] == [16] * 4


def test_links_take_time():
    schedule = generate("gpipe", 2, 2)
    chunk = ChunkCosts({TaskKind.FORWARD: 1.0, TaskKind.BACKWARD: 2.0}, sent_bytes=10.0)
    result = simulate(schedule, PipelineCosts(dict.fromkeys(schedule.route, chunk), {0: 5.0}, 0.5, 10.0))
    # Stage 1: F0 2.5-3.5, F1 4-5, B0 5-7, B1 7-9; stage 0: B0 8.5-10.5, B1 10.5-12.5.
    assert result.seconds == 12.5
    assert result.stages[0].sent_bytes == 20
    assert result.stages[0].peak_bytes == 5.0
