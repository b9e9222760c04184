"""Settings of the search for shardings, its names, and the numbers of MindSpore's published cost model.

MindSpore's searches have long names and short ones; letters may be of any case everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

from sporax.base.lazy_members import dataclass

GIB = 1 << 30
"""Bytes."""


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Settings of the search. Field names are the keys of `set_algo_parameters`, the last one not in MindSpore.

    Attributes:
        fully_use_devices: consider only shardings that use all devices, or one.
        elementwise_op_strategy_follow: element-wise operators take the sharding of their producer.
        tensor_slice_align_enable, tensor_slice_align_size: the last two dims of MatMul slices must be multiples of the size.
        enable_algo_approxi, algo_approxi_epsilon: dynamic programming may stop at a plan that costs this share more.
        recursive_keeps_strategies: recursive programming keeps the user's strategies; MindSpore's decides for itself.
    """

    fully_use_devices: bool = False
    elementwise_op_strategy_follow: bool = False
    tensor_slice_align_enable: bool = False
    tensor_slice_align_size: int = 16
    enable_algo_approxi: bool = False
    algo_approxi_epsilon: float = 0.1
    recursive_keeps_strategies: bool = False


@dataclass(frozen=True, slots=True)
class CostModelConfig:
    """Numbers of MindSpore's cost model. Field names are the keys of `set_cost_model_context`.

    Attributes:
        device_memory_capacity: bytes of one device.
        costmodel_alpha, costmodel_beta: weights of computation and communication.
        costmodel_gamma: how much of the communication of parameter gradients counts.
        costmodel_communi_threshold, costmodel_communi_const, costmodel_communi_bias: bytes below which a message costs
            `communi_const` bytes, and what is added to larger ones.
        run_phase: 0 training, 1 inference.
        costmodel_allreduce_fusion_algorithm: 0 none, 1 by `times` and `tail_percent`, 2 by the time model.
        costmodel_allreduce_fusion_times, costmodel_allreduce_fusion_tail_percent: groups, and the last one's share.
        costmodel_allreduce_fusion_tail_time, costmodel_allreduce_fusion_allreduce_inherent_time,
            costmodel_allreduce_fusion_allreduce_bandwidth, costmodel_allreduce_fusion_computation_time_parameter: the
            time model of algorithm 2.
        rp_matmul_mem_coef: what the slice of a product's second operand counts besides in the recursive search.
        is_multi_subgraphs: the step has several graphs.
        dp_algo_single_loop: dynamic programming shards layers of equal structure equally.
    """

    device_memory_capacity: float = 16.0 * GIB
    costmodel_alpha: float = 1.0
    costmodel_beta: float = 400.0
    costmodel_gamma: float = 0.001
    costmodel_communi_threshold: float = 2048.0
    costmodel_communi_const: float = 3072.0
    costmodel_communi_bias: float = 1024.0
    run_phase: int = 0
    costmodel_allreduce_fusion_algorithm: int = 0
    costmodel_allreduce_fusion_times: int = 0
    costmodel_allreduce_fusion_tail_percent: float = 0.1
    costmodel_allreduce_fusion_tail_time: float = 0.1
    costmodel_allreduce_fusion_allreduce_inherent_time: float = 0.1
    costmodel_allreduce_fusion_allreduce_bandwidth: float = 0.1
    costmodel_allreduce_fusion_computation_time_parameter: float = 0.1
    rp_matmul_mem_coef: float = 0.1
    is_multi_subgraphs: bool = False
    dp_algo_single_loop: bool = False

    @property
    def changed(self) -> frozenset[str]:
        """The settings that are not at their defaults."""
        default = CostModelConfig()
        return frozenset(
            setting.name for setting in fields(self) if getattr(self, setting.name) != getattr(default, setting.name)
        )


COEFFICIENTS = frozenset(
    "costmodel_alpha costmodel_beta costmodel_gamma costmodel_communi_threshold costmodel_communi_const "
    "costmodel_communi_bias run_phase rp_matmul_mem_coef".split()
)
"""Settings that only the published cost model has: who changes one requests that model."""


SEARCH_MODES = ("recursive_programming", "dynamic_programming", "sharding_propagation")
"""MindSpore's searches."""
SEARCHES = (*SEARCH_MODES, "ilp", "repeated_blocks")
"""MindSpore's searches and ours."""
SHORT_NAMES: Mapping[str, str] = MappingProxyType(
    {"dynamic": "dynamic_programming", "recursive": "recursive_programming", "propagation": "sharding_propagation"}
)
"""What MindSpore's three are called for short."""
SEARCH_NAMES = (*SEARCHES, *SHORT_NAMES)
"""All that a search may be called."""


def full_name(name: str) -> str:
    """The full name of a search; any other text as it is."""
    lower = name.lower()
    lower = SHORT_NAMES.get(lower, lower)
    return lower if lower in SEARCHES else name
