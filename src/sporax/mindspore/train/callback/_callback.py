"""What a callback is, and what it receives.

A run of `Model` keeps one dictionary of facts about itself (`InternalCallbackParam`), wrapped in a `RunContext` through
which a callback may also request the run to stop. `CallbackManager` passes every event on to all callbacks in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Self

from sporax.base.errors import For, SporaxAttributeError, SporaxValueError
from sporax.mindspore.common.tensor import Tensor

_EVENTS = ("begin", "epoch_begin", "epoch_end", "step_begin", "step_end", "end")


class Callback:
    """Base class of callbacks: override the events of interest; each gets the run's `RunContext`.

    A callback is also a context manager that is entered when the run starts and left when it ends. The events without
    prefix are MindSpore's older names: they are called in training and in evaluation unless the newer one is overridden.

    Attributes:
        receives_evaluation_in_fit: whether it is called for evaluations inside `Model.fit`.

    Example:
        >>> class PrintStep(Callback):
        ...     def on_train_step_end(self, run_context):
        ...         print(run_context.original_args().cur_step_num)
    """

    receives_evaluation_in_fit = True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def begin(self, run_context: RunContext) -> None:
        """Called before the first step."""

    def epoch_begin(self, run_context: RunContext) -> None:
        """Called before each epoch."""

    def epoch_end(self, run_context: RunContext) -> None:
        """Called after each epoch."""

    def step_begin(self, run_context: RunContext) -> None:
        """Called before each step."""

    def step_end(self, run_context: RunContext) -> None:
        """Called after each step."""

    def end(self, run_context: RunContext) -> None:
        """Called after the last step."""

    def on_train_begin(self, run_context: RunContext) -> None:
        """Called before training."""
        self.begin(run_context)

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """Called before each training epoch."""
        self.epoch_begin(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Called after each training epoch, and after its evaluation in `Model.fit`."""
        self.epoch_end(run_context)

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Called before each training step; in sink mode before each group of steps."""
        self.step_begin(run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Called after each training step; in sink mode after each group of steps."""
        self.step_end(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """Called after training."""
        self.end(run_context)

    def on_eval_begin(self, run_context: RunContext) -> None:
        """Called before evaluation."""
        self.begin(run_context)

    def on_eval_epoch_begin(self, run_context: RunContext) -> None:
        """Called before the evaluation data are read."""
        self.epoch_begin(run_context)

    def on_eval_epoch_end(self, run_context: RunContext) -> None:
        """Called after all evaluation data were read."""
        self.epoch_end(run_context)

    def on_eval_step_begin(self, run_context: RunContext) -> None:
        """Called before each evaluation step."""
        self.step_begin(run_context)

    def on_eval_step_end(self, run_context: RunContext) -> None:
        """Called after each evaluation step."""
        self.step_end(run_context)

    def on_eval_end(self, run_context: RunContext) -> None:
        """Called after evaluation."""
        self.end(run_context)


class CallbackManager(Callback):
    """Passes every event on to several callbacks, in their order.

    Args:
        callbacks: a callback, a list of them, or None.

    Raises:
        SporaxTypeError: something else.
    """

    def __init__(self, callbacks: Any = None) -> None:
        self._callbacks = as_callbacks(callbacks)
        self._stack = ExitStack()

    @property
    def callbacks(self) -> list[Callback]:
        """The callbacks, in their order."""
        return self._callbacks

    def __enter__(self) -> Self:
        entered = [(callback, self._stack.enter_context(callback)) for callback in self._callbacks]
        # `__enter__` may give another callback, as MindSpore allows.
        self._callbacks = [target if isinstance(target, Callback) else callback for callback, target in entered]
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def _forwarder(event: str) -> Any:
    def forward(self: CallbackManager, run_context: RunContext) -> None:
        for callback in self._callbacks:
            getattr(callback, event)(run_context)

    forward.__name__ = event
    forward.__doc__ = f"Call `{event}` of every callback."
    return forward


# Made in a loop, since all events are forwarded in the same way.
for _event in (*_EVENTS, *(f"on_{phase}_{event}" for phase in ("train", "eval") for event in _EVENTS)):
    setattr(CallbackManager, _event, _forwarder(_event))


class InternalCallbackParam(dict[str, Any]):
    """Facts about a run, as a dictionary whose entries are also attributes."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise SporaxAttributeError(
                f"For 'RunContext.original_args', '{key}' is not among what is known here: {sorted(self)}."
            ) from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value


class RunContext:
    """What a callback is given: the facts about the run, and a way to stop it.

    Args:
        original_args: the facts. In training: ``train_network, network, loss_fn, optimizer, epoch_num, batch_num,
            train_dataset, train_dataset_element, cur_epoch_num, cur_step_num, dataset_sink_mode, net_outputs, mode,
            parallel_mode, device_number, list_callback``; in evaluation ``eval_network, valid_dataset,
            eval_dataset_element, batch_num, cur_step_num, net_outputs, metrics, mode``.

    Raises:
        SporaxTypeError: `original_args` is not a dict.
    """

    def __init__(self, original_args: dict[str, Any]) -> None:
        self._original_args = For("RunContext").typed("original_args", original_args, "a dict", dict)
        self._stop_requested = False

    def original_args(self) -> Any:
        """The facts about the run; callbacks may add to them."""
        return self._original_args

    def request_stop(self) -> None:
        """End the run after the present step."""
        self._stop_requested = True

    def get_stop_requested(self) -> bool:
        """Whether a callback requested the run to end."""
        return self._stop_requested


def set_cur_net(net: Any) -> None:
    """MindSpore's note of the network that its `Save` operator writes, which is not offered: nothing reads it here."""


def as_callbacks(callbacks: Any) -> list[Callback]:
    """One callback, several or None, as a list.

    Raises:
        SporaxTypeError: something among them is not a Callback.
    """
    if callbacks is None:
        return []
    # A single callback may be given without a list.
    items = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for callback in items:
        For("Model").typed("callbacks", callback, "a Callback or a list of Callbacks", Callback)
    return items


def check_events(callbacks: Iterable[Callback]) -> None:
    """Refuse callbacks of users that override the older events in `Model.fit`, where those would be ambiguous.

    Raises:
        SporaxValueError: names the callback and the events.
    """
    for callback in callbacks:
        own = type(callback)
        old = [event for event in _EVENTS if event in own.__dict__]
        # Callbacks of Sporax handle both phases.
        if old and not own.__module__.startswith("sporax."):
            raise SporaxValueError(
                f"For 'Model.fit', callback '{own.__name__}' must use the events that start with 'on_train' or 'on_eval', "
                f"but it overrides {old}, which training and evaluation share."
            )


def _handle_loss(loss: Any) -> Any:
    """What MindSpore's callbacks make of a loss: the first of several Tensors, or the mean of one as a float."""
    if isinstance(loss, tuple | list):
        return loss[0] if isinstance(loss[0], Tensor) else loss
    return scalar_loss(loss)


def scalar_loss(outputs: Any) -> Any:
    """The loss in what a training network returned: its first output, averaged, as a Python float where it is a Tensor."""
    # MindSpore's callbacks print the mean of a loss with several values.
    first = outputs[0] if isinstance(outputs, tuple | list) and outputs else outputs
    return float(first.asnumpy().mean()) if isinstance(first, Tensor) else first
