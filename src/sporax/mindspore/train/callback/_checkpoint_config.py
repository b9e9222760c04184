"""`CheckpointConfig`: when `ModelCheckpoint` saves, what it keeps, and how files are written."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError, check_type
from sporax.base.lazy_members import dataclass
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train._checks import check_bool, check_count, check_text
from sporax.mindspore.train.serialization import FORMATS, check_async

COUNTERS = ("epoch_num", "step_num")
_POLICY = (
    "save_checkpoint_steps",
    "save_checkpoint_seconds",
    "keep_checkpoint_max",
    "keep_checkpoint_per_n_minutes",
)


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Settings of `ModelCheckpoint`.

    Args:
        save_checkpoint_steps: save every so many steps; wins over seconds.
        save_checkpoint_seconds: save when so much time has passed.
        keep_checkpoint_max: delete the oldest files beyond this number; wins over minutes.
        keep_checkpoint_per_n_minutes: keep one file per so many minutes.
        integrated_save, async_save, crc_check, format: see `save_checkpoint`.
        saved_network: what to save; the training network (with the optimizer's state) by default.
        append_info: ``"epoch_num"``, ``"step_num"`` and at most one dict of further values to store.
        enc_key, enc_mode: encryption is not offered.
        exception_save: save when training ends with an exception.
        remove_redundancy: in a job of several ranks, each slice is written by one rank only.
        when_busy: with `async_save`, if the save before is still being written on any rank: ``"wait"`` for it, or ``"skip"``
            this one and save at the first step that finds the writer idle. The last state is always saved. Not in MindSpore.

    Raises:
        SporaxTypeError, SporaxValueError: a setting is not valid, or all four numbers are 0.
        SporaxNotImplementedError: encryption.
    """

    save_checkpoint_steps: int | None = 1
    save_checkpoint_seconds: int | None = 0
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_per_n_minutes: int | None = 0
    integrated_save: bool = True
    async_save: bool | str = False
    saved_network: Cell | None = None
    append_info: list[Any] | None = None
    enc_key: bytes | None = None
    enc_mode: str = "AES-GCM"
    exception_save: bool = False
    crc_check: bool = False
    remove_redundancy: bool = False
    format: str = "ckpt"
    when_busy: str = "wait"

    def __post_init__(self) -> None:
        """Check the settings, and let the stronger of two win."""
        for name in _POLICY:
            if getattr(self, name) is not None:
                # None counts like 0: the rule is off.
                check_count("CheckpointConfig", name, getattr(self, name), minimum=0)
        if not any(getattr(self, name) for name in _POLICY):
            raise SporaxValueError(f"For 'CheckpointConfig', one of {list(_POLICY)} must be positive, but none is.")
        if self.saved_network is not None and not isinstance(self.saved_network, Cell):
            raise SporaxTypeError(
                f"For 'CheckpointConfig', 'saved_network' must be a Cell, but got {type(self.saved_network).__name__}."
            )
        for name in ("integrated_save", "exception_save", "crc_check", "remove_redundancy"):
            check_bool("CheckpointConfig", name, getattr(self, name))
        check_async("CheckpointConfig", self.async_save)
        check_text("CheckpointConfig", "when_busy", self.when_busy, ("wait", "skip"))
        if self.format not in FORMATS:
            raise SporaxValueError.must("CheckpointConfig", "format", f"be one of {FORMATS}", repr(self.format))
        _refuse("enc_key", self.enc_key)
        _check_append_info(self.append_info)
        self._resolve()

    def _resolve(self) -> None:
        # The class is frozen, so its fields are set past it.
        put = object.__setattr__
        if self.save_checkpoint_steps:
            put(self, "save_checkpoint_seconds", None)
        if self.keep_checkpoint_max:
            put(self, "keep_checkpoint_per_n_minutes", None)
        elif not self.keep_checkpoint_per_n_minutes:
            # Neither rule: one file is kept, as in MindSpore.
            put(self, "keep_checkpoint_max", 1)

    @property
    def append_dict(self) -> dict[str, Any] | None:
        """What is stored besides the Parameters, with the counters' start values; None for nothing."""
        if not self.append_info:
            return None
        entries = next((item for item in self.append_info if isinstance(item, dict)), {})
        # Counters start at the given values.
        return {**{name: entries.get(name, 0) for name in COUNTERS if name in self.append_info}, **entries}

    def get_checkpoint_policy(self) -> dict[str, Any]:
        """The settings that say when to save and what to keep."""
        return {name: getattr(self, name) for name in (*_POLICY, "saved_network")}


def _refuse(name: str, value: Any) -> None:
    if value:
        raise SporaxNotImplementedError(f"For 'CheckpointConfig', '{name}' is not offered, but it is set.")


def _check_append_info(info: Any) -> None:
    if info is None:
        return
    check_type("CheckpointConfig", "append_info", info, "a list", list)
    for item in info:
        if isinstance(item, str) and item not in COUNTERS:
            raise SporaxValueError(f"For 'CheckpointConfig', 'append_info' may name {COUNTERS}, but got '{item}'.")
        if not isinstance(item, str | dict):
            raise SporaxTypeError.must("CheckpointConfig", "append_info", "hold strings or a dict", type(item).__name__)
    tables = [item for item in info if isinstance(item, dict)]
    if len(tables) > 1:
        raise SporaxTypeError(f"For 'CheckpointConfig', 'append_info' may hold one dict, but got {len(tables)}.")
    for name, value in (tables[0] if tables else {}).items():
        if not isinstance(name, str) or not isinstance(value, int | float | str | Tensor):
            raise SporaxTypeError(
                "For 'CheckpointConfig', the dict in 'append_info' must map strings to numbers, strings or Tensors, but "
                f"got {type(name).__name__} -> {type(value).__name__}."
            )
