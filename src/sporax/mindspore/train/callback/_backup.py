"""`BackupAndRestore`: goes on where a run that was interrupted stood."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxTypeError
from sporax.mindspore import context
from sporax.mindspore.train._checks import check_bool, check_count
from sporax.mindspore.train.callback._callback import Callback, RunContext
from sporax.mindspore.train.serialization import load_checkpoint, save_checkpoint


class BackupAndRestore(Callback):
    """Saves the training network after epochs, and loads what an earlier run saved.

    Args:
        backup_dir: directory of the file ``backup.ckpt``; made if needed.
        save_freq: ``"epoch"``, or every so many epochs.
        delete_checkpoint: delete the file when training ends as planned.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, backup_dir: str, save_freq: Any = "epoch", delete_checkpoint: bool = True) -> None:
        if not isinstance(backup_dir, str):
            raise SporaxTypeError(
                f"For 'BackupAndRestore', 'backup_dir' must be a string, but got {type(backup_dir).__name__}."
            )
        self.save_freq = (
            1 if save_freq == "epoch" else check_count("BackupAndRestore", "save_freq", save_freq, minimum=1)
        )
        self.delete_checkpoint = check_bool("BackupAndRestore", "delete_checkpoint", delete_checkpoint)
        directory = Path(os.path.realpath(backup_dir))
        # A run that is only planned leaves no files.
        if not context.plans_only():
            directory.mkdir(parents=True, exist_ok=True)
        self.backup_file = str(directory / "backup.ckpt")

    def on_train_begin(self, run_context: RunContext) -> None:
        """Load what is there."""
        # As MindSpore: what is there is from an interrupted run.
        if os.path.exists(self.backup_file):
            load_checkpoint(self.backup_file, net=run_context.original_args().train_network)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Save, if it is this epoch's turn."""
        facts = run_context.original_args()
        if facts.cur_epoch_num % self.save_freq == 0:
            save_checkpoint(facts.train_network, self.backup_file)

    def on_train_end(self, run_context: RunContext) -> None:
        """Delete the file, if that was requested."""
        if self.delete_checkpoint:
            Path(self.backup_file).unlink(missing_ok=True)
