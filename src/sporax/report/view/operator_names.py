"""Names of operators and tensors of a step, and the operators that a name in a question refers to.

Problem: people query "layers.3.query" or "MatMul"; a plan knows numbers.

Method: five ways to read a name are tried, from the most precise one to the loosest; the first that names an operator wins.

Names of gradients (`gradient_names`): JAX gives the products of a backward pass none; dozens of rows would be called
``dot_general``. A gradient has the shape of
its variable and reaches it through light operators alone: those of the optimizer, and edges of loops, which stack the gradients
of layers or add them up. So such a product has the name of the variable whose gradient it computes.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from sporax.base.errors import SporaxValueError, did_you_mean
from sporax.ir.graph import MARK, Operator, OperatorGraph, Role
from sporax.ir.marks import DerivativeMark, OperatorMark, Side
from sporax.planner.cost.combined_collectives import late_operators
from sporax.planner.rules.loop_rules import RULES, STACK
from sporax.planner.search.space.operator_rules import is_identity, is_light
from sporax.report.view.folding import in_ranges

_MOST_TENSORS = 64
"""Tensors that are followed from one product: Adam with clipping and weight decay needs about 20."""

PREFIX = "gradient of "


class OperatorNames:
    """Names in one graph.

    Args:
        graph: a step, its loops written out.
    """

    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self.late = late_operators(graph)
        self.makers, self.readers = graph.producers(), graph.consumers()
        self.variables = variable_names(graph, (Role.PARAMETER, Role.STATE, Role.DATA))

    def resolve(self, name: str) -> tuple[int, ...]:
        """The operators that a name stands for: ``"#7"``; a path or whole names out of one; a variable; an operator of the facade
        or a primitive, ``"MatMul"``, ``"dot_general"``; or a row of a summary, ``"layers.0-59.q MatMul"``.

        Of the operators at a path those with a choice of their own are listed, and all of them where none has one.

        Raises:
            SporaxValueError: it stands for none.
        """
        # A row of a summary may end in "(12 ×)", the number of equal operators that it stands for.
        queried = re.sub(r"\s*\(\d+\s×\)$", "", name.strip())
        where, _, what = queried.rpartition(" ")
        ways: Sequence[Callable[[], list[int]]] = (
            lambda: [number for number in self._searchable if queried == f"#{number}"],
            lambda: self._at_path(queried),
            # Inputs of plain functions are called "args[0]" by JAX and "[0]" here, and what is in them "[0]['up']".
            lambda: self._reading(queried.removeprefix("args")),
            lambda: self._computing(queried) if queried.startswith(PREFIX) else [],
            lambda: self._of_kind(queried, self._searchable),
            lambda: self._of_kind(what, self._at_path(where)) if where else [],
        )
        numbers = next(filter(None, (way() for way in ways)), None)
        if numbers is None:
            near = self._near(queried)
            such = f"one of the program's, such as {near}, or " if near else ""
            raise SporaxValueError(
                f"For 'explain', 'path' must be {such}'#' with a number below {len(self.graph.operators)}, but got '{name}'."
                f"{did_you_mean(queried, near)}"
            )
        # People mean the product and not the conversions around it.
        heavy = tuple(number for number in numbers if not is_light(self.graph.operators[number]))
        return heavy or tuple(numbers)

    def _at_path(self, path: str) -> list[int]:
        """Operators whose paths have these names in them; ``0-2,5`` is any of these numbers."""
        # Whole words only: "layers.1" must not match "layers.12".
        literal, (folded, ranges) = re.escape(path), _folded_pattern(path)
        pattern = re.compile(rf"(?:^|(?<=\.))(?:{literal}|{folded})(?=\.|$)")

        def is_match(path_of_operator: str) -> bool:
            return any(_is_in(match, ranges) for match in pattern.finditer(path_of_operator))

        paths = {number: self._paths(number) for number in self._searchable}
        matches = {name for name in {*itertools.chain(*paths.values())} if is_match(name)}
        return [number for number, names in paths.items() if not matches.isdisjoint(names)]

    def _paths(self, number: int) -> list[str]:
        """The path of an operator, and those that end in a variable that it reads, as rows of summaries do."""
        path = self.graph.operators[number].path
        return [path, *(joined(path, variable) for variable in self._reads.get(number, ()) if path)]

    def _reading(self, queried: str) -> list[int]:
        """Operators with a choice of their own that read a variable, or one of a structure; where there are none, all others."""
        inside = f"{queried}[" if queried else "["
        names = {name for name in self.variables.values() if name == queried or name.startswith(inside)}
        heavy = [number for number, read in self._reads.items() if not names.isdisjoint(read)]
        return heavy or [number for number in self._searchable if not names.isdisjoint(self._read_by(number))]

    def _computing(self, gradient: str) -> list[int]:
        """Operators that compute the gradient in a row of a summary; ``0-2,5`` is any of these numbers."""
        pattern, ranges = _folded_pattern(gradient.removeprefix(PREFIX))
        found = ((number, re.fullmatch(pattern, name)) for number, name in gradient_names(self.graph).items())
        return [number for number, match in found if match and _is_in(match, ranges)]

    def _of_kind(self, kind: str, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if kind in self._kinds(number)]

    def _kinds(self, number: int) -> tuple[str, ...]:
        """The primitive, and the operator of the facade that it is part of."""
        operator = self.graph.operators[number]
        return tuple(
            filter(None, (operator.constraint or operator.name, product_name(operator), self._facade.get(number, "")))
        )

    def title(self, number: int) -> str:
        """``"#7 dot_general (MatMul) at layers.3.query, backward"``."""
        operator = self.graph.operators[number]
        phase = "backward" if operator.backward else "update" if self.late[number] else "forward"
        reads = ", ".join(self._reads.get(number, ()))
        where = f" at {operator.path}" if operator.path else f" of {reads}" if reads else ""
        times = f", {operator.times} times" if operator.times > 1 else ""
        facade = self._facade.get(number, "")
        part_of = f" ({facade})" if facade and facade != operator.path.rpartition(".")[2] else ""
        return f"#{number} {operator.constraint or operator.name}{part_of}{where}, {phase}{times}"

    def operand(self, tensor: int, queried: int) -> str:
        """What an operator reads, by the variable that it is, or by who made it; seen from operator `queried`."""
        variable = self.variables.get(tensor, "")
        if variable:
            return variable
        number = self.makers.get(tensor, -1)
        while number >= 0 and (sources := self.graph.operators[number].sources):
            tensor = sources[tensor]
            number = self.makers.get(tensor, -1)
        return self._seen_from(queried, number) if number >= 0 else "a constant"

    def reader(self, tensor: int, queried: int) -> str:
        """Who reads a tensor first, marks aside; seen from operator `queried`."""
        # The list grows while it is walked: marks hand the tensor on under other numbers.
        waiting = [tensor]
        for other_tensor in waiting:
            for number in self.readers.get(other_tensor, ()):
                operator = self.graph.operators[number]
                if not is_identity(operator):
                    return self._seen_from(queried, number)
                waiting += [operator.results[operator.operands.index(other_tensor)]]
        return "the results of the step"

    def _seen_from(self, queried: int, number: int) -> str:
        """An operator by what its path has beyond the requested one, or by its number where both are at one place."""
        operator, mine = self.graph.operators[number], self.graph.operators[queried].path.split(".")
        words = operator.path.split(".")
        shared = next((n for n, pair in enumerate(zip(words, mine, strict=False)) if pair[0] != pair[1]), len(mine))
        # A number alone says nothing, so the word before it stays.
        if shared and shared < len(words) and words[shared].isdecimal():
            shared -= 1  # layers.2 and not 2
        return ".".join(words[shared:]) or f"{operator.name} #{number}"

    @cached_property
    def _searchable(self) -> tuple[int, ...]:
        """Operators that can be queried."""
        edges = frozenset((MARK, *RULES))
        operators = enumerate(self.graph.operators)
        return tuple(number for number, operator in operators if operator.name not in edges or operator.constraint)

    @cached_property
    def _facade(self) -> dict[int, str]:
        """For operators between the entrance and the exit of one of the facade its name; and between their derivatives."""
        names: dict[int, str] = {}
        inside: tuple[str, str] | None = None
        for number, operator in enumerate(self.graph.operators):
            mark = operator.mark
            backward = isinstance(mark, DerivativeMark) and mark.backward
            about = mark.of if isinstance(mark, DerivativeMark) else mark
            if isinstance(about, OperatorMark):
                inside = (about.operator, operator.path) if (about.side is Side.IN) != backward else None
            elif about is not None:
                inside = None
            elif inside is not None and f"{operator.path}.".startswith(f"{inside[1]}." if inside[1] else ""):
                names[number] = inside[0]
        return names

    @cached_property
    def _reads(self) -> dict[int, tuple[str, ...]]:
        """Names of the variables that operators with a choice of their own read."""
        names_read: dict[int, tuple[str, ...]] = {}
        for number in self._searchable:
            operator = self.graph.operators[number]
            if not is_light(operator) and not is_identity(operator):
                names_read[number] = self._read_by(number)
        return names_read

    def _read_by(self, number: int) -> tuple[str, ...]:
        """Names of the variables that an operator reads."""
        operands = self.graph.operators[number].operands
        return tuple(filter(None, map(self.variables.get, operands)))

    def _near(self, name: str) -> list[str]:
        """Names like this one: as many words out of paths, variables, primitives."""
        count = name.count(".") + 1
        names = dict.fromkeys(self._windows(count))
        names |= dict.fromkeys(self.variables.values())
        names |= dict.fromkeys(itertools.chain(*(self._kinds(number) for number in self._reads)))
        # No cutoff: some suggestion is better than none in an error message.
        return difflib.get_close_matches(name, [entry for entry in names if entry], 3, cutoff=0.0)

    def _windows(self, count: int) -> Iterator[str]:
        for path in dict.fromkeys(self.graph.operators[number].path for number in self._searchable):
            words = path.split(".")
            for start in range(max(len(words) - count + 1, 1)):
                yield ".".join(words[start : start + count])


def joined(path: str, variable: str) -> str:
    """The name of a product by its path and the variable that it reads; ``"layers.3"``, ``"[0]['q']"`` -> ``"layers.3.q"``."""
    return ".".join((path, re.findall(r"\w+", variable)[-1])) if path and variable else path or variable


def product_name(operator: Operator) -> str:
    """The primitive, or ``"einsum"`` for a product that `jax.numpy.einsum` named after its subscripts."""
    return "einsum" if operator.name == "dot_general" and "->" in operator.path.rpartition(".")[2] else operator.name


def _folded_pattern(name: str) -> tuple[str, list[str]]:
    """A pattern for the names that a folded one stands for: each run of numbers such as 0-59 becomes one captured number."""
    words = re.split(r"(?<![\w-])(\d+(?:[-,]\d+)+)(?![\w-])", name)
    ranges = words[1::2]
    words[::2], words[1::2] = map(re.escape, words[::2]), [r"(\d+)"] * len(ranges)
    return "".join(words), ranges


def _is_in(match: re.Match[str], ranges: Sequence[str]) -> bool:
    """Whether all captured numbers are in their ranges."""
    return all(n is None or in_ranges(int(n), run) for n, run in zip(match.groups(), ranges, strict=True))


def variable_names(graph: OperatorGraph, roles: Collection[Role]) -> dict[int, str]:
    """Names of the variables of some roles by number of the tensor, also turned, converted or of one round of a loop.

    Args:
        graph: a step, its loops written out.
        roles: of the variables.
    """
    names = {argument.tensor: argument.name for argument in graph.inputs if argument.role in roles}
    for operator in graph.operators:
        if is_identity(operator) or (is_light(operator) and len(operator.operands) == len(operator.results) == 1):
            pairs = zip(operator.operands, operator.results, strict=True)
            names.update((result, names[tensor]) for tensor, result in pairs if tensor in names)
    return names


def common_prefix(paths: Sequence[str]) -> str:
    """The leading Cells that all paths share; a list stays with its numbers, ``layers.3``."""
    if not paths:
        return ""
    words = [path.split(".") for path in dict.fromkeys(paths)]
    shared = 0
    # One word must be left of every path, or the row would have no name.
    while all(len(path) > shared + 1 and path[shared] == words[0][shared] for path in words):
        shared += 1
    # "layers" alone would stand for all of the list.
    if shared and any(path[shared].isdecimal() for path in words):
        shared -= 1
    return ".".join(words[0][:shared])


def gradient_names(graph: OperatorGraph) -> dict[int, str]:
    """Names of variables by the numbers of the heavy operators that compute their gradients."""
    variables = {argument.tensor: argument.name for argument in graph.inputs if argument.role is Role.PARAMETER}
    if not variables:
        return {}
    readers = graph.consumers()
    names = {}
    for number, operator in enumerate(graph.operators):
        if operator.backward and not is_light(operator) and not is_identity(operator):
            name = _updated(graph, readers, variables, operator.results)
            if name:
                names[number] = name
    return names


def _updated(
    graph: OperatorGraph, readers: dict[int, list[int]], variables: dict[int, str], results: tuple[int, ...]
) -> str:
    """The variable that light operators change by a tensor; "" for none."""
    # The list grows while it is walked.
    waiting = list(results)
    for tensor in waiting:
        shape = graph.tensors[tensor].shape
        for operator in filter(_passes, (graph.operators[number] for number in readers.get(tensor, ()))):
            changed = (operand for operand in operator.operands if operand in variables)
            if (found := next((entry for entry in changed if graph.tensors[entry].shape == shape), None)) is not None:
                return variables[found]
            if len(waiting) < _MOST_TENSORS:
                waiting += [
                    other
                    for other in operator.results
                    if other not in waiting
                    and (operator.name == STACK or math.prod(graph.tensors[other].shape) == math.prod(shape))
                ]
    return ""


def _passes(operator: Operator) -> bool:
    """Whether what it makes of a gradient is still one."""
    return operator.name in RULES or (not operator.bodies and (is_light(operator) or is_identity(operator)))
