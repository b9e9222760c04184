"""Callbacks that watch a number and act when it stops getting better."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.common import Parameter, Tensor
from sporax.mindspore.train._ranks import mean_over_ranks
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss

_SMALLER_IS_BETTER = frozenset(
    """
    hausdorff_distance mae mse loss perplexity mean_surface_distance root_mean_square_distance eval_loss
    """.split()
)


class _Watch(Callback):
    """A number of the run, and the best value it had; base of the callbacks that act on it.

    Args:
        monitor: ``"loss"``, ``"eval_loss"`` or the name of a metric.
        mode: ``"min"``, ``"max"``, or ``"auto"`` for what the name suggests.
        min_delta: how much better counts as better.
    """

    def __init__(self, monitor: Any, mode: Any, min_delta: Any) -> None:
        owner = type(self).__name__
        self.monitor = For(owner).text("monitor", monitor)
        self.mode = For(owner).text("mode", mode, ("auto", "min", "max"))
        # MindSpore takes the absolute value.
        self.min_delta = abs(For(owner).number("min_delta", min_delta))
        # With a sign one comparison serves both directions.
        self._sign = 1.0 if mode == "min" or (mode == "auto" and monitor in _SMALLER_IS_BETTER) else -1.0
        self.best = self._sign * math.inf

    def _forget(self) -> None:
        """Start again."""
        self.best = self._sign * math.inf

    def is_improvement(self, value: float, than: float) -> bool:
        """Whether `value` is better than `than` by more than `min_delta`."""
        return self._sign * (than - value) > self.min_delta

    def _value(self, facts: Any) -> float | None:
        """The number at the end of this epoch, averaged over ranks; None (with a warning) if it is not known."""
        results = {**(facts.get("eval_results") or {}), "loss": scalar_loss(facts.get("net_outputs"))}
        monitored = results.get(self.monitor)
        if monitored is None:
            warnings.warn(
                f"For '{type(self).__name__}', 'monitor' is '{self.monitor}', but this epoch knows only {sorted(results)}.",
                stacklevel=2,
            )
            return None
        # A metric per class has no single best value.
        if np.ndim(monitored) > 0:
            raise For(type(self).__name__).error(
                "'monitor' must name a single number", f"'{self.monitor}' of shape {np.shape(monitored)}"
            )
        # All ranks must make the same decision, or some would go on alone.
        return mean_over_ranks(float(monitored))


class EarlyStopping(_Watch):
    """Ends training when a number has stopped getting better.

    Differs from MindSpore's in that an epoch that does get better never ends training, also with ``patience=0``.

    Args:
        monitor: ``"loss"``; in `Model.fit` also ``"eval_loss"`` or the name of a metric.
        min_delta: how much better counts as better.
        patience: epochs without getting better after which training ends.
        verbose: print what is done.
        mode: ``"min"``, ``"max"``, or ``"auto"`` for what the name suggests.
        baseline: epochs count as getting better only beyond this value.
        restore_best_weights: go back to the values of the best epoch when training ends this way.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(
        self,
        monitor: str = "eval_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: bool = False,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience = For("EarlyStopping").integer("patience", patience, 0)
        self.verbose = For("EarlyStopping").boolean("verbose", verbose)
        self.baseline = None if baseline is None else For("EarlyStopping").number("baseline", baseline)
        self.restore_best_weights = For("EarlyStopping").boolean("restore_best_weights", restore_best_weights)
        self.wait = 0
        self.stopped_epoch = 0
        self._best_values: list[tuple[Parameter, Tensor]] = []

    def on_train_begin(self, run_context: RunContext) -> None:
        """Start again."""
        self.wait = self.stopped_epoch = 0
        self._best_values = []
        self._forget()

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Look at the number, and request a stop after `patience` epochs without getting better."""
        facts = run_context.original_args()
        value = self._value(facts)
        if value is None:
            return
        better = self.is_improvement(value, self.best)
        if better:
            self.best = value
        if self.restore_best_weights and (better or not self._best_values):
            # Values and not Parameters, which change with the next step.
            self._best_values = [(parameter, parameter.value()) for parameter in facts.train_network.get_parameters()]
        if better and (self.baseline is None or self.is_improvement(value, self.baseline)):
            self.wait = 0
            return
        self.wait += 1
        if self.wait >= self.patience:
            self._stop(run_context)

    def _stop(self, run_context: RunContext) -> None:
        self.stopped_epoch = run_context.original_args().cur_epoch_num
        run_context.request_stop()
        if self.verbose and self._best_values:
            print("Restoring model weights from the end of the best epoch.", flush=True)
        for parameter, value in self._best_values:
            parameter.set_data(value)

    def on_train_end(self, run_context: RunContext) -> None:
        """Report when training was ended."""
        if self.stopped_epoch and self.verbose:
            print(f"Epoch {self.stopped_epoch:05d}: early stopping", flush=True)


class ReduceLROnPlateau(_Watch):
    """Lowers the learning rate when a number has stopped getting better.

    Args:
        monitor, mode, min_delta: as in `EarlyStopping`.
        factor: the new rate is the old one times this.
        patience: epochs without getting better after which the rate is lowered.
        verbose: print what is done.
        cooldown: epochs after that in which nothing is counted.
        min_lr: the rate stays above this.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid; or, during training, the optimizer has no single
            learning rate that can be set.
    """

    def __init__(
        self,
        monitor: str = "eval_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: bool = False,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if not 0 < For("ReduceLROnPlateau").number("factor", factor) < 1:
            raise SporaxValueError(f"For 'ReduceLROnPlateau', 'factor' must be between 0 and 1, but got {factor}.")
        self.factor = factor
        self.patience = For("ReduceLROnPlateau").integer("patience", patience, 0)
        self.verbose = For("ReduceLROnPlateau").boolean("verbose", verbose)
        self.cooldown = For("ReduceLROnPlateau").integer("cooldown", cooldown, 0)
        self.min_lr = For("ReduceLROnPlateau").number("min_lr", min_lr)
        self.cooldown_counter = 0
        self.wait = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        """Start again."""
        self.cooldown_counter = self.wait = 0
        self._forget()

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Look at the number, and lower the rate after `patience` epochs without getting better."""
        facts = run_context.original_args()
        rate = settable_rate("ReduceLROnPlateau", facts.optimizer)
        value = self._value(facts)
        if value is None:
            return
        # While the rate cools down, epochs do not count.
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self.is_improvement(value, self.best):
            self.best = value
            self.wait = 0
        elif self.cooldown_counter <= 0:
            self.wait += 1
            if self.wait >= self.patience:
                self._reduce(rate, facts.cur_epoch_num)

    def _reduce(self, rate: Parameter, epoch: int) -> None:
        self.cooldown_counter = self.cooldown
        self.wait = 0
        old = float(rate.asnumpy())
        if old > self.min_lr:
            new = max(old * self.factor, self.min_lr)
            rate.set_data(Tensor(new, rate.dtype))
            if self.verbose:
                print(f"Epoch {epoch:05d}: ReduceLROnPlateau reducing learning rate to {new}.", flush=True)


class LearningRateScheduler(Callback):
    """Sets the learning rate after every step.

    Args:
        learning_rate_function: (present rate, number of steps done) -> new rate.

    Raises:
        SporaxValueError: during training: the optimizer has no single learning rate that can be set.
    """

    receives_evaluation_in_fit = False

    def __init__(self, learning_rate_function: Any) -> None:
        self.learning_rate_function = learning_rate_function

    def step_end(self, run_context: RunContext) -> None:
        """Set the rate."""
        facts = run_context.original_args()
        rate = settable_rate("LearningRateScheduler", facts.optimizer)
        # The shortest number that is this float32, as users wrote it.
        old = float(str(rate.asnumpy()))
        new = float(self.learning_rate_function(old, facts.cur_step_num))
        # An assignment costs a transfer to the device.
        if not math.isclose(old, new, rel_tol=1e-10):
            rate.set_data(Tensor(new, rate.dtype))


def settable_rate(where: str, optimizer: Any) -> Parameter:
    """The Parameter that holds the learning rate.

    Raises:
        SporaxValueError: there is no optimizer, or its rate is a list, a schedule, or differs between groups.
    """
    rate = getattr(optimizer, "learning_rate", None)
    # Groups of parameters may have rates of their own.
    if not isinstance(rate, Parameter) or rate.shape or len(getattr(optimizer, "rates", ())) > 1:
        raise SporaxValueError(
            f"For '{where}', the optimizer must have one learning rate that is a number, but "
            f"{type(optimizer).__name__} has {'several' if len(getattr(optimizer, 'rates', ())) > 1 else type(rate).__name__}."
        )
    return rate
