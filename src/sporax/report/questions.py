"""What a user can query of a planned step: summary, explanations, differences to another plan, alternatives, a report.

Steps of the facade and plain JAX functions are planned in different ways and answer the same questions. `Answers` is
the part that they share.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from dataclasses import dataclass, fields, replace
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.base.progress import activity, reported
from sporax.base.text_tables import cost_text
from sporax.ir.graph import OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner import QUESTION_SECONDS, Budget, SearchResult, SearchTask, alternatives, finish, trade_offs
from sporax.planner.cost.model import CostModel
from sporax.report.summarize import summarize
from sporax.report.summary import Summary
from sporax.report.view.diff import diff
from sporax.report.view.explain import check_count, explain
from sporax.report.view.explanation import Explanations


class Planned(Protocol):
    """A graph with its plan."""

    @property
    def graph(self) -> OperatorGraph:
        """The operators."""

    @property
    def plan(self) -> Plan:
        """Where everything is."""

    @property
    def search(self) -> SearchResult | None:
        """How the plan was found, if it was searched."""

    @property
    def model(self) -> CostModel:
        """The cost model of operators and links."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the head of the plan says."""


def facts(planned: Planned) -> list[tuple[str, str]]:
    """What is said of a plan in few words: its size, its search, and how to query more."""
    graph, plan, search = planned.graph, planned.plan, planned.search
    kinds = Counter(argument.role.value for argument in graph.inputs)
    lines = [
        ("devices", f"{plan.mesh.num_devices}, axes {' × '.join(map(str, plan.mesh.shape)) or 'none'}"),
        ("graph", f"{sum(1 for _ in graph.walk())} operators, {len(graph.tensors)} tensors"),
        ("inputs", ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"),
        ("outputs", str(len(graph.outputs))),
    ]
    if search is not None:
        lines.append(("search", f"{search.method}, predicted {cost_text(search.cost_seconds, search.unit)} a step"))
    if plan.notes:
        lines.append(("notes", f"{len(plan.notes)}; the first: {shorten(plan.notes[0], 90)}"))
    return [*lines, ("more", "summary(), explain(operator), alternatives(), report(file)")]


class Answers:
    """Questions to a `Planned`, for its class to inherit."""

    __slots__ = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the head of the plan says next to what is found in it."""
        return ()

    def __repr__(self: Planned) -> str:
        """One line per fact; the whole graph would fill a book."""
        return "\n".join((f"{type(self).__name__}:", *(f"  {name}: {fact}" for name, fact in facts(self))))

    def _repr_html_(self: Planned) -> str:
        """The same facts as a table, for notebooks."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in facts(self))
        return f"<table><caption>{escape(type(self).__name__)}</caption>{rows}</table>"

    def summary(self: Planned) -> Summary:
        """The plan for people: what is sharded how, what is sent, what every device holds. ``print`` shows it as tables."""
        return summarize(self.graph, self.plan, self.search, self.model, self.remarks)

    def explain(self: Planned, path: str, most: int = 8) -> Explanations:
        """Why operators are sharded as they are: their alternatives, what these would cost, and why they lost.

        Args:
            path: where the operators are, or a part of it (``"layers.3.attn.q"``); or ``"#7"`` for number 7; or a variable that
                they read; or an operator of the facade or a primitive (``"MatMul"``, ``"dot_general"``); or a row of a summary
                (``"layers.0-59.q MatMul"``).
            most: how many alternatives of each are shown.

        Raises:
            SporaxTypeError: a path that is no text, or a number that is none.
            SporaxValueError: no operator is there, or there is nothing to show.
        """
        options = self.search.options if self.search is not None else None
        limit = None if options is None else options.memory_bytes
        return explain(self.graph, self.plan, self.model, path, most=most, memory_bytes=limit)

    def diff(self: Planned, other: Planned | Plan, every: bool = False) -> str:
        """Where another plan of the same step differs, line by line; "" where it does not.

        Args:
            other: the other one, planned or a `Plan` alone.
            every: also report operators that follow others.

        Raises:
            SporaxTypeError: it is no plan.
            SporaxValueError: it is a plan of another step, or for other devices.
        """
        plan = other if isinstance(other, Plan) else getattr(other, "plan", None)
        if not isinstance(plan, Plan):
            raise For("diff").type_error("'other' must be a plan, or have one", other, show=reprlib.repr)
        mine, theirs = self.graph.fingerprint(), plan.graph
        if theirs not in ("", mine):
            raise For("diff").error(f"'other' must be a plan of the same step, {mine}", f"a plan of {theirs}")
        return diff(self.graph, self.plan, plan, every)

    def alternatives(self: Planned, count: int = 3, seconds: float = QUESTION_SECONDS) -> tuple[Any, ...]:
        """The best other plans of a searched one, by cost: each shards the heaviest operators in a way of its own.

        Args:
            count: how many; there may be fewer.
            seconds: time in which to prove that no better plan was left out (``search.statistics["proven"]``); what is found
                later is good, and no more.

        Raises:
            SporaxTypeError: a count or a time that is no number.
            SporaxValueError: a count below 1, a negative time, or the plan was not searched.
        """
        search = _searched(self, "alternatives", count, seconds)
        # One more than requested: the plan itself may be among the best.
        with reported(), activity("searching alternative plans"):
            task = SearchTask.of(self.graph, self.plan.mesh, self.model, search.options, Budget.of(seconds))
            best = alternatives(task, count + 1, incumbent=search.plan)
        others = [entry for entry in best if entry.plan.operators != search.plan.operators]
        return tuple(_with(self, other) for other in others[:count])

    def trade_offs(self: Planned, count: int = 5, seconds: float = QUESTION_SECONDS) -> tuple[Any, ...]:
        """Plans of a searched step that trade time for memory, the fastest first, none both slower and larger than another.

        ``search.cost_seconds`` and ``search.statistics["peak_bytes"]`` are what the search predicts of each.

        Args:
            count: how many at most, the smallest that was found included.
            seconds: time in which to look; how much it left out says ``search.statistics["cut_short"]``.

        Raises:
            SporaxTypeError: a count or a time that is no number.
            SporaxValueError: a count below 1, a negative time, or the plan was not searched.
        """
        search = _searched(self, "trade_offs", count, seconds)
        with reported(), activity("searching plans with less memory"):
            task = SearchTask.of(self.graph, self.plan.mesh, self.model, search.options, Budget.of(seconds))
            results = trade_offs(task, count, search.plan)
        return tuple(_with(self, item) for item in results)

    def report(self: Planned, path: str | Path) -> None:
        """Write a page for a browser: totals, a picture of the operators, tables of layouts and costs, memory over time.

        Args:
            path: the HTML file; it needs nothing but itself.

        Raises:
            SporaxTypeError: it is no path.
            OSError: it cannot be written.
        """
        if not isinstance(path, str | Path):
            raise SporaxTypeError(f"For 'report', 'path' must be a text or a Path, but got {reprlib.repr(path)}.")
        summary = summarize(self.graph, self.plan, self.search, self.model, self.remarks)
        Path(path).write_text(summary.to_html(), encoding="utf-8")


def check_seconds(question: str, seconds: object) -> None:
    """Raise unless a time is one, 0 or more; without end is allowed."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise SporaxTypeError(f"For '{question}', 'seconds' must be a number, but got {reprlib.repr(seconds)}.")
    For(question).refuse(not seconds >= 0, "'seconds' must be 0 or more", seconds)


def _searched(planned: Planned, question: str, count: int, seconds: float) -> SearchResult:
    """The search of a plan for so many others to be found in so much time."""
    check_count(question, "count", count)
    check_seconds(question, seconds)
    if planned.search is None:
        raise SporaxValueError(
            f"For '{question}', a search must make the plan ('parallel_mode' 'auto_parallel'), but the user's strategies did."
        )
    return planned.search


def _with(planned: Any, result: SearchResult) -> Any:
    """The same step under another plan: what can be run where the plan is all that it takes."""
    request = planned.search.request
    if request is None:
        return PlannedGraph(planned.graph, result.plan, result, planned.model)
    finished = finish(request, result, planned.model)
    if "result" in {setting.name for setting in fields(planned)}:
        return replace(planned, result=finished)
    return PlannedGraph(planned.graph, finished.plan, finished.search, planned.model)


@dataclass(frozen=True, slots=True, repr=False)
class PlannedGraph(Answers):
    """A graph with its plan, before there is a program.

    Attributes:
        graph, plan, search, model, remarks: as in `Planned`.
    """

    graph: OperatorGraph
    plan: Plan
    search: SearchResult | None
    model: CostModel
    remarks: tuple[str, ...] = ()
