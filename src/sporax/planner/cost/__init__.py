"""The cost of a plan: time of operators and time of communication."""

from sporax.planner.cost.chosen_model import link_costs
from sporax.planner.cost.evaluate import PlanCost, cost_of, kernel_seconds
from sporax.planner.cost.model import CostModel, Roofline
from sporax.planner.cost.symbolic import Symbolic

__all__ = ["CostModel", "PlanCost", "Roofline", "cost_of", "Symbolic", "kernel_seconds", "link_costs"]
