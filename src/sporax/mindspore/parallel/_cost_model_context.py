"""MindSpore's module of the cost-model settings, with the functions of three of them that have no key there."""

from sporax.mindspore.context import get_cost_model_context, reset_cost_model_context, set_cost_model_context

__all__ = ["get_cost_model_context", "reset_cost_model_context", "set_cost_model_context"]


def _set_multi_subgraphs(multi_subgraph: bool = True) -> None:
    set_cost_model_context(is_multi_subgraphs=multi_subgraph)


def _get_multi_subgraphs() -> bool:
    return bool(get_cost_model_context("is_multi_subgraphs"))


def _set_algo_single_loop(single_loop: bool = True) -> None:
    set_cost_model_context(dp_algo_single_loop=single_loop)


def _get_algo_single_loop() -> bool:
    return bool(get_cost_model_context("dp_algo_single_loop"))


def _set_rp_matmul_mem_coef(coef: float) -> None:
    set_cost_model_context(rp_matmul_mem_coef=float(coef))


def _get_rp_matmul_mem_coef() -> float:
    return float(get_cost_model_context("rp_matmul_mem_coef"))
