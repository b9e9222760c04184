"""What is compared between `sporax.mindspore.mint`, `mindspore.mint` and PyTorch, whose names and arguments `mint` has.

Every recipe is an expression in which `nn`, `F`, `mint` and `optim` are one framework's modules, and its inputs. The
framework itself hides behind an adapter: MindSpore and Sporax share the one below; PyTorch's is in the recorder
(tools/golden/make_mint.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

STEPS = 10


def x(*shape: int, phase: float = 0.0, scale: float = 1.0) -> np.ndarray:
    """Float32 numbers between -scale and scale."""
    return (scale * np.sin(1.7 * np.arange(math.prod(shape)) + phase)).astype(np.float32).reshape(shape)


def positive(*shape: int) -> np.ndarray:
    """Float32 numbers in (0, 1)."""
    return (0.5 + 0.45 * x(*shape)).astype(np.float32)


def i(*values: int) -> np.ndarray:
    """Integers."""
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Recipe:
    """One layer or function.

    Attributes:
        code: makes the layer, or the function of the inputs.
        inputs: numpy arrays.
        train: in training mode.
        grad: whether gradients are compared.
        with_respect_to: the gradients of how many floating inputs, besides those of all Parameters.
        calls: how often the layer is called before it is compared, for moving statistics.
    """

    code: str
    inputs: tuple[np.ndarray, ...]
    train: bool = False
    grad: bool = True
    with_respect_to: int = 9
    calls: int = 1


def recipe(code: str, *inputs: np.ndarray, **settings: Any) -> Recipe:
    return Recipe(code, inputs, **settings)


_IMAGE, _VOLUME, _ROW = x(2, 4, 5, 6), x(1, 2, 3, 4, 5), x(2, 4, 7)
_TARGET = x(3, 4, phase=1.0)

_ACTIVATIONS = (
    "ReLU()", "ReLU6()", "ELU()", "ELU(0.5)", "SELU()", "GELU()", "GELU(approximate='tanh')", "GLU()", "GLU(1)", "SiLU()",
    "Mish()", "Sigmoid()", "LogSigmoid()", "Tanh()", "Hardtanh()", "Hardtanh(-0.5, 0.25)", "Hardsigmoid()", "Hardswish()",
    "Hardshrink()", "Hardshrink(0.3)", "Softshrink()", "Softshrink(0.2)", "Softmax(0)", "Softmax(dim=-1)", "LogSoftmax(1)",
    "Threshold(0.1, 2.0)", "PReLU()", "PReLU(4, 0.1)", "Identity(3, a=2)", "Flatten()", "Flatten(0, 1)",
)  # fmt: skip

LAYERS: dict[str, Recipe] = {code: recipe(f"nn.{code}", x(2, 4, 6, scale=4.0)) for code in _ACTIVATIONS}
LAYERS |= {
    each.code.removeprefix("nn."): each
    for each in (
        recipe("nn.Linear(3, 4)", x(2, 5, 3)),
        recipe("nn.Linear(3, 4, bias=False)", x(3)),
        recipe("nn.Embedding(5, 3)", i(0, 4, 4, 1)),
        recipe("nn.Embedding(5, 3, padding_idx=-1)", i(0, 4, 4, 1)),
        recipe("nn.Embedding(5, 3, scale_grad_by_freq=True)", i(0, 4, 4, 1)),
        recipe("nn.Conv1d(4, 6, 3)", _ROW),
        recipe("nn.Conv1d(4, 6, 3, 2, 1, 2, 2, bias=False)", _ROW),
        recipe("nn.Conv1d(4, 2, 4, padding='same', padding_mode='circular')", _ROW),
        recipe("nn.Conv2d(4, 6, 3)", _IMAGE),
        recipe("nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2)", _IMAGE),
        recipe("nn.Conv2d(4, 2, (2, 3), padding='same')", _IMAGE),
        recipe("nn.Conv2d(4, 2, 3, padding='valid')", _IMAGE),
        recipe("nn.Conv2d(4, 2, 3, padding=(1, 2), padding_mode='reflect')", _IMAGE),
        recipe("nn.Conv2d(4, 2, (2, 3), padding='same', padding_mode='replicate')", _IMAGE),
        recipe("nn.Conv3d(2, 2, 2, padding=1)", _VOLUME),
        recipe("nn.Conv3d(2, 2, (1, 2, 3), stride=2, groups=2)", _VOLUME),
        recipe("nn.ConvTranspose2d(4, 6, 3)", _IMAGE),
        recipe("nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, dilation=2)", _IMAGE),
        recipe("nn.BatchNorm1d(4)", x(3, 4), train=True, calls=2),
        recipe("nn.BatchNorm1d(4)", _ROW),
        recipe("nn.BatchNorm2d(4, 1e-3, 0.3)", _IMAGE, train=True, calls=2),
        recipe("nn.BatchNorm2d(4, momentum=None)", _IMAGE, train=True, calls=3),
        recipe("nn.BatchNorm2d(4, affine=False)", _IMAGE, train=True),
        recipe("nn.BatchNorm2d(4, track_running_stats=False)", _IMAGE),
        recipe("nn.BatchNorm3d(2)", _VOLUME, train=True),
        recipe("nn.LayerNorm(6)", _IMAGE),
        recipe("nn.LayerNorm((5, 6), 1e-3, bias=False)", _IMAGE),
        recipe("nn.LayerNorm([5, 6], elementwise_affine=False)", _IMAGE),
        recipe("nn.GroupNorm(2, 4)", _IMAGE),
        recipe("nn.GroupNorm(4, 4, 1e-3)", _ROW),
        recipe("nn.AdaptiveAvgPool1d(3)", _ROW),
        recipe("nn.AdaptiveAvgPool2d((2, None))", _IMAGE),
        recipe("nn.AdaptiveAvgPool3d((2, 2, 3))", _VOLUME),
        recipe("nn.AdaptiveMaxPool1d(3)", _ROW),
        recipe("nn.AdaptiveMaxPool2d(2, True)", _IMAGE, grad=False),
        recipe("nn.AvgPool1d(2)", _ROW),
        recipe("nn.AvgPool1d(3, 2, 1, True, False)", _ROW),
        recipe("nn.AvgPool2d(2)", _IMAGE),
        recipe("nn.AvgPool2d((2, 3), (2, 1), 1, True, divisor_override=5)", _IMAGE),
        recipe("nn.AvgPool3d(2, padding=1, count_include_pad=False)", _VOLUME),
        recipe("nn.MaxPool2d(2)", _IMAGE),
        recipe("nn.MaxPool2d((3, 2), 1, 1, ceil_mode=True)", _IMAGE),
        recipe("nn.MaxPool2d(3, 2, return_indices=True)", _IMAGE, grad=False),
        recipe("nn.MaxUnpool2d(2)", x(1, 1, 1, 2), i(0, 7).reshape(1, 1, 1, 2)),
        recipe("nn.ConstantPad1d(1, 2.0)", x(2, 3)),
        recipe("nn.ConstantPad2d((1, 2, 0, -1), 0.5)", x(2, 3, 4)),
        recipe("nn.ConstantPad3d(1, -1.0)", x(1, 2, 2, 2)),
        recipe("nn.ZeroPad1d((2, 0))", x(2, 3)),
        recipe("nn.ZeroPad2d(1)", x(1, 2, 3)),
        recipe("nn.ZeroPad3d(1)", x(1, 2, 2, 2)),
        recipe("nn.ReflectionPad1d((2, 1))", x(1, 2, 4)),
        recipe("nn.ReflectionPad2d(1)", x(1, 2, 3, 4)),
        recipe("nn.ReflectionPad3d(1)", x(1, 1, 2, 3, 4)),
        recipe("nn.ReplicationPad1d((2, 1))", x(1, 2, 4)),
        recipe("nn.ReplicationPad2d((1, 0, 2, 1))", x(1, 2, 3, 4)),
        recipe("nn.ReplicationPad3d(1)", x(1, 1, 2, 3, 2)),
        recipe("nn.PixelShuffle(2)", x(1, 8, 2, 3)),
        recipe("nn.Unfold((2, 3), padding=1, stride=2)", _IMAGE),
        recipe("nn.Fold((4, 5), (2, 2))", x(1, 8, 12)),
        recipe("nn.Fold((4, 5), 2, dilation=2, padding=1, stride=2)", x(1, 4, 6)),
        recipe("nn.Upsample(scale_factor=2.0)", x(1, 2, 2, 3)),
        recipe("nn.Upsample((3, 5), mode='bilinear')", x(1, 2, 2, 3)),
        recipe("nn.Upsample(5, mode='linear', align_corners=True)", x(1, 2, 3)),
        recipe("nn.Upsample(scale_factor=1.5, mode='bicubic')", x(1, 1, 4, 4)),
        recipe("nn.UpsamplingNearest2d(size=(3, 3))", x(1, 1, 2, 2)),
        recipe("nn.UpsamplingBilinear2d(scale_factor=2)", x(1, 1, 2, 3)),
        recipe("nn.BCELoss()", positive(3, 4), positive(4, 3).reshape(3, 4)),
        recipe("nn.BCELoss(reduction='sum')", positive(3, 4), positive(3, 4)),
        recipe("nn.BCEWithLogitsLoss()", x(3, 4), positive(3, 4)),
        recipe("nn.CrossEntropyLoss()", x(3, 4), i(0, 3, 1)),
        recipe("nn.CrossEntropyLoss(ignore_index=3, reduction='sum', label_smoothing=0.1)", x(3, 4), i(0, 3, 1)),
        recipe("nn.CrossEntropyLoss(reduction='none')", x(3, 4), positive(3, 4)),
        recipe("nn.NLLLoss()", x(3, 4), i(0, 3, 1)),
        recipe("nn.NLLLoss(ignore_index=0, reduction='none')", x(3, 4), i(0, 3, 1)),
        recipe("nn.KLDivLoss()", x(3, 4), positive(3, 4)),
        recipe("nn.KLDivLoss(reduction='batchmean', log_target=True)", x(3, 4), _TARGET),
        recipe("nn.L1Loss()", x(3, 4), _TARGET),
        recipe("nn.MSELoss(reduction='sum')", x(3, 4), _TARGET),
        recipe("nn.SmoothL1Loss(reduction='none', beta=0.5)", x(3, 4), _TARGET),
        recipe("nn.SmoothL1Loss()", x(3, 4), _TARGET),
        recipe("nn.SoftMarginLoss()", x(3, 4), np.sign(_TARGET)),
        recipe("nn.CosineEmbeddingLoss(0.2)", x(3, 4), _TARGET, i(1, -1, 1)),
    )
}

LAYERS |= {name: replace(each, with_respect_to=1) for name, each in LAYERS.items() if "Loss" in name}

_ONES = np.ones(4, np.float32)
FUNCTIONS: dict[str, Recipe] = {
    each.code.partition(": ")[2]: each
    for each in (
        recipe("lambda a: F.layer_norm(a, (3, 2))", x(4, 3, 2)),
        recipe("lambda a, w, b: F.layer_norm(a, (6,), w, b, 1e-3)", x(4, 6), x(6), x(6, phase=1.0)),
        recipe("lambda a, m, v: F.batch_norm(a, m, v)", x(3, 4), x(4), _ONES, with_respect_to=1),
        recipe(
            "lambda a, m, v, w, b: F.batch_norm(a, m, v, w, b, False, 0.1, 1e-3)",
            *(_IMAGE, x(4), positive(4), x(4, phase=2.0), x(4)),
            with_respect_to=1,
        ),
        recipe("lambda a, w: F.batch_norm(a, None, None, w, training=True)", _ROW, x(4)),
        recipe("lambda a: F.group_norm(a, 2)", _ROW),
        recipe("lambda a: F.flatten(a)", x(2, 3)),
        recipe("lambda a: F.flatten(a, 1, 2)", x(2, 3, 2, 2)),
        recipe("lambda a: F.one_hot(a)", i(0, 2, 1), grad=False),
        recipe("lambda a: F.one_hot(a, 5)", i(0, 2), grad=False),
        recipe("lambda a: F.dropout(a, 0.5, False)", x(3)),
        recipe("lambda a: F.normalize(a)", x(2, 3)),
        recipe("lambda a: F.leaky_relu(a)", x(5)),
        recipe("lambda a: F.softplus(a)", x(5)),
        recipe("lambda a: F.logsigmoid(a)", x(5)),
        recipe("lambda a, g: F.grid_sample(a, g, align_corners=False)", x(1, 1, 3, 3), x(1, 2, 2, 2, phase=0.3)),
        recipe("lambda a: F.pad(a, (1, 2), mode='circular')", x(1, 2, 4)),
        recipe("lambda a: F.interpolate(a, scale_factor=2.0)", x(1, 1, 2, 2)),
        recipe("lambda a, b: F.binary_cross_entropy_with_logits(a, b, reduction='sum')", x(4), positive(4)),
        recipe("lambda a: mint.max(a)", x(2, 3)),
        recipe("lambda a: mint.max(a, 1)", x(2, 3), grad=False),
        recipe("lambda a: mint.max(a, dim=0, keepdim=True)", x(2, 3), grad=False),
        recipe("lambda a, b: mint.max(a, b)", x(2, 3), x(2, 3, phase=1.0)),
        recipe("lambda a: mint.min(a, -1)", x(2, 3), grad=False),
        recipe("lambda a, b: mint.min(a, b)", x(3), x(3, phase=1.0)),
        recipe("lambda a: mint.swapaxes(a, 0, -1)", x(2, 3, 4)),
        recipe("lambda a: mint.clone(a)", x(2)),
        recipe("lambda a, b, c: mint.addcmul(a, b, c, value=2)", x(3), x(3, phase=1.0), x(3, phase=2.0)),
        recipe("lambda a: mint.fix(a)", x(5, scale=4.0), grad=False),
        recipe("lambda a, b: mint.ge(a, b)", x(3), x(3, phase=1.0), grad=False),
        recipe("lambda a: mint.isnan(a)", np.array([0.0, np.nan], np.float32), grad=False),
        recipe("lambda a: mint.unique(a)", i(3, 1, 3, 2), grad=False),
        recipe("lambda a: mint.unique(a, True, True, True)", i(3, 1, 3, 2).reshape(2, 2), grad=False),
        recipe("lambda a: mint.unique(a, dim=0, return_counts=True)", i(1, 2, 1, 2, 0, 5).reshape(3, 2), grad=False),
        recipe("lambda a, w, b: mint.conv_tbc(a, w, b, 1)", x(5, 2, 3), x(3, 3, 4), x(4)),
        recipe("lambda a, w: F.conv2d(a, w, padding=1)", x(1, 2, 3, 3), x(2, 2, 3, 3)),
        recipe("lambda a: mint.zeros((2, 3)) + a", x(3)),
        recipe("lambda a: mint.ones(3) + a", x(3)),
        recipe("lambda a: mint.full((2,), 3)", x(1), grad=False),
        recipe("lambda a: mint.full((2,), 1.5)", x(1), grad=False),
        recipe("lambda a: mint.full((), True)", x(1), grad=False),
        recipe("lambda a: mint.full_like(a, 2)", x(2), grad=False),
        recipe("lambda a: mint.arange(4)", x(1), grad=False),
        recipe("lambda a: mint.arange(1, 2, 0.25)", x(1), grad=False),
        recipe("lambda a: mint.arange(5, 1, -2)", x(1), grad=False),
        recipe("lambda a: mint.linspace(0, 1, 5)", x(1), grad=False),
        recipe("lambda a: mint.eye(2, 3)", x(1), grad=False),
        recipe("lambda a: F.relu_(mint.clone(a))", x(4), grad=False),
        recipe("lambda a: F.elu_(mint.clone(a), 0.5)", x(4), grad=False),
        recipe("lambda a: F.hardtanh_(mint.clone(a), -0.5, 0.5)", x(4), grad=False),
        recipe("lambda a: F.threshold_(mint.clone(a), 0.1, 7.0)", x(4), grad=False),
        recipe("lambda a: mint.linalg.inv(a)", x(3, 3) + np.eye(3, dtype=np.float32)),
        recipe("lambda a: mint.linalg.vector_norm(a, 3, dim=1, keepdim=True)", x(3, 3)),
        recipe("lambda a: mint.linalg.matrix_norm(a, 1, dim=(0, 1))", x(3, 3)),
        recipe("lambda a: mint.special.log_softmax(a, dim=0)", x(4)),
        recipe("lambda a: mint.special.sinc(a)", x(4)),
    )
}

#: More functions, of a float32 matrix `a` (3, 4), another `b`, positive `p` in (0, 1), a vector `v` (4,), integers `k`.
_OF_ALL = """
abs(a) acos(a) arccos(a) acosh(a + 2) arccosh(a + 2) asin(a) arcsin(a) asinh(a) arcsinh(a) atan(a) arctan(a) atanh(a / 2)
arctanh(a / 2) ceil(4 * a) cos(a) cosh(a) erf(a) erfc(a) erfinv(a / 2) exp(a) exp2(a) expm1(a) floor(4 * a) frac(4 * a)
log(p) log10(p) log1p(p) log2(p) neg(a) negative(a) reciprocal(p) round(4 * a) rsqrt(p) sigmoid(a) sign(a) sin(a) sinc(a)
sinh(a) sqrt(p) square(a) tan(a) tanh(a) trunc(4 * a) isfinite(a / (a - a[0])) isinf(a / (a - a[0])) isneginf(a / (a - a[0]))
isnan(a / (a - a[0])) nan_to_num(a / (a - a[0])) logical_not(k) bitwise_not(k) xlogy(p, b * b)
add(a,b) add(a,b,alpha=2) sub(a,b) sub(a,b,alpha=2) mul(a,b) div(a,p) div(a,p,rounding_mode='floor')
div(a,p,rounding_mode='trunc') divide(a,p) pow(p,2) pow(p,b) atan2(a,b) arctan2(a,b) maximum(a,b) minimum(a,b) fmod(4*a,p)
remainder(4*a,p) floor_divide(4*a,p) float_power(p,2) logaddexp(a,b) logaddexp2(a,b) lerp(a,b,0.3) addcdiv(a,b,p,value=2)
eq(a,b) ne(a,b) not_equal(a,b) gt(a,b) greater(a,b) greater_equal(a,b) lt(a,b) less(a,b) le(a,b) less_equal(a,b) equal(a,b)
isclose(a,a+1e-9) allclose(a,b) logical_and(k,k) logical_or(k,k-1) logical_xor(k,k-1) bitwise_and(k,k+1) bitwise_or(k,k+1)
bitwise_xor(k,k+1) gcd(k,k+2) where(a>b,a,b) clamp(a,-0.5,0.5) clamp(a,min=0.1) polar(p,a)
sum(a) sum(a,0) sum(a,(0,1),True) mean(a) mean(a,1,True) prod(p) prod(p,1) amax(a) amax(a,0) amin(a,1,True) all(k) all(k,0)
any(k) any(k,1,True) argmax(a) argmax(a,1) argmin(a,0,True) var(a) var(a,1) var(a,0,correction=0,keepdim=True) std(a) std(a,1)
std_mean(a) std_mean(a,1) var_mean(a,0) median(a) median(a,1) logsumexp(a,1) norm(a) norm(a,2,1) norm(a,1,0,True) nansum(a)
nansum(a,1) count_nonzero(k) count_nonzero(k,0) cumsum(a,1) cumprod(p,0) cummax(a,1) cummin(a,0) topk(a,2) topk(a,2,0,False)
sort(a) sort(a,dim=0,descending=True) argsort(a) argsort(a,0,True) kthvalue(a,2) kthvalue(a,1,0,True) histc(a,5,-1,1)
bincount(k[0]) bincount(k[0],v,9) trace(a) diff(a) diff(a,2,0) searchsorted(mint.cumsum(p,1),p) unique_consecutive(k[0])
matmul(a,b.T) mm(a,b.T) bmm(a[None],b.T[None]) mv(a,v) dot(v,v) vdot(v,v) outer(v,v) cross(a[:,:3],b[:,:3]) einsum('ij,kj->ik',a,b)
addmm(p[:,:3],a,b.T,beta=2,alpha=3) addmv(v[:3],a,v) addbmm(p[:,:3],a[None],b.T[None]) baddbmm(p[:,:3],a[None],b.T[None])
triangular_solve(b[:,:2],mint.triu(a[:,:3])+3*mint.eye(3)) inverse(a[:,:3]+2*mint.eye(3)) cdist(a,b) tril(a) tril(a,1) triu(a,-1)
diag(v) diag(a,1) t(a) transpose(a,0,1) permute(a,(1,0)) reshape(a,(2,6)) reshape(a,(-1,)) ravel(a) flatten(a) squeeze(a[:,:1])
squeeze(a[:,:1],1) unsqueeze(a,1) flip(a,(0,)) roll(a,1) roll(a,(1,2),(0,1)) tile(a,(2,1)) broadcast_to(v,(2,4)) narrow(a,1,1,2)
cat((a,b)) cat((a,b),1) concat((a,b),-1) stack((a,b),1) hstack((a,b)) dstack((a,b)) split(a,2,1) split(a,(1,2)) chunk(a,3,1)
unbind(a,1) select(a,1,2) index_select(a,1,mint.arange(2)) gather(a,1,k%4) scatter(a,1,k%4,b) scatter_add(a,1,k%4,b)
index_add(a,0,mint.arange(2),b[:2]) index_add(a,1,mint.arange(2),b[:,:2],alpha=2) masked_select(a,a>0) nonzero(k)
nonzero(k,as_tuple=True) take(a,k) repeat_interleave(v,2) repeat_interleave(a,3,1) repeat_interleave(v,mint.arange(4))
meshgrid(v,v[:2],indexing='ij') zeros_like(a) ones_like(k) softmax(a,1) real(a) imag(mint.polar(p,a))
"""


def _calls(text: str) -> list[str]:
    """Calls, which may have spaces in them."""
    calls: list[str] = []
    for word in text.split():
        if calls and calls[-1].count("(") > calls[-1].count(")"):
            calls[-1] += f" {word}"
        else:
            calls.append(word)
    return calls


_ALL_INPUTS = (x(3, 4), x(3, 4, phase=1.0), positive(3, 4), x(4, phase=2.0), i(*range(12)).reshape(3, 4))
FUNCTIONS |= {
    f"mint.{call}": recipe(f"lambda a, b, p, v, k: mint.{call}", *_ALL_INPUTS, grad=False) for call in _calls(_OF_ALL)
}

OPTIMIZERS = {
    "sgd": "optim.SGD(params, 0.1)",
    "sgd_momentum": "optim.SGD(params, 0.1, 0.9, 0.3, 0.05)",
    "sgd_nesterov": "optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True)",
    "sgd_maximize": "optim.SGD(params, 0.1, 0.9, maximize=True)",
    "adam": "optim.Adam(params)",
    "adam_decay": "optim.Adam(params, 0.1, (0.8, 0.99), 1e-6, 0.05)",
    "adam_amsgrad": "optim.Adam(params, 0.1, (0.5, 0.6), amsgrad=True)",
    "adam_maximize": "optim.Adam(params, 0.1, maximize=True)",
    "adamw": "optim.AdamW(params, 0.1)",
    "adamw_amsgrad": "optim.AdamW(params, 0.1, (0.5, 0.6), weight_decay=0.2, amsgrad=True)",
    "groups": (
        "optim.AdamW([dict(params=params[:2], lr=0.05, weight_decay=0.3), dict(params=params[2:], betas=(0.7, 0.8))], 0.1)"
    ),
}


def described(values: Any) -> list[dict[str, Any]]:
    """Arrays as JSON: kind and size of element, shape, values with eight digits."""
    return [
        {
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "values": [float(f"{number:.8g}") for number in _numbers(value)],
        }
        for value in values
    ]


def _numbers(value: np.ndarray) -> np.ndarray:
    """Float64 numbers; of complex ones the real parts and then the imaginary ones."""
    parts = (value.real, value.imag) if np.iscomplexobj(value) else (value,)
    return np.concatenate([np.asarray(part, np.float64).ravel() for part in parts])


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of a layer's Parameter, by its name."""
    return (0.4 * np.sin(1.3 * np.arange(math.prod(shape)) + len(name)) + 0.1).astype(np.float32).reshape(shape)


def result(framework: Any, one: Recipe) -> dict[str, Any]:
    """Outputs, gradients and final state of a recipe, described."""
    function = eval(one.code, framework.names)
    framework.prepare(function, one.train)
    inputs = [framework.tensor(item) for item in one.inputs]
    for _ in range(one.calls - 1):
        function(*inputs)
    outputs = framework.arrays(function(*inputs))
    actual = {
        "outputs": described(outputs),
        "state": {k: described([v])[0] for k, v in framework.state(function).items()},
    }
    if one.grad:
        actual["gradients"] = described(framework.gradients(function, inputs, one.with_respect_to))
    return actual


class LikeMindSpore:
    """The adapter of MindSpore, and of what has its names."""

    def __init__(self, ms: Any) -> None:
        self.ms = ms
        self.names = {"mint": ms.mint, "nn": ms.mint.nn, "F": ms.mint.nn.functional, "optim": ms.mint.optim}

    def tensor(self, array: np.ndarray) -> Any:
        return self.ms.Tensor(array)

    def arrays(self, values: Any) -> list[np.ndarray]:
        parts = values if isinstance(values, tuple | list) else (values,)
        return [item.asnumpy() if isinstance(item, self.ms.Tensor) else np.asarray(item) for item in parts]

    def prepare(self, function: Any, train: bool) -> None:
        if isinstance(function, self.ms.nn.Cell):
            function.set_train(train)
            for parameter in function.trainable_params():
                parameter.set_data(self.ms.Tensor(weight(parameter.name, parameter.shape)))

    def state(self, function: Any) -> dict[str, np.ndarray]:
        if not isinstance(function, self.ms.nn.Cell):
            return {}
        return {item.name: item.asnumpy() for item in function.get_parameters() if not item.requires_grad}

    def gradients(self, function: Any, inputs: list[Any], count: int) -> list[np.ndarray]:
        weights = function.trainable_params() if isinstance(function, self.ms.nn.Cell) else []
        places = tuple(at for at, item in enumerate(inputs) if item.dtype == self.ms.float32)[:count]

        def total(*args: Any) -> Any:
            outputs = function(*args)
            slopes = self.ms.Tensor(x(*outputs.shape, phase=0.5)) if outputs.ndim else self.ms.Tensor(np.float32(1))
            return (outputs * slopes).sum()

        if not weights:
            actual = self.ms.grad(total, places)(*inputs)
            return self.arrays(actual)
        actual = self.ms.grad(total, places or None, weights)(*inputs)
        first, second = actual if places else ((), actual)
        return [*(self.arrays(first) if places else []), *self.arrays(second)]

    def train(self, name: str, start: list[np.ndarray], slope: Any) -> list[list[float]]:
        """Parameters after ten steps of an optimizer."""
        params = [self.ms.Parameter(self.ms.Tensor(item), name=f"p{at}") for at, item in enumerate(start)]
        optimizer = eval(OPTIMIZERS[name], {**self.names, "params": params})
        for step in range(STEPS):
            optimizer(tuple(map(self.ms.Tensor, slope([item.asnumpy() for item in params], step))))
        return [item.asnumpy().ravel().tolist() for item in params]
