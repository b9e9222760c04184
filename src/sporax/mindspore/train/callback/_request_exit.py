"""`OnRequestExit`: leave a run on request, by a signal or a file, with everything saved.

One rank alone stops after the step in which the request came. In a job of several ranks all must stop after the same
step, so they have to agree: with ``MS_ENABLE_GRACEFUL_EXIT=1`` they do so after every step (and look at the file),
without it at the end of each epoch.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import jax

from sporax.base.errors import For, SporaxValueError
from sporax.ir import variables
from sporax.mindspore import context
from sporax.mindspore.train._ranks import any_rank, common_pairs, rank
from sporax.mindspore.train.callback._callback import Callback, RunContext
from sporax.mindspore.train.callback._resuming import POSITION, is_own, note_own, position, resume_from, saved_step
from sporax.mindspore.train.serialization import load_checkpoint, save_checkpoint

_CONFIG_KEY = "GracefulExit"


class OnRequestExit(Callback):
    """Ends training or evaluation on request, and goes on from what it saved when started again.

    Args:
        save_ckpt: save ``directory/rank_<n>/<file_name>_train.ckpt`` (or ``_eval``) before leaving, with ``epoch_num``,
            ``step_num``, ``batch_num`` (and ``loss_scale``) in it, and load it at the next start.
        save_mindir: accepted for compatibility; MindSpore's graph format cannot be written here, which is said when it
            would be.
        file_name: first part of the file's name.
        directory: where the ``rank_<n>`` directories are.
        config_file: JSON file; ``{"GracefulExit": 1}`` in it is a request, with ``MS_ENABLE_GRACEFUL_EXIT=1``.
        sig: the signal that is a request.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid, or the signal cannot be caught.
    """

    def __init__(
        self,
        save_ckpt: bool = True,
        save_mindir: bool = True,
        file_name: str = "Net",
        directory: str = "./",
        config_file: str | None = None,
        sig: int = signal.SIGTERM,
    ) -> None:
        self.save_ckpt = For("OnRequestExit").boolean("save_ckpt", save_ckpt)
        self.save_mindir = For("OnRequestExit").boolean("save_mindir", save_mindir)
        self.sig = For("OnRequestExit").integer("sig", sig)
        # The system does not let programs handle these two.
        if self.sig in (signal.SIGKILL, signal.SIGSTOP):
            raise SporaxValueError(f"For 'OnRequestExit', 'sig' must be a signal that can be caught, but got {sig!r}.")
        for name, value in (("file_name", file_name), ("directory", directory)):
            For("OnRequestExit").typed(name, value, "a string", str)
        self._file_name, self.save_path = file_name, directory
        self.remote_config_file = config_file
        # Agreeing after each step costs an exchange, so it is optional.
        self.use_graceful = variables.read(os.environ, "MS_ENABLE_GRACEFUL_EXIT") == "1"
        self._requested = False
        self._leaving = False
        self._previous: Any = None

    @property
    def is_distributed(self) -> bool:
        """Whether there are several processes."""
        return jax.process_count() > 1

    def path(self, mode: str) -> Path:
        """The file for ``"train"`` or ``"eval"``."""
        return Path(os.path.realpath(self.save_path)) / f"rank_{rank()}" / f"{self._file_name}_{mode}.ckpt"

    def _listen(self) -> None:
        self._requested = self._leaving = False
        self._previous = signal.signal(self.sig, self._note_request)

    def _stop_listening(self) -> None:
        if self._previous is not None:
            signal.signal(self.sig, self._previous)
            self._previous = None

    def _note_request(self, number: int, frame: Any) -> None:
        # Only noted: the handler may run in the middle of anything.
        self._requested = True

    def __exit__(self, *error: Any) -> None:
        self._stop_listening()

    def _file_says_so(self) -> bool:
        if not self.use_graceful or self.remote_config_file is None or not os.path.exists(self.remote_config_file):
            return False
        try:
            settings = json.loads(Path(self.remote_config_file).read_text(encoding="utf-8"))
        # It may be in the middle of being written.
        except ValueError as error:
            warnings.warn(f"For 'OnRequestExit', '{self.remote_config_file}' is no JSON: {error}.", stacklevel=2)
            return False
        return isinstance(settings, dict) and settings.get(_CONFIG_KEY) == 1

    def on_train_begin(self, run_context: RunContext) -> None:
        """Wait for the signal; go on from what an earlier run saved."""
        self._listen()
        facts = run_context.original_args()
        if facts.get("resume"):
            self._resume(facts)
        elif self.save_ckpt and self.path("train").is_file():
            # MindSpore loads the file whenever it is there.
            load_checkpoint(str(self.path("train")), net=facts.train_network)

    def _resume(self, facts: Any) -> None:
        """Go on behind the step at which all ranks left, unless another callback knows of a later one."""
        path, job = self.path("train"), facts.get("resume_job", "")
        is_there = self.save_ckpt and path.is_file() and (not job or is_own(path, job))
        own = [(0, saved_step(path))] if is_there else []
        # All ranks must have it, or some would begin elsewhere.
        common = common_pairs(own, 1)
        if common and common[0][1] > facts.get("resume_step", 0):
            facts.resume_step = resume_from(path, facts.train_network)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Leave after this step, if requested."""
        # One process alone needs no agreement.
        if self.use_graceful or not self.is_distributed:
            self._leave_if_requested(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Leave after this epoch, if requested."""
        self._leave_if_requested(run_context)

    def _leave_if_requested(self, run_context: RunContext) -> None:
        # Every rank takes part, since all must leave after the same step.
        if self._leaving or not any_rank(self._requested or self._file_says_so()):
            return
        self._leaving = True
        run_context.request_stop()
        facts = run_context.original_args()
        info: dict[str, Any] = {
            "epoch_num": facts.cur_epoch_num,
            "step_num": facts.cur_step_num,
            "batch_num": facts.batch_num,
        }
        if facts.get("resume"):
            info[POSITION] = position(facts.cur_step_num)
        # MindSpore's own spelling of the field.
        manager = facts.get("loss_scale_mananger")
        if manager is not None:
            info["loss_scale"] = manager.get_loss_scale()
        self._save("train", facts.train_network, info)
        if self.save_ckpt and facts.get("resume_job"):
            note_own(self.path("train"), facts.resume_job)

    def on_train_end(self, run_context: RunContext) -> None:
        """Give the signal back."""
        self._stop_listening()

    def on_eval_begin(self, run_context: RunContext) -> None:
        """Wait for the signal; load what an earlier run saved."""
        # Training handles the signal already.
        if self._previous is not None:  # an evaluation inside `Model.fit`
            return
        self._listen()
        saved = [self.path(mode) for mode in ("eval", "train") if self.path(mode).is_file()]
        if self.save_ckpt and saved:
            load_checkpoint(str(saved[0]), net=run_context.original_args().eval_network)

    def on_eval_step_end(self, run_context: RunContext) -> None:
        """Leave after this step, if requested."""
        if (self.use_graceful or not self.is_distributed) and any_rank(self._requested or self._file_says_so()):
            run_context.request_stop()

    def on_eval_end(self, run_context: RunContext) -> None:
        """Save, if requested to leave, and give the signal back."""
        facts = run_context.original_args()
        if "train_network" in facts:
            return
        if run_context.get_stop_requested():
            self._save("eval", facts.eval_network, None)
        self._stop_listening()

    def _save(self, mode: str, network: Any, info: dict[str, Any] | None) -> None:
        if self.save_ckpt:
            path = self.path(mode)
            if not context.plans_only():
                path.parent.mkdir(parents=True, exist_ok=True)
            save_checkpoint(network, str(path), append_dict=info)
        if self.save_mindir:
            warnings.warn("For 'OnRequestExit', no MindIR file is written: Sporax has no such format.", stacklevel=2)
