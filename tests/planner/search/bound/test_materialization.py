"""Which arrays are written in every plan, and which array a reader reads."""

from planner_graphs import GraphBuilder, mesh_of, problem_of

from sporax.planner.search.bound.materialization import Materialization
from sporax.planner.search.bound.partial_order import Order

MESH = mesh_of(2)


def materialization_of(graph):
    problem = problem_of(graph, MESH)
    return Materialization(problem, Order(problem))


def test_arguments_and_results_have_arrays_of_their_own():
    builder = GraphBuilder()
    x, w = builder.argument(8, 8), builder.weight(8, 8)
    y = builder.matmul(x, w)
    z = builder.unary("tanh", y)
    assert materialization_of(builder.graph(z)).own == {x, w, z}


def test_operators_that_no_result_needs_read_nothing():
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    needed = builder.unary("tanh", x)
    builder.unary("exp", x)
    assert materialization_of(builder.graph(needed)).readers(x) == [0]


def test_a_follower_reads_inside_its_bundle_and_a_product_does_not():
    builder = GraphBuilder()
    x, w, v = builder.argument(8, 8), builder.weight(8, 8), builder.weight(8, 8)
    y = builder.matmul(x, w)
    z = builder.unary("tanh", y)
    reference = materialization_of(builder.graph(builder.matmul(z, v)))
    assert reference.is_inside(y, 1)
    assert not reference.is_inside(z, 2)


def test_a_products_result_is_an_array_and_that_of_a_loop_which_is_repeated_is_not():
    """`y + 1` is computed again by each of its readers, so these read the array of `y`."""
    builder = GraphBuilder()
    x, w = builder.argument(64, 64), builder.weight(64, 64)
    y = builder.matmul(x, w)
    cheap = builder.binary("add", y, 1.0)
    costly = builder.unary("tanh", y)
    results = [builder.unary("exp", tensor) for tensor in (cheap, costly)]
    expected = materialization_of(builder.graph(*results))
    assert expected.is_read_itself(y, 1)
    assert expected.stored_for(y, ()) == [y]
    assert expected.stored_for(cheap, ()) == [y]
    assert expected.stored_for(costly, ()) == [y, costly]
    assert expected.stored_for(costly, {2}) == [costly]  # a kernel before it needs it, so it is written for both
    assert expected.stored_for(x, ()) == []


def test_products_of_plain_matrices_read_any_order_and_batched_ones_a_copy():
    def copies(contracted):
        builder = GraphBuilder()
        x, w = builder.argument(4, 8, 8), builder.argument(4, 8, 8)
        params = {"dimension_numbers": ((contracted, contracted), ((0,), (0,)))}
        product = builder.add("dot_general", [x, w], (4, 8, 8), params=params)
        expected = materialization_of(builder.graph(product))
        return expected.sure_copies(0, 0), expected.sure_copies(0, 1)

    assert copies((2,)) == (0, 1)  # the right operand should have its inner dimension first
    assert copies((1,)) == (1, 0)
    builder = GraphBuilder()
    x, w = builder.argument(8, 8), builder.argument(8, 8)
    params = {"dimension_numbers": (((0,), (1,)), ((), ()))}
    expected = materialization_of(builder.graph(builder.add("dot_general", [x, w], (8, 8), params=params)))
    assert (expected.sure_copies(0, 0), expected.sure_copies(0, 1)) == (0, 0)
