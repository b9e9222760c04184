import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays, mutually_broadcastable_shapes
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

A, B, C = numbers(2, 3), numbers(2, 3, seed=1), numbers(3, seed=2)
I, J = np.array([12, -7, 0, 9]), np.array([8, 2, 3, -4])
Z = np.array([0.0, 1.0, -2.0])

CASES = {
    "DivNoNan": case(ops.DivNoNan(), np.divide, A, B),
    "DivNoNan by 0": case(ops.DivNoNan(), lambda x, y: np.array([0, 1, 1.0]), np.array([3.0, 1, -2]), Z, grad=False),
    "DivNoNan of ints": case(ops.DivNoNan(), lambda x, y: np.array([1, -3, 0, -2]), I, J, grad=False),
    "MulNoNan": case(ops.MulNoNan(), np.multiply, A, C),
    "MulNoNan of inf": case(ops.MulNoNan(), lambda x, y: np.zeros(1), np.array([np.inf]), np.zeros(1), grad=False),
    "Xdivy": case(ops.Xdivy(), np.divide, A, B),
    "Xdivy at 0": case(ops.xdivy, lambda x, y: np.zeros(2), np.zeros(2), np.array([0.0, 3]), grad=False),
    "TruncateDiv": case(ops.TruncateDiv(), lambda x, y: np.trunc(x / y), A, B, grad=False),
    "TruncateDiv of ints": case(ops.TruncateDiv(), lambda x, y: np.trunc(x / y).astype(int), I, J, grad=False),
    "TruncateMod": case(ops.TruncateMod(), np.fmod, A, B),
    "TruncateMod of ints": case(ops.truncate_mod, np.fmod, I, J, grad=False),
    "Fmax": case(ops.fmax, np.fmax, A, B),
    "Fmin": case(ops.fmin, np.fmin, A, C),
    "fmax with NaN": case(ops.fmax, np.fmax, np.array([np.nan, 1]), np.array([2, np.nan]), grad=False),
    "Hypot": case(ops.hypot, np.hypot, A, B),
    "Gcd": case(ops.gcd, np.gcd, I, J, grad=False),
    "Lcm": case(ops.lcm, np.lcm, I, J, grad=False),
    "Heaviside": case(ops.heaviside, np.heaviside, Z, np.array([0.5, 0.5, 0.5]), grad=False),
    "NextAfter": case(ops.nextafter, np.nextafter, A, B, grad=False),
    "copysign": case(ops.copysign, np.copysign, A, B, grad=False),
    "ldexp": case(ops.ldexp, lambda x, y: x * 2.0**y, A, B),
    "left shift": case(ops.bitwise_left_shift, np.left_shift, I, np.array([1, 2, 0, 3]), grad=False),
    "right shift": case(ops.RightShift(), np.right_shift, I, np.array([1, 2, 0, 3]), grad=False),
    "Inv": case(ops.inv, np.reciprocal, A),
    "Invert": case(ops.invert, np.invert, I, grad=False),
    "bitwise_not": case(lambda x: x.bitwise_not(), np.invert, I, grad=False),
    "frac": case(ops.frac, lambda x: x - np.trunc(x), A),
    "sgn": case(ops.sgn, np.sign, A, grad=False),
    "signbit": case(ops.signbit, np.signbit, A, grad=False),
    "isposinf": case(ops.isposinf, np.isposinf, np.array([np.inf, 1, -np.inf]), grad=False),
    "isneginf": case(ops.isneginf, np.isneginf, np.array([np.inf, 1, -np.inf]), grad=False),
    "isreal": case(ops.isreal, np.isreal, np.array([1, 1j]), grad=False),
    "positive": case(ops.positive, np.positive, A),
    "deg2rad": case(ops.deg2rad, np.deg2rad, A),
    "rad2deg": case(ops.rad2deg, np.rad2deg, A),
    "PopulationCount": case(
        ops.population_count, lambda x: np.array([bin(v & 0xFFFF).count("1") for v in x.tolist()], np.uint8),
        I.astype(np.int16), grad=False,
    ),
    "NanToNum": case(ops.NanToNum(1.0, 2.0, 3.0), lambda x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=3.0),
                     np.array([np.nan, np.inf, -np.inf, 5.0]), grad=False),
    "Lerp": case(ops.Lerp(), lambda x, y, w: x + w * (y - x), A, B, C),
    "lerp by a number": case(lambda x, y: ops.lerp(x, y, 0.3), lambda x, y: x + 0.3 * (y - x), A, B),
    "Addcdiv": case(ops.Addcdiv(), lambda x, a, b, v: x + v * a / b, A, B, C, np.array(0.5)),
    "addcmul": case(ops.addcmul, lambda x, a, b: x + a * b, A, B, C),
    "ApproximateEqual": case(ops.ApproximateEqual(1e-3), lambda x, y: abs(x - y) < 1e-3, A, A + 5e-4, grad=False),
    "IsClose": case(ops.isclose, np.isclose, A, A + 1e-7, grad=False),
    "Complex": case(ops.Complex(), lambda x, y: x + 1j * y, A, B, grad=False),
    "Polar": case(ops.polar, lambda r, t: r * np.exp(1j * t), A, B, grad=False),
    "Real": case(ops.real, np.real, A + 1j * B, grad=False),
    "Imag": case(ops.imag, np.imag, A + 1j * B, grad=False),
    "Conj": case(ops.conj, np.conj, A + 1j * B, grad=False),
    "Angle": case(ops.angle, np.angle, A + 1j * B, grad=False),
    "ComplexAbs": case(ops.ComplexAbs(), np.abs, A + 1j * B, grad=False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


BINARY = {
    "xdivy": (ops.xdivy, lambda x, y: np.where(x == 0, 0, x / np.where(y == 0, 1, y))),
    "DivNoNan": (ops.DivNoNan(), lambda x, y: np.where(y == 0, 0, x / np.where(y == 0, 1, y))),
    "fmax": (ops.fmax, np.fmax),
    "hypot": (ops.hypot, np.hypot),
}


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(sorted(BINARY)),
    mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3),
    st.data(),
)
def test_binary_operators_broadcast_as_in_numpy(name, shapes, data):
    """Any two shapes that broadcast, empty and zero-dimensional ones included."""
    left, right = (data.draw(arrays(np.float64, shape, elements=st.floats(1, 4))) for shape in shapes.input_shapes)
    call, reference = BINARY[name]
    result = call(Tensor(left), Tensor(right))
    assert result.shape == shapes.result_shape
    np.testing.assert_allclose(result.asnumpy(), reference(left, right), rtol=1e-12)


def test_gradients_do_not_meet_the_zeros():
    x = Tensor([0.0, 2.0])
    assert ms.grad(lambda v: ops.DivNoNan()(Tensor([1.0, 1.0]), v))(x).tolist() == [0.0, -0.25]
    assert ms.grad(lambda v: ops.xdivy(v, Tensor([0.0, 4.0])))(x).tolist() == [0.0, 0.25]


def test_division_and_hypot_choose_dtypes_as_mindspore_does():
    ints = Tensor([1, 2], ms.int32)
    assert ops.TruncateDiv()(ints, 2).dtype == ms.int32
    assert ops.hypot(ints, ints).dtype == ms.float32
    assert ops.inv(ints).tolist() == [1, 0]
    assert ops.DivNoNan()(3, Tensor([0.0, 2.0])).tolist() == [0.0, 1.5]


def test_closeness_as_a_bool():
    x = Tensor([1.0, 2.0])
    assert x.allclose(x + 1e-7) is True
    assert mint.allclose(x, x + 1) is False


def test_questions_about_the_dtype():
    assert ops.is_floating_point(Tensor([1.0])) and not ops.is_complex(Tensor([1.0]))
    assert Tensor([1j]).is_complex()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.gcd(Tensor([1.0]), Tensor([2.0])), TypeError, "integers"),
        (lambda: ops.hypot(Tensor([1.0, 2]), Tensor([1.0, 2, 3])), ValueError, "broadcast"),
        (lambda: ops.lerp(Tensor([1]), Tensor([2]), 0.5), TypeError, "floating point"),
        (lambda: ops.ComplexAbs()(Tensor([1.0])), TypeError, "complex"),
        (lambda: ops.addcmul(Tensor([1.0]), Tensor([1]), Tensor([1.0])), TypeError, "dtypes must be the same"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
