"""Pictures of a plan as SVG: operators with the communication between them, and memory over time.

Forward operators go down on the left. The backward pass goes up next to them, each operator next to its forward operator
where there is room. The update is on the right. The colour of a box is the layout of its result.
"""

from __future__ import annotations

import colorsys
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape

from sporax.base.text_tables import cost_text, shortened, size_text
from sporax.report.render.templates import template
from sporax.report.view.plan_view import Arrow, MemoryCurve, OperatorRow
from sporax.report.view.tables import row_name

_COLUMNS = {"forward": 0, "backward": 1, "update": 2}
_WIDTH, _HEIGHT = 270, 46
"""Pixels of a box: room for two lines of text."""
_ACROSS, _DOWN = 420, 74
"""Pixels from a box to the next one: what is left between columns holds the label of an arrow."""
_LEFT, _TOP = 110, 34
"""Pixels of the margin: arrows that skip boxes of a column bend out into it."""
_LETTERS = 36
"""Characters of the font that fit into the width of a box."""

_USES = {
    "parameters": "#4e79a7",
    "state": "#76b7b2",
    "data": "#bab0ac",
    "activations": "#f28e2b",
    "transients": "#e15759",
}


def operators_picture(boxes: Sequence[OperatorRow], arrows: Sequence[Arrow], unit: str) -> str:
    """The operators as boxes, coloured by how they are sharded, and arrows with the bytes that are sent."""
    positions = _positions(boxes)
    colours = _colours(boxes)
    slowest = max((box.seconds for box in boxes), default=0.0)
    width = _LEFT + max((column for column, _ in positions), default=0) * _ACROSS + _WIDTH + _LEFT
    height = _TOP + (max((row for _, row in positions), default=0) + 1) * _DOWN
    heads = "".join(
        _text(_LEFT + column * _ACROSS, 20, phase.capitalize(), "head")
        for phase, column in _COLUMNS.items()
        if any(box.phase == phase for box in boxes)
    )
    quiet, loud = (
        [_arrow(positions, arrow) for arrow in arrows if bool(arrow.moved) is moved] for moved in (False, True)
    )
    # Figures after all arrows, so that no line goes through one.
    figures = _figures(boxes, arrows, positions)
    bars = [_WIDTH * box.seconds / slowest if slowest else 0.0 for box in boxes]
    drawn = [
        _box(box, place, colours[_sharding(box)], bar, unit)
        for box, place, bar in zip(boxes, positions, bars, strict=True)
    ]
    key = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{escape(layout)}</span>'
        for layout, colour in colours.items()
    )
    svg = _svg(width, height, f"{template('tip.svg').template}{heads}{''.join((*quiet, *drawn, *loud, *figures))}")
    return f'<p class="keys">Layout of the result: {key}</p><div class="scroll">{svg}</div>'


def _positions(boxes: Sequence[OperatorRow]) -> list[tuple[int, int]]:
    """Column and row of each box."""
    columns = [_COLUMNS[box.phase] for box in boxes]
    rows = [columns[:number].count(column) for number, column in enumerate(columns)]
    # A backward operator stands next to its forward operator; those without one find a free row near the last.
    beside: dict[tuple[str, str], list[int]] = {}
    alone: list[tuple[int, int]] = []
    taken: set[int] = set()
    last = columns.count(0)
    for number, (box, column) in enumerate(zip(boxes, columns, strict=True)):
        own = beside.setdefault((box.path, box.name), [])
        if column == 0:
            own.append(rows[number])
        elif column == 1 and own:
            last = rows[number] = own.pop()
            taken.add(last)
        elif column == 1:
            alone.append((number, last))
    for number, near in alone:
        rows[number] = _free(near, taken)
        taken.add(rows[number])
    return list(zip(columns, rows, strict=True))


def _free(row: int, taken: Collection[int]) -> int:
    """The next row above that is free, else the next one below."""
    rows = itertools.chain(range(row, -1, -1), itertools.count(row + 1))
    return next(candidate for candidate in rows if candidate not in taken)


def _sharding(box: OperatorRow) -> str:
    """What gives a box its colour."""
    if not box.results:
        return "not one tensor"
    layout = max(box.results, key=len)
    return layout if any(letter.isalnum() for letter in layout) else "whole"


def _colours(boxes: Sequence[OperatorRow]) -> dict[str, str]:
    """One per layout, as different as can be; grey for what is not sharded."""
    layouts = sorted({_sharding(box) for box in boxes} - {"whole", "not one tensor"})
    # Steps of the golden angle, in degrees: however many layouts there are, neighbours in the list are far apart in hue.
    colours = {layout: _pastel((number * 137.5 + 210) % 360) for number, layout in enumerate(layouts)}
    return {**colours, "whole": "#e4e4e4", "not one tensor": "#fff"}


def _pastel(hue: float) -> str:
    """A light colour, on which dark text can be read, as ``#rrggbb``."""
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue / 360, 0.82, 0.7))


def _box(box: OperatorRow, place: tuple[int, int], colour: str, bar: float, unit: str) -> str:
    x, y = _corner(place)
    layouts = f"{' '.join(box.inputs)} → {' '.join(box.results)}" if box.inputs or box.results else ""
    inside = layouts if len(layouts) <= _LETTERS else f"… → {' '.join(box.results)}"
    tooltip = [box.paths or box.path or box.name, box.name, layouts, f"predicted {cost_text(box.seconds, unit)}"]
    if box.moved_bytes:
        tooltip.append(
            f"{size_text(box.moved_bytes)} in collectives inside of it, or on inputs and results of the step"
        )
    tags = [
        f"<title>{escape(chr(10).join(filter(None, tooltip)))}</title>",
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" style="fill:{colour}" class="box"/>',
        f'<rect x="{x}" y="{y + _HEIGHT - 3}" width="{bar:.1f}" height="3" class="bar"/>',
        _text(x + 8, y + 18, _title(box), "name"),
        _text(x + 8, y + 34, _short(inside), "inside"),
    ]
    return f"<g>{''.join(tags)}</g>"


def _title(box: OperatorRow) -> str:
    """What the box stands for, less the left end of its path where that is too long; ``"layers.0-59.q MatMul (60 ×)"``."""
    name = row_name(replace(box, path=box.paths or box.path))
    return shortened(f"{name} ({box.times} ×)" if box.times > 1 else name, _LETTERS)


def _arrow(positions: Sequence[tuple[int, int]], arrow: Arrow) -> str:
    # Bytes differ by orders of magnitude: in proportion to them, one arrow would hide the others.
    thick = 1 + math.log10(1 + arrow.moved_bytes / 1000) / 2 if arrow.moved else 1
    path = f'<path d="{_way(positions[arrow.source], positions[arrow.target])}" style="stroke-width:{thick:.1f}" '
    path += f'class="{"moves" if arrow.moved else "stays"}" marker-end="url(#tip)"/>'
    return f"<g>{_tooltip(arrow)}{path}</g>"


def _tooltip(arrow: Arrow) -> str:
    moved = ", ".join(f"{kind} {size_text(size)}" for kind, size in arrow.moved.items())
    tensors = "1 tensor" if arrow.num_tensors == 1 else f"{arrow.num_tensors} tensors"
    text = ": ".join(filter(None, (tensors, moved))) + (f" ({arrow.times} ×)" if arrow.times > 1 else "")
    return f"<title>{escape(text)}</title>"


def _figures(
    boxes: Sequence[OperatorRow], arrows: Sequence[Arrow], positions: Sequence[tuple[int, int]]
) -> Iterator[str]:
    """Bytes of boxes, and of arrows next to the boxes that they leave."""
    for box, place in zip(boxes, positions, strict=True):
        if box.moved_bytes:
            yield _bytes(place, box.moved_bytes, 0)
    # The line next to a box on which the bytes of its next arrow are reported.
    lines = [int(bool(box.moved_bytes)) for box in boxes]
    for arrow in (arrow for arrow in arrows if arrow.moved):
        yield f"<g>{_tooltip(arrow)}{_bytes(positions[arrow.source], arrow.moved_bytes, lines[arrow.source])}</g>"
        lines[arrow.source] += 1


def _bytes(place: tuple[int, int], size: int, line: int) -> str:
    x, y = _corner(place)
    x, y, text = x + _WIDTH + 4, y + 12 + 12 * line, size_text(size)
    return f'<rect x="{x}" y="{y - 10}" width="{7 * len(text)}" height="12" class="paper"/>{_text(x, y, text, "bytes")}'


def _way(source: tuple[int, int], target: tuple[int, int]) -> str:
    """The line of an arrow between two boxes, by their columns and rows."""
    (column, row), (to_column, to_row) = source, target
    (x, y), (to_x, to_y) = _corner(source), _corner(target)
    middle = _HEIGHT / 2
    if column == to_column and abs(to_row - row) == 1:
        across = x + _WIDTH / 2
        return (
            f"M{across} {y + _HEIGHT}L{across} {to_y}" if to_row > row else f"M{across} {y}L{across} {to_y + _HEIGHT}"
        )
    y, to_y = y + middle, to_y + middle
    if column == to_column:
        # Around the boxes between: the forward pass on its free left side, the others on their right; farther for longer
        # arrows so that nested ones do not cover one another.
        side, direction = (x, -1) if column == 0 else (x + _WIDTH, 1)
        bulge = side + direction * min(16 + 7 * abs(to_row - row), 100)
        return f"M{side} {y}C{bulge} {y} {bulge} {to_y} {side} {to_y}"
    x, to_x = (x + _WIDTH, to_x) if to_column > column else (x, to_x + _WIDTH)
    half = (x + to_x) / 2
    return f"M{x} {y}C{half} {y} {half} {to_y} {to_x} {to_y}"


def _corner(place: tuple[int, int]) -> tuple[float, float]:
    return _LEFT + place[0] * _ACROSS, _TOP + place[1] * _DOWN


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


def memory_picture(memory: MemoryCurve, unit: str = "s") -> str:
    """What one device holds while the step runs, by use, as areas one upon the other, over the predicted time in `unit`.

    Where no cost is known, every operator takes equally long.
    """
    width, height, left, top = 1000, 220, 70, 24
    steps, moments = _known_moments(memory)
    end = moments[-1] or 1.0
    peak = max((sum(uses.values()) for _, uses in steps), default=0) or 1
    times = [left + width * moment / end for moment in moments]
    tags = list(_areas(steps, times, lambda size: top + height * (1 - size / peak)))
    if memory.backward is not None:
        x = next((x for x, (time, _) in zip(times, steps, strict=False) if time >= memory.backward), times[-1])
        tags.append(f'<path d="M{x:.1f} {top}V{top + height}" class="grid"/>')
        tags.append(_text(x + 4, top - 6, "backward pass", "layout"))
    for share in (0.0, 0.5, 1.0):
        tags.append(_text(4, top + height * (1 - share) + 4, size_text(share * peak), "layout"))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        moment = cost_text(share * end, unit) if memory.moments else f"{share:.0%} of operators"
        tags.append(_text(left + width * share, top + height + 18, moment, "layout"))
    key = "".join(f'<span class="key"><i style="background:{entry}"></i>{use}</span>' for use, entry in _USES.items())
    return f'<p class="keys">{key}</p><div class="scroll">{_svg(left + width + 90, height + 60, "".join(tags))}</div>'


def _areas(
    steps: Sequence[tuple[int, Mapping[str, int]]], times: Sequence[float], level: Callable[[int], float]
) -> Iterator[str]:
    """An area for each use, upon those of the uses before it; `level` says where a number of bytes is."""
    below = [0] * len(steps)
    for use, colour in _USES.items():
        above = [base + uses.get(use, 0) for base, (_, uses) in zip(below, steps, strict=True)]
        # A use that nothing has at any time would be an area without height, which still shows a line and a tooltip.
        if above != below:
            # Backwards below, so that the corners go round the area.
            stairs = (*_stairs(times, [*map(level, above)]), *_stairs(times, [*map(level, below)])[::-1])
            corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in stairs)
            yield f'<polygon points="{corners}" style="fill:{colour}"><title>{use}</title></polygon>'
        below = above


def _known_moments(memory: MemoryCurve) -> tuple[Sequence[tuple[int, Mapping[str, int]]], Sequence[float]]:
    """The steps but those after the last operator, when only the results remain, and when they begin and the last one ends."""
    number = memory.num_operators
    steps = [(time, uses) for time, uses in memory.steps if time < number]
    # What is there before the step has the time -1.
    known = memory.moments or tuple(float(max(time, 0)) for time, _ in steps)
    return steps, (*known[: len(steps)], known[-1] if memory.moments else float(number))


def _stairs(times: Sequence[float], levels: Sequence[float]) -> list[tuple[float, float]]:
    """Corners of a line that keeps each level until the next time."""
    return [(x, level) for n, level in enumerate(levels) for x in (times[n], times[n + 1])]


def _svg(width: float, height: float, content: str) -> str:
    return f'<svg width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">{content}</svg>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'
