"""Names for mesh axes, the same in summaries, explanations, differences and reports.

Axes that a plan always uses together have one letter: on eight devices ``a = 2, b = 4`` may stand for axes of sizes 2,
2 and 2. If a plan is compared with a sharding that splits such a run, the letter still means the whole run and its
pieces are numbered: ``a = 8 (a1 = 2, a2 = 4)``.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class AxisNames:
    """Names for the axes of a mesh. Made by `names_of`.

    Attributes:
        mesh: the devices.
        runs: axes that have one letter together, outermost first.
        pieces: into what each run is taken apart; the run alone where it is not.
    """

    mesh: DeviceMatrix
    runs: tuple[Axes, ...]
    pieces: tuple[tuple[Axes, ...], ...]

    @property
    def letters(self) -> tuple[str, ...]:
        """a, b, …, z, a1, b1, …: one per run."""
        return tuple(map(letter, range(len(self.runs))))

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """The letters, and how many devices are along each."""
        return tuple((letter, num_parts(self.mesh, run)) for letter, run in zip(self.letters, self.runs, strict=True))

    def legend(self) -> str:
        """``"a = 8 (a1 = 2, a2 = 4), b = 3"``."""
        entries = []
        for (letter, size), pieces in zip(self.sizes, self.pieces, strict=True):
            named = ", ".join(
                f"{letter}{n} = {num_parts(self.mesh, piece)}" for n, piece in enumerate(pieces, 1) if len(pieces) > 1
            )
            entries.append(f"{letter} = {size}{f' ({named})' if named else ''}")
        return ", ".join(entries)

    def layout(self, placement: Placement) -> str:
        """``"[a, -] + sum over b"``."""
        dims = ", ".join(self.axes(axes) or "-" for axes in placement.dims)
        parts = f" + {placement.reduction} over {self.axes(placement.partial)}" if placement.partial else ""
        return f"[{dims}]{parts}"

    def layouts(self, placements: Iterable[Placement]) -> str:
        """Several, with spaces between them."""
        return " ".join(map(self.layout, placements))

    def axes(self, axes: Axes) -> str:
        """``"a·b2"``: runs and pieces in the order of the axes."""
        return "·".join(self._words(axes))

    def _words(self, axes: Axes) -> Iterator[str]:
        while axes:
            run, letter, pieces = next(
                entry for entry in zip(self.runs, self.letters, self.pieces, strict=True) if axes[0] in entry[0]
            )
            if axes[: len(run)] == run:
                taken, word = run, letter
            else:
                number, taken = next((n, piece) for n, piece in enumerate(pieces, 1) if axes[0] in piece)
                word = f"{letter}{number}"
            yield word
            axes = axes[len(taken) :]


def letter(number: int) -> str:
    """a, b, …, z, a1, b1, …."""
    return string.ascii_lowercase[number % 26] + (str(number // 26) if number >= 26 else "")


def names_of(plan: Plan, others: Iterable[Placement] = ()) -> AxisNames:
    """Names for the axes of a plan's mesh, and for what `others` take apart of them."""
    runs = joined_axes(plan)
    pieces = _runs(plan.mesh, {*placements_of(plan), *others})
    inside = tuple(tuple(piece for piece in pieces if piece[0] in run) for run in runs)
    return AxisNames(plan.mesh, tuple(runs), inside)


def joined_axes(plan: Plan) -> list[Axes]:
    """The mesh's axes in runs of neighbours that nowhere in the plan are used apart."""
    return _runs(plan.mesh, set(placements_of(plan)))


def _runs(mesh: DeviceMatrix, placements: Iterable[Placement]) -> list[Axes]:
    together = [True] * max(0, mesh.num_axes - 1)
    for placement in placements:
        follows = {pair for axes in (*placement.dims, placement.partial) for pair in zip(axes, axes[1:], strict=False)}
        used = placement.used
        for axis in range(len(together)):
            apart = (axis, axis + 1) not in follows and (axis in used or axis + 1 in used)
            together[axis] = together[axis] and not apart
    runs: list[Axes] = [(0,)] if mesh.num_axes else []
    for axis, joined in enumerate(together, 1):
        if joined:
            runs[-1] = (*runs[-1], axis)
        else:
            runs.append((axis,))
    return runs


def placements_of(plan: Plan) -> Iterator[Placement]:
    """Where a plan has its tensors, those of bodies included."""
    yield from plan.inputs
    yield from plan.outputs
    yield from (resharding.placement for resharding in plan.reshardings.values())
    for planned in plan.operators:
        yield from planned.operands
        yield from planned.results
        for body in planned.bodies:
            yield from placements_of(body)
