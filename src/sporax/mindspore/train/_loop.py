"""The loops of training and evaluation: read batches, run steps, notify the callbacks.

`Model` checks what the user requested and hands over here. A loop knows nothing of files, printing or metrics beyond
calling whoever does them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from typing import Any

import jax

from sporax.base import progress
from sporax.base.errors import SporaxValueError
from sporax.ir.config import PlanSettings
from sporax.mindspore import context, ops
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train._feed import Batch, Feed, Group, groups, num_samples
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import CallbackManager, RunContext
from sporax.runtime import program as programs, world
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

_CONVOLUTION = "stablehlo.convolution"


class GroupedSteps:
    """Runs a network's step over groups of batches, each group as one compiled program.

    Args:
        network: does one step and updates its Parameters.

    One of these lives as long as its Model, so that what it compiled serves every run.
    """

    def __init__(self, network: Cell) -> None:
        self.network = network
        self._groupable: bool | None = None
        # A program of its own: its arguments have one more dimension than those of a step.
        self.program = programs.Program(self._run_stacked, f"{type(network).__name__}_group", _plan_settings)

    def groupable(self, batch: Batch) -> bool:
        """Whether grouping pays, judged by the step for `batch`.

        XLA's CPU back end runs convolutions inside a loop on one thread, about three times slower than outside of one.
        """
        # Plans, and the parts of the ranks that this process acts for, are made for single steps.
        # A recording counts single steps.
        if context.plans_only() or world.num_ranks_here() > 1 or SESSION.recording is not None:
            return False
        if self._groupable is None:
            try:
                self._groupable = self._is_one_program(batch)
            except frames.ValueNeededError:
                # It runs operator by operator, with a warning.
                self._groupable = False
        return self._groupable

    def _is_one_program(self, batch: Batch) -> bool:
        """Whether the step for `batch` is one program that runs well inside a loop."""
        planned = self.network.program.plan(*batch)
        if planned is not None and not planned.is_one_program:
            return False
        on_host = jax.default_backend() == "cpu"
        # The text is made once per Model; lowering does not compile.
        return not on_host or _CONVOLUTION not in self.network.program.lower(*batch).as_text()

    def __call__(self, group: Group) -> Any:
        """Run the steps of `group`; gives the outputs of the last one."""
        if group.num_steps == 1:
            # A single step uses the step's own program, which may be compiled already.
            return self.network(*group.inputs)
        return self.program(group.inputs)

    def _run_stacked(self, inputs: Batch) -> Any:
        # A loop on the device: the host sees the group once.
        results: Any = ops.scan(lambda carry, batch: (carry, self.network(*batch)), (), inputs)
        return _last(results[1])


def _plan_settings() -> PlanSettings | None:
    """As of a single step; but the first dimension of what is fed counts the steps."""
    settings = context.plan_settings()
    return None if settings is None else replace(settings, num_stacked=1)


def _last(outputs: Any) -> Any:
    """The outputs of the last step, out of stacked ones."""
    if isinstance(outputs, tuple | list):
        return type(outputs)(map(_last, outputs))
    if isinstance(outputs, dict):
        return {name: _last(value) for name, value in outputs.items()}
    return wrap(outputs.array[-1]) if isinstance(outputs, Tensor) else outputs


class TrainLoop:
    """A training run.

    Args:
        steps: run the training network.
        backbone: the user's network inside it, whose training flag is kept on.
        facts: what callbacks receive; the loop keeps it up to date.
        dataset: where batches come from.
        sink_size: steps per epoch in sink mode; None outside of it.
        check_batch: called with every batch; raises where it does not fit the network.
        after_epoch: called after the steps of each epoch, before its end is announced.
    """

    def __init__(
        self,
        steps: GroupedSteps,
        backbone: Cell,
        facts: Any,
        dataset: Any,
        *,
        sink_size: int | None,
        check_batch: Callable[[Batch], None],
        after_epoch: Callable[[CallbackManager], None],
    ) -> None:
        self._steps = steps
        self._network = steps.network
        self._backbone = backbone
        self._facts = facts
        self._dataset = dataset
        self._sink_size = sink_size
        self._check_batch = check_batch
        self._after_epoch = after_epoch
        self._run = RunContext(facts)
        self._skipped_batches = 0
        self._is_first = True

    def _stepped(self, step: Callable[[], Any]) -> Any:
        """The outputs of a step; of the first one rank 0 reports what it waits for."""
        if not self._is_first:
            return step()
        self._is_first = False
        with (
            progress.reported(speaks=rank() == 0 and not context.plans_only()),
            progress.activity("compiling the first step"),
        ):
            return step()

    def run(self, epochs: range, callbacks: CallbackManager) -> None:
        """Train for `epochs` (numbered from 0), or until a callback requests a stop."""
        # In PyNative mode every step is run by itself.
        grouped = self._sink_size is not None and context.graph_mode()
        # Groups are stacked on the host, which needs numpy arrays.
        feed = Feed(self._dataset, output_numpy=grouped, at_once=self._sink_size or 1)
        # An evaluation before this run has switched it off.
        set_training(self._network, self._backbone, True)
        try:
            callbacks.on_train_begin(self._run)
            for epoch in self._after_resumed(epochs, feed):
                self._facts.cur_epoch_num = epoch + 1
                callbacks.on_train_epoch_begin(self._run)
                if grouped:
                    self._run_sink(feed, callbacks)
                else:
                    self._run_steps(feed, callbacks)
                self._after_epoch(callbacks)
                callbacks.on_train_epoch_end(self._run)
                # They belong to the epoch that has just ended.
                for name in ("metrics", "eval_results"):
                    self._facts.pop(name, None)
                if self._run.get_stop_requested():
                    break
            callbacks.on_train_end(self._run)
        finally:
            feed.close()

    def _after_resumed(self, epochs: range, feed: Feed) -> range:
        """The epochs that are left when a callback resumed a run, or when this worker continues one that was killed; the
        batches of the steps before are read and dropped.

        Reading them brings the data pipeline, with its shuffling, to where it stood.
        """
        facts = self._facts
        done = facts.pop("resume_step", facts.cur_step_num) - facts.cur_step_num
        # A worker that continues a killed one queries the servers how far it was.
        by_servers = SESSION.servers.take_steps_done() if SESSION.servers is not None and not done else 0
        done += by_servers
        facts.cur_step_num += done
        steps = self._sink_size or facts.batch_num
        while done >= steps and epochs:
            for _ in feed.epoch() if self._sink_size is None else feed.take(steps):
                # Read and dropped, which brings the data pipeline to its place.
                pass
            done, epochs = done - steps, epochs[1:]
        # A group would begin in the middle of the epoch's steps.
        if done and not by_servers and epochs and self._sink_size is not None and context.graph_mode():
            raise SporaxValueError(
                f"For 'Model', a run in sink mode can be resumed after whole epochs of {steps} steps, but the checkpoint is "
                f"{done} steps into one."
            )
        self._skipped_batches = done
        return epochs

    def _run_steps(self, feed: Feed, callbacks: CallbackManager) -> None:
        """One epoch, step by step."""
        facts = self._facts
        for batch in feed.epoch() if self._sink_size is None else feed.take(self._sink_size):
            if self._skipped_batches:
                self._skipped_batches -= 1
                continue
            self._check_batch(batch)
            facts.cur_step_num += 1
            facts.train_dataset_element = batch
            facts.num_samples = num_samples(batch)
            callbacks.on_train_step_begin(self._run)
            # Callbacks may have switched the network to evaluation.
            set_training(self._network, self._backbone, True)
            facts.net_outputs = self._stepped(partial(self._network, *batch))
            callbacks.on_train_step_end(self._run)
            if self._run.get_stop_requested():
                return

    def _run_sink(self, feed: Feed, callbacks: CallbackManager) -> None:
        """One epoch of sink mode: callbacks get it once before and once after all of its steps."""
        facts = self._facts
        skipped, self._skipped_batches = self._skipped_batches, 0
        facts.cur_step_num += (self._sink_size or 0) - skipped
        facts.num_samples = 0
        callbacks.on_train_step_begin(self._run)
        set_training(self._network, self._backbone, True)
        # Batches of steps that were done before the run was resumed.
        batches = itertools.islice(feed.take(self._sink_size or 0), skipped, None)
        for group in groups(batches, self._steps.groupable):
            self._check_batch(group.last)
            facts.net_outputs = self._stepped(partial(self._steps, group))
            facts.train_dataset_element = group.last
            facts.num_samples += group.num_samples
        callbacks.on_train_step_end(self._run)


def evaluate(
    network: Cell, backbone: Cell, facts: Any, dataset: Any, callbacks: CallbackManager, update: Callable[[Any], None]
) -> RunContext:
    """Run `network` over all of `dataset`; the last event is the caller's, who has metrics to report.

    Args:
        network: gives the outputs metrics are computed from.
        backbone: the user's network inside it.
        facts: what callbacks receive.
        dataset: read once.
        callbacks: called at every step.
        update: called with the outputs of each step.

    Returns:
        The context the callbacks were given.
    """
    run = RunContext(facts)
    feed = Feed(dataset, trains=False)
    network.set_train(False)
    try:
        callbacks.on_eval_begin(run)
        callbacks.on_eval_epoch_begin(run)
        for batch in feed.epoch():
            facts.cur_step_num += 1
            facts.eval_dataset_element = batch
            facts.num_samples = num_samples(batch)
            callbacks.on_eval_step_begin(run)
            set_training(network, backbone, False)
            facts.net_outputs = network(*batch)
            callbacks.on_eval_step_end(run)
            update(facts.net_outputs)
            if run.get_stop_requested():
                break
        callbacks.on_eval_epoch_end(run)
    finally:
        feed.close()
    return run


def set_training(network: Cell, backbone: Cell, mode: bool) -> None:
    """Switch `network` to training or evaluation unless `backbone`, which others switch too, is there already."""
    # Setting the flag goes through all Cells, so it is compared first.
    if backbone.training != mode:
        network.set_train(mode)


def check_two_columns(batch: Batch) -> None:
    """Refuse batches that are not (data, label).

    Raises:
        SporaxValueError: another number of columns.
    """
    if len(batch) != 2:
        raise SporaxValueError(
            f"For 'Model', the dataset must give two columns (data, label) where 'loss_fn' is set, but got {len(batch)}. "
            "Choose two with dataset.project, or compute the loss in the network and leave 'loss_fn' out."
        )


def check_inputs(network: Cell, batch: Batch) -> None:
    """Refuse batches with more columns than a network without loss function takes.

    Raises:
        SporaxValueError: it takes less.
    """
    kinds = [each.kind for each in signature(network.construct).parameters.values()]
    taken = sum(kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    if len(batch) > taken and Parameter.VAR_POSITIONAL not in kinds:
        raise SporaxValueError(
            f"For 'Model', the network must take the columns of the data set, but '{type(network).__name__}' takes {taken} and "
            f"the data set gives {len(batch)}. Set 'loss_fn' where the last has labels, or compute the loss in the network."
        )
