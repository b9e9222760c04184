"""A network that was exported, as a Cell again.

The program is StableHLO, serialized by `jax.export`; it has neither Python code nor Cells any more, and runs on the platforms it
was exported for. `sporax.mindspore.train.export` writes and reads the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax import export

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.nn.cell import Cell


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
        check_type("GraphCell", "graph", graph, "what 'load' gives", Graph)
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
            raise SporaxValueError(
                f"For 'GraphCell', the inputs must be {list(self.graph.inputs)}, for which the network was exported, but got "
                f"{list(types)}."
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
    raise SporaxTypeError(
        f"For 'export', outputs must be Tensors in tuples, lists and dicts, but got {type(value).__name__}."
    )


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
