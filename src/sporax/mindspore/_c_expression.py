"""`mindspore._c_expression`: of MindSpore's C++ core, what published programs ask before they choose their operators."""

from __future__ import annotations

import warnings
from typing import Any

from sporax.mindspore import context
from sporax.mindspore._names.missing import answer_missing_names

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["MSContext", "ms_ctx_param", "security"]

answer_missing_names(__name__)


_HINTS = frozenset(
    """
    bias_add_comm_swap compute_communicate_fusion_level dataset_broadcast_opt_level enable_allreduce_slice_to_reducescatter
    enable_begin_end_inline_opt enable_concat_eliminate_opt enable_flash_attention_load_balance enable_fused_cast_add_opt
    enable_grad_comm_opt enable_interleave_parallel_branch enable_interleave_split_concat_branch
    enable_offloading_packed_experts enable_opt_shard_comm_opt enable_task_opt interleaved_layernorm_comm
    interleaved_matmul_comm matmul_grad_comm_overlap pp_1f1b_overlap recompute_allgather_overlap_fagrad
    recompute_comm_overlap
    """.split()
)
"""What `parallel_speed_up_json_path` of MindSpore sets."""


class MSContext:
    """Answers for a process without Ascend chips, as MindSpore's does on CPUs and GPUs."""

    _instance: MSContext | None = None

    @classmethod
    def get_instance(cls) -> MSContext:
        """The only one."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def __init__(self) -> None:
        self._hints: dict[str, Any] = {}

    def set_param(self, name: str, value: Any) -> None:
        """As `set_context`, with the same errors; of hints to Ascend's compiler a line says that they change nothing."""
        if name not in _HINTS:
            context.set_context(**{name: value})
        else:
            warnings.warn(f"For 'MSContext', '{name}' changes nothing: XLA schedules the step.", stacklevel=2)
            self._hints[name] = value

    def get_param(self, name: str) -> Any:
        """As `get_context`, with the same errors."""
        return self._hints.get(name, 0) if name in _HINTS else context.get_context(name)

    def get_ascend_soc_version(self) -> str:
        """Name of the Ascend chip: there is none."""
        return ""

    def is_ascend_plugin_loaded(self) -> bool:
        """Whether operators of Ascend can run: they cannot."""
        return False


class _SettingNames:
    """`ms_ctx_param`: each setting is its name."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


ms_ctx_param = _SettingNames()


class security:  # noqa: N801 - a module of MindSpore's
    """How MindSpore was built."""

    @staticmethod
    def enable_security() -> bool:
        """Whether summaries and dumps are left out for security: they are not."""
        return False
