"""The shapes that training code of users most often has: steps, optimizers and control flow of their own.

Each recipe trains a small network for ten steps and gives the losses. Run by MindSpore (``python user_code_recipes.py``,
with MindSpore 2.10 installed) this file writes ``user_code.json``; the tests run the same recipes with Sporax.
"""

import importlib
import json
import pathlib
import sys

import numpy as np

STEPS = 10


def data(step):
    random = np.random.RandomState(step)
    return random.randn(8, 6).astype(np.float32), random.randint(0, 4, 8).astype(np.int32)


def network(ms):
    nn, random = ms.nn, np.random.RandomState(7)

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Dense(6, 16, weight_init=ms.Tensor(random.randn(16, 6).astype(np.float32) * 0.4))
            self.fc2 = nn.Dense(16, 4, weight_init=ms.Tensor(random.randn(4, 16).astype(np.float32) * 0.3))
            self.fc1.bias.set_data(ms.Tensor(np.zeros(16, np.float32)))
            self.fc2.bias.set_data(ms.Tensor(np.zeros(4, np.float32)))
            self.relu = nn.ReLU()

        def construct(self, x):
            return self.fc2(self.relu(self.fc1(x)))

    return Net()


def with_loss(ms, net):
    return ms.nn.WithLossCell(net, ms.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))


def losses(ms, step):
    values = []
    for number in range(STEPS):
        result = step(*(ms.Tensor(item) for item in data(number)))
        values.append(float((result[0] if isinstance(result, tuple) else result).asnumpy()))
    return values


def step_that_skips_overflows(ms):
    nn, ops = ms.nn, ms.ops
    scale_grad = ops.MultitypeFuncGraph("scale_grad")

    @scale_grad.register("Tensor", "Tensor")
    def scale(factor, grad):
        return grad * ops.cast(ops.Reciprocal()(factor), ops.dtype(grad))

    class Step(nn.TrainOneStepWithLossScaleCell):
        def construct(self, x, y):
            loss = self.network(x, y)
            scaling = self.scale_sense
            status = ms.Tensor([0] * 8, ms.int32)  # noqa: F841 - users have it
            sens = ops.ones_like(loss) * ops.cast(scaling, ops.dtype(loss))
            grads = self.grad(self.network, self.weights)(x, y, sens)
            grads = self.hyper_map(ops.partial(scale_grad, scaling), grads)
            grads = self.grad_reducer(grads)
            overflow = ops.logical_not(ops.isfinite(loss).all())
            overflow = self.process_loss_scale(overflow)
            if not overflow:
                loss = ops.depend(loss, self.optimizer(grads))
            return loss, overflow, scaling

    net = network(ms)
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    return losses(ms, Step(with_loss(ms, net), optimizer, nn.DynamicLossScaleUpdateCell(1024.0, 2, 4)).set_train())


def step_that_clips_gradients(ms):
    nn, ops = ms.nn, ms.ops
    clip_grad = ops.MultitypeFuncGraph("clip_grad")

    @clip_grad.register("Number", "Number", "Tensor")
    def clip(kind, limit, grad):
        if kind not in (0, 1):
            return grad
        if kind == 0:
            return ops.clip_by_value(grad, ops.cast(-limit, ops.dtype(grad)), ops.cast(limit, ops.dtype(grad)))
        return nn.ClipByNorm()(grad, ops.cast(limit, ops.dtype(grad)))

    class Step(nn.TrainOneStepCell):
        def __init__(self, network, optimizer, sens=1.0):
            super().__init__(network, optimizer, sens)
            self.hyper_map = ops.HyperMap()
            self.cast = ops.Cast()

        def construct(self, x, y):
            weights = self.weights
            loss = self.network(x, y)
            sens = ops.fill(loss.dtype, loss.shape, self.sens)
            grads = self.grad(self.network, weights)(x, y, sens)
            grads = self.hyper_map(ops.partial(clip_grad, 0, 0.05), grads)
            if self.reducer_flag:
                grads = self.grad_reducer(grads)
            return ops.depend(loss, self.optimizer(grads))

    net = network(ms)
    return losses(ms, Step(with_loss(ms, net), nn.SGD(net.trainable_params(), 0.5)).set_train())


def optimizer_of_hyper_map(ms):
    nn, ops = ms.nn, ms.ops
    move = ops.MultitypeFuncGraph("move")

    @move.register("Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "Bool")
    def adam(rate, beta, param, first, second, grad, decays):
        if decays:
            grad = grad + 0.01 * param
        new_first = beta * first + (1.0 - beta) * grad
        new_second = 0.99 * second + 0.01 * ops.square(grad)
        param_next = param - rate * new_first / (ops.sqrt(new_second) + 1e-6)
        ops.assign(first, new_first)
        ops.assign(second, new_second)
        ops.assign(param, param_next)
        return True

    class Mine(nn.Optimizer):
        def __init__(self, params, learning_rate):
            super().__init__(learning_rate, params, weight_decay=0.01)
            self.first = self._parameters.clone(prefix="first", init="zeros")
            self.second = self.parameters.clone(prefix="second", init="zeros")
            self.beta = ms.Tensor(0.9, ms.float32)
            self.hyper_map = ops.HyperMap()

        def construct(self, gradients):
            gradients = self.flatten_gradients(gradients)
            gradients = self.gradients_centralization(gradients)
            gradients = self.scale_grad(gradients)
            rate = self.get_lr()
            self.assignadd(self.global_step, self.global_step_increase_tensor)
            return self.hyper_map(
                ops.partial(move, rate, self.beta),
                self._parameters,
                self.first,
                self.second,
                gradients,
                self.decay_flags,
            )

    net = network(ms)
    rates = nn.cosine_decay_lr(0.001, 0.02, 10, 5, 2)
    return losses(ms, nn.TrainOneStepCell(with_loss(ms, net), Mine(net.trainable_params(), rates)).set_train())


def while_in_construct(ms):
    nn = ms.nn

    class Normed(nn.Cell):
        def __init__(self, net):
            super().__init__(auto_prefix=False)
            self.net = net

        def construct(self, x):
            out = self.net(x)
            while out.abs().max() > 2.0:
                out = out * 0.8
            return out

    net = network(ms)
    return losses(
        ms, nn.TrainOneStepCell(with_loss(ms, Normed(net)), nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
    )


def loop_with_break(ms):
    nn = ms.nn

    class Deep(nn.Cell):
        def __init__(self, net):
            super().__init__(auto_prefix=False)
            self.net = net

        def construct(self, x):
            out = self.net(x)
            for i in range(4):
                if out.sum() > 3.0:
                    break
                out = out + 0.1 * i
            return out

    net = network(ms)
    return losses(
        ms, nn.TrainOneStepCell(with_loss(ms, Deep(net)), nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
    )


def early_return(ms):
    nn = ms.nn

    class Robust(nn.Cell):
        def __init__(self, net):
            super().__init__(auto_prefix=False)
            self.net = net
            self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

        def construct(self, x, y):
            loss = self.loss(self.net(x), y)
            if loss > 1.5:
                return loss * 0.5
            if loss < 1.0 and x.sum() > 0:
                return loss * 2.0
            return loss

    net = network(ms)
    return losses(ms, nn.TrainOneStepCell(Robust(net), nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train())


def gradient_accumulation(ms):
    nn, ops = ms.nn, ms.ops
    add_grad = ops.MultitypeFuncGraph("add_grad")
    clear_grad = ops.MultitypeFuncGraph("clear_grad")

    @add_grad.register("Tensor", "Tensor")
    def accumulate(total, grad):
        return ops.assign_add(total, grad)

    @clear_grad.register("Tensor")
    def clear(total):
        return ops.assign(total, ops.zeros_like(total))

    class Step(nn.TrainOneStepCell):
        def __init__(self, network, optimizer, rounds):
            super().__init__(network, optimizer)
            self.rounds = rounds
            self.counter = ms.Parameter(ms.Tensor(0, ms.int32), name="counter", requires_grad=False)
            self.totals = self.weights.clone(prefix="total", init="zeros")
            self.map = ops.HyperMap()

        def construct(self, x, y):
            loss = self.network(x, y)
            grads = self.grad_no_sens(self.network, self.weights)(x, y)
            loss = ops.depend(loss, self.map(add_grad, self.totals, grads))
            self.counter = self.counter + 1
            if self.counter % self.rounds == 0:
                loss = ops.depend(loss, self.optimizer(self.totals))
                loss = ops.depend(loss, self.map(clear_grad, self.totals))
            return loss

    net = network(ms)
    return losses(ms, Step(with_loss(ms, net), nn.SGD(net.trainable_params(), 0.2), 3).set_train())


def moving_average_of_weights(ms):
    nn, ops = ms.nn, ms.ops

    class Step(nn.TrainOneStepCell):
        def __init__(self, network, optimizer):
            super().__init__(network, optimizer)
            self.average = self.weights.clone("average")
            self.updates = ms.Parameter(ms.Tensor(0.0, ms.float32), name="updates")

        def construct(self, x, y):
            loss = self.network(x, y)
            grads = self.grad_no_sens(self.network, self.weights)(x, y)
            self.optimizer(grads)
            self.updates += 1
            decay = 0.5 if self.updates > 5 else 0.9
            total = loss
            for average, weight in zip(self.average, self.weights):  # noqa: B905 - as users write it
                ops.assign(average, average * decay + weight * (1 - decay))
                total = total + average.mean()
            return total

    net = network(ms)
    return losses(ms, Step(with_loss(ms, net), nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train())


def schedule_with_warm_up(ms):
    nn, ops = ms.nn, ms.ops

    schedules = importlib.import_module(f"{ms.__name__}.nn.learning_rate_schedule")

    class WarmUp(schedules.LearningRateSchedule):
        def __init__(self, rate, steps):
            super().__init__()
            self.rate = rate
            self.steps = steps
            self.cosine = nn.CosineDecayLR(0.0, rate, 8)

        def construct(self, global_step):
            step = ops.cast(global_step, ms.float32).reshape(())
            rate = ms.Tensor(self.rate, ms.float32)
            if step < self.steps:
                rate = rate * (step + 1.0) / self.steps
            else:
                rate = self.cosine(step - self.steps)
            return rate

    net = network(ms)
    optimizer = nn.Momentum(net.trainable_params(), WarmUp(0.2, 4), 0.9)
    return losses(ms, nn.TrainOneStepCell(with_loss(ms, net), optimizer).set_train())


def forward_value_and_grad(ms):
    nn, ops = ms.nn, ms.ops

    class Step(nn.Cell):
        def __init__(self, network, optimizer):
            super().__init__(auto_prefix=False)
            self.optimizer = optimizer
            self.weights = ms.ParameterTuple(network.trainable_params())
            self.forward = nn.ForwardValueAndGrad(network, self.weights, get_by_list=True, sens_param=True)

        def construct(self, x, y):
            loss, grads = self.forward(x, y, ms.Tensor(2.0, ms.float32))
            norm = ops.sqrt(sum([(grad * grad).sum() for grad in grads]))
            if norm > 1.0:
                grads = tuple([grad / norm for grad in grads])
            self.optimizer(grads)
            return loss

    net = network(ms)
    return losses(ms, Step(with_loss(ms, net), nn.SGD(net.trainable_params(), 0.1)).set_train())


def numpy_scalars(ms):
    nn, ops = ms.nn, ms.ops

    class Attention(nn.Cell):
        def __init__(self, net):
            super().__init__(auto_prefix=False)
            self.net = net
            self.scale = 1 / np.sqrt(6)
            self.softmax = nn.Softmax()

        def construct(self, x):
            scores = ops.matmul(x, x.T) * self.scale
            return self.net(ops.matmul(self.softmax(scores), x) * np.float32(1.5))

    net = network(ms)
    return losses(
        ms, nn.TrainOneStepCell(with_loss(ms, Attention(net)), nn.SGD(net.trainable_params(), 0.2)).set_train()
    )


def function_with_conditions(ms):
    nn = ms.nn
    net = network(ms)
    forward = with_loss(ms, net)
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    @ms.jit
    def step(x, y):
        loss, grads = gradient(x, y)
        if loss > 0.5 or not x.sum() > -100:
            optimizer(grads)
        scale = 2.0
        if loss > 1.2:
            scale = 3.0
        return loss * scale

    return losses(ms, step)


RECIPES = [
    step_that_skips_overflows, step_that_clips_gradients, optimizer_of_hyper_map, while_in_construct, loop_with_break,
    early_return, gradient_accumulation, moving_average_of_weights, schedule_with_warm_up, forward_value_and_grad,
    numpy_scalars, function_with_conditions,
]  # fmt: skip


def main():
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE if "pynative" in sys.argv else ms.GRAPH_MODE)
    results = {}
    for recipe in RECIPES:
        try:
            results[recipe.__name__] = recipe(ms)
        except Exception as error:
            print(recipe.__name__, type(error).__name__, str(error)[:600])
    pathlib.Path(sys.argv[1]).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
