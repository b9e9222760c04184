"""A function that a plan shards: what it is called with, where its arrays are, and the program of all devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.ir.graph import OperatorGraph
from sporax.ir.marks import LayoutMark
from sporax.ir.operation import Shape
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.lowering.execute.local_task import HOST_CALLS
from sporax.lowering.ingest.ingest import Ingested
from sporax.lowering.passes.pass_tags import compiler_options
from sporax.planner import PlanResult, SearchResult, peak_bytes
from sporax.planner.cost.evaluate import kernel_seconds
from sporax.planner.cost.model import CostModel, Roofline
from sporax.report.console import show_plan
from sporax.report.plan_warnings import beyond_the_chip
from sporax.report.questions import Answers
from sporax.runtime.devices.global_view import axis_names, device_program, jax_mesh
from sporax.runtime.planned.nnx_objects import NnxObjects
from sporax.runtime.planned.resized import OfOneShape, as_planned, check_structure, of_any_shape, typed
from sporax.runtime.planned.traced_function import donated_positions
from sporax.runtime.planned.user_mesh import NamedAxes, NamedMesh, is_typed, on_typed_arrays
from sporax.runtime.planned.verification import Verification, VerifiedFirst, is_requested, verified
from sporax.runtime.session import SESSION, StepRecorder


@dataclass(frozen=True, slots=True)
class Called:
    """How a function is called.

    Attributes:
        names: keywords of its last arguments.
        donated: positions of arguments whose memory results may use.
        is_wrapped: whether the function takes all by position.
    """

    names: tuple[str, ...] = ()
    donated: tuple[int, ...] = ()
    is_wrapped: bool = False

    def by_position(self, fn: Callable[..., Any], count: int) -> Callable[..., Any]:
        """The function of so many positional arguments."""
        if not self.names or self.is_wrapped:
            return fn
        first = count - len(self.names)

        @wraps(fn)
        def call(*args: Any) -> Any:
            return fn(*args[:first], **dict(zip(self.names, args[first:], strict=True)))

        return call


@dataclass(frozen=True, repr=False)
class PlannedFunction(Answers):
    """A function, and its sharding over devices. Made by `plan`.

    Attributes:
        step: the traced function and its graph.
        result: the plan, and how it was found.
        in_tree, out_tree: structures of the arguments (a tuple, those by keyword last) and of the result.
        names: keywords of the last arguments.
        donated: positions of arguments that `function` donates by default.
        axes: the axes of `devices`, where they have names.
        objects: the arguments that hold objects of flax.nnx.
        programs: what a memory limit had compiled, by the positions of donated arguments.
        plan_again: plans the function for other arguments: by position, by keyword, and what is fixed.
        alone: the function itself, of arguments by position and of states in place of objects.
    """

    step: Ingested
    result: PlanResult
    in_tree: Any
    out_tree: Any
    names: tuple[str, ...] = ()
    donated: tuple[int, ...] = ()
    axes: NamedAxes | None = None
    objects: NnxObjects = field(default_factory=NnxObjects)
    programs: Mapping[tuple[int, ...], Any] = field(default_factory=dict)
    plan_again: Callable[..., PlannedFunction] | None = None
    alone: Callable[..., Any] | None = None

    @property
    def plan(self) -> Plan:
        """Where everything is."""
        return self.result.plan

    @property
    def search(self) -> SearchResult | None:
        """How the plan was found: predicted seconds, lower bound, time of the search."""
        return self.result.search

    @cached_property
    def model(self) -> CostModel:
        """The cost of operators and links."""
        return self.result.model

    @property
    def graph(self) -> OperatorGraph:
        """The operators of the function."""
        return self.step.graph

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What the head of the plan says next to what is found in it: that it needs more memory than there is."""
        return beyond_the_chip(peak_bytes(self.result), self.result.request.profile)

    @cached_property
    def predicted_seconds(self) -> float:
        """Predicted time of one call of the compiled function: of its kernels, where the search had costs of operators."""
        assert isinstance(self.model, Roofline)  # functions of plain JAX have no other
        return kernel_seconds(self.graph, self.plan, self.model)

    @cached_property
    def in_shardings(self) -> Any:
        """Where the arguments must be, as a tuple of their structure; `jax.device_put` brings them there.

        On an `AbstractMesh` where this process sees fewer devices than the plan is for. In place of objects of flax.nnx they have
        states, as ``nnx.state(model)`` makes them.
        """
        return jax.tree.unflatten(self.in_tree, self._shardings(self._argument_placements))

    @cached_property
    def out_shardings(self) -> Any:
        """Where the results are, in their structure; on the mesh of `in_shardings`."""
        shardings = jax.tree.unflatten(self.out_tree, self._shardings(self.plan.outputs))
        return shardings[-1] if self.objects else shardings

    @property
    def mesh(self) -> Mesh | AbstractMesh:
        """The mesh of the shardings, with the names of `devices`; parts of an axis that one uses alone are ``data.0``, …"""
        return self._named.mesh

    def show(self) -> None:
        """Print the summary, in colours on a terminal."""
        show_plan(self.summary())

    def function(self, donate: int | Sequence[int] | None = None, resize: bool = False) -> Callable[..., Any]:
        """The function of whole arrays, compiled for all devices at its first call. It updates objects of flax.nnx in place.

        Args:
            donate: positions of arguments whose memory may be used for results; the ``donate_argnums`` of `plan` by default.
            resize: plan again where an argument has another shape, such as a last, smaller batch, which is then brought where the
                new plan has it; all else stays where it is. What was fixed stays fixed where it divides the new shape. Otherwise
                another shape is an error.

        Raises:
            SporaxValueError: this process sees fewer devices than the plan is for.
        """
        by_position = len(self.in_shardings) - len(self.names)
        donated = self.donated if donate is None else donated_positions(donate, by_position, "donate")
        inputs = self.graph.inputs[len(self.step.constants) :]
        jitted: Any = self.programs.get(tuple(sorted(donated))) or self.jitted(donated)
        # Ranks of other processes, and programs that call the host, have arrays elsewhere.
        stay = _calls_host(self.step) or jax.process_count() > 1
        shardings = () if stay else self._shardings(self._argument_placements)
        jitted = OfOneShape(jitted, self.in_tree, inputs, self.graph, self.step.weak[0], shardings)
        if SESSION.recording is not None:
            jitted = _recorded(jitted, SESSION.recording)
        if _calls_host(self.step) and self.axes is not None:
            jitted = _placed(jitted, jax.tree.unflatten(self.out_tree, self._shardings(self.plan.outputs)))
        if is_requested():
            jitted = VerifiedFirst(jitted, self._verified)
        called = (
            jitted if not self.objects else lambda *args: self.objects.updated(args, jitted(*self.objects.states(args)))
        )
        called = called if not self.names else self._by_keyword(called)
        return self._resizing(called, donate) if resize else called

    def _resizing(self, function: Callable[..., Any], donate: int | Sequence[int] | None) -> Callable[..., Any]:
        inputs, fixed = self.graph.inputs[len(self.step.constants) :], self.result.request.placements
        shapes = [self.graph.tensors[entry.tensor].shape for entry in inputs]

        def plans(
            args: tuple[Any, ...], keywords: Mapping[str, Any], now: Sequence[Shape]
        ) -> tuple[Callable[..., Any], Sequence[Any]]:
            assert self.plan_again is not None
            same: dict[int | str, Placement] = {
                entry.name: place
                for entry, place, shape, before in zip(inputs, self._argument_placements, now, shapes, strict=True)
                if shape == before or (entry.tensor in fixed and place.fits(shape, self.plan.mesh))
            }
            again = self.plan_again(args, keywords, same, self.axes, self.plan.mesh.ranks)
            return again.function(donate), again.in_shardings

        return of_any_shape(function, shapes, self.objects.states, self.names, plans)

    def verify(self, *args: Any, steps: int = 1, **keywords: Any) -> Verification:
        """Run the function on one device and as planned, and compare all results. Nothing is donated or updated.

        Args:
            args: the arguments, of which one device must be able to run the function.
            steps: how many, one after another; carried results are the next step's arguments.
            keywords: arguments by keyword.

        Returns:
            How far each result is from the one of one device, and how far rounding could bring it; ``str`` lists them.

        Raises:
            SporaxRuntimeError: a result differs beyond rounding; with the first operator that does.
            SporaxTypeError: the arguments have another structure.
            SporaxValueError: the devices are not all of this process.
        """
        self._check_devices()
        by_position = (*args, *(keywords[name] for name in self.names if name in keywords))
        return self._verified(*self.objects.states(by_position), steps=steps)

    def _verified(self, *args: Any, steps: int = 1) -> Verification:
        leaves, tree = jax.tree.flatten(args)
        check_structure(self.in_tree, tree)
        named = jax.tree.unflatten(self.out_tree, range(self.out_tree.num_leaves))
        names = [f"result{jax.tree_util.keystr(path)}" for path, _ in jax.tree_util.tree_leaves_with_path(named)]

        def alone(*leaves: Any) -> list[Any]:
            assert self.alone is not None  # `plan` sets it
            return jax.tree.leaves(self.alone(*jax.tree.unflatten(self.in_tree, leaves)))

        # Constraints name devices that one device is not, so the function is run as it was traced.
        constrained = any(isinstance(operator.mark, LayoutMark) for operator in self.graph.walk())
        values = list(map(jnp.asarray, leaves))
        own = None if constrained and not is_typed(values) else alone
        return verified(self.step, self.plan, values, names, own, steps)

    def jitted(self, donated: tuple[int, ...]) -> Any:
        """The function of whole arrays, of states in place of objects and with all arguments by position."""
        self._check_devices()
        mapped = device_program(self.step, self.plan, "planned")

        def call(*args: Any) -> Any:
            leaves, tree = jax.tree.flatten(args)
            check_structure(self.in_tree, tree)
            leaves = as_planned(leaves, self.graph.inputs[len(self.step.constants) :], self.graph)
            results = on_typed_arrays(mapped, leaves, self.plan.outputs, self.plan.mesh, self.axes)
            return jax.tree.unflatten(self.out_tree, typed(results, self.step.weak[1]))

        # A program that calls the host may have one mesh alone, which is that of its collectives.
        mesh = self._unnamed if _calls_host(self.step) else self._named
        # Options of XLA for a program with barriers of its own, as `jax.checkpoint` makes them.
        is_ordered = any(operator.name == "optimization_barrier" for operator in self.graph.walk())
        return jax.jit(
            call,
            in_shardings=jax.tree.unflatten(self.in_tree, self._shardings(self._argument_placements, mesh)),
            out_shardings=jax.tree.unflatten(self.out_tree, self._shardings(self.plan.outputs, mesh)),
            donate_argnums=donated,
            compiler_options=dict(compiler_options(["recompute"] if is_ordered else [])),
        )

    def _by_keyword(self, jitted: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            if set(keywords) != set(self.names):
                raise SporaxTypeError(
                    f"For 'plan', the function must be called with the keywords {list(self.names)}, but got {list(keywords)}."
                )
            return jitted(*args, *(keywords[name] for name in self.names))

        return call

    @property
    def _argument_placements(self) -> tuple[Placement, ...]:
        return self.plan.inputs[len(self.step.constants) :]

    def _shardings(self, placements: Sequence[Placement], named: NamedMesh | None = None) -> list[NamedSharding]:
        named = named or self._named
        return [NamedSharding(named.mesh, named.spec(place)) for place in placements]

    @cached_property
    def _named(self) -> NamedMesh:
        """The mesh with the user's names, where there are some."""
        if self.plan.mesh.num_devices <= jax.device_count():
            self._check_devices()
        if self.axes is not None:
            return self.axes.refined(self.plan.mesh, (*self._argument_placements, *self.plan.outputs))
        return self._unnamed

    @cached_property
    def _unnamed(self) -> NamedMesh:
        mesh, names = self.plan.mesh, axis_names(self.plan.mesh)
        is_here = mesh.num_devices <= jax.device_count()
        own = jax_mesh(mesh) if is_here else AbstractMesh(mesh.shape, names)
        return NamedMesh(own, tuple((name, (axis,)) for axis, name in enumerate(names)))

    def _check_devices(self) -> None:
        needed, there = self.plan.mesh.num_devices, jax.device_count()
        if needed > there:
            raise For("plan").error(f"running needs the {needed} devices of the plan, but this process sees {there}")
        if max(self.plan.mesh.ranks) >= there:
            raise SporaxValueError(
                f"For 'plan', the ranks of the plan must be below {there}, which are here, but got {list(self.plan.mesh.ranks)}."
            )


def _placed(jitted: Any, shardings: Any) -> Any:
    """A function whose results have these shardings, where they are already."""

    @wraps(jitted)
    def call(*args: Any) -> Any:
        return jax.device_put(jitted(*args), shardings)

    return call


def _recorded(jitted: Any, recording: StepRecorder) -> Any:
    """A function each of whose calls is a step that may be recorded."""
    texts: list[Any] = []

    @wraps(jitted)
    def call(*args: Any) -> Any:
        # Its text says what recorded operators belong to.
        if not texts:
            texts.append(jitted.lower(*args).compile())
            SESSION.executables.add(texts[0])
        return recording.around(lambda: jitted(*args), ends_step=True)

    return call


def _calls_host(step: Ingested) -> bool:
    """Whether a program calls the host, in loops and islands as well."""
    bodies = (body for equation in step.equations for body in equation.bodies)
    return any(operator.name in HOST_CALLS for operator in step.graph.operators) or any(map(_calls_host, bodies))
