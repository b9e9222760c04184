"""Of MindSpore's inner modules, what published programs import: one file for all that have a name or two.

`mindspore._c_expression`: the C++ core, which programs query before they choose operators. `_extends`: the decorator that Cells
of older code put on their constructors. `train._utils`, `ops._utils` and `ops._primitive_cache`: helpers.
`sporax.mindspore._names.module_paths` makes modules of these names.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import context
from sporax.mindspore._names.missing import answer_missing_names, homes

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["MSContext", "cell_attr_register", "check_value_type", "get_broadcast_shape", "ms_ctx_param", "security"]

answer_missing_names(__name__, homes("sporax.mindspore.common.tensor", "Tensor"))


class StubTensor:
    """`common._stub_tensor`: in releases before 2.7, a Tensor not yet computed. No Tensor is one, as in the 2.10 wheel."""


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

    def set_backend_policy(self, policy: str) -> None:
        """Choose MindSpore's backend, such as 'ge' or 'ms': programs are XLA's, so a line says that it changes nothing."""
        warnings.warn(f"For 'MSContext', the backend policy '{policy}' changes nothing: XLA compiles.", stacklevel=2)

    def get_ascend_soc_version(self) -> str:
        """Name of the Ascend chip: there is none."""
        return ""

    def is_ascend_plugin_loaded(self) -> bool:
        """Whether operators of Ascend can run: they cannot."""
        return False


K_CONTEXT = MSContext.get_instance()
"""`context.K_CONTEXT`."""


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


class _CompileConfig:
    """Switches of MindSpore's graph compiler, such as RECURSIVE_EVAL; XLA compiles here, so setting one warns."""

    def __setattr__(self, name: str, value: Any) -> None:
        warnings.warn(
            f"For 'compile_config', '{name}' has no effect: it is a switch of MindSpore's own compiler.", stacklevel=2
        )
        super().__setattr__(name, value)


compile_config = _CompileConfig()


def cell_attr_register(fn: Callable[..., Any] | None = None, attrs: Iterable[str] | None = None) -> Any:
    """Decorator for constructors of Cells: the constructor itself.

    MindSpore made a key for its cache of compiled graphs of the arguments `attrs`; here programs are kept by what they
    compute, so there is nothing to register.

    Args:
        fn: the constructor; without it the decorator is returned.
        attrs: names of arguments.
    """
    return cell_attr_register if fn is None else fn


def _make_directory(path: Any, arg_name: str = "path") -> str:
    """Make a directory, with those above it, unless it is there.

    Args:
        path: the directory, a string.
        arg_name: what messages call it.

    Returns:
        Its absolute path, without links.

    Raises:
        SporaxTypeError: `path` is not a string, or empty.
        SporaxValueError: it cannot be made: a part of it is a file, or it is not permitted.
    """
    if not isinstance(path, str) or not path.strip():
        raise SporaxTypeError(f"For '_make_directory', '{arg_name}' must be a string with a path, but got {path!r}.")
    directory = Path(path).resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SporaxValueError(
            f"For '_make_directory', '{arg_name}' must be a directory that can be made, but got '{path}': {error}."
        ) from error
    return str(directory)


def check_value_type(arg_name: str, arg_value: object, valid_types: object) -> None:
    """See that a value is of one of the types; a bool is no int.

    Raises:
        SporaxTypeError: it is not.
    """
    types = tuple(valid_types) if isinstance(valid_types, Iterable) else (valid_types,)
    is_stray_bool = isinstance(arg_value, bool) and bool not in types
    if is_stray_bool or not isinstance(arg_value, types):
        names = [kind.__name__ for kind in types]
        raise SporaxTypeError(
            f"For `{arg_name}` the type should be a valid type of {names}, but got {type(arg_value).__name__}."
        )


def get_broadcast_shape(
    x_shape: list[int], y_shape: list[int], prim_name: str, arg_name1: str = "x", arg_name2: str = "y"
) -> list[int]:
    """The shape that two shapes broadcast to.

    Args:
        x_shape, y_shape: shapes; all sizes are known.
        prim_name, arg_name1, arg_name2: names for the message.

    Raises:
        SporaxValueError: they do not.
    """
    length = max(len(x_shape), len(y_shape))
    # Aligned from the last dim, with ones in front.
    one, other = ([1] * (length - len(shape)) + list(shape) for shape in (x_shape, y_shape))
    for place, sizes in enumerate(zip(one, other, strict=True)):
        if 1 not in sizes and sizes[0] != sizes[1]:
            raise SporaxValueError(
                # Counted from the end, as the shapes may have different lengths.
                f"For '{prim_name}', {arg_name1}.shape and {arg_name2}.shape need to broadcast, but dim {place - length} "
                f"is {sizes[0]} and {sizes[1]}: {arg_name1}.shape = {x_shape} and {arg_name2}.shape = {y_shape}."
            )
    return [left if right == 1 else right for left, right in zip(one, other, strict=True)]


def _get_cache_prim(cls: Callable[..., Any]) -> Callable[..., Any]:
    """`cls` itself: making a primitive costs little here, and its programs are kept by attributes, not by object."""
    return cls
