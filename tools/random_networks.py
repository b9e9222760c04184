"""Random small networks as programs: what is drawn is a list of lines, so that it can be made smaller and printed.

Problem: defects of a planner show on combinations of operators that nobody would write a test for.

Method: a `Case` is data: values, each made by one line from earlier ones, and the settings under which they are run. `text` is
the whole program, and it is this text that runs, so what is printed after a failure is what failed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

Shape = tuple[int, ...]
NUM_DEVICES = 8
_SIZES = (8, 16, 4, 2, 6, 1, 3)
_WEIGHTS = (8, 4, 3, 1.5, 0.5, 0.5, 0.5)
"""How often a dimension has each size: mostly one that eight devices can share."""
_LARGE_SIZES = (64, 128, 16, 8)
"""Of the networks that the compiler's library works on, which leaves small ones alone."""
_MOST_ELEMENTS = 1 << 16
INPUT, PARAMETER = "input", "parameter"


@dataclass(frozen=True, slots=True)
class Value:
    """One line of a network.

    Attributes:
        shape, dtype: of its result.
        text: the expression, with `{0}`, `{1}`, … for its operands and `{op}` for the primitive; "" for leaves.
        operands: numbers of earlier values.
        make: expression of the primitive that is made once; "" for none.
        dims: names of the operands' dimensions, one text per operand that a strategy has an entry for.
        strategy: of the primitive, as text.
        leaf: `INPUT`, `PARAMETER` or "".
        high: integers are below this.
    """

    shape: Shape
    dtype: str = "float32"
    text: str = ""
    operands: tuple[int, ...] = ()
    make: str = ""
    dims: tuple[str, ...] = ()
    strategy: str = ""
    leaf: str = ""
    high: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """A network and how it is run.

    Attributes:
        values: in order.
        outputs: numbers of the values that are handed out.
        loss: expression of a scalar from one output `{0}`; "" where the outputs are handed out as they are.
        kind: "forward", "gradient" or "step".
        optimizer: expression of it, of `weights`.
        cuts: before which values another block (a Cell of its own) begins.
        recompute: numbers of the blocks that are recomputed, and how.
        micro: micro batches; 1 for none.
        wrap: the Cell that makes them.
        context: lines that set the context.
        environment: variables of the environment.
        stages: pipeline stages.
    """

    values: tuple[Value, ...]
    outputs: tuple[int, ...]
    loss: str = ""
    kind: str = "forward"
    optimizer: str = "nn.SGD(weights, 0.1)"
    cuts: tuple[int, ...] = ()
    recompute: tuple[tuple[int, str], ...] = ()
    micro: int = 1
    wrap: str = "GradAccumulationCell"
    context: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    stages: int = 1

    @property
    def inputs(self) -> list[int]:
        """The values that are fed."""
        return [number for number, value in enumerate(self.values) if value.leaf == INPUT]

    @property
    def may_be_refused(self) -> bool:
        """Whether an error of ours is a fair answer: strategies were drawn blindly, or memory may not suffice."""
        limited = any(name == "SPORAX_PLAN_MEMORY" for name, _ in self.environment)
        return limited or self.stages > 1 or any(value.strategy for value in self.values)


# ---------------------------------------------------------------------------------------------------------------- drawing


@dataclass(slots=True)
class Builder:
    """The values that have been drawn so far."""

    draw: random.Random
    values: list[Value] = field(default_factory=list)
    strategies: float = 0.0
    large: bool = False

    def leaf(self, shape: Shape, dtype: str = "float32", high: int = 0, role: str = "") -> int:
        """A new input or Parameter."""
        role = role or self.draw.choice((INPUT, PARAMETER, PARAMETER))
        if dtype != "float32" or not shape:
            role = INPUT if shape else PARAMETER
        self.values.append(Value(shape, dtype, leaf=role, high=high))
        return len(self.values) - 1

    def add(
        self,
        text: str,
        operands: Sequence[int],
        shape: Shape,
        dtype: str = "float32",
        make: str = "",
        dims: Sequence[str] = (),
        high: int = 0,
    ) -> int:
        """A new line."""
        strategy = ""
        if make and dims and self.draw.random() < self.strategies:
            strategy = self.strategy(dims, [self.values[number].shape for number in operands])
        self.values.append(Value(shape, dtype, text, tuple(operands), make, tuple(dims), strategy, high=high))
        return len(self.values) - 1

    def strategy(self, dims: Sequence[str], shapes: Sequence[Shape]) -> str:
        """Numbers of slices: dimensions of one name have one number, those that end in `!` have one slice."""
        left, slices = NUM_DEVICES, {}
        sizes: dict[str, int] = {}
        for names, shape in zip(dims, shapes, strict=False):
            for name, size in zip(names.split(), shape, strict=True):
                sizes[name] = size if size != 1 else sizes.get(name, 1)
        for name in self.draw.sample(sorted(sizes), len(sizes)):
            fitting = [1, *(count for count in (2, 4, 8) if left % count == 0 and sizes[name] % count == 0)]
            slices[name] = 1 if name.endswith("!") else self.draw.choice(fitting)
            left //= slices[name]
        rows = [
            tuple(1 if size == 1 else slices[name] for name, size in zip(names.split(), shape, strict=True))
            for names, shape in zip(dims, shapes, strict=False)
        ]
        return repr(tuple(rows))

    def pick(self, rank: Sequence[int] = (), wanted: Callable[[Value], bool] = lambda value: True) -> int:
        """An earlier float value, the last ones more often; a new leaf where none fits."""
        fitting = [
            number
            for number, value in enumerate(self.values)
            if value.dtype == "float32" and (not rank or len(value.shape) in rank) and wanted(value)
        ]
        if fitting and self.draw.random() < 0.93:
            return self.draw.choices(fitting, [1 + place for place in range(len(fitting))])[0]
        return self.leaf(self.shape(self.draw.choice(list(rank) or [2, 2, 3, 1])))

    def like(self, shape: Shape) -> int:
        """An earlier value of this shape, or a new leaf."""
        fitting = [n for n, value in enumerate(self.values) if value.shape == shape and value.dtype == "float32"]
        return self.draw.choice(fitting) if fitting and self.draw.random() < 0.5 else self.leaf(shape)

    def shape(self, rank: int) -> Shape:
        """Of a leaf."""
        while True:
            sizes = (
                self.draw.choices(_LARGE_SIZES, k=rank) if self.large else self.draw.choices(_SIZES, _WEIGHTS, k=rank)
            )
            if math.prod(sizes) <= _MOST_ELEMENTS // 4:
                return tuple(sizes)

    def of(self, number: int) -> Shape:
        """The shape of a value."""
        return self.values[number].shape


def plain(rank: int, whole: Sequence[int] = ()) -> str:
    """Names of dimensions."""
    return " ".join(f"d{dim}{'!' if dim in whole else ''}" for dim in range(rank))


Template = Callable[[Builder], object]
TEMPLATES: list[tuple[float, Template]] = []


def template(weight: float = 1.0) -> Callable[[Template], Template]:
    def kept(function: Template) -> Template:
        TEMPLATES.append((weight, function))
        return function

    return kept


@template(4)
def matmul(b: Builder) -> object:
    x = b.pick((2,))
    rows, inner = b.of(x)
    columns = b.draw.choice((8, 16, 4))
    how = b.draw.choice(("plain", "right", "left"))
    if how == "right":
        w = b.like((columns, inner))
        return b.add(
            "{op}({0}, {1})", (x, w), (rows, columns), make="ops.MatMul(transpose_b=True)", dims=("i k", "j k")
        )
    if how == "left":
        w = b.like((rows, columns))
        return b.add(
            "{op}({0}, {1})", (x, w), (inner, columns), make="ops.MatMul(transpose_a=True)", dims=("k i", "k j")
        )
    w = b.like((inner, columns))
    return b.add("{op}({0}, {1})", (x, w), (rows, columns), make="ops.MatMul()", dims=("i k", "k j"))


@template(2)
def matmul_of_many(b: Builder) -> object:
    x = b.pick((2, 3, 4))
    columns = b.draw.choice((8, 4))
    w = b.like((b.of(x)[-1], columns))
    return b.add(b.draw.choice(("ops.matmul({0}, {1})", "{0} @ {1}")), (x, w), (*b.of(x)[:-1], columns))


@template(2)
def batch_matmul(b: Builder) -> object:
    x = b.pick((3,))
    batch, rows, inner = b.of(x)
    y = b.like((batch, inner, 8))
    return b.add("{op}({0}, {1})", (x, y), (batch, rows, 8), make="ops.BatchMatMul()", dims=("b i k", "b k j"))


_EINSUMS = (
    "ij->ji",
    "ij,jk->ik",
    "ij,kj->ik",
    "ij,ij->i",
    "ij,ik->jk",
    "bij,bkj->bik",
    "bij,jk->bik",
    "bij->bj",
    "bij,bij->ij",
)


@template(2)
def einsum(b: Builder) -> object:
    formula = b.draw.choice(_EINSUMS)
    before, after = formula.split("->")
    first, *rest = before.split(",")
    x = b.pick((len(first),))
    sizes = dict(zip(first, b.of(x), strict=True))
    operands = [x]
    for names in rest:
        operands.append(b.like(tuple(sizes.setdefault(name, b.draw.choice((8, 4))) for name in names)))
    text = ", ".join(f"{{{place}}}" for place in range(len(operands)))
    return b.add(f'ops.einsum("{formula}", {text})', operands, tuple(sizes[name] for name in after))


@template(5)
def reshape(b: Builder) -> object:
    x = b.pick()
    total, shape = math.prod(b.of(x)), []
    for _ in range(b.draw.choice((0, 1, 1, 2))):
        size = b.draw.choice([size for size in (1, 2, 3, 4, 6, 8, 16) if total % size == 0])
        shape.append(size)
        total //= size
    shape.insert(b.draw.randint(0, len(shape)), total)
    return b.add(f"ops.reshape({{0}}, {tuple(shape)})", (x,), tuple(shape))


@template(3)
def transpose(b: Builder) -> object:
    x = b.pick((2, 3, 4))
    order = b.draw.sample(range(len(b.of(x))), len(b.of(x)))
    shape = tuple(b.of(x)[dim] for dim in order)
    if b.draw.random() < 0.5:
        make, dims = "ops.Transpose()", (plain(len(shape)),)
        return b.add(f"{{op}}({{0}}, {tuple(order)})", (x,), shape, make=make, dims=dims)
    return b.add(f"ops.transpose({{0}}, {tuple(order)})", (x,), shape)


@template(4)
def reduction(b: Builder) -> object:
    x = b.pick((1, 2, 3, 4))
    rank = len(b.of(x))
    axes = tuple(sorted(b.draw.sample(range(rank), b.draw.randint(1, rank))))
    keep = b.draw.random() < 0.4
    shape = tuple(1 if dim in axes else size for dim, size in enumerate(b.of(x)) if keep or dim not in axes)
    name = b.draw.choice(("Mean", "Mean", "Sum", "Max", "Min"))
    if b.draw.random() < 0.5:
        make = f"ops.Reduce{name}({'keep_dims=True' if keep else ''})"
        return b.add(f"{{op}}({{0}}, {axes})", (x,), shape, make=make, dims=(plain(rank),))
    if name in ("Max", "Min"):
        return b.add(f"ops.a{name.lower()}({{0}}, {axes}, {keep})", (x,), shape)
    return b.add(f"ops.{name.lower()}({{0}}, {axes}, {keep})", (x,), shape)


@template(1)
def statistics(b: Builder) -> object:
    x = b.pick((2, 3))
    axis = b.draw.randrange(len(b.of(x)))
    shape = tuple(size for dim, size in enumerate(b.of(x)) if dim != axis)
    text = b.draw.choice(
        ("ops.norm({0} + 2, dim=%d)", "ops.logsumexp({0}, %d)", "ops.std({0} * 3, axis=%d)", "ops.prod({0}, %d)")
    )
    if "std" in text and b.of(x)[axis] == 1:
        return reduction(b)
    return b.add(text % axis, (x,), shape)


def _stretched(b: Builder, shape: Shape) -> Shape:
    """A shape that is stretched to another one."""
    kept = shape[b.draw.randint(0, len(shape)) :]
    return tuple(1 if b.draw.random() < 0.15 else size for size in kept)


@template(7)
def binary(b: Builder) -> object:
    x = b.pick((1, 2, 3, 4))
    shape = b.of(x)
    y = b.like(shape) if b.draw.random() < 0.5 else b.like(_stretched(b, shape))
    rank = len(shape)
    dims = (plain(rank), " ".join(plain(rank).split()[rank - len(b.of(y)) :]))
    operands, order = (x, y), dims
    if b.draw.random() < 0.3:
        operands, order = (y, x), dims[::-1]
    if b.draw.random() < 0.5 and len(b.of(y)):
        name = b.draw.choice(("Add", "Mul", "Sub", "Maximum", "Minimum"))
        return b.add("{op}({0}, {1})", operands, shape, make=f"ops.{name}()", dims=order)
    text = b.draw.choice(("{0} + {1}", "{0} * {1}", "{0} - {1}", "ops.maximum({0}, {1})", "{0} / (2 + {1} * {1})"))
    return b.add(text, operands, shape)


_UNARY = (
    "ops.tanh({0})",
    "ops.relu({0})",
    "ops.gelu({0})",
    "ops.sigmoid({0})",
    "ops.exp(ops.tanh({0}))",
    "ops.abs({0})",
    "ops.square({0})",
    "-{0}",
    "{0} * 0.5",
    "{0} + 1",
    "1 - {0}",
    "ops.clamp({0}, -1, 1)",
    "ops.silu({0})",
    "ops.softplus({0})",
    "ops.cast(ops.cast({0}, ms.bfloat16), ms.float32)",
    "ops.stop_gradient({0})",
    "ops.sqrt(ops.abs({0}) + 1)",
    "ops.log1p(ops.square({0}))",
    "ops.where({0} > 0, {0}, 0.1 * {0})",
    "ops.masked_fill({0}, {0} > 1, 0.5)",
    "ops.zeros_like({0}) + {0}",
)


@template(5)
def unary(b: Builder) -> object:
    x = b.pick()
    if b.draw.random() < 0.3 and b.of(x):
        name = b.draw.choice(("ReLU", "Tanh", "Sigmoid", "GeLU", "Neg", "Square"))
        return b.add("{op}({0})", (x,), b.of(x), make=f"ops.{name}()", dims=(plain(len(b.of(x))),))
    return b.add(b.draw.choice(_UNARY), (x,), b.of(x))


@template(2)
def where(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    y, z = b.like(b.of(x)), b.like(_stretched(b, b.of(x)))
    return b.add("ops.where({0} > {1}, {2}, {0})", (x, y, z), b.of(x))


@template(3)
def softmax(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    axis = b.draw.randrange(-1, len(b.of(x)))
    rank = len(b.of(x))
    if b.draw.random() < 0.5:
        make = f"ops.{b.draw.choice(('Softmax', 'LogSoftmax'))}({axis})"
        return b.add("{op}({0})", (x,), b.of(x), make=make, dims=(plain(rank, (axis % rank,)),))
    return b.add(f"ops.softmax({{0}}, {axis})", (x,), b.of(x))


@template(2)
def layer_norm(b: Builder) -> object:
    x = b.pick((2, 3))
    shape = b.of(x)
    gamma, beta = b.leaf(shape[-1:], role=PARAMETER), b.leaf(shape[-1:], role=PARAMETER)
    rank = len(shape)
    dims = (plain(rank, (rank - 1,)), f"d{rank - 1}!", f"d{rank - 1}!")
    if b.draw.random() < 0.5:
        return b.add("{op}({0}, {1}, {2})[0]", (x, gamma, beta), shape, make="ops.LayerNorm(-1, -1)", dims=dims)
    if b.draw.random() < 0.5:
        return b.add("ops.rms_norm({0}, {1})[0]", (x, gamma), shape)
    return b.add(f"ops.layer_norm({{0}}, ({shape[-1]},), {{1}}, {{2}})", (x, gamma, beta), shape)


def _indices(b: Builder, shape: Shape, high: int) -> int:
    return b.leaf(shape, "int32", high)


@template(3)
def gather(b: Builder) -> object:
    table = b.pick((1, 2, 3))
    shape = b.of(table)
    axis = b.draw.randrange(len(shape))
    of_indices = b.shape(b.draw.choice((1, 2)))[:2]
    if math.prod(of_indices) * math.prod(shape) > _MOST_ELEMENTS * 2:
        of_indices = (8,)
    indices = _indices(b, of_indices, shape[axis])
    result = (*shape[:axis], *of_indices, *shape[axis + 1 :])
    dims = (plain(len(shape)), " ".join(f"x{dim}" for dim in range(len(of_indices))))
    if b.draw.random() < 0.6:
        return b.add(f"{{op}}({{0}}, {{1}}, {axis})", (table, indices), result, make="ops.Gather()", dims=dims)
    return b.add(f"ops.gather({{0}}, {{1}}, {axis})", (table, indices), result)


@template(2)
def gather_elements(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    shape = b.of(x)
    axis = b.draw.randrange(len(shape))
    indices = _indices(b, shape, shape[axis])
    names = plain(len(shape), (axis,))
    if b.draw.random() < 0.5:
        return b.add(f"{{op}}({{0}}, {axis}, {{1}})", (x, indices), shape, make="ops.GatherD()", dims=(names, names))
    return b.add(f"ops.gather_elements({{0}}, {axis}, {{1}})", (x, indices), shape)


@template(1)
def gather_nd(b: Builder) -> object:
    x = b.pick((2, 3))
    indices = _indices(b, (8, 1), b.of(x)[0])
    dims = (plain(len(b.of(x)), range(len(b.of(x)))), "x0 x1!")
    return b.add("{op}({0}, {1})", (x, indices), (8, *b.of(x)[1:]), make="ops.GatherNd()", dims=dims)


@template(3)
def scatter(b: Builder) -> object:
    """Rows that meet are summed, so that the order of devices does not matter."""
    x = b.pick((1, 2, 3))
    shape = b.of(x)
    count = b.draw.choice((8, 4, 2))
    updates = b.like((count, *shape[1:]))
    name = b.draw.choice(("TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"))
    indices = _indices(b, (count, 1), shape[0])
    names = plain(len(shape))
    dims = (names, "x0! x1!", " ".join(("x0!", *names.split()[1:])))
    return b.add("{op}({0}, {1}, {2})", (x, indices, updates), shape, make=f"ops.{name}()", dims=dims)


@template(2)
def scatter_into_parameter(b: Builder) -> object:
    """The value of a Parameter that a step changes."""
    updates = b.pick((2, 3))
    count, *rest = b.of(updates)
    target = b.leaf((b.draw.choice((8, 16)), *rest), role=PARAMETER)
    name = b.draw.choice(("ScatterAdd", "ScatterSub", "ScatterMax", "ScatterMin", "ScatterNdAdd"))
    of_indices = (count, 1) if "Nd" in name else (count,)
    indices = _indices(b, of_indices, b.of(target)[0])
    return b.add("{op}({0}, {1}, {2})", (target, indices, updates), b.of(target), make=f"ops.{name}()")


@template(2)
def segments(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    ids = _indices(b, b.of(x)[:1], 4)
    name = b.draw.choice(("Sum", "Max", "Min", "Prod"))
    names = plain(len(b.of(x)))
    make, dims = f"ops.UnsortedSegment{name}()", (names, "d0")
    text = "{op}({0}, {1}, 4)" if name in ("Sum", "Prod") else "ops.clamp({op}({0}, {1}, 4), -9, 9)"
    return b.add(text, (x, ids), (4, *b.of(x)[1:]), make=make, dims=dims)


@template(1)
def other_writes(b: Builder) -> object:
    x = b.pick((2, 3))
    shape = b.of(x)
    which = b.draw.choice(("index_add", "elements", "inplace", "scatter_nd", "scatter"))
    if which == "index_add":
        axis = b.draw.randrange(len(shape))
        updates = b.like((*shape[:axis], 4, *shape[axis + 1 :]))
        indices = _indices(b, (4,), shape[axis])
        return b.add(f"{{0}}.index_add({axis}, {{1}}, {{2}})", (x, indices, updates), shape)
    if which == "elements":
        axis = b.draw.randrange(len(shape))
        indices, updates = _indices(b, shape, shape[axis]), b.like(shape)
        text = f'ops.tensor_scatter_elements({{0}}, {{1}}, {{2}}, {axis}, "add")'
        return b.add(text, (x, indices, updates), shape)
    if which == "inplace":
        updates = b.like((1, *shape[1:]))
        make = f"ops.Inplace{b.draw.choice(('Add', 'Sub', 'Update'))}((0,))"
        names = plain(len(shape), (0,))
        dims = (names, " ".join(("r!", *names.split()[1:])))
        return b.add("{op}({0}, {1})", (x, updates), shape, make=make, dims=dims)
    indices = _indices(b, (shape[0], 1), 8)
    return b.add(f"ops.scatter_nd({{1}}, {{0}}, {(8, *shape[1:])})", (x, indices), (8, *shape[1:]))


@template(4)
def slices(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    items, shape = [], []
    for size in b.of(x):
        how = b.draw.choice(("all", "all", "part", "one", "step", "back"))
        if how == "part" and size > 1:
            start = b.draw.randrange(size)
            stop = b.draw.randint(start + 1, size)
            items.append(f"{start}:{stop}")
            shape.append(stop - start)
        elif how == "one":
            items.append(str(b.draw.randrange(-size, size)))
        elif how == "step":
            items.append("::2")
            shape.append((size + 1) // 2)
        elif how == "back" and b.draw.random() < 0.5:
            items.append("::-1")
            shape.append(size)
        else:
            items.append(":")
            shape.append(size)
    if b.draw.random() < 0.15:
        items.insert(b.draw.randint(0, len(items)), "None")
        place = sum(1 for item in items[: items.index("None")] if ":" in item)
        shape.insert(place, 1)
    return b.add(f"{{0}}[{', '.join(items)}]", (x,), tuple(shape))


@template(2)
def strided_slice(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    begin, end, shape, whole = [], [], [], []
    for dim, size in enumerate(b.of(x)):
        start = b.draw.choice((0, 0, b.draw.randrange(size)))
        stop = b.draw.choice((size, size, b.draw.randint(start + 1, size)))
        if (start, stop) != (0, size):
            whole.append(dim)
        begin.append(start)
        end.append(stop)
        shape.append(stop - start)
    strides = (1,) * len(shape)
    rank = len(shape)
    how = b.draw.choice(("primitive", "function", "slice"))
    if how == "function":
        return b.add(f"ops.strided_slice({{0}}, {tuple(begin)}, {tuple(end)}, {strides})", (x,), tuple(shape))
    # Now and then a strategy that does not fit, which must be refused in our words.
    dims = (plain(rank, whole if b.draw.random() < 0.8 else ()),)
    if how == "slice":
        return b.add(
            f"{{op}}({{0}}, {tuple(begin)}, {tuple(shape)})", (x,), tuple(shape), make="ops.Slice()", dims=dims
        )
    text = f"{{op}}({{0}}, {tuple(begin)}, {tuple(end)}, {strides})"
    return b.add(text, (x,), tuple(shape), make="ops.StridedSlice()", dims=dims)


@template(3)
def concat(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    axis = b.draw.randrange(len(b.of(x)))
    other = list(b.of(x))
    other[axis] = b.draw.choice((other[axis], 4, 1))
    y = b.like(tuple(other))
    shape = list(b.of(x))
    shape[axis] += other[axis]
    names = plain(len(shape), (axis,))
    if b.draw.random() < 0.5:
        make = f"ops.Concat({axis})"
        return b.add("{op}(({0}, {1}))", (x, y), tuple(shape), make=make, dims=(names, names))
    return b.add(f"ops.cat(({{0}}, {{1}}), {axis})", (x, y), tuple(shape))


@template(2)
def stack(b: Builder) -> object:
    x = b.pick((1, 2))
    y = b.like(b.of(x))
    axis = b.draw.randint(0, len(b.of(x)))
    shape = (*b.of(x)[:axis], 2, *b.of(x)[axis:])
    names = plain(len(b.of(x)))
    if b.draw.random() < 0.5:
        return b.add("{op}(({0}, {1}))", (x, y), shape, make=f"ops.Stack({axis})", dims=(names, names))
    return b.add(f"ops.stack(({{0}}, {{1}}), {axis})", (x, y), shape)


@template(2)
def split(b: Builder) -> object:
    x = b.pick((1, 2, 3), lambda value: any(size % 2 == 0 for size in value.shape))
    even = [dim for dim, size in enumerate(b.of(x)) if size % 2 == 0]
    if not even:
        return slices(b)
    axis = b.draw.choice(even)
    shape = tuple(size // 2 if dim == axis else size for dim, size in enumerate(b.of(x)))
    part = b.draw.randrange(2)
    names = plain(len(shape), (axis,))
    if b.draw.random() < 0.5:
        return b.add(f"{{op}}({{0}})[{part}]", (x,), shape, make=f"ops.Split({axis}, 2)", dims=(names,))
    return b.add(f"ops.chunk({{0}}, 2, {axis})[{part}]", (x,), shape)


@template(3)
def rearranged(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    shape = b.of(x)
    axis = b.draw.randrange(len(shape))
    grown = (*shape[:axis], 1, *shape[axis:])
    choices = [
        (f"ops.flip({{0}}, ({axis},))", shape),
        (f"ops.roll({{0}}, 1, {axis})", shape),
        (f"ops.expand_dims({{0}}, {axis})", grown),
        (f"ops.squeeze(ops.expand_dims({{0}}, {axis}), {axis})", shape),
        ("ops.pad({0}, (1, 2))", (*shape[:-1], shape[-1] + 3)),
        (f"ops.tile({{0}}, {(2,) + (1,) * (len(shape) - 1)})", (2 * shape[0], *shape[1:])),
        (f"ops.broadcast_to(ops.expand_dims({{0}}, 0), {(4, *shape)})", (4, *shape)),
        (f"ops.repeat_interleave({{0}}, 2, {axis})", tuple(2 * s if d == axis else s for d, s in enumerate(shape))),
        ("ops.flatten({0}, start_dim=0)", (math.prod(shape),)),
    ]
    if len(shape) == 2:
        choices += [("ops.tril({0})", shape), ("{0}.T", shape[::-1])]
    text, result = b.draw.choice(choices)
    return b.add(text, (x,), result) if math.prod(result) <= _MOST_ELEMENTS else unary(b)


@template(2)
def cumulative(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    axis = b.draw.randrange(len(b.of(x)))
    if b.draw.random() < 0.5:
        names = plain(len(b.of(x)), (axis,))
        return b.add(f"{{op}}({{0}}, {axis})", (x,), b.of(x), make="ops.CumSum()", dims=(names,))
    text = b.draw.choice(("ops.cumsum({0}, %d)", "ops.cumprod(ops.tanh({0}), %d)", "ops.cummax({0}, %d)[0]"))
    return b.add(text % axis, (x,), b.of(x))


@template(2)
def chosen(b: Builder) -> object:
    x = b.pick((2, 3))
    rank = len(b.of(x))
    axis = b.draw.randrange(rank)
    rest = tuple(size for dim, size in enumerate(b.of(x)) if dim != axis)
    which = b.draw.choice(("argmax", "topk", "sort", "max"))
    if which == "argmax":
        depth = b.of(x)[axis]
        return b.add(f"ops.one_hot(ops.argmax({{0}}, {axis}), {depth}, 1.0, 0.0)", (x,), (*rest, depth))
    if which == "topk":
        return b.add("ops.topk({0}, 1)[0]", (x,), (*b.of(x)[:-1], 1))
    if which == "max":
        return b.add(f"ops.max({{0}}, {axis})[0]", (x,), rest)
    return b.add(f"ops.sort({{0}}, {axis})[0]", (x,), b.of(x))


@template(2)
def one_hot(b: Builder) -> object:
    shape = b.draw.choice(((8,), (16,), (8, 4)))
    ids = _indices(b, shape, 8)
    if b.draw.random() < 0.5:
        return b.add("ops.one_hot({0}, 8, 1.0, 0.0)", (ids,), (*shape, 8))
    table = b.leaf((8, b.draw.choice((8, 4))), role=PARAMETER)
    return b.add("ops.embedding({0}, {1})", (ids, table), (*shape, b.of(table)[1]))


@template(1)
def cross_entropy(b: Builder) -> object:
    x = b.pick((2,))
    rows, classes = b.of(x)
    labels = _indices(b, (rows,), classes)
    reduced = b.draw.choice(("mean", "sum", "none"))
    text = f'ops.cross_entropy({{0}}, {{1}}, reduction="{reduced}")'
    return b.add(text, (x, labels), (rows,) if reduced == "none" else ())


@template(2)
def attention(b: Builder) -> object:
    query = b.pick((3,), lambda value: value.shape[-1] % 2 == 0)
    if b.of(query)[-1] % 2:
        query = b.leaf((8, 4, 8))
    key, value = b.like(b.of(query)), b.like(b.of(query))
    operands = (query, key, value)
    dims = ("b s n", "b s! n", "b s! n")
    if b.draw.random() < 0.5:
        make, text = 'ops.FlashAttentionScore(2, input_layout="BSH")', "{op}({0}, {1}, {2})[3]"
        dims = ("b s n", "b k! n", "b k! n")
        return b.add(text, operands, b.of(query), make=make, dims=dims)
    if b.draw.random() < 0.5:
        return b.add('ops.flash_attention_score({0}, {1}, {2}, 2, input_layout="BSH")', operands, b.of(query))
    scale = b.of(query)[-1] ** -0.5
    text = f"ops.bmm(ops.softmax(ops.bmm({{0}}, {{1}}.swapaxes(1, 2)) * {scale:.3f}, -1), {{2}})"
    return b.add(text, operands, b.of(query))


@template(2)
def convolution(b: Builder) -> object:
    x = b.pick((4,), lambda value: min(value.shape[2:]) >= 2)
    if len(b.of(x)) != 4 or min(b.of(x)[2:]) < 2:
        x = b.leaf((8, 2, 8, 4))
    n, c, h, w = b.of(x)
    which = b.draw.choice(("Conv2D", "MaxPool", "AvgPool", "Conv2D", "batch_norm"))
    if which == "Conv2D":
        out, size = b.draw.choice((4, 8, 2)), b.draw.choice((1, 3, 2))
        kernel = b.leaf((out, c, size, size), role=PARAMETER)
        make = f'ops.Conv2D({out}, {size}, pad_mode="same")'
        return b.add("{op}({0}, {1})", (x, kernel), (n, out, h, w), make=make, dims=("n c h w", "o c k0! k1!"))
    if which == "batch_norm":
        make = f"nn.BatchNorm2d({c})"
        return b.add("{op}({0})", (x,), b.of(x), make=make)
    make = f'ops.{which}(2, 2, "valid")'
    return b.add("{op}({0})", (x,), (n, c, h // 2, w // 2), make=make, dims=("n c h! w!",))


@template(1)
def dropout(b: Builder) -> object:
    x = b.pick((1, 2, 3))
    if b.draw.random() < 0.5:
        return b.add("{op}({0})", (x,), b.of(x), make="nn.Dropout(p=0.3)")
    return b.add("{op}({0})[0]", (x,), b.of(x), make="ops.Dropout(0.7)", dims=(plain(len(b.of(x))),))


@template(1)
def dense(b: Builder) -> object:
    x = b.pick((2, 3))
    width = b.of(x)[-1]
    return b.add("{op}({0})", (x,), (*b.of(x)[:-1], 8), make=f'nn.Dense({width}, 8, activation="relu")')


@template(3)
def loop(b: Builder) -> object:
    x = b.pick((1, 2))
    shape = b.of(x)
    which = b.draw.choice(("fori", "while", "scan", "cond", "scan"))
    if which == "fori":
        y = b.like(shape)
        return b.add("ops.ForiLoop()(0, 3, lambda i, c: ops.tanh(c + {1}), {0})", (x, y), shape)
    if which == "while":
        text = (
            "ops.WhileLoop()(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5), (ops.zeros((), ms.int32), {0}))[1]"
        )
        return b.add(text, (x,), shape)
    if which == "cond":
        y = b.like(shape)
        text = "ops.cond({0}.sum() > 0, lambda p, q: p * q, lambda p, q: p - q, {0}, {1})"
        return b.add(text, (x, y), shape)
    carry = b.like(shape[1:]) if len(shape) > 1 else b.leaf((), role=PARAMETER)
    if b.draw.random() < 0.5:
        text = f"ops.Scan()(lambda c, r: (ops.tanh(c + r), c * r), {{1}}, {{0}}, {shape[0]})[1]"
        return b.add(text, (x, carry), shape)
    text = f"ops.Scan()(lambda c, r: (ops.tanh(c * r), c + r), {{1}}, {{0}}, {shape[0]})[0]"
    return b.add(text, (x, carry), shape[1:])


def network(draw: random.Random, length: int, strategies: float) -> Builder:
    """A network of so many lines."""
    builder = Builder(draw, strategies=strategies, large=draw.random() < 0.3)
    builder.leaf(builder.shape(draw.choice((2, 2, 3, 3, 1, 4))), role=INPUT)
    weights = [weight for weight, _ in TEMPLATES]
    while sum(not value.leaf for value in builder.values) < length:
        draw.choices(TEMPLATES, weights)[0][1](builder)
    return builder


# --------------------------------------------------------------------------------------------------------------- settings

LOSSES = ("({0} * {0}).mean()", "{0}.mean()", "{0}.sum() * 0.1", "ops.tanh({0}).mean()", "ops.square({0}).sum() * 0.01")
OPTIMIZERS = (
    "nn.SGD(weights, 0.1)",
    "nn.Momentum(weights, 0.1, 0.9)",
    "nn.Adam(weights, 1e-2, eps=1e-2)",
    "nn.AdamWeightDecay(weights, 1e-2, eps=1e-2)",
    "nn.Lamb(weights, 1e-2)",
)
SEARCHES = ("dynamic_programming", "recursive_programming", "sharding_propagation", "ilp", "repeated_blocks")


def _parallel(**settings: object) -> str:
    return f"context.set_auto_parallel_context({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def draw_case(draw: random.Random, longest: int = 7, pipelines: float = 0.1) -> Case:
    """A network with everything around it; so many of them are pipelines."""
    if draw.random() < pipelines:
        return draw_pipeline(draw, longest)
    automatic = draw.random() < 0.55
    kind = draw.choice(("forward", "gradient", "gradient", "step"))
    builder = network(draw, draw.randint(1, longest), 0.0 if automatic and draw.random() < 0.8 else 0.5)
    values = builder.values
    used = {operand for value in values for operand in value.operands}
    ends = [number for number, value in enumerate(values) if number not in used and not value.leaf]
    outputs = tuple(number for number in ends if values[number].dtype == "float32")
    case = pruned(Case(tuple(values), outputs, kind=kind))
    values = list(case.values)
    if kind != "forward":
        case = replace(case, loss=draw.choice(LOSSES))
        if not any(value.leaf == PARAMETER and value.shape for value in values):
            case = _with_weight(case)
    if kind == "step":
        case = replace(case, optimizer=draw.choice(OPTIMIZERS))
    if draw.random() < 0.3 and len(values) > 3:
        case = replace(case, cuts=(draw.randrange(1, len(values)),))
    return _settings(case, draw, automatic)


def draw_pipeline(draw: random.Random, longest: int) -> Case:
    """A network in two stages; every value that is fed has rows of micro batches."""
    while True:
        automatic = draw.random() < 0.4
        builder = network(draw, draw.randint(2, max(longest, 2)), 0.0 if automatic else 0.5)
        values = builder.values
        made = [number for number, value in enumerate(values) if not value.leaf]
        used = {operand for value in values for operand in value.operands}
        outputs = tuple(n for n in made if n not in used and values[n].dtype == "float32")
        cut = draw.choice(made[1:]) if made[1:] else 0
        case = Case(tuple(values), outputs, draw.choice(LOSSES), draw.choice(("gradient", "step")), cuts=(cut,))
        case = replace(case, stages=2, micro=draw.choice((2, 4)), wrap="PipelineCell")
        if case.kind == "step":
            case = replace(case, optimizer=draw.choice(OPTIMIZERS))
        weights = [
            [n for n in block for o in values[n].operands if values[o].leaf == PARAMETER] for block in _blocks(case)
        ]
        if outputs and is_valid(case) and all(weights):
            return _of_stages(case, draw, automatic)


def _of_stages(case: Case, draw: random.Random, automatic: bool) -> Case:
    settings: dict[str, object] = {
        "parallel_mode": "auto_parallel" if automatic else "semi_auto_parallel",
        "device_num": NUM_DEVICES,
        "pipeline_stages": 2,
        "dataset_strategy": "full_batch",
    }
    if automatic:
        settings["search_mode"] = draw.choice(SEARCHES[:3])
    if draw.random() < 0.2:
        settings["enable_parallel_optimizer"] = True
        settings["parallel_optimizer_config"] = {"parallel_optimizer_threshold": 0}
    return replace(case, context=(_parallel(**settings),))


def _with_weight(case: Case) -> Case:
    """The same with a Parameter that its first output is multiplied with."""
    first, *rest = case.outputs
    shape = case.values[first].shape
    weight = Value(shape or (1,), leaf=PARAMETER)
    count = len(case.values)
    result = shape or (1,)
    product = Value(result, text="{0} * {1}", operands=(first, count))
    return replace(case, values=(*case.values, weight, product), outputs=(count + 1, *rest))


def _settings(case: Case, draw: random.Random, automatic: bool) -> Case:
    # Searches look at all redistributions, of which there are many between three axes and four dimensions.
    few = automatic and (draw.random() < 0.7 or any(len(value.shape) > 3 for value in case.values))
    settings: dict[str, object] = {
        "parallel_mode": "auto_parallel" if automatic else "semi_auto_parallel",
        "device_num": NUM_DEVICES // 2 if few else NUM_DEVICES,
    }
    environment = []
    if automatic:
        search = draw.choice(SEARCHES)
        if search in SEARCHES[:3]:
            settings["search_mode"] = search
        else:
            environment.append(("SPORAX_PLAN_MODE", search))
        if draw.random() < 0.15:
            environment.append(("SPORAX_PLAN_MEMORY", draw.choice(("8KB", "16KB", "32KB", "64KB"))))
        if search != "ilp" and draw.random() < 0.15:
            environment.append(("SPORAX_HARDWARE", "symbolic"))
    lines = []
    if draw.random() < 0.25 and case.kind == "step":
        settings["enable_parallel_optimizer"] = True
        level = draw.choice(("level1", "level2", "level3"))
        settings["parallel_optimizer_config"] = {"parallel_optimizer_threshold": 0, "optimizer_level": level}
    if case.kind != "forward" and draw.random() < 0.25:
        case = _accumulated(case, draw)
    if case.kind != "forward" and draw.random() < 0.3:
        blocks = range(len(case.cuts) + 1)
        how = draw.choice(("", "", "output_recompute=True", "mp_comm_recompute=False"))
        case = replace(case, recompute=((draw.choice(blocks), how),))
    elif case.kind != "forward" and draw.random() < 0.1:
        settings["recompute"] = "auto"
    if case.kind == "step" and draw.random() < 0.12:
        lines.append('ms.set_context(memory_offload="ON")')
        lines.append(f"ms.set_offload_context({{{draw.choice(_OFFLOADS)!r}: 'cpu'}})")
    fed = [case.values[number].shape for number in case.inputs]
    uneven = any(shape[0] % NUM_DEVICES for shape in fed) or case.micro > 1
    if uneven or draw.random() < 0.4:
        settings["dataset_strategy"] = "full_batch"
    return replace(case, context=(*lines, _parallel(**settings)), environment=tuple(environment))


_OFFLOADS = ("offload_param", "offload_checkpoint")


def _accumulated(case: Case, draw: random.Random) -> Case:
    """With micro batches: inputs are as many times as long."""
    wrap = draw.choice(("GradAccumulationCell", "PipelineCell"))
    return replace(case, micro=draw.choice((2, 4)), wrap=wrap) if case.inputs else case


# ------------------------------------------------------------------------------------------------------------------- text

_HEAD = """\
import os

import numpy as np
import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.nn import GradAccumulationCell
from sporax.mindspore.parallel.nn import PipelineCell


def value(seed, shape, dtype="float32", high=0):
    rng = np.random.default_rng(seed)
    return Tensor((rng.integers(0, high, shape) if high else rng.normal(size=shape) * 0.5).astype(dtype))

"""


def _name(case: Case, number: int) -> str:
    leaf = case.values[number].leaf
    return f"{'x' if leaf == INPUT else 'w' if leaf else 'v'}{number}"


def _blocks(case: Case) -> list[list[int]]:
    """The numbers of the lines of each block."""
    edges = [0, *case.cuts, len(case.values)]
    parts = [[n for n in range(a, b) if not case.values[n].leaf] for a, b in itertools.pairwise(edges)]
    return [part for part in parts if part]


def _block(case: Case, place: int, lines: list[int], later: set[int]) -> tuple[str, str]:
    """The class of a block and the line that calls it."""
    read = dict.fromkeys(operand for number in lines for operand in case.values[number].operands)
    weights = [n for n in read if case.values[n].leaf == PARAMETER]
    taken = [n for n in read if case.values[n].leaf != PARAMETER and n not in lines]
    given = [n for n in lines if n in later]
    text = [f"class Block{place}(nn.Cell):", "    def __init__(self, weights):", "        super().__init__()"]
    text += [f'        self.w{n} = weights["w{n}"]' for n in weights]
    for number in lines:
        made = case.values[number]
        if made.make:
            sharded = f".shard({made.strategy})" if made.strategy else ""
            text.append(f"        self.op{number} = {made.make}{sharded}")
    arguments = ", ".join(("self", *(_name(case, n) for n in taken)))
    text += ["", f"    def construct({arguments}):"]
    for number in lines:
        made = case.values[number]
        names = [("self." if n in weights else "") + _name(case, n) for n in made.operands]
        text.append(f"        v{number} = {made.text.format(*names, op=f'self.op{number}')}")
    results = ", ".join(f"v{n}" for n in given)
    text.append(f"        return {results}")
    call = f"        {results} = self.block{place}({', '.join(_name(case, n) for n in taken)})"
    return "\n".join(text), call


def text(case: Case) -> str:
    """The program: it leaves `step` and `inputs`, and `run` that gives arrays."""
    parts, calls = [], []
    blocks = _blocks(case)
    for place, lines in enumerate(blocks):
        later = {operand for block in blocks[place + 1 :] for n in block for operand in case.values[n].operands}
        block, call = _block(case, place, lines, later | set(case.outputs))
        parts.append(block)
        calls.append(call)
    parts.append(_net(case, calls))
    return _HEAD + "\n\n" + "\n\n\n".join(parts) + "\n\n\n" + _ending(case)


def _net(case: Case, calls: list[str]) -> str:
    text = ["class Net(nn.Cell):", "    def __init__(self):", "        super().__init__()", "        weights = {"]
    for number, leaf in enumerate(case.values):
        if leaf.leaf == PARAMETER:
            text.append(f'            "w{number}": Parameter(value({number}, {leaf.shape}), name="w{number}"),')
    text.append("        }")
    for place in range(len(calls)):
        text.append(f"        self.block{place} = Block{place}(weights)")
        if case.stages > 1:
            text.append(f"        self.block{place}.pipeline_stage = {place}")
    for place, how in case.recompute:
        if place < len(calls):
            text.append(f"        self.block{place}.recompute({how})")
    arguments = ", ".join(("self", *(_name(case, n) for n in case.inputs)))
    text += ["", f"    def construct({arguments}):", *calls]
    if case.loss:
        terms = " + ".join(case.loss.format(_name(case, n)) for n in case.outputs)
        text.append(f"        return {terms}")
    else:
        text.append(f"        return {', '.join(_name(case, n) for n in case.outputs)}")
    return "\n".join(text)


def _ending(case: Case) -> str:
    lines = ["ms.set_context(mode=ms.GRAPH_MODE)"]
    lines += [f'os.environ["{name}"] = "{setting}"' for name, setting in case.environment]
    lines += [*case.context, "ms.set_seed(1)", "net = Net().set_train()", "weights = net.trainable_params()"]
    inputs = []
    for number in case.inputs:
        leaf = case.values[number]
        shape = (case.micro * leaf.shape[0], *leaf.shape[1:])
        rest = f', "{leaf.dtype}", {leaf.high}' if leaf.high else ""
        inputs.append(f"value({number}, {shape}{rest})")
    lines.append(f"inputs = [{', '.join(inputs)}]")
    net = f"{case.wrap}(net, {case.micro})" if case.micro > 1 else "net"
    if case.kind == "forward":
        lines += ["step = net", "run = lambda: step(*inputs)"]
    elif case.kind == "gradient":
        lines += [
            f"train = ms.value_and_grad({net}, None, weights)",
            "step = ms.jit(lambda *inputs: train(*inputs))",
            "run = lambda: step(*inputs)",
        ]
    else:
        lines += [
            f"step = nn.TrainOneStepCell({net}, {case.optimizer})",
            "run = lambda: ([step(*inputs) for _ in range(2)], [w.value() for w in weights])",
        ]
    return "\n".join(lines) + "\n"


# -------------------------------------------------------------------------------------------------------------- shrinking


def smaller(case: Case) -> Iterator[Case]:
    """Simpler cases, the boldest changes first."""
    for number in range(len(case.values) - 1, -1, -1):
        if not case.values[number].leaf:
            yield _as_leaf(case, number, INPUT)
            yield _as_leaf(case, number, PARAMETER)
    for number in case.outputs if len(case.outputs) > 1 else ():
        yield pruned(replace(case, outputs=(number,)))
    for number, value in enumerate(case.values):  # an operand in the place of a result of the same shape
        for operand in value.operands:
            if case.values[operand].shape == value.shape and case.values[operand].dtype == value.dtype:
                yield _instead(case, number, operand)
        if number in case.outputs and value.operands:
            floats = tuple(n for n in value.operands if not case.values[n].leaf)
            for operand in floats:
                rest = tuple(n for n in case.outputs if n != number)
                yield pruned(replace(case, outputs=tuple(dict.fromkeys((*rest, operand)))))
    for number, value in enumerate(case.values):
        if value.strategy:
            yield _with(case, number, replace(value, strategy=""))
        if value.text not in ("", "ops.tanh({0})") and len(value.operands) == 1 and not value.strategy:
            operand = case.values[value.operands[0]]
            if operand.shape == value.shape:
                yield _with(case, number, replace(value, text="ops.tanh({0})", make="", dims=()))
    for place in range(len(case.context)):
        if "parallel_mode" not in case.context[place]:
            yield replace(case, context=case.context[:place] + case.context[place + 1 :])
    yield from _plainer(case)


def _plainer(case: Case) -> Iterator[Case]:
    """With fewer settings."""
    if case.cuts and case.stages == 1:
        yield replace(case, cuts=(), recompute=tuple((0, how) for _, how in case.recompute))
    if case.recompute:
        yield replace(case, recompute=())
    if case.micro > 1 and case.stages == 1:
        yield replace(case, micro=1)
    for place in range(len(case.environment)):
        yield replace(case, environment=case.environment[:place] + case.environment[place + 1 :])
    if case.kind == "step":
        yield replace(case, kind="gradient")
        if case.optimizer != "nn.SGD(weights, 0.1)":
            yield replace(case, optimizer="nn.SGD(weights, 0.1)")
    if case.kind == "gradient" and case.stages == 1 and case.micro == 1:
        yield replace(case, kind="forward", loss="", recompute=())
        yield replace(case, kind="forward", recompute=())
    for setting in (
        ", 'dataset_strategy': 'full_batch'",
        ", dataset_strategy='full_batch'",
        ", enable_parallel_optimizer=True",
    ):
        if any(setting in line for line in case.context):
            yield replace(case, context=tuple(line.replace(setting, "") for line in case.context))
    if case.loss not in ("", "{0}.mean()"):
        yield replace(case, loss="{0}.mean()")


def _with(case: Case, number: int, value: Value) -> Case:
    return replace(case, values=(*case.values[:number], value, *case.values[number + 1 :]))


def _as_leaf(case: Case, number: int, leaf: str) -> Case:
    value = case.values[number]
    if leaf == INPUT and not value.shape:
        leaf = PARAMETER
    changed = _with(case, number, Value(value.shape, value.dtype, leaf=leaf, high=value.high))
    outputs = tuple(n for n in changed.outputs if n != number)
    return pruned(replace(changed, outputs=outputs)) if outputs else changed


def _instead(case: Case, number: int, other: int) -> Case:
    values = tuple(
        replace(value, operands=tuple(other if n == number else n for n in value.operands)) for value in case.values
    )
    outputs = tuple(dict.fromkeys(other if n == number else n for n in case.outputs))
    return pruned(replace(case, values=values, outputs=outputs))


def pruned(case: Case) -> Case:
    """Without the values that nothing needs, numbered again."""
    needed: set[int] = set()
    left = list(case.outputs)
    while left:
        number = left.pop()
        if number not in needed:
            needed.add(number)
            left += case.values[number].operands
    order = sorted(needed)
    new = {old: place for place, old in enumerate(order)}
    values = tuple(
        replace(case.values[old], operands=tuple(new[n] for n in case.values[old].operands)) for old in order
    )
    cuts = tuple(sum(old < cut for old in order) for cut in case.cuts)
    return replace(case, values=values, outputs=tuple(new[n] for n in case.outputs), cuts=cuts)


def is_valid(case: Case) -> bool:
    """Whether there is a program for it."""
    if not case.outputs or any(case.values[n].leaf for n in case.outputs):
        return False
    if not case.inputs or any(not case.values[n].shape for n in case.inputs):
        return False
    if case.stages > 1 and len(_blocks(case)) != case.stages:
        return False
    trained = any(value.leaf == PARAMETER for value in case.values)
    return case.kind == "forward" or trained
