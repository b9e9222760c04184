"""The steps of optimizers as operators: `ops.Adam`, `ops.ApplyMomentum`, `ops.SparseApplyFtrl`, …

Scripts that write their own optimizers call them with a Parameter, its state and a gradient. Each is a formula on arrays
that gives the new values; the class form writes them to the Parameters and Tensors it was called with. The formulas are
those of the optimizers of `nn`. Numbers such as learning rates may be numbers or Tensors, and never change the compiled
program. Sparse forms move only the rows that `indices` names, each of them once.

A rule is written once. The ones that parameter servers know are in `base.update_rules`, in whose form others are here that the
optimizers of `nn` compute with, too, wherever their order of operations is the same, since no number may change by a bit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import For, named
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, Operand, check, operator

_Values = tuple[Any, ...]
_Settings = dict[str, Any]
"""New values, in any dtype."""


def _update(form: str, states: str, returns: str = "") -> Callable[[Callable[..., _Values]], Callable[..., _Values]]:
    """Register the class form of a formula.

    Args:
        form: its name and what its constructor takes, as for `operator`.
        states: names of the parameters that are written; the formula gives their new values first, in this order. Where it
            has a parameter ``indices``, it is given those rows of them and gives the new rows.
        returns: names of those whose new values the call returns, all by default; "step" for what the formula gives last.
    """
    written = states.split()
    returned = (returns or states).split()
    name = form.split("(")[0]

    def register(formula: Callable[..., _Values]) -> Callable[..., _Values]:
        signature = inspect.signature(formula)

        @functools.wraps(formula)
        def compute(*args: Any, **kwargs: Any) -> tuple[Array, ...]:
            arguments = signature.bind(*args, **kwargs).arguments
            gradient = _check_shapes(name, written, arguments)
            rows = arguments.get("indices")
            old = {state: arguments[state] for state in written}
            if rows is not None:
                arguments.update((state, value[rows]) for state, value in old.items())
            # In the dtypes of the old ones; what is no state has that of the gradient.
            pairs = zip((*old.values(), gradient), formula(**arguments), strict=False)
            moved = [(state, jnp.asarray(new, state.dtype)) for state, new in pairs]
            return tuple(new if rows is None else state.at[rows].set(new) for state, new in moved)

        compiled = operator(function="")(compute)
        compiled.name = name

        @functools.wraps(formula)
        def run(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            for state in written:
                For(name).typed(state, arguments[state], "a Parameter or a Tensor", Tensor)
            values = compiled(*args, **kwargs)
            for state, value in zip(written, values, strict=False):
                arguments[state]._replace(value.array)
            results = {**dict(zip(written, values, strict=False)), "step": values[-1]}
            chosen = tuple(results[name] for name in returned)
            return chosen[0] if len(chosen) == 1 else chosen

        operator(form, function="", composed=True)(run)
        return formula

    return register


def _check_shapes(name: str, states: list[str], arguments: _Settings) -> Array:
    """State and Parameter have one shape, and so have the gradient, which is given, or in a sparse form its rows."""
    shape = arguments[states[0]].shape
    gradient = next(label for label in ("grad", "gradient", "delta") if label in arguments)
    rows = arguments.get("indices")
    if rows is not None:
        check.integral(name, indices=rows)
    expected = shape if rows is None else (rows.size, *shape[1:])
    for label, required in (*((state, shape) for state in states[1:]), (gradient, expected)):
        if arguments[label].shape != required:
            raise For(name).error(f"{named(label)} must have shape {required}", arguments[label].shape)
    return arguments[gradient]


def _adam_step(
    gradient: Array, *arrays: Array, powers: tuple[Operand, Operand], rate: Operand, beta1: Operand, beta2: Operand,
    epsilon: Operand, nesterov: bool = False,
) -> _Values:  # fmt: skip
    """New Parameter and moments."""
    rate = rate * jnp.sqrt(1 - jnp.asarray(powers[1])) / (1 - powers[0])
    rests = {"rest1": 1 - beta1, "rest2": 1 - beta2}
    settings: _Settings = {"rate": rate, "beta1": beta1, "beta2": beta2, **rests, "eps": epsilon}
    return update_rules.adam_of(jnp, gradient, *arrays, **settings, nesterov=nesterov)


@_update("Adam(use_locking, use_nesterov)", "var m v")
def _adam(
    var: Array, m: Array, v: Array, beta1_power: Operand, beta2_power: Operand, lr: Operand, beta1: Operand, beta2: Operand,
    epsilon: Operand, gradient: Array, use_locking: bool = False, use_nesterov: bool = False,
) -> _Values:  # fmt: skip
    """A step of Adam (Kingma & Ba 2014); `beta1_power` is `beta1` to the power of the number of the step."""
    settings: _Settings = {"rate": lr, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "nesterov": use_nesterov}
    return _adam_step(gradient, var, m, v, powers=(beta1_power, beta2_power), **settings)


@_update("AdamNoUpdateParam(use_locking, use_nesterov)", "m v", "step")
def _adam_no_update(
    m: Array, v: Array, beta1_power: Operand, beta2_power: Operand, lr: Operand, beta1: Operand, beta2: Operand,
    epsilon: Operand, gradient: Array, use_locking: bool = False, use_nesterov: bool = False,
) -> _Values:  # fmt: skip
    """What a step of Adam adds to a Parameter, which is not changed; the moments are."""
    settings: _Settings = {"rate": lr, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "nesterov": use_nesterov}
    step, new_m, new_v = _adam_step(gradient, jnp.zeros_like(m), m, v, powers=(beta1_power, beta2_power), **settings)
    return new_m, new_v, step


@_update("AdamWeightDecay(use_locking)", "var m v")
def _adam_weight_decay(
    var: Array, m: Array, v: Array, lr: Operand, beta1: Operand, beta2: Operand, epsilon: Operand, decay: Operand,
    gradient: Array, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """A step of Adam with decoupled weight decay and without bias correction (Loshchilov & Hutter 2017)."""
    new_m = beta1 * m + (1 - beta1) * gradient
    new_v = beta2 * v + (1 - beta2) * jnp.square(gradient)
    step = new_m / (jnp.sqrt(new_v) + epsilon) + decay * var
    return var - lr * step, new_m, new_v


@_update("FusedCastAdamWeightDecay(use_locking)", "var m v")
def _cast_adam_weight_decay(
    var: Array, m: Array, v: Array, lr: Operand, beta1: Operand, beta2: Operand, epsilon: Operand, decay: Operand,
    gradient: Array, norm: Operand = 1.0, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """As `AdamWeightDecay` for a Parameter in float16 with its state in float32; the gradient is divided by `norm` first."""
    wide = gradient.astype(m.dtype) / norm
    return _adam_weight_decay(var.astype(m.dtype), m, v, lr, beta1, beta2, epsilon, decay, wide)


@_update("ApplyAdamWithAmsgradV2(use_locking)", "var m v vhat")
def _amsgrad_v2(
    var: Array, m: Array, v: Array, vhat: Array, beta1_power: Operand, beta2_power: Operand, lr: Operand, beta1: Operand,
    beta2: Operand, epsilon: Operand, grad: Array, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """A step of Adam that divides by the largest second moment so far (Reddi et al. 2018)."""
    settings: _Settings = {"rate": lr, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    return _adam_step(grad, var, m, v, vhat, powers=(beta1_power, beta2_power), **settings)


@_update("ApplyAdamWithAmsgrad(beta1, beta2, epsilon, use_locking)", "var m v vhat")
def _amsgrad(
    var: Array, m: Array, v: Array, vhat: Array, beta1_power: Operand, beta2_power: Operand, lr: Operand, grad: Array,
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """As `ApplyAdamWithAmsgradV2`, with the constants given to the constructor."""
    return _amsgrad_v2(var, m, v, vhat, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad)


@_update("ApplyAdaMax()", "var m v")
def _adamax(
    var: Array, m: Array, v: Array, beta1_power: Operand, lr: Operand, beta1: Operand, beta2: Operand, epsilon: Operand,
    grad: Array,
) -> _Values:  # fmt: skip
    """A step of AdaMax (Kingma & Ba 2014): Adam with the largest gradient in place of the second moment."""
    new_m = beta1 * m + (1 - beta1) * grad
    new_v = jnp.maximum(beta2 * v, jnp.abs(grad))
    return var - lr / (1 - beta1_power) * new_m / (new_v + epsilon), new_m, new_v


@_update("ApplyGradientDescent()", "var")
def _gradient_descent(var: Array, alpha: Operand, delta: Array) -> _Values:
    """``var - alpha · delta``."""
    return (var - alpha * delta,)


@_update("ApplyProximalGradientDescent()", "var")
def _proximal_descent(var: Array, alpha: Operand, l1: Operand, l2: Operand, delta: Array) -> _Values:
    """A step along `delta`, then one towards zero with the penalties `l1` and `l2`."""
    return (_shrunk(var - alpha * delta, alpha, l1, l2),)


def _shrunk(moved: Array, rate: Operand, l1: Operand, l2: Operand) -> Array:
    # A penalty that is 0 for good leaves the signs alone, which would only cost.
    has_l1 = not isinstance(l1, float) or l1 > 0
    shrunk = jnp.sign(moved) * jnp.maximum(jnp.abs(moved) - rate * l1, 0) if has_l1 else moved
    return shrunk / (1 + rate * l2)


@_update("ApplyMomentum(use_nesterov, use_locking, gradient_scale)", "variable accumulation", "variable")
def _momentum(
    variable: Array, accumulation: Array, learning_rate: Operand, gradient: Array, momentum: Operand,
    use_nesterov: bool = False, use_locking: bool = False, gradient_scale: float = 1.0,
) -> _Values:  # fmt: skip
    """A step with momentum (Sutskever et al. 2013); the gradient is multiplied by `gradient_scale` first."""
    settings: _Settings = {"rate": learning_rate, "momentum": momentum, "nesterov": use_nesterov}
    return update_rules.momentum(jnp, gradient * gradient_scale, variable, accumulation, **settings)


@_update("FusedWeightScaleApplyMomentum()", "variable accumulation", "variable")
def _weight_scale_momentum(
    weight_decay: Operand, loss_scale: Operand, variable: Array, accumulation: Array, learning_rate: Operand, gradient: Array,
    momentum: Operand,
) -> _Values:  # fmt: skip
    """A step with momentum of ``(gradient + weight_decay * variable) * loss_scale``; the scale is the inverse of the loss's."""
    scaled = (gradient + weight_decay * variable) * loss_scale
    settings: _Settings = {"rate": learning_rate, "momentum": momentum}
    return update_rules.momentum(jnp, scaled, variable, accumulation, **settings)


@_update("ApplyKerasMomentum(use_locking, use_nesterov)", "var accum")
def _keras_momentum(
    var: Array, accum: Array, lr: Operand, grad: Array, momentum: Operand, use_locking: bool = False,
    use_nesterov: bool = False,
) -> _Values:  # fmt: skip
    """A step with momentum, where the velocity holds the learning rate."""
    velocity = momentum * accum - lr * grad
    return var + (momentum * velocity - lr * grad if use_nesterov else velocity), velocity


@_update("SGD(dampening, weight_decay, nesterov)", "parameters accum stat", "parameters")
def _sgd(
    parameters: Array, gradient: Array, learning_rate: Operand, accum: Array, momentum: Operand, stat: Array,
    dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False,
) -> _Values:  # fmt: skip
    """Gradient descent with momentum; where `stat` is above 0 (at the first step) the velocity is the gradient."""
    For("SGD").refuse(nesterov and dampening, "'nesterov' needs 'dampening' 0", dampening)
    gradient = gradient + weight_decay * parameters
    settings: _Settings = {"rate": learning_rate, "momentum": momentum, "dampening": dampening, "nesterov": nesterov}
    return update_rules.sgd(jnp, gradient, parameters, accum, stat, **settings)


@_update("ApplyAddSign()", "var m")
def _add_sign(
    var: Array, m: Array, lr: Operand, alpha: Operand, sign_decay: Operand, beta: Operand, grad: Array
) -> _Values:
    """A step that is longer where gradient and momentum agree (Bello et al. 2017)."""
    new_m = beta * m + (1 - beta) * grad
    return var - lr * (alpha + sign_decay * jnp.sign(grad) * jnp.sign(new_m)) * grad, new_m


@_update("ApplyPowerSign()", "var m")
def _power_sign(
    var: Array, m: Array, lr: Operand, logbase: Operand, sign_decay: Operand, beta: Operand, grad: Array
) -> _Values:
    """A step that is longer, by a power, where gradient and momentum agree (Bello et al. 2017)."""
    new_m = beta * m + (1 - beta) * grad
    return var - lr * jnp.exp(logbase * sign_decay * jnp.sign(grad) * jnp.sign(new_m)) * grad, new_m


@operator("LARSUpdate(epsilon, hyperpara, use_clip)", function="")
def _lars(
    weight: Array, gradient: Array, norm_weight: Array, norm_gradient: Array, weight_decay: Operand, learning_rate: Operand,
    epsilon: float = 1e-5, hyperpara: float = 0.001, use_clip: bool = False,
) -> Array:  # fmt: skip
    """The gradient of a layer, with weight decay, at the scale of its weights (You et al. 2017).

    `norm_weight` and `norm_gradient` are the sums of squares of both. With `use_clip` the scale is at most the learning rate.
    """
    check.same_dtype("LARSUpdate", weight=weight, gradient=gradient)
    norms = jnp.sqrt(norm_weight), jnp.sqrt(norm_gradient)
    return lars(weight, gradient, norms, weight_decay, learning_rate, epsilon, hyperpara, use_clip)


def lars(
    weight: Array, gradient: Array, norms: tuple[Array, Array], decay: Operand, rate: Operand, epsilon: float, coefficient: float,
    use_clip: bool,
) -> Array:  # fmt: skip
    """The gradient that LARS gives another rule; `norms` are those of weight and gradient, scalars."""
    size, slope = norms
    trust = coefficient * size / (slope + decay * size + epsilon)
    # A Parameter of zeros would stop to learn.
    trust = jnp.where((size > 0) & (slope > 0), trust, 1.0)
    if use_clip:
        trust = jnp.minimum(trust / rate, 1.0)
    return (trust * (gradient + decay * weight)).astype(gradient.dtype)


def _adagrad_step(
    var: Array, accum: Array, lr: Operand, grad: Array, update_slots: bool, outside: float, inside: float
) -> _Values:
    """New values; small numbers are added to the root of the sum of squares, or to the sum."""
    squares = accum + jnp.square(grad) if update_slots else accum
    return var - lr * grad / (jnp.sqrt(squares + inside) + outside), squares


@_update("ApplyAdagrad(update_slots)", "var accum")
def _adagrad(var: Array, accum: Array, lr: Operand, grad: Array, update_slots: bool = True) -> _Values:
    """A step of Adagrad (Duchi et al. 2011); without `update_slots` the sum of squares stays as it is."""
    return _adagrad_step(var, accum, lr, grad, update_slots, 0, 0)


@_update("ApplyAdagradV2(epsilon, update_slots)", "var accum")
def _adagrad_v2(
    var: Array, accum: Array, lr: Operand, grad: Array, epsilon: float, update_slots: bool = True
) -> _Values:
    """As `ApplyAdagrad`, with `epsilon` added to the root."""
    return _adagrad_step(var, accum, lr, grad, update_slots, epsilon, 0)


@_update("SparseApplyAdagradV2(lr, epsilon, use_locking, update_slots)", "var accum")
def _sparse_adagrad(
    var: Array, accum: Array, grad: Array, indices: Array, lr: float, epsilon: float, use_locking: bool = False,
    update_slots: bool = True,
) -> _Values:  # fmt: skip
    """A step of Adagrad for the rows `indices`; `epsilon` is added to the sum of squares, not to its root."""
    return _adagrad_step(var, accum, lr, grad, update_slots, 0, epsilon)


@_update("ApplyAdagradDA(use_locking)", "var gradient_accumulator gradient_squared_accumulator", "var")
def _adagrad_da(
    var: Array, gradient_accumulator: Array, gradient_squared_accumulator: Array, grad: Array, lr: Operand, l1: Operand,
    l2: Operand, global_step: Operand, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """A step of Adagrad with dual averaging (Duchi et al. 2011, section 2)."""
    total = gradient_accumulator + grad
    squares = gradient_squared_accumulator + jnp.square(grad)
    shrunk = jnp.sign(total) * jnp.maximum(jnp.abs(total) - l1 * global_step, 0)
    new = -lr * jnp.where(jnp.asarray(l1) > 0, shrunk, total) / (l2 * global_step * lr + jnp.sqrt(squares))
    return new, total, squares


def shrinking_adagrad(
    xp: ModuleType, gradient: Array, parameter: Array, squares: Array, *, rate: Operand, l1: Operand, l2: Operand
) -> _Values:
    """A step of Adagrad, then one towards zero with the penalties `l1` and `l2` (Duchi & Singer 2009)."""
    squares = squares + xp.square(gradient)
    rate = rate / xp.sqrt(squares)
    return _shrunk(parameter - rate * gradient, rate, l1, l2), squares


@_update("ApplyProximalAdagrad(use_locking)", "var accum")
def _proximal_adagrad(
    var: Array, accum: Array, lr: Operand, l1: Operand, l2: Operand, grad: Array, use_locking: bool = False
) -> _Values:
    """A step of Adagrad, then one towards zero with the penalties `l1` and `l2` (Duchi & Singer 2009)."""
    return shrinking_adagrad(jnp, grad, var, accum, rate=lr, l1=l1, l2=l2)


@_update("SparseApplyProximalAdagrad(use_locking)", "var accum")
def _sparse_proximal_adagrad(
    var: Array, accum: Array, lr: Operand, l1: Operand, l2: Operand, grad: Array, indices: Array, use_locking: bool = False
) -> _Values:  # fmt: skip
    """As `ApplyProximalAdagrad`, for the rows `indices`."""
    return shrinking_adagrad(jnp, grad, var, accum, rate=lr, l1=l1, l2=l2)


@_update("ApplyFtrl(use_locking)", "var accum linear", "var")
def _ftrl(
    var: Array, accum: Array, linear: Array, grad: Array, lr: Operand, l1: Operand, l2: Operand, lr_power: Operand,
    use_locking: bool = False,
) -> _Values:  # fmt: skip
    """A step of follow the regularised leader (McMahan et al. 2013)."""
    settings: _Settings = {"rate": lr, "power": -lr_power, "l1": l1, "l2": l2}
    return update_rules.ftrl(jnp, grad, var, accum, linear, **settings)


@_update("SparseApplyFtrl(lr, l1, l2, lr_power, use_locking)", "var accum linear")
def _sparse_ftrl(
    var: Array, accum: Array, linear: Array, grad: Array, indices: Array, lr: float, l1: float, l2: float,
    lr_power: float, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """As `ApplyFtrl`, for the rows `indices`."""
    return _ftrl(var, accum, linear, grad, lr, l1, l2, lr_power)


@_update("ApplyAdadelta()", "var accum accum_update")
def _adadelta(
    var: Array, accum: Array, accum_update: Array, lr: Operand, rho: Operand, epsilon: Operand, grad: Array
) -> _Values:
    """A step of Adadelta (Zeiler 2012)."""
    squares = rho * accum + (1 - rho) * jnp.square(grad)
    step = jnp.sqrt(accum_update + epsilon) * grad / jnp.sqrt(squares + epsilon)
    return var - lr * step, squares, rho * accum_update + (1 - rho) * jnp.square(step)


@_update("SparseApplyAdadelta(epsilon, use_locking)", "var accum accum_update")
def _sparse_adadelta(
    var: Array, accum: Array, accum_update: Array, lr: Operand, rho: Operand, grad: Array, indices: Array, epsilon: float,
    use_locking: bool = False,
) -> _Values:  # fmt: skip
    """As `ApplyAdadelta`, for the rows `indices`."""
    return _adadelta(var, accum, accum_update, lr, rho, epsilon, grad)


def rmsprop(
    xp: ModuleType,
    gradient: Array,
    parameter: Array,
    *state: Array,
    rate: Operand,
    share: Operand,
    momentum: Operand,
    epsilon: Operand,
) -> _Values:
    """RMSProp (Tieleman & Hinton 2012) with momentum; by the variance (Graves 2013), where the state has the mean gradient."""
    *means, squares, moment = state
    means = [share * mean + (1 - share) * gradient for mean in means]
    squares = share * squares + (1 - share) * xp.square(gradient)
    spread = squares - xp.square(means[0]) if means else squares
    step = momentum * moment + rate * gradient / xp.sqrt(spread + epsilon)
    return parameter - step, *means, squares, step


@_update("ApplyRMSProp(use_locking)", "var mean_square moment", "var")
def _rmsprop(
    var: Array, mean_square: Array, moment: Array, learning_rate: Operand, grad: Array, decay: Operand, momentum: Operand,
    epsilon: Operand, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """A step of RMSProp (Tieleman & Hinton 2012) with momentum."""
    settings = {"rate": learning_rate, "share": decay, "momentum": momentum, "epsilon": epsilon}
    return rmsprop(jnp, grad, var, mean_square, moment, **settings)


@_update("SparseApplyRMSProp(rho, momentum, epsilon, use_locking)", "var ms mom")
def _sparse_rmsprop(
    var: Array, ms: Array, mom: Array, lr: Operand, grad: Array, indices: Array, rho: float, momentum: float,
    epsilon: float, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """As `ApplyRMSProp`, for the rows `indices`."""
    return rmsprop(jnp, grad, var, ms, mom, rate=lr, share=rho, momentum=momentum, epsilon=epsilon)


@_update("ApplyCenteredRMSProp(use_locking)", "var mean_gradient mean_square moment", "var")
def _centered_rmsprop(
    var: Array, mean_gradient: Array, mean_square: Array, moment: Array, grad: Array, learning_rate: Operand,
    decay: Operand, momentum: Operand, epsilon: Operand, use_locking: bool = False,
) -> _Values:  # fmt: skip
    """A step of RMSProp that divides by an estimate of the variance (Graves 2013)."""
    settings = {"rate": learning_rate, "share": decay, "momentum": momentum, "epsilon": epsilon}
    return rmsprop(jnp, grad, var, mean_gradient, mean_square, moment, **settings)
