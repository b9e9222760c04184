"""What a plan does without a parallel mode."""

from planner_graphs import placement

from operator_marks import operator_mark
from sporax.ir.marks import LayoutMark, Side
from sporax.ir.operation import TensorSpec
from sporax.ir.plan import Resharding
from sporax.planner.propagation.policy import Policy

SPECS = [TensorSpec((4, 8)), TensorSpec((8,))]
ROWS = placement("0 -")


def test_marks_mean_nothing():
    mark = operator_mark("MatMul", 0, Side.IN, ((2, 1), (1,)))
    assert Policy().at_operator(mark, SPECS, [ROWS, None]) == [None, None]
    assert Policy().at_layout(LayoutMark("reshard", 0, ((2, 1), (1,))), SPECS, [None, None]) == [None, None]


def test_parameters_are_stored_and_gathered_as_they_are_used():
    assert Policy().storage(SPECS[0], ROWS, "w") == ROWS
    assert Policy().weight("w", ROWS) == Resharding(ROWS, "weight for use")


def test_gradients_and_their_terms_are_combined_as_the_parameter_is_stored():
    columns = placement("- 0")
    assert Policy().gradient("w", SPECS[0], ROWS, columns) == Resharding(ROWS, "gradient of w")
    assert Policy().gradient_term("w", ROWS) == Resharding(ROWS, "part of the gradient of w")


def test_a_loss_counts_once_and_cotangents_go_back():
    assert Policy().loss_scale(ROWS) == 1.0
    assert Policy().returns_cotangents
    assert not Policy().scatters_gradient_terms
