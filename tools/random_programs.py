"""Random programs of plain JAX, planned for two to eight devices in every mode: no defect, and the numbers of one device.

A program is drawn from the seed and its number alone: lines of text, each of earlier values, and perhaps the gradient of all. It
is planned for a random profile in a random mode, and in `ilp`: neither may cost less than the other's proven bound (with
`--all-modes` all searches are compared); what runs goes through `planned.verify`. What fails is printed with as few lines as
still fail.

Run: python tools/random_programs.py [--seed 0] [--first 0] [--cases 500] [--run 0.5] [--longest 9] [--all-modes]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("SPORAX_NO_CACHE", "1")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true"
    ).strip()

import jax
import jax.numpy as jnp
import numpy as np

import sporax
from sporax.base.errors import SporaxError
from sporax.planner.plan_check import check_plan

MODES = ("dynamic", "ilp", "recursive", "propagation", "repeated_blocks")
PROFILES = ("cpu", "h100", "tpu-v5p", "ascend910")
SIZES, WEIGHTS = (8, 16, 4, 2, 6, 1, 3), (8, 4, 3, 1.5, 0.5, 0.5, 0.5)
TEMPLATES = (
    """
jnp.tanh({0})|jnp.exp(-jnp.abs({0}))|{0} + 1.5|2 - {0}|{0} * 0.5|jnp.maximum({0}, 0.25)|jnp.clip({0}, -1, 1)
{0} / 3|{0} + {1}|{0} - {1}|{0} * {1}|jnp.maximum({0}, {1})|jnp.where({0} > 0, {1}, 0.5)
jnp.where({0} > {1}, {0}, {1})|{0}.sum()|{0}.sum(0)|{0}.sum(-1, keepdims=True)|{0}.mean(0)|{0}.max(-1)|{0}.min()
{0}.argmax(-1)|{0}.prod(0)|({0} > 0).sum()|jnp.log({0}.sum() ** 2 + 1)|jax.nn.softmax({0}, -1)
jnp.tensordot({0}, {1}, 1)|jnp.tensordot({0}.T, {1}, 1)|{0} @ {0}.T|{0}.T|{0}.reshape(-1)
{0}.reshape({0}.shape[0], -1)|jnp.reshape({0}, -1, order="F")|{0}.reshape(2, -1)|{0}[::-1]|jnp.roll({0}, 1, 0)
jnp.concatenate([{0}, {1}])|jnp.stack([{0}, {1}], -1)|jnp.stack([{0}.sum(), 1.0, {1}.max()])
jnp.pad({0}, 1, constant_values=2)|jnp.cumsum({0}, 0)|jnp.sort({0}, -1)|{0}[1:]|{0}[..., ::2]
lax.dynamic_slice_in_dim({0}, {1}.argmax() + 3, 2, 0)
lax.dynamic_update_slice_in_dim({0}, {0}[:1] * 2, {1}.argmax(), 0)|{0}[{1}.argmax()]
jnp.take({0}, {1}.astype(int), 0, mode="clip")|{0}.at[{1}.astype(int).reshape(-1)[:2]].add(1.0)
jnp.zeros((8, 4)).at[:, 0].set({0}.sum())|{0}.astype(jnp.bfloat16)|{0}.astype(jnp.float32)|jnp.arange(8.0) + {0}
jnp.broadcast_to({0}, (4, *{0}.shape))|jnp.einsum("i...,i...->...", {0}, {1})
lax.scan(lambda c, x: (c + x.sum(), c * 0.5 + x), 1.0, {0})[1]
lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c + {0}.mean()), {1})
lax.cond({0}.sum() > 1, lambda x: x * 2, lambda x: x + 1, {1})|lax.map(lambda x: x * x.sum(), {0})
jnp.var({0}, -1)|lax.top_k({0}, 2)[0]|{0}.astype(jnp.float16)|jax.random.normal(jax.random.key(3), {0}.shape) * {0}
lax.while_loop(lambda c: jnp.abs(c).max() > 0.5, lambda c: c * 0.6, {0})|jnp.repeat({0}, 3, 0)|jnp.tile({0}, 2)
jax.vmap(lambda r: lax.while_loop(lambda c: jnp.abs(c).sum() > 0.3, lambda c: c * 0.7, r))({0})|jnp.median({0}, 0)
jax.vmap(lambda r: lax.cond(r.sum() > 0, lambda r: r * 2, lambda r: r.max() - r, r))({0})|lax.cummax({0}, 0)
lax.scan(lambda c, x: (jnp.sin(c) + x, c * 2), {0}[0], {0}, reverse=True)[1]|lax.cumlogsumexp({0}, 0, reverse=True)
lax.scan(lambda c, x: (c.T + x.mean(), c.sum(0)), {0}, {1})[0]|jax.checkpoint(lambda x: jnp.sin(x) * x.sum())({0})
lax.switch({1}.argmax() % 3, [lambda x: x, lambda x: x * x.sum(), lambda x: -x[::-1]], {0})|jnp.linalg.norm({0}, axis=0)
jax.ops.segment_sum({0}, {0}.reshape({0}.shape[0], -1).argmax(1), 4)|jnp.fft.rfft({0}).real|lax.sort(({0}, {1}))[1]
{0}.at[{1}.astype(int).reshape(-1)[:2]].set(1.0, mode="clip")|jnp.take_along_axis({0}, {0}.argmax(0)[None], 0)
lax.reduce_window({0}, -jnp.inf, lax.max, (2,) * {0}.ndim, (1,) * {0}.ndim, "SAME")|jnp.unique({0}, size=3)
lax.reduce_window({0}, 0.0, lax.add, (3,) * {0}.ndim, (2,) * {0}.ndim, "SAME")|{0}.at[1].multiply({1}.sum())
jax.grad(lambda x: (jnp.tanh(x) * {1}.sum()).sum() ** 2)({0})|lax.associative_scan(lambda a, b: a * 0.5 + b, {0})
jnp.linalg.solve({0} @ {0}.T + 9 * jnp.eye({0}.shape[0]), {0})|jnp.convolve({0}.reshape(-1), {1}.reshape(-1), "same")
jax.vmap(lambda r: {1}.sum(0) * r.mean())({0})|jax.jacfwd(lambda x: x.sum(0) ** 2)({0})|jnp.diag({0}.sum(0))
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
"""Expressions of one or two earlier values; those that JAX refuses for their shapes are drawn again."""


@dataclass(frozen=True, slots=True)
class Program:
    """A function as text, and how it is planned.

    Attributes:
        inputs: shapes.
        lines: expressions, which call the values before them `v0`, `v1`, …
        outputs: numbers of values.
        is_gradient: gradients of the sum of all outputs are results, too.
        fixed: slices of the first dimension of each input; 1 leaves it to the search.
        mode, profile: of the search.
        devices: how many.
    """

    inputs: tuple[tuple[int, ...], ...]
    lines: tuple[str, ...]
    outputs: tuple[int, ...]
    is_gradient: bool
    fixed: tuple[int, ...]
    mode: str
    profile: str
    devices: int = 8

    def __str__(self) -> str:
        first, used = len(self.inputs), self._used()
        body = [f"    v{first + n} = {line}" for n, line in enumerate(self.lines) if first + n in used]
        results = ", ".join(f"v{number}" for number in self.outputs)
        text = "\n".join([f"def f({', '.join(f'v{n}' for n in range(first))}):", *body, f"    return ({results},)"])
        how = f"{self.mode}, {self.profile}, {self.devices} devices, gradient {self.is_gradient}"
        return f"# {self.inputs}, fixed {self.fixed}, {how}\n{text}"

    def _used(self) -> set[int]:
        used, first = set(self.outputs), len(self.inputs)
        for number in reversed(range(first, first + len(self.lines))):
            if number in used:
                used |= {other for other in range(number) if f"v{other}" in _words(self.lines[number - first])}
        return used

    def function(self) -> Any:
        """The function itself."""
        names: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": jax.lax}
        exec(str(self), names)
        f = names["f"]
        if not self.is_gradient:
            return f

        def loss(*args: Any) -> Any:
            return sum(jnp.sum(value.astype(jnp.float32)) for value in f(*args))

        return lambda *args: (f(*args), jax.grad(loss, tuple(range(len(args))))(*args))

    def arguments(self) -> list[Any]:
        """Values for the inputs."""
        draws = np.random.default_rng(0)
        return [jnp.asarray(draws.normal(size=shape), jnp.float32) for shape in self.inputs]


def _words(line: str) -> set[str]:
    return set("".join(letter if letter.isalnum() else " " for letter in line).split())


def drawn(seed: int, number: int, longest: int) -> Program:
    """The program of this number."""
    draw = random.Random(f"{seed} {number}")
    inputs = tuple(tuple(draw.choices(SIZES, WEIGHTS, k=draw.choice((1, 2, 2, 3)))) for _ in range(draw.randint(1, 3)))
    devices = draw.choice((8, 8, 4, 6, 2))
    fixed = tuple(devices if shape[0] % devices == 0 and draw.random() < 0.5 else 1 for shape in inputs)
    program = Program(inputs, (), (0,), False, fixed, draw.choice(MODES), draw.choice(PROFILES), devices)
    for _ in range(draw.randint(2, longest)):
        count = len(inputs) + len(program.lines)
        # Later values are drawn more often, so that programs are deep.
        picks = [f"v{max(draw.randrange(count), draw.randrange(count))}" for _ in range(2)]
        longer = replace(program, lines=(*program.lines, draw.choice(TEMPLATES).format(*picks)), outputs=(count,))
        program = longer if _traces(longer) else program
    count = len(inputs) + len(program.lines)
    outputs = tuple(sorted({count - 1, *draw.sample(range(count), min(count, 2))}))
    with_gradient = replace(program, outputs=outputs, is_gradient=True)
    plain = replace(program, outputs=outputs)
    return with_gradient if draw.random() < 0.4 and _traces(with_gradient) else plain


def _traces(program: Program) -> bool:
    try:
        shapes = jax.tree.leaves(jax.eval_shape(program.function(), *program.arguments()))
    except Exception:  # JAX refuses such shapes or types
        return False
    return all(0 < shape.size < 1 << 14 for shape in shapes)


def contradiction(searches: Mapping[str, Any]) -> str:
    """Which search costs less than what another one has proven to be the least; "" for none."""
    best = min(searches, key=lambda mode: searches[mode].cost_seconds)
    cost = searches[best].cost_seconds
    for mode, search in searches.items():
        if search.bound_seconds is not None and cost < search.bound_seconds * (1 - 1e-6):
            return f"contradiction: {mode} says that {search.bound_seconds} is the least, {best} has {cost}"
    return ""


def failure(program: Program, runs: bool, all_modes: bool = False) -> str:
    """What is wrong with a program; "" for nothing."""
    args, fn = program.arguments(), program.function()
    fixed = {n: (count, *[1] * (len(program.inputs[n]) - 1)) for n, count in enumerate(program.fixed) if count > 1}
    try:
        planned = sporax.plan(
            fn, *args, fixed=fixed, mode=program.mode, hardware=program.profile, devices=program.devices
        )
        check_plan(planned.graph, planned.plan)
        str(planned.summary())
        searches = {program.mode: planned.search}
        for mode in MODES if all_modes else ("ilp",):
            if mode not in searches:
                other = sporax.plan(
                    fn, *args, fixed=fixed, mode=mode, hardware=program.profile, devices=program.devices
                )
                searches[mode] = other.search
        if told := contradiction(searches):
            return told
        if runs:
            planned.verify(*args)
    except SporaxError as error:
        kind = "numbers" if str(error).startswith("For 'verify'") else type(error).__name__
        return f"{kind}: {error}"
    except Exception:
        return traceback.format_exc(limit=-3)
    return ""


def smallest(program: Program, told: str, runs: bool) -> Program:
    """The first value alone that fails in the same way, without a gradient where that fails, too."""
    kind = told.split(":")[0]
    plain = [replace(program, is_gradient=False)] if program.is_gradient else []
    for candidate in (*plain, program):
        for number in range(len(program.inputs), len(program.inputs) + len(program.lines)):
            alone = replace(candidate, outputs=(number,))
            if _traces(alone) and failure(alone, runs).split(":")[0] == kind:
                return alone
    return program


def main(words: list[str] | None = None) -> int:
    """Run the programs and print what was found; 1 where something was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other programs (0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first program (0)")
    parser.add_argument("--cases", type=int, default=500, help="how many (500)")
    parser.add_argument("--run", type=float, default=0.5, help="share that is run on the devices and verified (0.5)")
    parser.add_argument("--longest", type=int, default=9, help="most lines of a program (9)")
    parser.add_argument("--all-modes", action="store_true", help="compare the costs and bounds of all searches")
    arguments = parser.parse_args(words)
    counts: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    for number in range(arguments.first, arguments.first + arguments.cases):
        program = drawn(arguments.seed, number, arguments.longest)
        runs = random.Random(f"run {arguments.seed} {number}").random() < arguments.run
        told = failure(program, runs, arguments.all_modes)
        counts["run" if runs else "planned"] += 1
        if told:
            counts["failed"] += 1
            print(f"==== program {number}\n{told}\n---- the smallest:\n{smallest(program, told, runs)}", flush=True)
    print(dict(counts))
    return int(bool(counts["failed"]))


if __name__ == "__main__":
    sys.exit(main())
