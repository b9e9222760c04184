"""`JitConfig`: settings of MindSpore's own compiler, checked and kept."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxValueError

_CHOICES = {
    "jit_level": ("", "O0", "O1", "O2"),
    "exc_mode": ("auto", "sink", "no_sink"),
    "jit_syntax_level": ("", "STRICT", "COMPATIBLE", "LAX"),
    "debug_level": ("RELEASE", "DEBUG"),
    "infer_boost": ("on", "off"),
}


class JitConfig:
    """Settings for `Cell.set_jit_config`, which has no use for them and says so.

    Args:
        jit_level, exc_mode, jit_syntax_level, debug_level, infer_boost: as in MindSpore.
        kwargs: kept with the others.

    Raises:
        SporaxValueError: a value that is not one of MindSpore's.
    """

    def __init__(
        self,
        jit_level: str = "",
        exc_mode: str = "auto",
        jit_syntax_level: str = "",
        debug_level: str = "RELEASE",
        infer_boost: str = "off",
        **kwargs: Any,
    ) -> None:
        settings = {
            "jit_level": jit_level,
            "exc_mode": exc_mode,
            "jit_syntax_level": jit_syntax_level,
            "debug_level": debug_level,
            "infer_boost": infer_boost,
        }
        for name, value in settings.items():
            if value not in _CHOICES[name]:
                raise SporaxValueError(f"For 'JitConfig', '{name}' must be one of {_CHOICES[name]}, but got {value!r}.")
        # Named settings win over further ones of the same name.
        self.jit_config_dict = {**kwargs, **settings}
