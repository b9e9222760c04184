"""Random small networks in pipeline stages, drawn from a number, and their training on one device."""

import random
from dataclasses import dataclass, field

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell

WIDTH, ROWS = 8, 8
"""Of a micro batch."""
STEPS = 2

BLOCKS = (
    "scale",
    "bias",
    "dense",
    "biased",
    "square",
    "tanh",
    "table",
    "norm",
    "soft",
    "residual",
    "dropout",
    "add_mean",
)
"""What a Cell of the network does with its rows."""
LOSSES = ("mean", "sum", "row", "cumsum", "weighted", "labelled", "squares", "product", "offset", "constant", "sizes")
"""What a loss makes of the last rows: most of them are linear, so that cotangents are equal for all micro batches."""
STEP_KINDS = ("plain", "plain", "scaled", "clipped", "both")
SETTINGS = (
    {},
    {},
    {"schedule": "gpipe"},
    {"mode": "auto_parallel"},
    {"mode": "auto_parallel", "search_mode": "sharding_propagation"},
    {"enable_parallel_optimizer": True},
    {"enable_parallel_optimizer": True, "gradient_accumulation_shard": True},
    {"interleave": True},
    {"schedule": "zero_bubble_v"},
)


@dataclass(frozen=True)
class Case:
    """A network and how it is trained: plain data, so that a failure says all there is to know."""

    number: int
    stages: int
    micro: int
    blocks: tuple[tuple[str, tuple[int, int], bool], ...]
    loss: str
    penalty: str
    tied: bool
    outside: int
    step: str
    optimizer: str
    settings: dict = field(default_factory=dict)


def draw(number: int) -> Case:
    """The case of a number."""
    random_ = random.Random(number)
    settings = dict(random_.choice(SETTINGS))
    stages = random_.choice((2, 2, 2, 4))
    schedule = settings.get("schedule")
    if schedule == "zero_bubble_v":
        route = [*((stage, 0) for stage in range(stages)), *((stage, 1) for stage in reversed(range(stages)))]
    elif settings.get("interleave"):
        route = [(stage, segment) for segment in range(2) for stage in range(stages)]
    else:
        route = [(stage, 0) for stage in range(stages)]
    micro = stages * random_.choice((1, 2) if schedule != "zero_bubble_v" else (2,))
    blocks = tuple(
        (random_.choice(BLOCKS), place, random_.random() < 0.4)
        for place in route
        for _ in range(random_.choice((1, 1, 2)))
    )
    return Case(
        number,
        stages,
        micro,
        blocks,
        random_.choice(LOSSES),
        random_.choice(("", "", "first", "last", "all", "bias")),
        random_.random() < 0.25,
        _outside(blocks, random_),
        random_.choice(STEP_KINDS),
        random_.choice(("SGD", "SGD", "Momentum", "decay")),
        settings,
    )


def _outside(blocks, random_):
    """The number of a Cell that is in no stage by its name, -1 for none; every place must keep another one."""
    places = [place for _, place, _ in blocks]
    shared = [number for number, place in enumerate(places) if number and places.count(place) > 1]
    return random_.choice(shared) if shared and random_.random() < 0.5 else -1


class Block(nn.Cell):
    """One kind of Cell, with a Parameter of its own."""

    def __init__(self, kind, sharded, seed, per_stage):
        super().__init__()
        self.kind = kind
        values = np.random.default_rng(seed)
        shape = {"dense": (WIDTH, WIDTH), "biased": (WIDTH, WIDTH), "soft": (WIDTH, WIDTH), "table": (ROWS, WIDTH)}
        self.w = Parameter(Tensor(values.normal(0.5, 0.5, shape.get(kind, (WIDTH,))).astype(np.float32)), name="w")
        self.b = Parameter(Tensor(values.normal(0, 0.5, (WIDTH,)).astype(np.float32)), name="b")
        self.matmul, self.mul, self.add = ops.MatMul(), ops.Mul(), ops.Add()
        self.norm = nn.LayerNorm((WIDTH,))
        self.drop = nn.Dropout(p=0.25)
        if sharded:
            rows = per_stage // 2
            self.matmul.shard(((rows, 2), (2, 1)))
            self.mul.shard(((rows, 2), (rows, 2) if kind == "table" else (2,)))
            self.add.shard(((rows, 2), (2,)))

    def construct(self, x):
        match self.kind:
            case "scale" | "table":
                return self.mul(x, self.w)
            case "bias":
                return self.add(x, self.w)
            case "dense":
                return self.matmul(x, self.w)
            case "biased":
                return self.add(self.matmul(x, self.w), self.b)
            case "square":
                return x * x * 0.1 + self.w
            case "tanh":
                return ops.tanh(self.mul(x, self.w))
            case "norm":
                return self.norm(x) * self.w
            case "soft":
                return self.matmul(x, ops.softmax(self.w, -1)) + ops.tanh(self.b)
            case "residual":
                return x + ops.tanh(x * self.w)
            case "dropout":
                return self.drop(x) * self.w
            case _:
                return x + self.w.mean()


class Net(nn.Cell):
    """The blocks of a case, one after another, and its loss."""

    def __init__(self, case):
        super().__init__()
        self.case = case
        per_stage = 8 // case.stages
        self.blocks = nn.CellList(
            [Block(kind, sharded, number, per_stage) for number, (kind, _, sharded) in enumerate(case.blocks)]
        )
        for number, (block, (_, (stage, segment), _)) in enumerate(zip(self.blocks, case.blocks, strict=True)):
            if number == case.outside:
                continue
            block.pipeline_stage = stage
            if segment:
                block.pipeline_segment = segment
        self.head = Parameter(Tensor(np.linspace(-1, 1, WIDTH).astype(np.float32)), name="head")

    def construct(self, x, y):
        for block in self.blocks:
            x = block(x)
        if self.case.tied:
            x = x + self.blocks[0].w * 0.5
        return self._loss(x, y) + self._penalty()

    def _loss(self, x, y):
        match self.case.loss:
            case "mean":
                return x.mean()
            case "sum":
                return x.sum() * 0.01
            case "row":
                return x[0].sum() * 0.1
            case "cumsum":
                return ops.cumsum(x, 0).mean()
            case "weighted":
                return (x * self.head).mean()
            case "labelled":
                return (x * y).mean()
            case "squares":
                return ((x - y) ** 2).mean()
            case "product":
                return (ops.matmul(x, self.head.reshape(WIDTH, 1))).mean()
            case "offset":
                return x.mean() + self.head[0] + 3.0
            case "constant":
                return x.mean() * 0.0 + self.head.sum()
            case _:
                return ops.abs(x).mean()

    def _penalty(self):
        first, last = self.blocks[0], self.blocks[len(self.blocks) - 1]
        match self.case.penalty:
            case "first":
                return (first.w**2).sum() * 0.01
            case "last":
                return (last.w**2).mean()
            case "all":
                return sum(((block.w**2).mean() for block in self.blocks), (first.w * 0.1).sum())
            case "bias":
                return first.b.mean() + last.b[0]
            case _:
                return 0.0


class ClippedStep(nn.TrainOneStepCell):
    """Clips by the global norm of all gradients before the update."""

    def construct(self, *inputs):
        loss, grads = ms.value_and_grad(self.network, None, self.weights)(*inputs)
        grads = ops.clip_by_global_norm(tuple(grad * self.sens for grad in grads), 0.5)
        self.optimizer(grads)
        return loss


class ScaledClippedStep(nn.TrainOneStepWithLossScaleCell):
    """Scales the loss dynamically, and clips by the global norm before the update."""

    def _update(self, overflow, grads):
        super()._update(overflow, ops.clip_by_global_norm(tuple(grads), 0.5))


def train(case: Case, stages: bool):
    """Losses and Parameters after a few steps; on one device without `stages`."""
    context.reset_auto_parallel_context()
    # One device operator by operator: a compiled step of unrolled micro batches takes seconds to compile.
    context.set_context(mode=context.GRAPH_MODE if stages else context.PYNATIVE_MODE)
    if stages:
        more = dict(case.settings)
        schedule, interleave = more.pop("schedule", "1f1b"), more.pop("interleave", False)
        if more.pop("gradient_accumulation_shard", False):
            more["parallel_optimizer_config"] = {"gradient_accumulation_shard": True, "parallel_optimizer_threshold": 0}
        elif more.get("enable_parallel_optimizer"):
            more["parallel_optimizer_config"] = {"parallel_optimizer_threshold": 0}
        context.set_auto_parallel_context(
            parallel_mode=more.pop("mode", "semi_auto_parallel"),
            device_num=8,
            pipeline_stages=case.stages,
            pipeline_config={"pipeline_interleave": interleave or schedule != "1f1b", "pipeline_scheduler": schedule},
            **more,
        )
    ms.set_seed(1)
    net = Net(case).set_train()
    weights = net.trainable_params()
    optimizer = {
        "SGD": lambda: nn.SGD(weights, 0.1),
        "Momentum": lambda: nn.Momentum(weights, 0.1, 0.9),
        "decay": lambda: nn.SGD(weights, 0.1, weight_decay=0.1),
    }[case.optimizer]()
    cell = PipelineCell(net, case.micro)
    manager = nn.DynamicLossScaleUpdateCell(2.0**4, 2, 2)
    step = {
        "plain": lambda: nn.TrainOneStepCell(cell, optimizer, sens=1.0),
        "clipped": lambda: ClippedStep(cell, optimizer, sens=1 / case.micro),
        "scaled": lambda: nn.TrainOneStepWithLossScaleCell(cell, optimizer, manager),
        "both": lambda: ScaledClippedStep(cell, optimizer, manager),
    }[case.step]()
    values = np.random.default_rng(case.number)
    x, y = (values.normal(size=(case.micro * ROWS, WIDTH)).astype(np.float32) for _ in range(2))
    results = [step(Tensor(x), Tensor(y)) for _ in range(STEPS)]
    losses = [float(result[0] if isinstance(result, tuple) else result) for result in results]
    return losses, {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}


def assert_as_on_one_device(case: Case) -> None:
    """Losses and Parameters of the stages are those of one device."""
    losses, weights = train(case, False)
    got, parameters = train(case, True)
    np.testing.assert_allclose(got, losses, rtol=1e-4, atol=1e-5, err_msg=str(case))
    assert parameters.keys() == weights.keys()
    # Some of the networks diverge within two steps: what is compared is the size of a whole Parameter.
    for name, value in weights.items():
        bound = 1e-4 * max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(parameters[name], value, rtol=0, atol=bound, err_msg=f"{name} of {case}")
