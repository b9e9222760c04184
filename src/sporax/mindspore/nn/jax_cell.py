"""Programs without Cells as Cells: a function written in JAX with the arrays it works with, and a network that was exported.

Flax modules, Equinox modules and plain functions of a pytree of weights all have this form::

    JaxCell(model.apply, variables)                      # Flax
    JaxCell(lambda model, x: jax.vmap(model)(x), model)  # Equinox
    JaxCell(lambda weights, x: x @ weights["w"], {"w": w})

The arrays become Parameters, so optimizers, checkpoints, `Model` and parallel training take the Cell like any other.

What was exported is StableHLO, serialized by `jax.export`; it has neither Python code nor Cells any more, and runs on the
platforms it was exported for. `sporax.mindspore.train.export` writes and reads the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import Parameter, Tensor, seed as seeds, wrap
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell
from sporax.runtime.state import frames


class JaxCell(Cell):
    """Calls ``function(weights, *inputs)`` with `weights` as they are now.

    Args:
        function: a pure function of a pytree of arrays and of the inputs; gives a pytree of arrays.
        weights: the pytree. Its arrays become Parameters, named by their path (``params.Dense_0.kernel``); other leaves,
            such as the functions in an Equinox module, stay what they are.
        trainable: says by name which floating arrays are trained; all by default.
        has_updates: `function` gives ``(outputs, updates)``; `updates` is a pytree like `weights` or a part of it (as
            Flax's ``mutable`` gives), which is written to the Parameters. Gradients do not pass through it.
        with_key: `function` takes ``key=``, a random key that is another one at every call, from the stream of
            `set_seed`.
        with_training: `function` takes ``training=``, whether the Cell is in training mode.

    Raises:
        SporaxTypeError: `function` is not callable, or `weights` holds no array.

    Example:
        >>> net = JaxCell(lambda w, x: jnp.tanh(x @ w["matrix"]), {"matrix": np.ones((3, 2), np.float32)})
        >>> net(Tensor(np.ones((1, 3), np.float32))).shape
        (1, 2)
        >>> [parameter.name for parameter in net.trainable_params()]
        ['matrix']
    """

    def __init__(
        self,
        function: Callable[..., Any],
        weights: Any,
        trainable: Callable[[str], bool] | None = None,
        has_updates: bool = False,
        with_key: bool = False,
        with_training: bool = False,
    ) -> None:
        super().__init__()
        For("JaxCell").refuse_type(not callable(function), "'function' must be callable", type(function).__name__)
        self.has_updates = argument.boolean("JaxCell", "has_updates", has_updates)
        self.with_key = argument.boolean("JaxCell", "with_key", with_key)
        self.with_training = argument.boolean("JaxCell", "with_training", with_training)
        self._function = function
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(weights)
        self._leaves = tuple(self._held(_name(path), leaf, trainable) for path, leaf in leaves)
        if not any(isinstance(leaf, Parameter) for leaf in self._leaves):
            raise SporaxTypeError("For 'JaxCell', 'weights' must hold at least one array, but there is none.")
        self._programs: dict[Any, Callable[..., Any]] = {}

    def _held(self, name: str, leaf: Any, trainable: Callable[[str], bool] | None) -> Any:
        """What stands for a leaf of `weights`: a Parameter for an array, else the leaf."""
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            return leaf
        # Copied: the Parameter's buffer is given away at each step.
        array = jnp.array(leaf, copy=True)
        trained = bool(jnp.issubdtype(array.dtype, jnp.floating)) and (trainable is None or bool(trainable(name)))
        parameter = Parameter(wrap(array), name=name, requires_grad=trained)
        self.insert_param_to_cell(name, parameter, check_name_contain_dot=False)
        return parameter

    def __getstate__(self) -> dict[str, Any]:
        """What copying takes along: everything but compiled programs."""
        return {**super().__getstate__(), "_programs": {}}

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Tensors, and whatever else `function` takes, as constants; gives its outputs with Tensors for arrays.

        Raises:
            SporaxTypeError: an input is neither an array nor hashable.
            SporaxValueError: updates do not fit the weights.
        """
        if self.with_key:
            # A key of its own for each call, as JAX's random numbers need.
            kwargs["key"] = seeds.operators.next_key()
        if self.with_training:
            kwargs["training"] = self.training
        arguments = jax.tree.map(_unwrapped, (args, kwargs), is_leaf=lambda leaf: isinstance(leaf, Tensor))
        leaves, tree = jax.tree.flatten(arguments)
        # Arrays are traced, everything else is a constant of the program.
        static = tuple(None if _is_array(leaf) else (type(leaf), leaf) for leaf in leaves)
        try:
            program = self._programs.get((tree, static)) or self._compile(tree, static)
        except TypeError:
            # A value that cannot be hashed cannot be the key of a program.
            kinds = sorted({type(leaf).__name__ for leaf in leaves})
            raise SporaxTypeError(f"For 'JaxCell', inputs must be Tensors or hashable, but got {kinds}.") from None
        holders = [leaf for leaf in self._leaves if isinstance(leaf, Parameter)]
        outputs, updates = program([holder.array for holder in holders], list(filter(_is_array, leaves)))
        for name, array in updates.items():
            self._write(name, array)
        return jax.tree.map(wrap, outputs)

    def _compile(self, tree: Any, static: tuple[Any, ...]) -> Callable[..., Any]:
        """The program for inputs of one structure and one set of values that are no arrays."""

        def run(weights: list[jax.Array], inputs: list[jax.Array]) -> tuple[Any, dict[str, jax.Array]]:
            remaining, values = iter(inputs), iter(weights)
            args, kwargs = jax.tree.unflatten(
                tree, [next(remaining) if constant is None else constant[1] for constant in static]
            )
            # Weights are traced arguments, so new values need no new program.
            leaves = [next(values) if isinstance(leaf, Parameter) else leaf for leaf in self._leaves]
            result = self._function(jax.tree.unflatten(self._tree, leaves), *args, **kwargs)
            if not self.has_updates:
                return result, {}
            outputs, updates = result
            updated = jax.tree_util.tree_flatten_with_path(updates)[0]
            # Updates are no part of the loss.
            return outputs, {_name(path): jax.lax.stop_gradient(leaf) for path, leaf in updated if _is_array(leaf)}

        run.__name__ = getattr(self._function, "__name__", "JaxCell").strip("<>")
        compiled = self._programs[(tree, static)] = jax.jit(run)
        return compiled

    def _write(self, name: str, array: jax.Array) -> None:
        # Updates may cover a part of the weights.
        parameter = self._params.get(name)
        if parameter is None or parameter.shape != array.shape:
            reason = "there is no such array" if parameter is None else f"its shape is {parameter.shape}"
            raise SporaxValueError(
                f"For 'JaxCell', updates must have the structure and shapes of 'weights', but got '{name}' of shape "
                f"{array.shape}, and {reason}."
            )
        frames.write(parameter, array.astype(parameter.array.dtype))

    def extend_repr(self) -> str:
        """The function."""
        return f"function={getattr(self._function, '__qualname__', type(self._function).__name__)}"


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "weights"


def _unwrapped(leaf: Any) -> Any:
    return leaf.array if isinstance(leaf, Tensor) else leaf


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


@dataclasses.dataclass(frozen=True, slots=True)
class Graph:
    """What a file of an exported network holds; `GraphCell` runs it.

    Attributes:
        program: of (Parameters, inputs) -> outputs, both flat.
        parameters: initial values by name, in the program's order.
        inputs: (shape, dtype) of each input.
        outputs: how the flat outputs are put together again, see `flattened`.
    """

    program: export.Exported
    parameters: Mapping[str, jax.Array]
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    outputs: Any


class GraphCell(Cell):
    """Runs a `Graph` that `load` gave. It can be called and saved, but not differentiated: train the network itself.

    Args:
        graph: the exported network.
        params_init: values that take the place of exported ones, by name.

    Raises:
        SporaxTypeError: `graph` is none.
        SporaxValueError: `params_init` has a name or a shape that the network does not have.

    Example:
        >>> export(net, x, file_name="net", file_format="MINDIR")
        >>> net = nn.GraphCell(load("net.mindir"))
        >>> y = net(x)
    """

    def __init__(
        self, graph: Graph, params_init: Mapping[str, Tensor] | None = None, obf_random_seed: None = None
    ) -> None:
        super().__init__()
        For("GraphCell").typed("graph", graph, "what 'load' gives", Graph)
        if obf_random_seed is not None:
            raise SporaxValueError(
                f"For 'GraphCell', 'obf_random_seed' must be None: obfuscation is not offered, but got {obf_random_seed!r}."
            )
        self.graph = graph
        initial = dict(params_init or {})
        # A misspelt name would leave the exported value in silence.
        unknown = sorted(set(initial) - set(graph.parameters))
        if unknown:
            raise SporaxValueError(
                f"For 'GraphCell', 'params_init' must have names of {sorted(graph.parameters)}, but got {unknown[0]!r}."
            )
        for name, value in graph.parameters.items():
            chosen = initial[name].array if name in initial else value
            if chosen.shape != value.shape or chosen.dtype != value.dtype:
                raise SporaxValueError(
                    f"For 'GraphCell', 'params_init' must give {value.shape} {value.dtype} for {name!r}, but got "
                    f"{chosen.shape} {chosen.dtype}."
                )
            # Not trainable: the program has no derivative.
            parameter = Parameter(wrap(chosen), name=name, requires_grad=False)
            self.insert_param_to_cell(name, parameter, check_name_contain_dot=False)

    def construct(self, *inputs: Tensor) -> Any:
        """The outputs of the network.

        Raises:
            SporaxValueError: the inputs are not those that it was exported for.
        """
        arrays = [value.array if isinstance(value, Tensor) else value for value in inputs]
        types = tuple((tuple(array.shape), str(array.dtype)) for array in arrays)
        if types != self.graph.inputs:
            raise For("GraphCell").error(
                f"the inputs must be {list(self.graph.inputs)}, for which the network was exported, but got {list(types)}"
            )
        # In the program's order, whatever names the Parameters have by now.
        held = [
            self._params[name] for name in self.graph.parameters
        ]  # a Cell around this one changes the names they have
        parameters = [parameter.array for parameter in held if parameter is not None]
        outputs = self.graph.program.call(parameters, arrays)
        return restored(self.graph.outputs, iter(outputs))


def flattened(value: Any, arrays: list[jax.Array]) -> Any:
    """What `value`, Tensors in tuples, lists and dicts, looks like: a value of JSON. Its arrays are appended to `arrays`.

    Raises:
        SporaxTypeError: it holds something else.
    """
    if isinstance(value, Tensor):
        arrays.append(value.array)
        return "tensor"
    if isinstance(value, (tuple, list)):
        return {
            # Named tuples come back as plain ones.
            type(value).__name__ if type(value) in (tuple, list) else "tuple": [flattened(v, arrays) for v in value]
        }
    if isinstance(value, dict):
        return {"dict": [[name, flattened(entry, arrays)] for name, entry in value.items()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"constant": value}
    raise For("export").type_error("outputs must be Tensors in tuples, lists and dicts", type(value).__name__)


def restored(form: Any, arrays: Iterator[jax.Array]) -> Any:
    """The opposite of `flattened`."""
    if form == "tensor":
        return wrap(next(arrays))
    ((kind, content),) = form.items()
    if kind == "constant":
        return content
    if kind == "dict":
        return {name: restored(entry, arrays) for name, entry in content}
    parts = [restored(entry, arrays) for entry in content]
    return parts if kind == "list" else tuple(parts)
