"""int8 functions of one operand: outputs of MindSpore Lite 2.0.0 (CPU, x86-64), and float definitions."""

import numpy as np
import pytest

from mlinspect.errors import UnsupportedError
from mlinspect.kernels import int8_unary
from mlinspect.kernels.int8 import Affine

X = np.array([-128, -127, -90, -64, -33, -17, -3, -1, 0, 1, 5, 20, 41, 77, 101, 126], np.int8)
EVERY = np.arange(-128, 128).astype(np.int8)

# The scale makes 20 * s + (-20 * s) a little less than 0 in fused multiplication and addition: Floor gives -1 there,
# and LogicalNot finds no zero.
UNARY = {
    "Square": [127, 127, 127, 127, 127, 75, 24, 18, 16, 13, 5, -9, 18, 127, 127, 127],
    "Floor": [-128, -128, -128, -128, -106, -74, -74, -41, -41, -41, -41, -9, -9, 56, 88, 120],
    "Ceil": [-128, -128, -128, -106, -74, -41, -41, -9, -9, -9, -9, 23, 23, 88, 120, 127],
    "Round": [-128, -128, -128, -128, -74, -74, -41, -41, -41, -41, -41, -9, 23, 56, 120, 127],
    "Cos": [23, 23, -6, -37, -31, -10, 8, 11, 12, 13, 17, 23, 11, -35, -39, -12],
    "Sin": [-15, -14, 23, 7, -33, -41, -36, -35, -34, -33, -29, -9, 17, 11, -22, -41],
    "Abs": [127, 127, 127, 109, 66, 43, 23, 21, 19, 18, 12, -9, 21, 71, 105, 127],
}
POSITIVE = {
    "Log": [-110, -88, 8, 25, 37, 42, 46, 47, 47, 47, 48, 51, 56, 62, 65, 69],
    "Sqrt": [-2, 1, 33, 45, 57, 62, 67, 67, 68, 68, 69, 73, 79, 88, 93, 99],
    "Rsqrt": [127, 100, 16, 10, 7, 6, 5, 5, 5, 5, 4, 4, 3, 2, 1, 1],
    "Reciprocal": [127, 127, 10, 2, -1, -2, -3, -3, -3, -3, -3, -4, -5, -5, -6, -6],
}
ACTIVATIONS = {
    "RELU": [13, 13, 13, 13, 13, 13, 25, 29, 29, 33, 41, 69, 113, 127, 127, 127],
    "RELU6": [13, 13, 13, 13, 13, 13, 25, 29, 29, 33, 41, 69, 113, -67, -49, -49],  # 6 lies beyond 127 and wraps
    "SIGMOID": [13, 13, 13, 14, 18, 25, 32, 33, 33, 34, 35, 41, 44, 45, 45, 45],
    "TANH": [-19, -19, -19, -19, -17, -4, 23, 27, 28, 30, 35, 43, 45, 45, 45, 45],
    "HSWISH": [13, 13, 13, 13, 1, 6, 19, 21, 23, 24, 30, 59, 114, 127, 127, 127],
    "LEAKY_RELU": [-49, -49, -26, -10, 9, 19, 28, 29, 29, 31, 40, 71, 114, 127, 127, 127],
}


@pytest.mark.parametrize("function", UNARY)
def test_vendor_unary(function):
    got = int8_unary.unary_int8(X, function, Affine(0.0437, 20), Affine(0.031, -9))
    assert got.tolist() == UNARY[function]


@pytest.mark.parametrize("function", POSITIVE)
def test_vendor_functions_of_positive_values(function):
    got = int8_unary.unary_int8(X, function, Affine(0.0437, -129), Affine(0.031, -9))
    assert got.tolist() == POSITIVE[function]


def test_vendor_fused_multiplication():
    """5 * s - 5 * s is not quite 0, and so it is true."""
    got = int8_unary.unary_int8(X, "LogicalNot", Affine(0.0437, 5), Affine(0.031, -9))
    assert got.tolist() == [-9] * 16


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_vendor_activations(activation):
    got = int8_unary.activate_int8(X, activation, Affine(0.0637, -8), Affine(0.031, 13), 0.3)
    assert got.tolist() == ACTIVATIONS[activation]


@pytest.mark.parametrize(
    ("function", "real"),
    [
        ("Floor", np.floor),
        ("Ceil", np.ceil),
        ("Sin", np.sin),
        ("Square", np.square),
        ("Abs", np.abs),
    ],
)
def test_unary_is_the_real_function(function, real):
    q, out = Affine(0.0317, 3), Affine(0.1, -7)
    want = np.clip(real(q.scale * (EVERY - 3.0)) / out.scale + out.zero_point, -128, 127)
    away = np.abs(q.scale * (EVERY - 3.0) % 1 - 0.5) < 0.499  # floor and ceil jump at integers
    got = int8_unary.unary_int8(EVERY, function, q, out)
    assert np.abs(got - want)[away].max() < 0.51


@pytest.mark.parametrize(
    ("activation", "real", "tolerance"),
    [
        ("RELU", lambda x: np.maximum(x, 0), 0.6),
        ("RELU6", lambda x: np.clip(x, 0, 6), 0.6),
        ("SIGMOID", lambda x: 1 / (1 + np.exp(-x)), 0.51),
        ("TANH", np.tanh, 0.51),
        ("HSWISH", lambda x: x * np.clip(x + 3, 0, 6) / 6, 1.1),
        ("LEAKY_RELU", lambda x: np.where(x < 0, 0.25 * x, x), 0.51),
    ],
)
def test_activation_is_the_real_function(activation, real, tolerance):
    q, out = Affine(0.0637, 0), Affine(0.08, -20)
    want = np.clip(real(q.scale * EVERY) / out.scale + out.zero_point, -128, 127)
    got = int8_unary.activate_int8(EVERY, activation, q, out, 0.25)
    assert np.abs(got - want).max() < tolerance


@pytest.mark.parametrize("scale", [0.004, 0.0085])  # the gate's factor is below 1/2, and between 1/2 and 1
def test_hard_swish_of_small_numbers(scale):
    q, out = Affine(scale, 0), Affine(scale / 2, -20)
    real = q.scale * EVERY
    want = np.clip(real * np.clip(real + 3, 0, 6) / 6 / out.scale + out.zero_point, -128, 127)
    assert np.abs(int8_unary.activate_int8(EVERY, "HSWISH", q, out) - want).max() < 1.1


@pytest.mark.parametrize(("function", "bad"), [("Sqrt", -1), ("Rsqrt", 0), ("Reciprocal", 0)])
def test_values_that_the_runtime_fails_on(function, bad):
    x = np.array([5, 3, bad], np.int8)
    with pytest.raises(UnsupportedError):
        int8_unary.unary_int8(x, function, Affine(0.1, 0), Affine(0.1, 0))
    int8_unary.unary_int8(x[:2], function, Affine(0.1, 0), Affine(0.1, 0))


def test_unknown_functions():
    with pytest.raises(UnsupportedError, match="Exp"):
        int8_unary.unary_int8(X, "Exp", Affine(0.1, 0), Affine(0.1, 0))
    with pytest.raises(UnsupportedError, match="SWISH"):
        int8_unary.activate_int8(X, "SWISH", Affine(0.1, 0), Affine(0.1, 0))
