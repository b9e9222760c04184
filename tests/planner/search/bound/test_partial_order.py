"""What has run before an operator in every plan."""

import pytest
from planner_graphs import GraphBuilder, layers, mesh_of, problem_of

from sporax.planner.search.bound.partial_order import CompiledForm, Order


def order_of(graph, *mesh):
    return Order(problem_of(graph, mesh_of(*mesh or (2,))))


def no_copies(operator, place):
    return 0


def test_operators_become_kernels_loops_views_and_reductions():
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.weight(16, 32)
    y = builder.unary("tanh", builder.matmul(x, w))
    z = builder.reduce_sum(builder.reshape(y, 16, 16), 0)
    assert order_of(builder.graph(z)).forms == [
        CompiledForm.KERNEL,
        CompiledForm.LOOP,
        CompiledForm.VIEW,
        CompiledForm.REDUCTION,
    ]


def test_a_sum_of_no_more_elements_than_devices_may_be_a_view():
    builder = GraphBuilder()
    total = builder.reduce_sum(builder.argument(4, 8), 0)
    graph = builder.graph(total)
    assert order_of(graph, 2).forms == [CompiledForm.REDUCTION]
    assert order_of(graph, 2, 2).forms == [CompiledForm.OTHER]  # sharded by four, each device has one row


@pytest.mark.parametrize("count", [1, 3])
def test_depth_counts_the_kernels_of_the_longest_chain(count):
    order = order_of(layers(count))
    assert [order.depth(2 * number) for number in range(count)] == list(range(1, count + 1))
    assert order.depends(2 * count - 1, 0)
    assert not order.depends(0, 2 * count - 1)


def test_independent_chains_do_not_wait_for_each_other():
    builder = GraphBuilder()
    x, w, v = builder.argument(8, 8), builder.weight(8, 8), builder.weight(8, 8)
    first, second = builder.matmul(x, w), builder.matmul(x, v)
    order = order_of(builder.graph(builder.matmul(first, second)))
    assert not order.depends(1, 0)
    assert order.depends(2, 0)
    assert order.depends(2, 1)


def test_what_an_operator_waits_for_is_some_kernels_away():
    order = order_of(layers(3))
    before = order.before(4, no_copies)  # the third product
    assert before.reach == {4: 1, 3: 1, 2: 2, 1: 2, 0: 3}
    x, first_weight = 0, 1
    assert before.slack[x] == before.slack[first_weight] == 3


def test_a_copy_of_an_operand_is_one_kernel_more():
    order = order_of(layers(2))
    copied = order.before(2, lambda operator, place: int(operator == 2))
    assert copied.reach[0] == order.before(2, no_copies).reach[0] + 1
    assert copied.reach[2] == order.before(2, no_copies).reach[2]


def test_what_no_result_needs_is_not_alive():
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    builder.unary("exp", x)
    order = order_of(builder.graph(builder.unary("tanh", x)))
    assert order.alive == [False, True]
    assert order.outputs == {2}
    assert order.producer == {1: 0, 2: 1}


def test_views_may_share_the_array_of_their_operand():
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    y = builder.unary("tanh", x)
    view = builder.reshape(y, 64)
    order = order_of(builder.graph(view))
    assert order.same[view] == order.same[y] != order.same[x]
