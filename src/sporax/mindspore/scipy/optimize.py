"""Minima of functions: `mindspore.scipy.optimize`.

SciPy searches, on the host; values and gradients are computed as the mode says, in GRAPH_MODE by one compiled program. Numbers of
steps and evaluations are SciPy's, which takes other steps than MindSpore's searches. A function with constraints is minimized by
an augmented Lagrangian and Adam (Nocedal and Wright, Numerical Optimization, 1999, chapter 17).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from sporax.base.errors import For
from sporax.mindspore import context, nn, ops
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common import Parameter, Tensor, dtypes, jit
from sporax.mindspore.common.transforms import value_and_grad
from sporax.mindspore.scipy.ops import LinearSumAssignment

__all__ = ["line_search", "linear_sum_assignment", "minimize"]

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

answer_missing_names(__name__)

Function = Callable[..., Any]
_ONE_OF = ("bfgs", "lbfgs", "lagrange")
_STATUS = {0: 0, 1: 1, 2: 3}
"""SciPy's number of an end -> MindSpore's: found, too many steps, a line search that failed."""


class LineSearchResults(NamedTuple):
    """What `line_search` gives: `a_k` is the step, `f_k` and `g_k` are value and gradient there. `k` counts evaluations, too."""

    failed: bool
    nit: int
    nfev: int
    ngev: int
    k: int
    a_k: float
    f_k: float
    g_k: Tensor
    status: int


class OptimizeResults(NamedTuple):
    """What `minimize` gives; `status` is 0 (found), 1 (too many steps) or 3 (a line search failed)."""

    x: Tensor
    success: bool
    status: int
    fun: float
    jac: Tensor
    hess_inv: Tensor | None
    nfev: int
    njev: int
    nit: int


class LagrangeResults(NamedTuple):
    """What `minimize` gives with constraints: the best place that keeps them, and the values there."""

    succeeded: bool
    best_value: Any
    object_value: float
    loss_value: Any


def _evaluator(
    func: Function, jac: Function | None, args: tuple[Any, ...], dtype: Any
) -> Callable[[Any], tuple[float, Any]]:
    """Value and gradient at a place, by the user's functions of a Tensor."""
    derived = value_and_grad(lambda x: func(x, *args))
    both = derived if jac is None else lambda x: (func(x, *args), jac(x, *args))
    run = jit(both) if context.graph_mode() else both

    def evaluate(x: Any) -> tuple[float, Any]:
        value, gradient = run(Tensor(np.asarray(x, dtype)))
        return float(value.asnumpy()), gradient.asnumpy()

    return evaluate


def line_search(
    f: Function, xk: Tensor, pk: Tensor, jac: Function | None = None, gfk: Tensor | None = None, old_fval: Any = None,
    old_old_fval: Any = None, c1: float = 1e-4, c2: float = 0.9, maxiter: int = 20,
) -> LineSearchResults:  # fmt: skip
    """A step along a direction that satisfies the strong Wolfe conditions.

    Args:
        f: a function of a Tensor that gives a number.
        xk, pk: where to start, and the direction, in which the function must fall.
        jac: gives the gradient; None: it is computed.
        gfk, old_fval: gradient and value at `xk`, if known.
        old_old_fval: value before the last step, which the length of the first step follows.
        c1, c2: how much of the expected descent is enough, and how flat the function must be.
        maxiter: rounds.
    """
    x, direction = xk.asnumpy(), pk.asnumpy()
    evaluate = _evaluator(f, jac, (), x.dtype)
    known = [None if value is None else value.asnumpy() for value in map(_tensor, (gfk, old_fval, old_old_fval))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of failures, which the result tells
        step, calls, _, value, _, _ = scipy.optimize.line_search(
            lambda place: evaluate(place)[0],
            lambda place: evaluate(place)[1],
            x,
            direction,
            *known,
            c1=c1,
            c2=c2,
            maxiter=maxiter,
        )
    failed = step is None or value is None
    length = 0.0 if failed else float(step)
    value, gradient = evaluate(x + np.asarray(length, x.dtype) * direction)
    return LineSearchResults(failed, calls, calls, calls, calls, length, value, Tensor(gradient), int(failed))


def _tensor(value: Any) -> Tensor | None:
    return value if value is None or isinstance(value, Tensor) else Tensor(value)


class _Lagrangian(nn.Cell):
    """A function with penalties for constraints that are not kept, at the place that a Parameter holds.

    Bounds are kept by a function of that place: a parabola for one bound, a sigmoid between two.
    """

    def __init__(
        self, func: Function, x0: Tensor, constraints: Sequence[Function], weight: float, lower: Any, upper: Any,
        shared: Function | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.func, self.constraints, self.weight, self.shared = func, tuple(constraints), weight, shared
        self.lower, self.upper = _tensor(lower), _tensor(upper)
        self.x = Parameter(Tensor(x0), name="x")
        self.multipliers = Parameter(ops.ones(len(self.constraints), dtypes.float32), "multipliers", False)
        self.sigma = Parameter(Tensor(1.0, dtypes.float32), "sigma", False)

    def construct(self) -> tuple[Any, ...]:
        """The penalized value, the constraints, the value and the place."""
        # A copy, which is still there when the optimizer has replaced the Parameter's value.
        x: Any = self.x + 0
        if self.lower is not None and self.upper is not None:
            x = (self.upper - self.lower) * ops.sigmoid(x) + self.lower
        elif self.lower is not None or self.upper is not None:
            x = x * x + self.lower if self.upper is None else self.upper - x * x
        inputs = (x,) if self.shared is None else (x, self.shared(x))
        limits = ops.stack([constraint(*inputs) for constraint in self.constraints])
        value, shift = self.func(*inputs), self.multipliers / self.sigma
        penalty = ops.reduce_sum(ops.square(ops.relu(shift + limits)) - ops.square(shift))
        return self.weight * value + self.sigma / 2 * penalty, limits, value, x


def _minimize_lagrange(
    func: Function, x0: Tensor, constraints: Sequence[Function], save_tol: Any = None, obj_weight: float = 1.0,
    lower: Any = None, upper: Any = None, learning_rate: float = 0.1, coincide_fun: Function | None = None, rounds: int = 10,
    steps: int = 1000, log_sw: bool = False,
) -> LagrangeResults:  # fmt: skip
    """See `minimize`."""
    count = len(constraints)
    For("minimize").refuse_type(
        not all(map(callable, (func, *constraints))), "func and constraints must be functions", constraints
    )
    if save_tol is not None and len(save_tol) != count:
        raise For("minimize").error(f"'tol' must have {count} numbers, one for each constraint", save_tol)
    net = _Lagrangian(func, x0, constraints, obj_weight, lower, upper, coincide_fun)
    optimizer = nn.Adam([net.x], learning_rate)
    forward = value_and_grad(net, None, optimizer.parameters, has_aux=True)

    def train() -> Any:
        results, gradients = forward()
        optimizer(gradients)
        return results

    run = jit(train) if context.graph_mode() else train
    tolerance = np.ones(count) if save_tol is None else np.asarray(save_tol)
    best = LagrangeResults(False, x0.asnumpy(), 0.0, np.ones(count, np.float32))
    sigma, epsilon, multipliers = 1.0, 1.0, np.ones(count)
    for number in range(rounds * steps):
        loss, limits, value, x = (result.asnumpy() for result in run())
        if number == 0:
            best = best._replace(object_value=float(value))
        if log_sw:
            print(f"step {number}: object_value {value}, loss_value {limits}, lagrange_value {loss}", flush=True)
        if np.all(limits < tolerance) and value < best.object_value:
            best = LagrangeResults(True, x, float(value), limits)
        if (number + 1) % steps:
            continue
        # The multipliers follow where the constraints are nearly kept, else the penalty rises.
        if np.linalg.norm(np.maximum(limits, -multipliers / sigma)) <= epsilon:
            multipliers = np.maximum(multipliers + sigma * limits, 0)
            epsilon = min(epsilon / sigma**0.9, sys.float_info.max)
        else:
            sigma *= 1.1
            epsilon = sigma**-0.1
        net.multipliers.set_data(Tensor(multipliers, dtypes.float32))
        net.sigma.set_data(Tensor(sigma, dtypes.float32))
    return best


def minimize(
    func: Function, x0: Tensor, args: tuple[Any, ...] = (), method: str | None = None, jac: Function | None = None,
    hess: None = None, hessp: None = None, bounds: None = None, constraints: Sequence[Function] = (), tol: Any = None,
    callback: None = None, options: dict[str, Any] | None = None,
) -> OptimizeResults | LagrangeResults:  # fmt: skip
    """The minimum of a function near a place.

    Args:
        func: a function of a Tensor (n,), and of `args`, that gives a number.
        x0: where to start, (n,).
        args: more inputs.
        method: ``"BFGS"``, ``"LBFGS"``, or ``"lagrange"`` with constraints.
        jac: gives the gradient; None: it is computed.
        hess, hessp, bounds, callback: not offered, as in MindSpore.
        constraints: functions that are to be negative.
        tol: for ``"lagrange"``: below which number each constraint counts as kept; 1 by default.
        options: `maxiter`, `norm`, `gtol`; of L-BFGS also `history_size` and `line_search_maxiter`. Of ``"lagrange"``:
            `obj_weight`, `lower`, `upper` (bounds), `learning_rate`, `coincide_fun` (what function and constraints share,
            their second input), `rounds`, `steps` of each, `log_sw` (print each step).

    Raises:
        SporaxTypeError: `args` is no tuple, or something is no function.
        SporaxValueError: no method, or another one; not as many numbers in `tol` as constraints.
    """
    chosen = dict(options or {})
    For("minimize").typed("args", args, "a tuple", tuple)
    For("minimize").refuse(method is None, f"'method' must be one of {_ONE_OF}", method)
    kind = For("minimize").typed("method", method, "a string", str).lower()
    For("minimize").one_of("method", kind, _ONE_OF)
    if kind == "lagrange":
        return _minimize_lagrange(func, x0, constraints, tol, **chosen)
    x = x0.asnumpy()
    settings = {"gtol": chosen.get("gtol", 1e-5), "maxiter": chosen.get("maxiter") or x.size * 200}
    if kind == "bfgs":
        settings["norm"] = chosen.get("norm", np.inf)
    else:
        settings |= {
            "maxcor": chosen.get("history_size", 20),
            "maxls": chosen.get("line_search_maxiter", 20),
            "ftol": 0,
        }
    evaluate = _evaluator(func, jac, args, x.dtype)
    algorithm = "BFGS" if kind == "bfgs" else "L-BFGS-B"
    found = scipy.optimize.minimize(evaluate, x, jac=True, method=algorithm, options=settings)
    place, slope = (Tensor(np.asarray(value, x.dtype)) for value in (found.x, found.jac))
    hessian = Tensor(np.asarray(found.hess_inv, x.dtype)) if kind == "bfgs" else None
    counts = int(found.nfev), int(found.nfev), int(found.nit)
    return OptimizeResults(place, bool(found.success), _STATUS[found.status], float(found.fun), slope, hessian, *counts)


def linear_sum_assignment(cost_matrix: Tensor, maximize: bool, dimension_limit: Tensor | None = None) -> Any:
    """Rows and columns of the assignment with the least sum (or the largest).

    Args:
        cost_matrix: (m, n).
        maximize: the largest.
        dimension_limit: how many columns count, an int64 number; -1 stands behind the rows that are assigned. None: all.
    """
    limit = Tensor(sys.maxsize) if dimension_limit is None else dimension_limit
    return LinearSumAssignment()(cost_matrix, limit, maximize)
