import numpy as np
from synthetic_graphs import training_step

from sporax.planner.solver import evaluate


def test_made_up_steps_look_like_real_ones():
    graph = training_step(layers=4, mesh=(2, 4, 4), choices=29, width=16)
    assert graph.sizes.max() == 29
    assert len(graph.tables) < graph.num_edges / 10
    forbidden = np.mean(np.isinf(np.concatenate([table.ravel() for table in graph.tables])))
    assert 0.2 < forbidden < 0.8
    least = [int(graph.usages[a:b].argmin()) for a, b in zip(graph.offsets, graph.offsets[1:], strict=False)]
    peak = evaluate(graph, least).peak
    assert graph.limit == int(1.1 * peak)
    most = [int(graph.usages[a:b].argmax()) for a, b in zip(graph.offsets, graph.offsets[1:], strict=False)]
    assert evaluate(graph, most).peak > 3 * graph.limit


def test_a_seed_gives_one_graph():
    first, second, other = (training_step(layers=1, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.costs, second.costs)
    assert not np.array_equal(first.costs, other.costs)
