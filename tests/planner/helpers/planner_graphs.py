"""Operator graphs without tracing, and the search problems, costs and placements that tests of the planner need."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, Input, Operator, OperatorGraph, Role
from sporax.ir.hardware import load_profile
from sporax.ir.operation import Operation, TensorSpec
from sporax.ir.placement import Placement
from sporax.planner.communication.moves import LinkCosts
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions


class GraphBuilder:
    """Collects the operators of a graph; every method returns the number of the tensor that it makes."""

    def __init__(self) -> None:
        self.tensors: list[TensorSpec] = []
        self.operators: list[Operator] = []
        self.inputs: list[Input] = []

    def tensor(self, *shape, dtype="float32", itemsize=4):
        """A tensor that nothing makes yet."""
        self.tensors.append(TensorSpec(shape, dtype, itemsize))
        return len(self.tensors) - 1

    def argument(self, *shape, role=Role.DATA, name="", **kind):
        """An argument of the step."""
        number = self.tensor(*shape, **kind)
        self.inputs.append(Input(number, role, name))
        return number

    def weight(self, *shape, name=""):
        """A parameter."""
        return self.argument(*shape, role=Role.PARAMETER, name=name or f"w{len(self.inputs)}")

    def spec(self, operand):
        """What an operand is; a Python number is a scalar constant."""
        if isinstance(operand, float):
            return TensorSpec((), constant=operand)
        return self.tensors[operand]

    def add(self, name, operands, *shapes, dtype="float32", itemsize=4, params=None, **options):
        """An operator; its result if it has one, else the list of its results. Python floats are scalar constants."""
        results = [self.tensor(*shape, dtype=dtype, itemsize=itemsize) for shape in shapes]
        operation = Operation(
            name, tuple(map(self.spec, operands)), tuple(self.tensors[result] for result in results), params or {}
        )
        numbers = tuple(LITERAL if isinstance(operand, float) else operand for operand in operands)
        self.operators.append(Operator(operation, numbers, tuple(results), **options))
        return results[0] if len(results) == 1 else results

    def unary(self, name, x, **options):
        """An elementwise operator of one tensor."""
        return self.add(name, [x], self.tensors[x].shape, **options)

    def binary(self, name, x, y, **options):
        """An elementwise operator of a tensor and another one of its shape, or a constant."""
        return self.add(name, [x, y], self.tensors[x].shape, **options)

    def matmul(self, x, w, **options):
        """The product of two matrices."""
        shape = (self.tensors[x].shape[0], self.tensors[w].shape[1])
        params = {"dimension_numbers": (((1,), (0,)), ((), ()))}
        return self.add("dot_general", [x, w], shape, params=params, **options)

    def reduce_sum(self, x, *axes, **options):
        """The sum over some dimensions."""
        shape = tuple(size for dim, size in enumerate(self.tensors[x].shape) if dim not in axes)
        return self.add("reduce_sum", [x], shape, params={"axes": axes}, **options)

    def broadcast(self, x, *shape, dims=(), **options):
        """A tensor repeated along new dimensions."""
        params = {"shape": shape, "broadcast_dimensions": dims}
        return self.add("broadcast_in_dim", [x], shape, params=params, **options)

    def transpose(self, x, *permutation, **options):
        """Dimensions in another order."""
        shape = tuple(self.tensors[x].shape[dim] for dim in permutation)
        return self.add("transpose", [x], shape, params={"permutation": permutation}, **options)

    def reshape(self, x, *shape, **options):
        """The same elements in another shape."""
        return self.add("reshape", [x], shape, params={"new_sizes": shape, "dimensions": None}, **options)

    def graph(self, *outputs, aliases=()):
        """The graph with these results."""
        return OperatorGraph(tuple(self.tensors), tuple(self.operators), tuple(self.inputs), outputs, tuple(aliases))


def product(rows=8, inner=16, columns=32):
    """One product of data and a weight."""
    builder = GraphBuilder()
    x, w = builder.argument(rows, inner, name="x"), builder.weight(inner, columns)
    return builder.graph(builder.matmul(x, w))


def layers(count, batch=16, width=16):
    """A chain of products with tanh behind each."""
    builder = GraphBuilder()
    x = builder.argument(batch, width, name="x")
    for _ in range(count):
        x = builder.unary("tanh", builder.matmul(x, builder.weight(width, width)))
    return builder.graph(x)


def training_step(batch=16, width=16, columns=32, rate=0.1):
    """A product and its sum, the gradient of the weight, and the weight's update."""
    builder = GraphBuilder()
    x, w = builder.argument(batch, width, name="x"), builder.weight(width, columns)
    y = builder.unary("tanh", builder.matmul(x, w))
    loss = builder.reduce_sum(y, 0, 1)
    slope = builder.binary("sub", builder.binary("mul", y, y, backward=True), 1.0, backward=True)
    gradient = builder.matmul(builder.transpose(x, 1, 0, backward=True), slope, backward=True)
    updated = builder.binary("sub", w, builder.binary("mul", gradient, rate))
    return builder.graph(updated, loss, aliases=[(0, 1)])


def scan(rounds=3, width=8):
    """A loop that carries a matrix through a product with a weight of its own per round, and stacks what it carries."""
    inside = GraphBuilder()
    carried, weight = (inside.argument(width, width, role=Role.CONSTANT) for _ in range(2))
    carried = inside.unary("tanh", inside.matmul(carried, weight))
    body = inside.graph(carried, carried)
    builder = GraphBuilder()
    x, stacked = builder.argument(width, width, name="x"), builder.weight(rounds, width, width)
    last, every = builder.add(
        "scan",
        [x, stacked],
        (width, width),
        (rounds, width, width),
        params={"num_consts": 0, "num_carry": 1, "length": rounds},
        bodies=(body,),
    )
    return builder.graph(last, every)


def roofline(mesh, profile="cpu"):
    """The cost model of a hardware profile on a mesh."""
    hardware = load_profile(profile)
    return Roofline(hardware, link_costs(hardware, mesh))


def mesh_of(*sizes):
    """A mesh of axes of these sizes."""
    return DeviceMatrix(sizes)


def problem_builder(graph, mesh, **options):
    """A builder of search problems on the simulated hardware."""
    return ProblemBuilder(graph, mesh, roofline(mesh), SearchOptions(**options))


def problem_of(graph, mesh, **options):
    """The search problem in which all axes are handed out."""
    return problem_builder(graph, mesh, **options).build()


def every_choice(problem):
    """All choices of a small problem."""
    return itertools.product(*(range(len(costs)) for costs in problem.costs))


def cheapest_cost(problem):
    """The least cost of all choices of a small problem, in seconds."""
    return min(map(problem.seconds, every_choice(problem)))


def placement(text):
    """A placement from text, per dimension the axes: ``"01 -"``; ``"- - +2"`` is partial along axis 2."""
    dims = tuple(() if dim == "-" else tuple(map(int, dim)) for dim in text.split() if not dim.startswith("+"))
    partial = tuple(int(axis) for word in text.split() if word.startswith("+") for axis in word[1:])
    return Placement(dims, partial)


def with_role(graph, number, role):
    """The graph with another role of one input."""
    inputs = [replace(entry, role=role) if place == number else entry for place, entry in enumerate(graph.inputs)]
    return replace(graph, inputs=tuple(inputs))


def operation(name, operands, results, **params):
    """One equation on float32 tensors of these shapes."""
    return Operation(name, tuple(map(TensorSpec, operands)), tuple(map(TensorSpec, results)), params)


@dataclass(frozen=True, slots=True)
class CommunicationOnly:
    """A cost model in which operators cost nothing: the plan that communicates least. Searches must use all devices."""

    links: LinkCosts
    late_computing: float = 1.0
    late_communication: float = 1.0
    platform: str = "cpu"

    def seconds(self, operation, rule, assignment, mesh):
        """Nothing."""
        return 0.0
