"""`mindspore._c_expression`: of MindSpore's C++ core, what published programs ask before they choose their operators."""

from __future__ import annotations

from typing import Any

from sporax.mindspore import context
from sporax.mindspore._names.missing import answer_missing_names

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["MSContext", "ms_ctx_param", "security"]

answer_missing_names(__name__)


class MSContext:
    """Answers for a process without Ascend chips, as MindSpore's does on CPUs and GPUs."""

    _instance: MSContext | None = None

    @classmethod
    def get_instance(cls) -> MSContext:
        """The only one."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def set_param(self, name: str, value: Any) -> None:
        """As `set_context`, with the same errors."""
        context.set_context(**{name: value})

    def get_param(self, name: str) -> Any:
        """As `get_context`, with the same errors."""
        return context.get_context(name)

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
