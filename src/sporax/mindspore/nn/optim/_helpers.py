"""What optimizers written by users take from their base class: flags, maps and helpers with MindSpore's names.

An optimizer derived from `Optimizer` may define `construct` itself, of ``self.get_lr()``, ``self.decay_weight(gradients)``,
``self.hyper_map(function, …)`` and assignments to its Parameters. All of it is plain code on Tensors, so a step with such an
optimizer compiles, and is sharded over devices, as one with ours.

Optimizer parallel in data-parallel mode: Parameters are dealt to the ranks like cards, each updated by one of them.

Gradients are the same on all ranks there, so all would compute the same update. With ``enable_parallel_optimizer`` Parameter
number i is moved by rank i mod n alone, and the others take it over. MindSpore offers this on Ascend only; here it works
on every device. The state of a Parameter moves on its rank alone: elsewhere it keeps its first values.

The part of an optimizer that parameter servers do: which Parameters, by which rule, and the exchange of a step.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir.config import ParallelMode
from sporax.mindspore import context, ops
from sporax.mindspore.common import Parameter, ParameterTuple, Tensor, dtypes
from sporax.runtime import world
from sporax.runtime.ranks import flat_buffers, groups, server_exchange
from sporax.runtime.state import frames

if TYPE_CHECKING:
    from sporax.mindspore.nn.optim._optimizer import Optimizer
    from sporax.ps.worker.row_cache import RowCache
    from sporax.ps.worker.server_connection import ServerConnection


def opt_init_args_register(fn: Callable[..., None]) -> Callable[..., None]:
    """Decorator for ``__init__`` of an optimizer: keeps its arguments as ``init_params``, ``init_learning_rate`` and
    ``init_args``.

    As in MindSpore, `inspect.signature` sees ``(self, *args, **kwargs)`` only, which factories of optimizers rely on.
    """
    signature = inspect.signature(fn)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        # Parameters may come from a generator, which can be read once.
        arguments = read_once(signature.bind(self, *args, **kwargs))
        fn(*arguments.args, **arguments.kwargs)
        keep_arguments(self, arguments)

    return init


def read_once(arguments: inspect.BoundArguments) -> inspect.BoundArguments:
    """The arguments with lists in place of generators of Parameters."""
    params = arguments.arguments.get("params")
    if isinstance(params, Iterator):
        arguments.arguments["params"] = list(params)
    return arguments


def keep_arguments(optimizer: Any, call: inspect.BoundArguments) -> None:
    """Set ``init_params``, ``init_learning_rate`` and ``init_args`` of an optimizer from the call that made it."""
    call.apply_defaults()
    arguments = dict(call.arguments)
    arguments.pop(next(iter(call.signature.parameters)))
    put = functools.partial(object.__setattr__, optimizer)
    if "params" in arguments:
        put("init_params", {"params": arguments.pop("params")})
    if "optimizer" in arguments:
        put("init_params", {"params": getattr(arguments.pop("optimizer"), "init_params", {}).get("params")})
    if "learning_rate" in arguments:
        rate = arguments.pop("learning_rate")
        rate = rate.asnumpy().tolist() if isinstance(rate, Tensor) else rate
        # A schedule cannot be shown as a number.
        put("init_learning_rate", None if hasattr(rate, "construct") else rate)
    put("init_args", arguments)


class OptimizerHelpers:
    """The part of `Optimizer` that users derive from; see there for the settings it reads."""

    parameters: ParameterTuple

    def _describe_settings(self: Any, weight_decay: Any, ordered: bool) -> None:
        """Set MindSpore's attributes from the settings of the Parameters; `ordered`: the groups say their order."""
        # Past `__setattr__`: these are no plain settings of the compiled step.
        put = functools.partial(object.__setattr__, self)
        centralized = tuple(setting.centralize for setting in self.settings)
        decays = tuple(
            setting.decay if hasattr(setting.decay, "construct") else setting.decay * self.loss_scale
            for setting in self.settings
        )
        put("_parameters", self.parameters)
        put("is_group_lr", self.is_group and len(self.rates) > 1)
        put("is_group_params_ordered", ordered)
        by_group = {
            "group_params": self.parameters,
            "group_lr": [self.rates[setting.rate] for setting in self.settings],
            "group_weight_decay": decays,
            "group_grad_centralization": centralized,
        }
        for name, values in by_group.items():
            put(name, list(values) if self.is_group else [])
        if self.is_group_lr:
            put("learning_rate", tuple(self.group_lr))
        put("dynamic_lr", any(hasattr(rate, "construct") for rate in self.rates))
        self._describe_decay(put, decays, weight_decay)
        put("grad_centralization", any(centralized))
        put("grad_centralization_flags", centralized)
        put("reciprocal_scale", Tensor(1.0 / self.loss_scale, dtypes.float32))
        put("need_scale", self.loss_scale != 1.0)
        put("global_step_increase_tensor", Tensor([1], dtypes.int32))
        put("assignadd", ops.AssignAdd())
        put("param_length", len(self.parameters))
        put("map_", ops.Map())
        put("map_reverse", ops.Map(None, True))
        put("hyper_map", ops.HyperMap())
        put("hyper_map_reverse", ops.HyperMap(None, True))
        put("_unique", True)

    def _describe_decay(self: Any, put: Callable[..., None], decays: tuple[Any, ...], weight_decay: Any) -> None:
        scheduled = tuple(hasattr(decay, "construct") for decay in decays)
        put("dynamic_weight_decay", any(scheduled))
        if self.is_group:
            flags = tuple(varies or decay > 0 for varies, decay in zip(scheduled, decays, strict=True))
            put("dynamic_decay_flags", scheduled)
            put("exec_weight_decay", any(flags))
        else:
            flags = tuple(not self._exempt_from_decay(parameter) for parameter in self.parameters)
            put("dynamic_decay_flags", any(scheduled))
            put("exec_weight_decay", hasattr(weight_decay, "construct") or weight_decay > 0)
        put("decay_flags", flags)
        put("weight_decay", self._weight_decay_attribute(decays, weight_decay))

    # As the parallel settings are when they are read.

    @property
    def use_parallel(self: Any) -> bool:
        """Whether Parameters are dealt to the ranks."""
        return self._owners is not None

    @property
    def dev_num(self: Any) -> int:
        """Number of ranks that Parameters are dealt to."""
        return 1 if self._owners is None else len(groups.find(None).ranks)

    @property
    def param_rank(self: Any) -> tuple[int | None, ...] | None:
        """For each Parameter the rank that updates it; None where every rank updates all."""
        return None if self._owners is None else tuple(self._owners)

    @property
    def optim_filter(self: Any) -> tuple[bool, ...]:
        """For each Parameter whether this rank updates it."""
        owners = self._owners
        return tuple(is_mine(owners, index) for index in range(len(self.parameters)))

    def _weight_decay_attribute(self: Any, values: tuple[Any, ...], weight_decay: Any) -> Any:
        if self.is_group:
            return tuple(value if hasattr(value, "construct") else Tensor(value, dtypes.float32) for value in values)
        if hasattr(weight_decay, "construct"):
            return weight_decay
        return Tensor(float(weight_decay) * self.loss_scale, dtypes.float32)

    def get_weight_decay(self: Any) -> Any:
        """Weight decay of the present step, times the loss scale: a Tensor, or one per Parameter where there are groups."""
        if self.is_group:
            return tuple(self._decay_now(decay) for decay in self.weight_decay)
        return self._decay_now(self.weight_decay)

    def _decay_now(self: Any, decay: Any) -> Any:
        return decay(self.global_step).reshape(()) * self.loss_scale if hasattr(decay, "construct") else decay

    def decay_weight(self: Any, gradients: Any) -> Any:
        """The gradients with weight decay added, where it applies."""
        if not self.exec_weight_decay:
            return gradients
        decay = self.get_weight_decay()
        decays = decay if isinstance(decay, tuple) else (decay,) * len(self.parameters)
        rows = zip(decays, self.decay_flags, self.parameters, gradients, strict=True)
        return tuple(
            ops.add(parameter * decay.astype(parameter.dtype), gradient) if applies else gradient
            for decay, applies, parameter, gradient in rows
        )

    def gradients_centralization(self: Any, gradients: Any) -> Any:
        """The gradients less their means over all dimensions but the first, in groups that request it.

        As in MindSpore, gradients whose second dimension is no multiple of 16 stay as they are.
        """

        def centred(gradient: Tensor) -> Tensor:
            axes = tuple(range(1, gradient.ndim))
            return gradient - gradient.mean(axes, True) if axes and gradient.shape[1] % 16 == 0 else gradient

        pairs = zip(self.grad_centralization_flags, gradients, strict=True)
        return tuple(centred(gradient) if applies else gradient for applies, gradient in pairs)

    def scale_grad(self: Any, gradients: Any) -> Any:
        """The gradients divided by the loss scale."""
        if not self.need_scale:
            return gradients
        return tuple(gradient * self.reciprocal_scale.astype(gradient.dtype) for gradient in gradients)

    def flatten_gradients(self, gradients: Any) -> Any:
        """The gradients: memory is laid out by XLA, so there is nothing to flatten."""
        return gradients

    def _grad_sparse_indices_deduplicate(self, gradients: Any) -> Any:
        """The gradients: those of lookups are dense here."""
        return gradients

    def _is_dynamic_lr_or_weight_decay(self: Any) -> bool:
        return bool(self.dynamic_lr or self.dynamic_weight_decay)

    def broadcast_params(self: Any, optim_result: Any) -> list[tuple[Any, ...]]:
        """Give every rank the Parameters that other ranks have updated, under optimizer parallelism between ranks.

        Args:
            optim_result: what the update gave; there is nothing to wait for here.

        Returns:
            The Parameters of each rank.
        """
        if self._owners is not None:
            take_over(self._owners, self.parameters)
            owned = list(zip(self.parameters, self._owners, strict=True))
            return [tuple(parameter for parameter, owner in owned if owner == rank) for rank in groups.find(None).ranks]
        return [tuple(self.parameters)]

    @property
    def unique(self: Any) -> bool:
        """Whether sparse gradients have rows once; they are dense here, so it changes nothing."""
        return bool(self._unique)

    @unique.setter
    def unique(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise For("Optimizer").type_error("the property 'unique' must be a bool", type(value).__name__)
        object.__setattr__(self, "_unique", value)


Owners = tuple[int | None, ...]
"""For each Parameter the rank that updates it; None: every rank updates its own (``layerwise_parallel``)."""

_WITHOUT = (ParallelMode.STAND_ALONE, ParallelMode.HYBRID_PARALLEL)


def owners(name: str, offered: bool, parameters: Sequence[Parameter]) -> Owners | None:
    """Who updates what, by the present parallel settings; None: everybody everything.

    Args:
        name: of the optimizer's class.
        offered: whether that class can be dealt.
        parameters: those it updates.

    Raises:
        SporaxRuntimeError: ``enable_parallel_optimizer`` in a mode that has no such thing; or, in data-parallel mode, with
            another class of optimizer or with fewer Parameters than devices.
    """
    config = context.snapshot()
    # In the global view the plan shards the state; on the one device of `AutoParallel` there is nothing to shard.
    if not config.enable_parallel_optimizer or config.in_global_view or config.auto_parallel_new_interface:
        return None
    if config.parallel_mode in _WITHOUT:
        raise SporaxRuntimeError(
            f"For '{name}', 'enable_parallel_optimizer' must come with the parallel mode 'data_parallel', "
            f"'semi_auto_parallel' or 'auto_parallel', but got '{config.parallel_mode}'."
        )
    if not offered:
        raise SporaxRuntimeError(
            "For 'Optimizer', 'enable_parallel_optimizer' in data-parallel mode must be used with Lamb, AdamWeightDecay or "
            f"AdaFactor, but got {name}."
        )
    if config.device_num > len(parameters):
        raise SporaxRuntimeError(
            f"For '{name}', 'enable_parallel_optimizer' needs at least one parameter for each device, but got "
            f"{len(parameters)} parameters for {config.device_num} devices."
        )
    # One device has everything.
    if config.device_num == 1:
        return None
    if world.num_ranks_here() > 1:
        # One program for all of its ranks has the updates of all Parameters anyway, and equal gradients give equal values.
        _warn_of_all_updates(name, world.num_ranks_here(), config.device_num)
        return None
    # Dealt by number, so every rank knows all owners without a message.
    return tuple(
        None if parameter.layerwise_parallel else i % config.device_num for i, parameter in enumerate(parameters)
    )


@functools.cache
def _warn_of_all_updates(name: str, here: int, devices: int) -> None:
    warnings.warn(
        f"For '{name}', 'enable_parallel_optimizer' changes nothing: this process acts for {here} ranks, each of which updates "
        f"all Parameters. `sporax run --worker_num {devices}` starts a process for each.",
        stacklevel=2,
    )


def is_mine(dealt: Owners | None, index: int) -> bool:
    """Whether this rank updates Parameter number `index`."""
    return dealt is None or dealt[index] in (None, groups.this_rank())


def take_over(dealt: Owners, parameters: Sequence[Parameter]) -> None:
    """Give every rank all Parameters as their owners have them. All ranks must call it."""
    everyone = groups.find(None)
    # One broadcast for each owner: fused into few messages.
    for rank in everyone.ranks:
        owned = [parameter for parameter, owner in zip(parameters, dealt, strict=True) if owner == rank]
        arrays = flat_buffers.broadcast_buckets(everyone, rank, [parameter.array for parameter in owned])
        for parameter, array in zip(owned, arrays, strict=True):
            frames.write(parameter, array)


class ServedParameters:
    """Parameters of one optimizer that servers keep.

    Args:
        optimizer: whose rule the servers follow; complete.
        servers: this worker's.

    Raises:
        SporaxRuntimeError: an optimizer, or a setting of it, that servers do not offer.
    """

    def __init__(self, optimizer: Optimizer, servers: ServerConnection) -> None:
        self._servers = servers
        # Whole Parameters and tables are sent differently.
        self.dense, tables = _dense_and_tables(optimizer.parameters)
        self.tables = list(tables)
        self.indices = frozenset((*self.dense, *self.tables))
        kinds = {index: _kind(optimizer, index) for index in (*self.dense, *self.tables)}
        # Servers update by groups of one rule, rate and decay.
        groups = list(dict.fromkeys(kinds.values()))
        self._rates = [rate for rate, _ in groups]
        rule, constants = optimizer.server_rule()
        # Rounded as the device would, so that both compute the same.
        scale = float(np.float32(1.0 / optimizer.loss_scale))
        specs = [servers.optimizer_spec(rule, constants, decay, scale) for _, decay in groups]
        parameters = [optimizer.parameters[index] for index in self.dense]
        self._parameters = parameters
        self._table_parameters = [optimizer.parameters[index] for index in self.tables]
        self._last = _last_exchange()
        # Servers compute in float32.
        values = [np.asarray(parameter.raw, np.float32) for parameter in parameters]
        names = [parameter.name for parameter in parameters]
        self._part = servers.attach(
            names,
            values,
            [groups.index(kinds[index]) for index in self.dense],
            specs,
            [(cache, groups.index(kinds[index])) for index, cache in tables.items()],
        )
        # The servers' values: another worker may have brought them first.
        for parameter, value in zip(parameters, servers.values(self._part), strict=True):
            frames.put(parameter, jnp.asarray(value, parameter.dtype.np_dtype))

    def step(self, gradients: Sequence[jax.Array], rates: Sequence[jax.Array]) -> None:
        """Exchange gradients for values, as part of the running program."""
        # Again, as settings may have changed since the optimizer was made.
        context.check_with_servers()
        pushed = [gradients[index].astype(jnp.float32) for index in (*self.dense, *self.tables)]
        by_group = jnp.stack([jnp.asarray(rates[rate], jnp.float32).reshape(()) for rate in self._rates])
        before = frames.read(self._last)
        *values, number = server_exchange.exchange_in_program(self._servers, self._part, before, by_group, pushed)
        frames.write(self._last, number)
        for parameter, value in zip(self._parameters, values, strict=True):
            frames.write(parameter, value.astype(parameter.dtype.np_dtype))
        # The next lookup reads this, so it comes after the exchange.
        for parameter in self._table_parameters:
            frames.write(parameter, parameter.array.at[0, 0].set(number.astype(parameter.dtype.np_dtype)))


@functools.cache
def _last_exchange() -> Parameter:
    """The number of this process's last exchange, by which the next one comes after it."""
    return Parameter(Tensor(0.0), name="sporax.last_exchange", requires_grad=False)


def is_outdated(part: ServedParameters | None, parameters: Sequence[Parameter]) -> bool:
    """Whether other Parameters are marked for servers than those that were handed over."""
    marked = sum(parameter.is_param_ps for parameter in parameters)
    return marked != (0 if part is None else len(part.indices))


def served(optimizer: Optimizer) -> ServedParameters | None:
    """What of an optimizer is done by servers; None without such Parameters."""
    if not any(parameter.is_param_ps for parameter in optimizer.parameters):
        return None
    context.check_with_servers()
    servers = server_exchange.connection()
    if servers is None:
        raise SporaxRuntimeError(
            f"For '{type(optimizer).__name__}', some parameters are marked by 'set_param_ps', but this process is not a "
            "worker of a job with parameter servers: call init() after set_ps_context(enable_ps=True)."
        )
    # A step that is being traced meets a Parameter that was marked after the optimizer was made: its values are there.
    with jax.ensure_compile_time_eval():
        part = ServedParameters(optimizer, servers)
    for index, parameter in enumerate(optimizer.parameters):
        # From now on the servers know which Parameters of this optimizer are theirs.
        parameter.moved_here = index not in part.indices
    return part


def _dense_and_tables(parameters: Sequence[Parameter]) -> tuple[list[int], dict[int, RowCache]]:
    """Positions of the Parameters that servers keep as a whole, and of those whose rows are looked up, with their caches."""
    caches = {index: _cache_of(parameter) for index, parameter in enumerate(parameters) if parameter.is_param_ps}
    dense = [index for index, cache in caches.items() if cache is None]
    return dense, {index: cache for index, cache in caches.items() if cache is not None}


def _cache_of(parameter: Parameter) -> RowCache | None:
    """The rows that are looked up on servers; None for a Parameter that is served as a whole."""
    cache = parameter.server_rows if parameter.cache_enable or parameter.init_in_server else None
    if cache is not None:
        cache.name = parameter.name
    return cache


def _kind(optimizer: Optimizer, index: int) -> tuple[int, float]:
    """Which learning rate a Parameter has, and its weight decay."""
    name, setting = type(optimizer).__name__, optimizer.settings[index]
    if not isinstance(setting.decay, float):
        raise SporaxRuntimeError(f"For '{name}', servers need a 'weight_decay' that is a number, but got a schedule.")
    For(name).refuse_state(setting.centralize, "'grad_centralization' is not offered for parameters on servers")
    return setting.rate, setting.decay
