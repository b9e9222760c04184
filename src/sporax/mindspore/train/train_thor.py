"""Training with THOR: a `Model` that renews the second-order matrices now and then, and how to get one."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import For
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.optim.thor import ThorGpu
from sporax.mindspore.nn.second_order import ConvertNetUtils
from sporax.mindspore.nn.wrap import TrainOneStepCell
from sporax.mindspore.train._feed import Batch, Group
from sporax.mindspore.train._loop import GroupedSteps
from sporax.mindspore.train.model import Model

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["ConvertModelUtils", "ConvertNetUtils", "ModelThor"]


class ModelThor(Model):
    """`Model` for the optimizer `nn.thor`.

    In sink mode under GRAPH_MODE the matrices are renewed in the first of every ``frequency`` steps, and the other steps, which
    are a program of their own, use them as they are; elsewhere every step renews them. As with `Model`, callbacks get each
    sink once.

    Args:
        network, loss_fn, optimizer, metrics, eval_network, eval_indexes, amp_level, options: as of `Model`. Without an
            `optimizer` the network must be a `TrainOneStepCell`, which has one.

    Raises:
        SporaxTypeError: the optimizer is not THOR; or as of `Model`.
    """

    def __init__(
        self,
        network: Any,
        loss_fn: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        eval_network: Any = None,
        eval_indexes: list[int] | None = None,
        amp_level: str = "O0",
        **options: Any,
    ) -> None:
        chosen = network.optimizer if isinstance(network, TrainOneStepCell) else optimizer
        if not isinstance(chosen, ThorGpu):
            raise For("ModelThor").type_error("the optimizer must be one that nn.thor made", type(chosen).__name__)
        super().__init__(network, loss_fn, optimizer, metrics, eval_network, eval_indexes, amp_level, **options)
        self._frequency = chosen.get_frequency()
        self._steps = self._schedule = _SteppedThor(self._train_network, self._frequency)

    def _fit(self, *args: Any, **kwargs: Any) -> None:
        self._schedule.begin()
        try:
            super()._fit(*args, **kwargs)
        finally:
            # Steps outside of a sink, and of the next run, are second-order from the start.
            self._schedule.switch(True)


class _SteppedThor(GroupedSteps):
    """Steps of which one in `frequency` is second-order.

    Args:
        network: does one step.
        frequency: steps from one renewal of the matrices to the next.
    """

    def __init__(self, network: Cell, frequency: int) -> None:
        super().__init__(network)
        self._frequency = frequency
        self._number = 0
        self._is_second_order: bool | None = None

    def begin(self) -> None:
        """Let the next step be second-order."""
        self._number = 0

    def switch(self, second_order: bool) -> None:
        """Say which kind of step comes next; the flags are part of what a compiled step was made for."""
        if second_order != self._is_second_order:
            self.network.add_flags_recursive(thor=second_order)
            self._is_second_order = second_order

    def groupable(self, batch: Batch) -> bool:
        """Never: a group would mix both kinds of steps."""
        return False

    def __call__(self, group: Group) -> Any:
        """Run the step of `group`."""
        self.switch(self._number % self._frequency == 0)
        self._number += 1
        return super().__call__(group)


class ConvertModelUtils:
    """Turns a `Model` into one that trains with THOR."""

    @staticmethod
    def convert_to_thor_model(
        model: Any,
        network: Any,
        loss_fn: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        amp_level: str = "O0",
        loss_scale_manager: Any = None,
        keep_batchnorm_fp32: bool = False,
    ) -> Any:
        """A `ModelThor` of the given parts if `optimizer` is THOR; else `model`.

        Args:
            model: given back where the optimizer is another.
            network, loss_fn, optimizer, metrics, amp_level, loss_scale_manager, keep_batchnorm_fp32: as of `Model`; a
                `TrainOneStepCell` as network has loss and optimizer in it, and the rest is not used.

        Raises:
            SporaxTypeError, SporaxValueError: as of `Model`.
        """
        if not isinstance(optimizer, ThorGpu):
            return model
        if isinstance(network, TrainOneStepCell):
            return ModelThor(network)
        return ModelThor(
            network,
            loss_fn,
            optimizer,
            metrics,
            amp_level=amp_level,
            loss_scale_manager=loss_scale_manager,
            keep_batchnorm_fp32=keep_batchnorm_fp32,
        )
