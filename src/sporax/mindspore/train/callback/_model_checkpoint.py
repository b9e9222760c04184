"""`ModelCheckpoint`: saves the network while it trains; `CheckpointConfig`: when, what is kept, and how files are written.

Files are called ``prefix-epoch_step.ckpt``, with the step counted within its epoch. If a directory holds files of an
earlier run with the same prefix, the new ones are called ``prefix_1-…`` and so on, so none is overwritten. A run that is
resumed (`Model.train(resume=True)`, MS_ENABLE_RECOVERY=1) goes on from them instead, under the same names.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sporax.base.errors import For, SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.mindspore import context
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train import _ranks
from sporax.mindspore.train._entries import writer
from sporax.mindspore.train.callback._callback import Callback, RunContext
from sporax.mindspore.train.callback._resuming import POSITION, newest_common_file, own_prefix, position, resume_from
from sporax.mindspore.train.serialization import FORMATS, check_async, save_checkpoint

COUNTERS = ("epoch_num", "step_num")
_POLICY = ("save_checkpoint_steps", "save_checkpoint_seconds", "keep_checkpoint_max", "keep_checkpoint_per_n_minutes")


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
                For("CheckpointConfig").integer(name, getattr(self, name), 0)
        if not any(getattr(self, name) for name in _POLICY):
            raise SporaxValueError(f"For 'CheckpointConfig', one of {list(_POLICY)} must be positive, but none is.")
        For("CheckpointConfig").typed("saved_network", self.saved_network, "a Cell", Cell | None)
        for name in ("integrated_save", "exception_save", "crc_check", "remove_redundancy"):
            For("CheckpointConfig").boolean(name, getattr(self, name))
        check_async("CheckpointConfig", self.async_save)
        For("CheckpointConfig").text("when_busy", self.when_busy, ("wait", "skip"))
        For("CheckpointConfig").one_of("format", self.format, FORMATS)
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
    For("CheckpointConfig").refuse(value, f"'{name}' is not offered, but it is set", kind=SporaxNotImplementedError)


def _check_append_info(info: Any) -> None:
    if info is None:
        return
    For("CheckpointConfig").typed("append_info", info, "a list", list)
    for item in info:
        if isinstance(item, str) and item not in COUNTERS:
            raise SporaxValueError(f"For 'CheckpointConfig', 'append_info' may name {COUNTERS}, but got '{item}'.")
        if not isinstance(item, str | dict):
            raise For("CheckpointConfig").type_error("'append_info' must hold strings or a dict", type(item).__name__)
    tables = [item for item in info if isinstance(item, dict)]
    For("CheckpointConfig").refuse_type(len(tables) > 1, "'append_info' may hold one dict", len(tables))
    for name, value in (tables[0] if tables else {}).items():
        if not isinstance(name, str) or not isinstance(value, int | float | str | Tensor):
            raise SporaxTypeError(
                "For 'CheckpointConfig', the dict in 'append_info' must map strings to numbers, strings or Tensors, but "
                f"got {type(name).__name__} -> {type(value).__name__}."
            )


_BREAKPOINT = "_breakpoint"


class ModelCheckpoint(Callback):
    """Saves checkpoints during training, and the last state when it ends.

    Args:
        prefix: what file names begin with, or a function (facts of the run) -> whole name without suffix.
        directory: where files go (made if needed), or a function (facts of the run) -> directory. In a job of several
            ranks give each its own.
        config: when to save and what to keep; see `CheckpointConfig`.

    Raises:
        SporaxValueError: `prefix` is no string without ``/`` and no function.
        SporaxTypeError: `directory` or `config` is of the wrong type.
    """

    receives_evaluation_in_fit = False

    def __init__(
        self,
        prefix: str | Callable[[Any], str] = "CKP",
        directory: str | Callable[[Any], str] | None = None,
        config: CheckpointConfig | None = None,
    ) -> None:
        if not callable(prefix):
            _check_prefix(prefix)
        if directory is not None and not callable(directory) and not isinstance(directory, str):
            raise SporaxTypeError(
                f"For 'ModelCheckpoint', 'directory' must be a string or a function, but got {type(directory).__name__}."
            )
        For("ModelCheckpoint").typed("config", config, "a CheckpointConfig", CheckpointConfig | None)
        self._config = config or CheckpointConfig()
        self._name_prefix, self._name_directory = prefix, directory
        self._directory = Path.cwd()
        if isinstance(directory, str):
            self._directory = _created_directory(directory)
        self._prefix = "" if callable(prefix) else prefix
        if not callable(prefix) and not callable(directory):
            # Names that are functions are known only during training.
            self._prefix = _unused_prefix(self._directory, prefix, "")
        self._append_dict = self._config.append_dict or {}
        self._append_start = {name: self._append_dict.get(name, 0) for name in COUNTERS}
        self._last_step = 0
        self._last_saved = self._last_interval = time.monotonic()
        self._latest = ""
        self._resumes = False

    @property
    def latest_ckpt_file_name(self) -> str:
        """Path of the file written last; empty before the first."""
        return self._latest

    def on_train_begin(self, run_context: RunContext) -> None:
        """Steps are counted from the beginning of a run."""
        self._last_step = 0
        # Time before training does not count.
        self._last_saved = self._last_interval = time.monotonic()
        facts = run_context.original_args()
        self._resumes = bool(facts.get("resume")) and not context.plans_only()
        if self._resumes:
            self._go_on(facts)

    def _go_on(self, facts: Any) -> None:
        """Load the newest file that all ranks have, of this job where it has an id; the loop then goes on behind its step."""
        job = facts.get("resume_job", "")
        if problem := self._why_not_resumed():
            if not job:
                raise SporaxValueError(f"For 'ModelCheckpoint', {problem}")
            # The user has not requested it: the job trains as it would without.
            warnings.warn(
                f"For 'ModelCheckpoint', a job that is started again trains from the start: {problem}", stacklevel=2
            )
            self._resumes = False
            return
        assert isinstance(self._name_prefix, str)  # `_why_not_resumed` has said so
        # Until now it is a prefix that no file has.
        self._prefix = own_prefix(self._directory, self._name_prefix, self._prefix, job) if job else self._name_prefix
        newest = newest_common_file(self._directory, self._prefix, self._config.format, exactly=bool(job))
        if newest is None:
            return
        path, (epoch, step) = newest
        # Another callback may know of a later step.
        total = (epoch - 1) * facts.batch_num + step
        if step > facts.batch_num:
            raise SporaxValueError(
                f"For 'ModelCheckpoint', an epoch must have at least {step} steps, as when '{path}' was written, but the data "
                f"set has {facts.batch_num}."
            )
        if total > facts.get("resume_step", 0):
            is_part = self._config.saved_network is not None
            facts.resume_step = self._last_step = resume_from(path, facts.train_network, total, is_part)
            self._latest = str(path)

    def _why_not_resumed(self) -> str:
        """Why a run cannot go on from what is saved; "" if it can."""
        if callable(self._name_prefix) or callable(self._name_directory):
            return "'prefix' and 'directory' must be strings in a run that is resumed, but one is a function."
        return ""

    def step_end(self, run_context: RunContext) -> None:
        """Save if it is time to."""
        facts = run_context.original_args()
        if self._is_due(facts.cur_step_num) and not self._skips():
            self._save(facts)

    def end(self, run_context: RunContext) -> None:
        """Save the last state, and wait until it is on disk."""
        facts = run_context.original_args()
        # Not twice for one step.
        if facts.get("train_network") is not None and facts.cur_step_num != self._last_step:
            self._save(facts)
        # The process may end after this, and the file must be whole.
        writer.wait()
        if self._last_step:
            self._remove_oldest()

    def _is_due(self, step: int) -> bool:
        config = self._config
        if config.save_checkpoint_steps:
            return step >= self._last_step + config.save_checkpoint_steps
        if config.save_checkpoint_seconds:
            return time.monotonic() - self._last_saved > config.save_checkpoint_seconds
        return False

    def _skips(self) -> bool:
        """Whether to leave a save out because a rank is still writing the one before. All ranks must call it."""
        config = self._config
        return bool(config.async_save) and config.when_busy == "skip" and _ranks.any_rank(writer.busy())

    def _save(self, facts: Any) -> None:
        self._choose_names(facts)
        # What is being written counts among the files to keep.
        writer.wait()
        name = self._prefix
        if not callable(self._name_prefix):
            # MindSpore counts steps within the epoch, from 1.
            name += f"-{facts.cur_epoch_num}_{(facts.cur_step_num - 1) % facts.batch_num + 1}"
        self._make_room(f"{name}.{self._config.format}")
        self._last_step = facts.cur_step_num
        self._last_saved = time.monotonic()
        self._latest = self._write(facts, name)
        # In the background the file is not there yet, so old ones go with the next save.
        if not self._config.async_save:
            self._remove_oldest()
        facts.last_save_ckpt_step, facts.latest_ckpt_file = facts.cur_step_num, self._latest

    def _remove_oldest(self) -> None:
        """Delete what is beyond `keep_checkpoint_max`, once the newest is whole."""
        keep = self._config.keep_checkpoint_max
        if keep:
            for path in _saved_files(self._directory, self._prefix, self._config.format)[:-keep]:
                path.unlink(missing_ok=True)

    def _write(self, facts: Any, name: str) -> str:
        config = self._config
        for counter, value in zip(COUNTERS, (facts.cur_epoch_num, facts.cur_step_num), strict=True):
            if counter in self._append_dict:
                self._append_dict[counter] = self._append_start[counter] + value
        path = str(self._directory / f"{name}.{config.format}")
        further = {POSITION: position(facts.cur_step_num)} if self._resumes else {}
        save_checkpoint(
            config.saved_network if config.saved_network is not None else facts.train_network,
            path,
            config.integrated_save,
            config.async_save,
            {**self._append_dict, **further} or None,
            crc_check=config.crc_check,
            format=config.format,
            remove_redundancy=config.remove_redundancy,
            _mark=f"{facts.cur_epoch_num}_{facts.cur_step_num}",
        )
        return path

    def _choose_names(self, facts: Any) -> None:
        if callable(self._name_prefix):
            self._prefix = _check_prefix(self._name_prefix(facts))
        if callable(self._name_directory):
            self._directory = _created_directory(self._name_directory(facts))

    def _make_room(self, new_name: str) -> None:
        """Delete what is not to be kept once one more file is there."""
        files = [
            path for path in _saved_files(self._directory, self._prefix, self._config.format) if path.name != new_name
        ]
        keep, minutes = self._config.keep_checkpoint_max, self._config.keep_checkpoint_per_n_minutes
        if keep:
            # The newest stays until the next one is whole: the disk may be full.
            for path in files[:-1][: max(0, len(files) - keep + 1)]:
                path.unlink(missing_ok=True)
        elif minutes:
            now = time.monotonic()
            if now - self._last_interval < minutes * 60:
                recent = [path for path in files if time.time() - path.stat().st_mtime < minutes * 60]
                # MindSpore keeps one file per interval.
                for path in recent[1:]:
                    path.unlink(missing_ok=True)
            self._last_interval = now

    def save_after_exception(self, facts: Any) -> None:
        """Save ``prefix-epoch_step_breakpoint`` if the configuration requests it; called when training failed."""
        if not self._config.exception_save or facts.get("cur_step_num", 0) == 0:
            return
        self._choose_names(facts)
        prefix = self._prefix if callable(self._name_prefix) else str(self._name_prefix)
        prefix = _unused_prefix(self._directory, prefix, _BREAKPOINT)
        step = (facts.cur_step_num - 1) % facts.batch_num + 1
        self._latest = self._write(facts, f"{prefix}-{facts.cur_epoch_num}_{step}{_BREAKPOINT}")
        writer.wait()


@contextlib.contextmanager
def save_on_exception(callbacks: Sequence[Callback], facts: Any) -> Iterator[None]:
    """Let each `ModelCheckpoint` with ``exception_save`` save what there is when the block fails."""
    try:
        yield
    except BaseException:
        for callback in callbacks:
            if isinstance(callback, ModelCheckpoint):
                # Other callbacks have nothing to save.
                callback.save_after_exception(facts)
        raise


def _check_prefix(prefix: Any) -> str:
    if not isinstance(prefix, str) or "/" in prefix:
        raise For("ModelCheckpoint").error(f"'prefix' must be (or give) a string without '/', got {prefix!r}")
    return prefix


def _created_directory(directory: Any) -> Path:
    if not isinstance(directory, str) or not directory:
        raise SporaxTypeError(f"For 'ModelCheckpoint', 'directory' must be (or give) a path, but got {directory!r}.")
    path = Path(os.path.realpath(directory))
    if not context.plans_only():
        # Created here, since a wrong path should be an error before training.
        path.mkdir(parents=True, exist_ok=True)
    return path


def _files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


def _saved_files(directory: Path, prefix: str, suffix: str) -> list[Path]:
    """The files ``prefix-<numbers>.suffix``, oldest first."""
    # Epoch and step are numbers; letters belong to other prefixes.
    pattern = re.compile(re.escape(prefix) + r"-[^A-Za-z]*\." + suffix)
    files = [path for path in _files_in(directory) if pattern.fullmatch(path.name)]
    # Times of files that were written in one moment may be equal.
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))


def _unused_prefix(directory: Path, prefix: str, ending: str) -> str:
    """`prefix`, or ``prefix_n`` with the first n that no file in `directory` has."""
    pattern = re.compile(re.escape(prefix) + r"(?:_(\d+))?-[\d_]+" + ending + r"\.(?:ckpt|safetensors)")
    matches = [match for path in _files_in(directory) if (match := pattern.fullmatch(path.name))]
    used = [int(match.group(1) or 0) for match in matches]
    return f"{prefix}_{max(used) + 1}" if used else prefix
