"""What each decision may choose, and what follows from a candidate."""

import pytest
from planner_graphs import GraphBuilder, layers, mesh_of, placement, problem_builder, problem_of, product

from sporax.planner.rules import placements
from sporax.planner.search.space.operator_rules import placements_of

TWO = mesh_of(2)


def heavy(problem, operator=0):
    return problem.choices[problem.decisions.heavy[operator]]


def test_a_product_may_be_sharded_by_rows_columns_and_the_inner_dimension():
    choices = heavy(problem_of(product(), TWO))
    operands = {tuple(map(str, steps[0].operands)): str(steps[0].results[0]) for steps in choices.steps}
    assert operands == {
        ("[-, -]", "[-, -]"): "[-, -]",
        ("[0, -]", "[-, -]"): "[0, -]",
        ("[-, -]", "[-, 0]"): "[-, 0]",
        ("[-, 0]", "[0, -]"): "[-, -] + sum over 0",
    }


def test_where_all_devices_must_work_the_unsharded_candidate_is_gone():
    choices = heavy(problem_of(product(), TWO, fully_use_devices=True))
    assert choices.count == 3
    assert all(any(steps[0].assignment) for steps in choices.steps)


def test_slices_of_products_are_multiples_of_the_alignment():
    """Halves of 8 rows and of 16 inner elements are 4 and 8; only halves of 32 columns are 16."""
    choices = heavy(problem_of(product(8, 16, 32), TWO, align=16))
    assert [str(steps[0].results[0]) for steps in choices.steps] == ["[-, -]", "[-, 0]"]


def test_a_given_sharding_is_the_only_candidate():
    graph = product()
    assignment = heavy(problem_of(graph, TWO)).steps[1][0].assignment
    choices = heavy(problem_of(graph, TWO, assignments={0: assignment}))
    assert [steps[0].assignment for steps in choices.steps] == [assignment]


def test_a_bundle_has_every_placement_and_partial_results_as_they_are_made():
    problem = problem_of(product(), TWO)
    result = problem.graph.outputs[0]
    choices = problem.choices[problem.decisions.node_of[result]]
    assert set(choices.placements) == {*placements_of((8, 32), TWO, ((0,),)), placement("- - +0")}
    argument = problem.choices[problem.decisions.node_of[problem.graph.inputs[0].tensor]]
    assert not any(where.partial for where in argument.placements)


def test_followers_are_sharded_like_the_root_of_their_bundle():
    problem = problem_of(layers(1), TWO)
    result = problem.graph.outputs[0]  # of tanh, which follows the product's result
    choices = problem.choices[problem.decisions.node_of[result]]
    for root, where in zip(choices.placements, choices.tensor_placements[result], strict=True):
        assert where == root.complete()


def test_a_step_is_what_the_rule_makes_of_its_assignment():
    problem = problem_of(product(), TWO)
    for (step,) in heavy(problem).steps:
        assert placements(problem.rule(0), step.assignment) == (step.operands, step.results)
    seconds = heavy(problem).seconds
    assert seconds[0] == max(seconds)  # without any sharding every device does all the work


def test_layers_that_repeat_share_their_candidates():
    problem = problem_of(layers(3), TWO)
    first, second, third = (heavy(problem, number) for number in (0, 2, 4))
    assert first.steps is second.steps is third.steps


def test_pulled_operators_are_computed_where_their_reader_wants_them():
    builder = GraphBuilder()
    x, bias = builder.argument(8, 16), builder.argument(16)
    graph = builder.graph(builder.binary("add", x, builder.broadcast(bias, 8, 16, dims=(1,))))
    problem = problem_of(graph, TWO)
    number = problem.decisions.decision_of(0)
    choices = problem.choices[number]
    position = choices.operators.index(0)
    for root, steps in zip(choices.placements, choices.steps, strict=True):
        assert steps[position].results == (root,)


def test_candidates_of_a_later_round_extend_what_was_decided():
    builder = problem_builder(product(), mesh_of(2, 2))
    first = builder.build(((0,),))
    base = heavy(first).steps[1][0].assignment
    chosen = [0] * len(first.costs)
    chosen[first.decisions.heavy[0]] = 1
    later = builder.build(((1,),), first.bases(chosen))
    for (step,) in heavy(later).steps:
        assert all(axes[: len(before)] == before for axes, before in zip(step.assignment, base, strict=True))


@pytest.mark.parametrize("candidate", range(3))
def test_the_base_of_a_candidate_is_its_placement_or_its_assignment(candidate):
    problem = problem_of(product(), TWO)
    assert heavy(problem).base(candidate) == heavy(problem).steps[candidate][0].assignment
    assert problem.choices[0].base(candidate) == problem.choices[0].placements[candidate]
