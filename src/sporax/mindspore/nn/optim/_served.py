"""The part of an optimizer that parameter servers do: which Parameters, by which rule, and the exchange of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore import context
from sporax.mindspore.common.parameter import Parameter
from sporax.runtime.ranks import server_exchange
from sporax.runtime.state import frames

if TYPE_CHECKING:
    from sporax.mindspore.nn.optim._optimizer import Optimizer
    from sporax.ps.worker.row_cache import RowCache
    from sporax.ps.worker.server_connection import ServerConnection


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
        *values, number = server_exchange.exchange_in_program(self._servers, self._part, by_group, pushed)
        for parameter, value in zip(self._parameters, values, strict=True):
            frames.write(parameter, value.astype(parameter.dtype.np_dtype))
        # The next lookup reads this, so it comes after the exchange.
        for parameter in self._table_parameters:
            frames.write(parameter, parameter.array.at[0, 0].set(number.astype(parameter.dtype.np_dtype)))


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
    if setting.centralize:
        raise SporaxRuntimeError(f"For '{name}', 'grad_centralization' is not offered for parameters on servers.")
    return setting.rate, setting.decay
