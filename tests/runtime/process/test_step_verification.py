"""Compiled programs run twice and compared: what differs is named, and nothing is spent without a request."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sporax.base.errors import SporaxValueError
from sporax.mindspore import Tensor, context, nn, ops
from sporax.runtime.process import step_verification
from sporax.runtime.process.step_verification import Steps, VerifiedProgram, compiled, differences

CALLS = []


def noise(x):
    """Gives another value at each call, as a defect of a library would."""
    CALLS.append(1)
    return (x + len(CALLS)).astype(np.float32)


class Noisy(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(8, 8)
        self.noise = ops.Custom(noise, out_shape=lambda x: x, out_dtype=lambda x: x, func_type="pyfunc")
        self.last = nn.Dense(8, 8)
        self.noisy = False

    def construct(self, x):
        x = self.first(x)
        if self.noisy:
            x = x + ops.stop_gradient(self.noise(ops.stop_gradient(x)))
        return ops.reduce_mean(ops.square(self.last(x)))


@pytest.fixture
def every(monkeypatch):
    """`every(n)`: verify each n-th step from now on."""

    def set_every(number):
        monkeypatch.setenv("SPORAX_VERIFY_STEPS", str(number))
        step_verification.every.cache_clear()

    yield set_every
    monkeypatch.undo()
    step_verification.every.cache_clear()
    context.reset_auto_parallel_context()


def step_of(network):
    return nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.1, 0.9))


X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def test_nothing_is_wrapped_without_a_request(every):
    every(0)
    program = compiled(jax.jit(jnp.sin), "sine", [X])
    assert isinstance(program, jax.stages.Compiled)


@pytest.mark.parametrize("text", ["-1", "often", "1.5"])
def test_what_is_no_number_of_steps_is_refused(every, text):
    every(text)
    with pytest.raises(SporaxValueError, match="SPORAX_VERIFY_STEPS.*whole number from 0 on"):
        compiled(jax.jit(jnp.sin), "sine", [X])


def test_equal_runs_change_nothing(every):
    context.set_context(mode=context.GRAPH_MODE)
    losses = []
    for number in (0, 1):
        every(number)
        network = Noisy()
        for parameter in network.get_parameters():
            parameter.set_data(Tensor(np.full(parameter.shape, 0.1, np.float32)))
        step = step_of(network)
        losses.append([float(step(Tensor(X))) for _ in range(3)])
        assert isinstance(step.program.executable, VerifiedProgram) == bool(number)
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("settings", "program", "where"),
    [
        ({}, "TrainOneStepCell", r"TrainOneStepCell\.network\.noise"),
        (
            {"parallel_mode": "semi_auto_parallel", "device_num": 8},
            "TrainOneStepCell",
            r"TrainOneStepCell\.network\.noise",
        ),
        (
            {"parallel_mode": "semi_auto_parallel", "device_num": 8, "pipeline_stages": 2},
            "chunk0_forward",
            r"network\.noise",
        ),
    ],
    ids=["one device", "planned", "pipeline"],
)
def test_a_difference_names_program_step_and_operator(every, settings, program, where):
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(**settings)
    every(2)
    network = Noisy()
    network.noisy = True
    if "pipeline_stages" in settings:
        network.first.pipeline_stage = 0
        network.last.pipeline_stage = 1
        network = nn.PipelineCell(network, 2)
    step = step_of(network)
    step(Tensor(X))  # the first step is not verified
    message = (
        rf"For '{program}', one compiled program gave different results from the same inputs at step 2: result \d+ .*"
        rf"The first result that changes is of '\w+' in '.*{where}'.* in 19 of 19 replays"
    )
    with pytest.raises(RuntimeError, match=message):
        step(Tensor(X))


def test_programs_with_effects_are_not_repeated(every, caplog):
    every(1)

    def printing(x):
        jax.debug.callback(lambda: CALLS.append("called"))
        return x + 1

    program = compiled(jax.jit(printing), "printing", [X])
    CALLS.clear()
    program(X)
    jax.effects_barrier()
    assert CALLS == ["called"]
    assert "'printing' is not verified" in caplog.text


def test_steps_of_several_programs_are_counted_together(every):
    every(3)
    steps = Steps()
    due = []
    for _ in range(6):
        steps.begin()
        due.append(steps.due)
    assert due == [False, False, True, False, False, True]


def test_a_call_that_the_program_refuses_is_no_step(every):
    """Processes count alike, whichever of them had to bring its arguments elsewhere first."""
    every(2)
    program = compiled(jax.jit(jnp.sin), "sine", [jnp.asarray(X)])
    for number in (1, 2):  # a step that runs once, and one that runs twice
        with pytest.raises(TypeError):
            program(jnp.ones(3))
        program(jnp.asarray(X))
        assert program.own_steps.number == number


def test_differences_are_of_bits():
    nan = np.float32("nan")
    one = [jnp.asarray([1.0, nan, 0.0]), jnp.asarray(3)]
    assert differences(one, [jnp.asarray([1.0, nan, 0.0]), jnp.asarray(3)]) == []
    (found, other) = differences(one, [jnp.asarray([1.0, nan, -0.0]), jnp.asarray(4)])
    assert (found.number, found.count, found.where) == (0, 1, (2,))
    assert str(other) == "result 1 (int64[]) differs in 1 of its values, first at []: 3 and 4"


def test_a_compilation_says_how_many_operators_it_has(every, monkeypatch):
    """Those of loops and of functions inside count, too: what is reported is "compiling 'step': 6 operators, 12 s"."""
    every(0)
    reported = []
    monkeypatch.setattr(step_verification, "activity", lambda what: reported.append(what) or contextlib.nullcontext())

    def loop(x):
        return lax.fori_loop(0, 3, lambda _, value: jnp.sin(value) + 1.0, x)

    jitted = jax.jit(loop)
    program = compiled(jitted, "step", [jnp.ones(3)])
    np.testing.assert_allclose(program(jnp.ones(3)), loop(jnp.ones(3)), rtol=1e-6)
    count = step_verification.num_operators(jitted.trace(jnp.ones(3)).jaxpr)
    assert reported == [f"{count} operators"]
    assert count >= 3  # the loop, and what is in it
