"""Cells that hold other Cells: in a row, as a list, by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, cast

from sporax.base.errors import For, SporaxIndexError, SporaxKeyError, SporaxNotImplementedError
from sporax.mindspore.autograph.flow import item, unknown
from sporax.mindspore.nn.cell import Cell
from sporax.runtime.state import frames


class _Container(Cell):
    """Holds Cells that come and go, also after it has become part of another Cell."""

    def _prefix_for_names(self) -> str:
        """Where the container is, read off the names of Parameters that it holds already; "" when there are none."""
        # A container does not know its own path, but its Parameters have it in their names.
        for key, cell in self._cells.items():
            for path, parameter in cell.parameters_and_names() if cell is not None else ():
                own = f"{key}.{path}"
                return parameter.name.removesuffix(own) if parameter.name.endswith(own) else ""
        return ""


class _Shelf(_Container):
    """Holds Cells and is never called itself, so in paths the children bring its name along: ``blocks.0``."""

    def _take_name(self, name: str) -> None:
        super()._take_name(name)
        # The container itself is never called, so it would be missing in paths.
        for key, cell in self._cells.items():
            self._name_child(key, cell)

    def _name_child(self, key: str, cell: Cell | None) -> None:
        if cell is not None:
            cell._take_name(f"{self._cell_name}.{key}" if self._cell_name else key)

    def _set_cell(self, name: str, value: Cell) -> None:
        super()._set_cell(name, value)
        self._name_child(name, value)


class _Sequence(_Container):
    """Children named by their position."""

    # A Cell at two positions runs twice.
    def _children(self) -> list[Cell]:
        """In order; a child with two positions is there twice, other than in `cells`."""
        return [cell for cell in self._cells.values() if cell is not None]

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._children())

    def __getitem__(self, index: int | slice | str) -> Any:
        if isinstance(index, slice):
            names = list(self._cells)[index]
            kind: Any = type(self)
            # Slices of a named sequence keep the names.
            if self._keeps_names:
                return kind(OrderedDict((name, self._cells[name]) for name in names))
            return kind([self._cells[name] for name in names])
        if unknown(index):
            return item(tuple(self), index)
        return self._cells[self._key(index)]

    def __setitem__(self, index: int, cell: Cell) -> None:
        setattr(self, self._key(index), self._checked(cell))

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._cells)[index] if isinstance(index, slice) else [self._key(index)]
        for name in names:
            delattr(self, name)
        # Positions are names, so the rest is numbered again.
        if not self._keeps_names:
            self._refill(self._children())

    _keeps_names = False

    def _key(self, index: int | str) -> str:
        if isinstance(index, str) and index in self._cells:
            return index
        if isinstance(index, bool) or not isinstance(index, int):
            raise For(type(self).__name__).type_error("the index must be an int", type(index).__name__)
        if not -len(self) <= index < len(self):
            raise For(type(self).__name__).fault(
                SporaxIndexError, f"the index must be in [{-len(self)}, {len(self)})", index
            )
        return list(self._cells)[index]

    def _checked(self, cell: Any, where: str = "every element") -> Cell:
        For(type(self).__name__).refuse_type(not isinstance(cell, Cell), f"{where} must be a Cell", type(cell).__name__)
        return cell

    def _refill(self, cells: Iterable[Cell]) -> None:
        """Number the children again."""
        prefix = self._prefix_for_names()
        for name in list(self._cells):
            # Removed first: a name must be free before it is given again.
            delattr(self, name)
        for index, cell in enumerate(cells):
            setattr(self, str(index), cell)
            # Names of Parameters follow the new position.
            if self._auto_prefix:
                cell.update_parameters_name(f"{prefix}{index}.")

    def append(self, cell: Cell) -> Self:
        """Add a child at the end."""
        return self.extend([cell])

    def extend(self, cells: Iterable[Cell]) -> Self:
        """Add children at the end."""
        prefix = self._prefix_behind()
        for cell in cells:
            name = str(len(self))
            setattr(self, name, self._checked(cell))
            if self._auto_prefix:
                cell.update_parameters_name(f"{prefix}{name}.")
        return self

    def _prefix_behind(self) -> str:
        """What names of a child at the end start with: read off the names of the first two children with Parameters.

        MindSpore takes the last component that looks like the first child's key, so that the children that are put behind
        ``CellList([SequentialCell(...)])`` are named ``0.1.weight``. Checkpoints have these names.
        """
        # Cells without Parameters say nothing about names.
        firsts = [(key, next(cell.get_parameters(), None)) for key, cell in self._cells.items() if cell is not None]
        named = [(key, parameter.name.split(".")) for key, parameter in firsts if parameter is not None][:2]
        prefix = ""
        for place, part in enumerate(named[0][1] if named else ()):
            if part == named[0][0]:
                prefix = "".join(f"{name}." for name in named[0][1][:place])
                # The second child confirms which component is the key.
                if len(named) > 1 and named[1][1][place : place + 1] == [named[1][0]]:
                    break
        return prefix

    def __iadd__(self, cells: Iterable[Cell]) -> Self:
        return self.extend(cells)

    def insert(self, index: int, cell: Cell) -> None:
        """Put a child before position `index`; the following ones get other numbers."""
        cells = self._children()
        cells.insert(index, self._checked(cell))
        self._refill(cells)


class SequentialCell(_Sequence):
    """Cells that run one after the other, each on the output of the one before.

    Args:
        args: Cells, or one list of them, or one OrderedDict that also names them.

    Raises:
        SporaxTypeError: something is not a Cell.

    Example:
        >>> SequentialCell(Dense(2, 3), ReLU())
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        # An OrderedDict names the children.
        if len(args) == 1 and isinstance(args[0], Mapping):
            object.__setattr__(self, "_keeps_names", True)
            for name, cell in args[0].items():
                setattr(self, name, self._checked(cell))
            return
        cells = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        for index, cell in enumerate(cells):
            setattr(self, str(index), self._checked(cell, f"the 'args[{index}]'"))

    def construct(self, input_data: Any) -> Any:
        """Run all children in turn."""
        for cell in self._children():
            input_data = cell(input_data)
        return input_data


class CellList(_Sequence, _Shelf):
    """A list of Cells; how they run is up to the parent.

    Args:
        args: Cells, or one list of them.
        auto_prefix: name the Parameters of the children by their positions.

    Raises:
        SporaxTypeError: something is not a Cell.
    """

    def __init__(self, *args: Any, auto_prefix: bool = True, **kwargs: Any) -> None:
        super().__init__(auto_prefix=auto_prefix, **kwargs)
        self.extend(args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a list has no order of execution.

        Raises:
            SporaxNotImplementedError: always.
        """
        raise SporaxNotImplementedError(
            "For 'CellList', calling it is not defined; call its elements, or use SequentialCell."
        )


class CellDict(_Shelf):
    """Cells by name; how they run is up to the parent.

    Args:
        args: a mapping, or an iterable of pairs of name and Cell.

    Raises:
        SporaxTypeError: a value is not a Cell or a key not a string.
        SporaxKeyError: a key that cannot name an attribute.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if args:
            self.update(args[0])

    def __getitem__(self, key: str) -> Cell:
        if key not in self._cells:
            raise SporaxKeyError(f"For 'CellDict', there is no key '{key}'; known: {list(self._cells)}.")
        return cast(Cell, self._cells[key])

    def __setitem__(self, key: str, cell: Cell) -> None:
        For("CellDict").typed("a key", key, "a string", str)
        For("CellDict").typed(f"the value of '{key}'", cell, "a Cell", Cell)
        # A method's name would be shadowed by the Cell.
        if not key or "." in key or (hasattr(type(self), key)):
            raise SporaxKeyError(
                f"For 'CellDict', the key '{key}' cannot name a Cell: empty, dotted, or a method's name."
            )
        if self._auto_prefix:
            cell.update_parameters_name(f"{self._prefix_for_names()}{key}.")
        self._name_child(key, cell)
        self._cells[key] = cell
        frames.touch()

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __contains__(self, key: str) -> bool:
        return key in self._cells

    def clear(self) -> None:
        """Remove all children."""
        self._cells.clear()
        frames.touch()

    def pop(self, key: str) -> Cell:
        """Remove a child and return it."""
        cell = self[key]
        del self._cells[key]
        frames.touch()
        return cell

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._cells.keys()

    def values(self) -> Iterable[Cell]:
        """The Cells."""
        return cast(Iterable[Cell], self._cells.values())

    def items(self) -> Iterable[tuple[str, Cell]]:
        """Pairs of name and Cell."""
        return cast(Iterable[tuple[str, Cell]], self._cells.items())

    def update(self, cells: Mapping[str, Cell] | Iterable[tuple[str, Cell]]) -> None:
        """Add or replace children."""
        for key, cell in cells.items() if isinstance(cells, Mapping | CellDict) else cells:
            self[key] = cell
