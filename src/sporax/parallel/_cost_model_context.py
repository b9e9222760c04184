"""MindSpore's home of the cost-model settings."""

from sporax.context import get_cost_model_context, reset_cost_model_context, set_cost_model_context

__all__ = ["get_cost_model_context", "reset_cost_model_context", "set_cost_model_context"]
