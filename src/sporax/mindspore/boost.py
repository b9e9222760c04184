"""`mindspore.boost`: of that library, accumulated and frozen gradients, centralized ones, and a normalized last layer.

Frozen gradients (`GradientFreeze`): the first layers of a network learn in some steps only, and the backward pass ends behind
them in the others. There is one optimizer per group of layers; each is, with the network, a program of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore._names.missing import missing_name
from sporax.mindspore.common import Parameter, Tensor, dtype as mstype
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.basic import Dense
from sporax.mindspore.nn.cell import Cell, Layer
from sporax.mindspore.nn.convolution import Conv2d
from sporax.mindspore.nn.loss_scale import TrainOneStepWithLossScaleCell
from sporax.mindspore.nn.optim import LARS, Optimizer
from sporax.mindspore.nn.wrap import TrainOneStepCell

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

_NOT_OFFERED = frozenset("AutoBoost AdaSum DimReduce GroupLossScaleManager".split())

__all__ = """
    BoostTrainOneStepCell BoostTrainOneStepWithLossScaleCell CommonHeadLastFN FreezeOpt GradientAccumulation
    GradientFreeze LessBN OptimizerProcess ParameterProcess gradient_accumulation_op gradient_clear_op
""".split()

if not TYPE_CHECKING:  # checkers should see a missing name themselves

    def __getattr__(name: str) -> Any:
        reason = (
            "it chooses changes of what a network learns by itself, or adds gradients up in ways of its own. Train with "
            "Model(…, boost_level='O0'), or use GradientFreeze, LessBN or OptimizerProcess by hand"
        )
        return missing_name(__name__, name, reason if name in _NOT_OFFERED else None)


gradient_accumulation_op = ops.MultitypeFuncGraph("gradient_accumulation_op")
gradient_clear_op = ops.MultitypeFuncGraph("gradient_clear_op")


@gradient_accumulation_op.register("Int64", "Tensor", "Tensor")
def _accumulate(accumulation_step: int, sums: Any, grad: Any) -> Any:
    return ops.assign_add(sums, grad / accumulation_step)


@gradient_clear_op.register("Tensor")
def _clear(sums: Any) -> Any:
    return ops.assign(sums, ops.zeros_like(sums))


class GradientAccumulation(Cell):
    """Adds gradients up and lets the optimizer use their mean at every `max_accumulation_step`-th call.

    Args:
        max_accumulation_step: number of calls for one update.
        optimizer: gets the mean of the gradients.

    Example:
        >>> accumulate = GradientAccumulation(4, optimizer)
        >>> loss = accumulate(loss, grads)
    """

    def __init__(self, max_accumulation_step: int, optimizer: Any) -> None:
        super().__init__()
        self._max_accumulation_step = max_accumulation_step
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.hyper_map = ops.HyperMap()
        self._grad_accumulation = self.weights.clone(prefix="grad_accumulation", init="zeros")
        self._accumulation_step = Parameter(Tensor(0, mstype.int32), name="accumulation_step")

    def construct(self, loss: Any, grads: Any) -> Any:
        """`loss`, after its gradients were added and perhaps used."""
        add = ops.partial(gradient_accumulation_op, self._max_accumulation_step)
        self.hyper_map(add, self._grad_accumulation, grads)
        ops.assign_add(self._accumulation_step, Tensor(1, mstype.int32))
        is_full = self._accumulation_step >= self._max_accumulation_step
        ops.cond(is_full, self._update, lambda: Tensor(False))
        return loss

    def _update(self) -> Tensor:
        """Let the optimizer use the sums, and begin again."""
        self.optimizer(self._grad_accumulation)
        ops.assign(self._accumulation_step, Tensor(0, mstype.int32))
        self.hyper_map(ops.partial(gradient_clear_op), self._grad_accumulation)
        return Tensor(True)


class CommonHeadLastFN(Layer):
    """A last layer of directions: ``multiplier * (x / |x| @ (weight / |weight|).T + bias)``.

    Raises:
        SporaxTypeError, SporaxValueError: sizes that are no positive ints, or `has_bias` no bool.
    """

    in_channels: int = setting(argument.positive_int, "size of the input's last dimension.", attribute=False)
    out_channels: int = setting(argument.positive_int, "size of the output's last dimension.", attribute=False)
    weight_init: Any = setting(
        None, "initializer of `weight`, (out_channels, in_channels).", default="normal", attribute=False
    )
    bias_init: Any = setting(None, "initializer of `bias`, (out_channels,).", default="zeros", attribute=False)
    has_bias: bool = setting(argument.boolean, "whether there is a bias.", default=True)

    def _prepare(self, in_channels: int, out_channels: int, weight_init: Any, bias_init: Any) -> None:
        self.weight = Parameter(initializer(weight_init, (out_channels, in_channels)), name="weight")
        self.x_norm, self.w_norm = ops.L2Normalize(axis=1), ops.L2Normalize(axis=1)
        self.fc = ops.MatMul(transpose_b=True)
        self.multiplier = Parameter(Tensor([1.0], mstype.float32), name="multiplier")
        if self.has_bias:
            self.bias_add = ops.BiasAdd()
            self.bias = Parameter(initializer(bias_init, (out_channels,)), name="bias")

    def construct(self, x: Any) -> Any:
        """`x`: (N, in_channels); gives (N, out_channels)."""
        result = self.fc(self.x_norm(x), self.w_norm(self.weight))
        return self.multiplier * (self.bias_add(result, self.bias) if self.has_bias else result)


class LessBN(Cell):
    """Runs a network whose last `Dense` layers may be replaced by `CommonHeadLastFN`.

    MindSpore's compiler also leaves out some batch norms; XLA has no counterpart of that, which is said.

    Args:
        network: the network, which is changed.
        fn_flag: replace the last `Dense` Cell of each Cell that has some; the new one has the same weight and no bias.
    """

    def __init__(self, network: Cell, fn_flag: bool = False) -> None:
        super().__init__()
        self.network = network
        if "less_bn" in network.get_flags():
            return
        network.set_boost("less_bn")
        if argument.boolean("LessBN", "fn_flag", fn_flag):
            _normalize_last(network)

    def construct(self, *inputs: Any) -> Any:
        """What the network gives."""
        return self.network(*inputs)


def _normalize_last(net: Cell) -> None:
    """Replace the last of the `Dense` children of each Cell."""
    last = None
    for name, child in net.name_cells().items():
        if isinstance(child, Dense):
            last = name, child
        else:
            _normalize_last(child)
    if last is None:
        return
    name, dense = last
    new = CommonHeadLastFN(dense.in_channels, dense.out_channels, dense.weight, has_bias=False)
    new.update_parameters_name(dense.weight.name.removesuffix("weight"))
    net.insert_child_to_cell(name, new)
    new._take_name(name)


class OptimizerProcess:
    """Makes an optimizer like another one, with centralized gradients.

    Args:
        opt: the other optimizer.

    Raises:
        SporaxTypeError: not an optimizer.

    Example:
        >>> process = OptimizerProcess(optimizer)
        >>> process.add_grad_centralization(network)
        >>> optimizer = process.generate_new_optimizer()
    """

    def __init__(self, opt: Any) -> None:
        For("OptimizerProcess").typed("opt", opt, "an Optimizer", Optimizer)
        inner: Any = opt.opt if isinstance(opt, LARS) else opt
        self.is_lars = isinstance(opt, LARS)
        self.lars_init_args = getattr(opt, "init_args", {}) if self.is_lars else {}
        self.opt_class = type(inner)
        self.opt_init_args: dict[str, Any] = inner.init_args
        self.learning_rate = inner.learning_rate if inner.init_learning_rate is None else inner.init_learning_rate
        self.origin_params: Any = inner.init_params["params"]

    def add_grad_centralization(self, network: Cell) -> None:
        """Centralize the gradients of weights; of parameter groups only, as in MindSpore.

        Args:
            network: has the Parameters. Those of convolutions in groups and of `CommonHeadLastFN`, biases and norms stay.
        """
        groups = list(self.origin_params)
        if not groups or not isinstance(groups[0], dict):
            return
        owners = {p: cell for _, cell in network.cells_and_names() for p in cell.get_parameters(expand=False)}
        self.origin_params = [part for group in groups for part in _centralized(group, owners)]

    def generate_new_optimizer(self, params: Any = None, learning_rate: Any = None) -> Any:
        """An optimizer of the same class and settings.

        Args:
            params: Parameters or groups; those of the other optimizer by default.
            learning_rate: that of the other optimizer by default.
        """
        rate = self.learning_rate if learning_rate is None else learning_rate
        made = self.opt_class(
            params=self.origin_params if params is None else params, learning_rate=rate, **self.opt_init_args
        )
        return LARS(made, **self.lars_init_args) if self.is_lars else made


def _centralized(group: dict[str, Any], owners: dict[Parameter, Cell]) -> list[dict[str, Any]]:
    """A group in two: Parameters whose gradients are centralized, and the others."""
    if "order_params" in group:
        return [group]

    def stays(parameter: Parameter) -> bool:
        owner = owners.get(parameter)
        in_groups = isinstance(owner, Conv2d) and owner.group > 1
        is_norm = any(word in parameter.name for word in ("beta", "gamma", "bias"))
        return is_norm or in_groups or isinstance(owner, CommonHeadLastFN)

    parts = {unchanged: [p for p in group["params"] if stays(p) == unchanged] for unchanged in (False, True)}
    changed = {**group, "params": parts[False], "grad_centralization": True}
    return [part for part in (changed, {**group, "params": parts[True]}) if part["params"]]


def _members(group: dict[str, Any]) -> Sequence[Parameter]:
    """The Parameters of a group; none of the group that states their order."""
    return () if "order_params" in group else group["params"]


def _with_only(
    group: dict[str, Any], by_name: dict[str, Parameter], parameters: Sequence[Parameter]
) -> list[dict[str, Any]]:
    """The group with some Parameters alone; none where it has none of them, which optimizers refuse."""
    if "order_params" in group:
        return [{**group, "order_params": list(parameters)}]
    members = [by_name[parameter.name] for parameter in _members(group) if parameter.name in by_name]
    return [{**group, "params": members}] if members else []


class ParameterProcess:
    """Groups of Parameters: for optimizers, and for the fusion of their gradients."""

    def __init__(self) -> None:
        self._parameter_indices = 1

    @staticmethod
    def generate_group_params(parameters: Sequence[Parameter], origin_params: Any) -> list[dict[str, Any]]:
        """Groups for some of an optimizer's Parameters, with the settings of the groups they were in.

        Args:
            parameters: those that groups are made of.
            origin_params: what the optimizer was made with; Parameters that are in none of its groups get the settings of
                the group with most of them.

        Raises:
            SporaxValueError: `origin_params` is empty.
            SporaxTypeError: it holds neither Parameters nor dicts.
        """
        origin = list(origin_params or ())
        For("ParameterProcess").refuse(not origin, "'origin_params' must not be empty")
        if isinstance(origin[0], Parameter):
            return [{"params": list(parameters)}]
        For("ParameterProcess").refuse_type(
            not isinstance(origin[0], dict), "'origin_params' must hold Parameters or dicts", type(origin[0]).__name__
        )
        by_name = {parameter.name: parameter for parameter in parameters}
        groups = [group for entry in origin for group in _with_only(entry, by_name, parameters)]
        grouped = {parameter.name for entry in origin for parameter in _members(entry)}
        left = [parameter for name, parameter in by_name.items() if name not in grouped]
        if left:
            settings = max((group for group in origin if "params" in group), key=len, default={})
            groups.append({**settings, "params": left})
        return groups

    def assign_parameter_group(self, parameters: Any, split_point: Sequence[int] | None = None) -> Any:
        """Give Parameters fusion numbers: another one begins at each split point, by default in the middle.

        Args:
            parameters: list or tuple of Parameters; anything else, or an empty one, comes back as it is.
            split_point: positions.
        """
        if not isinstance(parameters, list | tuple) or not parameters:
            return parameters
        points = split_point or [len(parameters) // 2]
        for index, parameter in enumerate(parameters):
            self._parameter_indices += index in points
            parameter.comm_fusion = self._parameter_indices
        return parameters


class FreezeOpt(Cell):
    """An optimizer for each group of Parameters; `BoostTrainOneStepCell` uses one of them per step.

    Args:
        opt: made again for each group, with the group's Parameters.
        train_parameter_groups: lists of Parameters, or of parameter groups; None: one group with all.
        train_strategy: for each step the number of its group; None: one after another.

    Raises:
        SporaxTypeError: `opt` is no optimizer, or the groups no lists.
        SporaxValueError: a strategy without groups, or with a number that is none of theirs.
    """

    def __init__(self, opt: Any, train_parameter_groups: Any = None, train_strategy: Any = None) -> None:
        super().__init__(auto_prefix=False)
        process = OptimizerProcess(opt)
        if train_strategy is not None and train_parameter_groups is None:
            raise For("FreezeOpt").error("'train_strategy' needs 'train_parameter_groups', but they are None")
        groups = [list(opt.parameters)] if train_parameter_groups is None else train_parameter_groups
        if not isinstance(groups, list | tuple) or any(not isinstance(group, list | tuple) for group in groups):
            raise SporaxTypeError("For 'FreezeOpt', 'train_parameter_groups' must be a list of lists.")
        self.train_strategy = None if train_strategy is None else _strategy(train_strategy, len(groups))
        self.parameters = opt.parameters
        self.opts = [
            process.generate_new_optimizer(list(group), self._rates(process.learning_rate, index))
            for index, group in enumerate(groups)
        ]

    def _rates(self, rate: Any, group: int) -> Any:
        """Of one rate per step, those of the steps in which a group learns."""
        if not isinstance(rate, list) or self.train_strategy is None:
            return rate
        own = [value for value, index in zip(rate, self.train_strategy, strict=False) if index == group]
        return own or rate[:1]


def _strategy(strategy: Any, count: int) -> tuple[int, ...]:
    values = strategy.asnumpy().tolist() if isinstance(strategy, Tensor) else list(strategy)
    if any(type(value) is not int or not 0 <= value < count for value in values) or not values:
        raise For("FreezeOpt").error(f"'train_strategy' must hold numbers of {count} groups", strategy)
    return tuple(values)


class GradientFreeze:
    """Lets the first layers of a network learn in some steps only.

    Args:
        param_groups: number of groups; group i has all layers but about i / param_groups of them, from the first on.
        freeze_type: 0: all groups one after another, again and again; 1: groups at random, between steps of the whole.
        freeze_p: share of the steps in which nothing is frozen.
        total_steps: number of steps of the training.

    Example:
        >>> network, optimizer = GradientFreeze(3, 0, 0.5, 2000).freeze_generate(network, optimizer)
        >>> step = BoostTrainOneStepCell(network, optimizer)
    """

    def __init__(self, param_groups: int, freeze_type: int, freeze_p: float, total_steps: int) -> None:
        self._param_groups = argument.positive_int("GradientFreeze", "param_groups", param_groups)
        self._freeze_type = argument.one_of("GradientFreeze", "freeze_type", freeze_type, (0, 1))
        self._freeze_p = argument.within("GradientFreeze", "freeze_p", freeze_p, 0, 1, "[)")
        self._total_steps = argument.positive_int("GradientFreeze", "total_steps", total_steps)

    def split_parameters_groups(self, net: Cell, freeze_para_groups_number: int) -> list[list[Parameter]]:
        """The Parameters of each group: those of a layer and the norm behind it stay together.

        Args:
            net: the network.
            freeze_para_groups_number: number of groups.
        """
        units: list[list[Parameter]] = []
        present: list[Parameter] = []
        for parameter in net.trainable_params():
            if "bn" not in parameter.name and "bias" not in parameter.name and len(present) >= 3:
                units.append(present)
                present = []
            present.append(parameter)
        units += [present] if present else []
        stride = len(units) // freeze_para_groups_number
        return [
            [parameter for unit in units[index * stride :] for parameter in unit]
            for index in range(freeze_para_groups_number)
        ]

    def generate_freeze_index_sequence(
        self, parameter_groups_number: int, freeze_strategy: int, freeze_p: float, total_steps: int
    ) -> list[int]:
        """The group of each step, for one percent more steps than `total_steps`; random ones are drawn by numpy.

        Args:
            parameter_groups_number, freeze_strategy, freeze_p, total_steps: see the class.

        Raises:
            SporaxValueError: no such strategy.
        """
        count, last = int(total_steps * 1.01), parameter_groups_number - 1
        if last <= 0:
            return [0] * count
        sequence: list[int] = []
        if freeze_strategy == 0:
            once = [0] * int(freeze_p * last // (1 - freeze_p) + 0.5) + list(range(1, parameter_groups_number))
            while len(sequence) < count:
                sequence += once
            return sequence
        For("GradientFreeze").refuse(freeze_strategy != 1, "'freeze_strategy' must be 0 or 1", freeze_strategy)
        groups = list(range(1, parameter_groups_number))
        shares = [group / sum(groups) for group in groups]
        sequence, frozen = [0], 0
        while len(sequence) < count:
            # Groups that freeze little are more likely.
            if frozen / len(sequence) < 1 - freeze_p:
                sequence.append(int(np.random.choice(groups[::-1], p=shares)))
                frozen += 1
            else:
                sequence.append(0)
        return sequence

    def freeze_generate(self, network: Cell, optimizer: Any) -> tuple[Cell, FreezeOpt]:
        """The network, and a `FreezeOpt` for it.

        Args:
            network: the network with its loss.
            optimizer: updates its Parameters.
        """
        parts = self.split_parameters_groups(network, self._param_groups)
        origin = OptimizerProcess(optimizer).origin_params
        groups = [ParameterProcess.generate_group_params(part, origin) for part in parts]
        sequence = self.generate_freeze_index_sequence(
            self._param_groups, self._freeze_type, self._freeze_p, self._total_steps
        )
        return network, FreezeOpt(optimizer, groups, sequence)


class _Alternating:
    """Which of several training Cells does the next step.

    Args:
        cells: one for each optimizer.
        strategy: their numbers by step; None: one after another. It begins again when it ends.
    """

    def __init__(self, cells: list[Cell], strategy: tuple[int, ...] | None) -> None:
        self._cells = cells
        self._strategy = strategy or tuple(range(len(cells)))
        self._step = 0

    def next(self) -> Cell:
        """The Cell of the next step."""
        cell = self._cells[self._strategy[self._step]]
        self._step = (self._step + 1) % len(self._strategy)
        return cell


class BoostTrainOneStepCell(TrainOneStepCell):
    """`TrainOneStepCell`; with a `FreezeOpt` one of its optimizers per step, each step a program of its group's own.

    Args:
        network: gives the loss.
        optimizer: an optimizer, or a `FreezeOpt`.
        sens: the loss is multiplied by it before it is differentiated.
    """

    def __init__(self, network: Cell, optimizer: Any, sens: float = 1.0) -> None:
        frozen = isinstance(optimizer, FreezeOpt)
        super().__init__(network, optimizer.opts[0] if frozen else optimizer, sens)
        self._alternating: _Alternating | None = None
        if frozen:
            cells: list[Cell] = [TrainOneStepCell(network, part, sens) for part in optimizer.opts]
            self._alternating = _Alternating(cells, optimizer.train_strategy)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do one step; gives the loss."""
        if self._alternating is None:
            return super().__call__(*args, **kwargs)
        return self._alternating.next()(*args, **kwargs)


class BoostTrainOneStepWithLossScaleCell(TrainOneStepWithLossScaleCell):
    """`TrainOneStepWithLossScaleCell`; with a `FreezeOpt` one of its optimizers per step.

    Args:
        network: gives the loss.
        optimizer: an optimizer, or a `FreezeOpt`.
        scale_sense: a Tensor, or a Cell that follows overflows.
    """

    def __init__(self, network: Cell, optimizer: Any, scale_sense: Any) -> None:
        frozen = isinstance(optimizer, FreezeOpt)
        super().__init__(network, optimizer.opts[0] if frozen else optimizer, scale_sense)
        self._alternating: _Alternating | None = None
        if frozen:
            cells: list[Cell] = [TrainOneStepWithLossScaleCell(network, part, scale_sense) for part in optimizer.opts]
            self._alternating = _Alternating(cells, optimizer.train_strategy)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do one step; gives what `TrainOneStepWithLossScaleCell` gives."""
        if self._alternating is None:
            return super().__call__(*args, **kwargs)
        return self._alternating.next()(*args, **kwargs)
