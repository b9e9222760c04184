"""The tree of Cells: walking it, naming what is in it, collecting Parameters.

Names follow MindSpore: a Parameter is called by the path of attributes that leads to it from the Cell where collecting
starts; the path is fixed when a Cell becomes part of another (`auto_prefix`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from sporax.base.errors import SporaxKeyError, SporaxTypeError, check_type
from sporax.mindspore.common.parameter import Parameter, ParameterTuple
from sporax.runtime.state import frames

AnyCell = TypeVar("AnyCell", bound="CellTree[Any]")
"""`Cell` itself, which this module comes before."""


class CellTree(Generic[AnyCell]):
    """Children and Parameters of a Cell. Mixed into `Cell`."""

    _cells: dict[str, AnyCell | None]
    _params: dict[str, Parameter | None]
    _param_prefix: str

    # ------------------------------------------------------------------------------------------------------ children

    def cells(self) -> Iterable[AnyCell]:
        """The direct children."""
        return self.name_cells().values()

    def name_cells(self) -> dict[str, AnyCell]:
        """The direct children by attribute name; a child with two names appears once."""
        # By identity: Cells are equal only to themselves.
        seen: set[int] = set()
        cells: dict[str, AnyCell] = {}
        for name, child in self._cells.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                cells[name] = child
        return cells

    def cells_and_names(
        self, cells: set[AnyCell] | None = None, name_prefix: str = ""
    ) -> Iterator[tuple[str, AnyCell]]:
        """This Cell and all below it with their paths; this one's is `name_prefix`. Each Cell once.

        Args:
            cells: Cells to leave out, with all that is below them.
            name_prefix: put in front of every path.
        """
        return self._walk(name_prefix, set(map(id, cells or ())))

    def _walk(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, AnyCell]]:
        # A Cell that is reached by two paths is given once, under the first.
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self  # type: ignore[misc]  # self is a Cell
        for name, child in self._cells.items():
            if child is not None:
                yield from child._walk(f"{prefix}.{name}" if prefix else name, seen)

    def insert_child_to_cell(self, child_name: str, child_cell: AnyCell) -> None:
        """Add a child under a name, without renaming its Parameters.

        Raises:
            SporaxTypeError: the name is not a string or the child not a Cell.
            SporaxKeyError: the name is taken by something that is not a Cell.
        """
        check_type("insert_child_to_cell", "child_name", child_name, "a string", str)
        check_type("insert_child_to_cell", "child_cell", child_cell, "a Cell", CellTree)
        if hasattr(self, child_name) and child_name not in self._cells:
            raise SporaxKeyError(f"For 'insert_child_to_cell', the name '{child_name}' is taken by another attribute.")
        # Past `__setattr__`, which would rename the child's Parameters.
        self._cells[child_name] = child_cell
        object.__setattr__(self, child_name, child_cell)
        frames.touch()

    # ---------------------------------------------------------------------------------------------------- parameters

    def insert_param_to_cell(self, param_name: str, param: Parameter, check_name_contain_dot: bool = True) -> None:
        """Add a Parameter under a name, which an unnamed Parameter takes as its own.

        Raises:
            SporaxKeyError: the name is empty, contains a dot, or is taken by something that is not a Parameter.
            SporaxTypeError: `param` is not a Parameter.
        """
        if not param_name or (check_name_contain_dot and "." in param_name):
            raise SporaxKeyError(
                f"For 'insert_param_to_cell', the name must not be empty or contain '.', got '{param_name}'."
            )
        if param_name not in self._params and param_name in self.__dict__:
            raise SporaxKeyError(f"For 'insert_param_to_cell', the name '{param_name}' is taken by another attribute.")
        check_type("insert_param_to_cell", "param", param, "a Parameter", Parameter)
        # A Parameter that the user has named keeps its name.
        if not param._named:
            param.name = self._param_prefix + param_name
        self._params[param_name] = param
        object.__setattr__(self, param_name, param)
        frames.touch()

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Parameters with the attribute paths that lead to them, own ones first; each Parameter once.

        Args:
            name_prefix: put in front of every path.
            expand: include those of the Cells below.
        """
        seen: set[int] = set()
        for path, cell in self.cells_and_names(name_prefix=name_prefix) if expand else ((name_prefix, self),):
            for name, parameter in cell._params.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{path}.{name}" if path else name, parameter

    def get_parameters(self, expand: bool = True) -> Iterator[Parameter]:
        """Parameters, own ones first; each once."""
        return (parameter for _, parameter in self.parameters_and_names(expand=expand))

    def parameters_dict(self, recurse: bool = True) -> dict[str, Parameter]:
        """Parameters by their own names."""
        return {parameter.name: parameter for parameter in self.get_parameters(expand=recurse)}

    def parameters_broadcast_dict(self, recurse: bool = True) -> dict[str, Parameter]:
        """Parameters that all ranks start from in common (not ``layerwise_parallel``) by their own names."""
        return {p.name: p for p in self.get_parameters(expand=recurse) if not p.layerwise_parallel}

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters with ``requires_grad``."""
        return [parameter for parameter in self.get_parameters(expand=recurse) if parameter.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters without ``requires_grad``."""
        return [parameter for parameter in self.get_parameters(expand=recurse) if not parameter.requires_grad]

    def get_func_graph_proto(self) -> Any:
        """Refused: there is no MindSpore graph behind a Cell here."""
        raise SporaxTypeError(
            "For 'Cell', there is no function graph; see Cell.compile and sporax.mindspore.recompilations."
        )

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Name all Parameters by their attribute paths, with `prefix` in front.

        This is what happens to the Parameters of a Cell that becomes part of another, so names of their own last only in
        the outermost Cell, as in MindSpore.

        Raises:
            SporaxTypeError: `prefix` is not a string.
        """
        check_type("update_parameters_name", "prefix", prefix, "a string", str)
        for path, parameter in self.parameters_and_names(expand=recurse):
            parameter.name = prefix + path

    def update_cell_prefix(self) -> None:
        """Tell every Cell below its path, which later unnamed Parameters take as prefix."""
        for path, cell in self.cells_and_names():
            cell._param_prefix = f"{path}." if path else ""

    def init_parameters_data(self, auto_parallel_mode: bool = False) -> dict[Parameter, Parameter]:
        """Make the values of all lazy Parameters now."""
        return {parameter: parameter.init_data() for parameter in self.get_parameters()}


def parameter_tuple(parameters: Any) -> ParameterTuple:
    """Parameters given as any iterable, as a ParameterTuple."""
    return parameters if isinstance(parameters, ParameterTuple) else ParameterTuple(parameters)
