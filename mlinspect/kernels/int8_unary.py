"""MindSpore Lite's int8 functions of one operand (``nnacl/int8``, ``litert/kernel/cpu/int8``), as tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.fixedpoint import (
    high_multiply,
    high_multiply16,
    quantize_multiplier,
    requantize,
    rounding_shift,
    wrap32,
)
from mlinspect.kernels.int8 import VALUES, Affine, clamped, rounded, stored_value
from mlinspect.kernels.libm import fmaf
from mlinspect.kernels.nnacl import tanh_quotient
from mlinspect.kernels.quantize import cast, lookup, round_half_away

_F = np.float32


def _invalid(real: np.ndarray, bad: np.ndarray, x: np.ndarray, what: str) -> np.ndarray:
    if lookup(x, bad.astype(np.int8)).any():
        raise UnsupportedError(f"MindSpore Lite's int8 {what} fails on such values")
    return np.where(bad, _F(1), real)


_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": round_half_away,
    "Abs": np.abs,
    "Sin": np.sin,
    "Cos": np.cos,
    "Log": np.log,
    "LogicalNot": lambda real: (real == 0).astype(_F),
}


def unary_int8(x: np.ndarray, function: str, q: Affine, out: Affine) -> np.ndarray:
    """Abs, Ceil, Cos, Floor, Log, LogicalNot, Reciprocal, Round, Rsqrt, Sin, Sqrt, Square (``arithmetic_self_int8``).

    Parameters
    ----------
    x : ndarray of int8
    function : str
        The operator's name.
    q, out : Affine

    Returns
    -------
    ndarray of int8

    Raises
    ------
    UnsupportedError
        A function without an int8 kernel, or a value that the runtime fails on (the square root of a negative number,
        the reciprocal of 0).

    Examples
    --------
    >>> unary_int8(np.array([-15, 26], np.int8), "Floor", Affine(0.1, 0), Affine(0.1, 5))
    array([-15,  25], dtype=int8)
    """
    if function == "Square":
        factor = np.float64(_F(q.scale) * _F(q.scale) / _F(out.scale))
        squares = (VALUES.astype(np.int32) - q.zero_point) ** 2
        return lookup(x, requantize(squares, float(factor), out.zero_point))
    scale, so = _F(q.scale), _F(out.scale)
    real = fmaf(VALUES, scale, _F(-q.zero_point) * scale)
    with np.errstate(all="ignore"):
        if function == "Sqrt":
            scaled = np.sqrt(_invalid(real, real < 0, x, "square root")) / so
        elif function == "Rsqrt":
            scaled = _F(1) / (np.sqrt(_invalid(real, real <= 0, x, "square root")) * so)
        elif function == "Reciprocal":
            scaled = _F(1) / (_invalid(real, np.abs(real) <= np.finfo(_F).eps, x, "reciprocal") * so)
        elif function in _UNARY:
            scaled = _UNARY[function](real) / so
        else:
            raise UnsupportedError(f"MindSpore Lite has no int8 kernel for {function}")
        return lookup(x, rounded(scaled, out.zero_point))


def activate_int8(x: np.ndarray, activation: str, q: Affine, out: Affine, alpha: float = 0.0) -> np.ndarray:
    """Activation of int8: HSWISH, LEAKY_RELU, RELU, RELU6, SIGMOID, TANH (no other runs in 2.0.0).

    Parameters
    ----------
    x : ndarray of int8
    activation : str
    q, out : Affine
    alpha : float
        Slope of LEAKY_RELU. Its negative side starts at the stored 0 and leaves the zero point unscaled.

    Returns
    -------
    ndarray of int8

    Notes
    -----
    The runtime never fills the sigmoid's entry for 127; here it follows the formula.

    Examples
    --------
    >>> x = np.array([-40, 0, 40, 100], np.int8)
    >>> activate_int8(x, "RELU", Affine(0.1, -10), Affine(0.05, -128))
    array([-128, -108,  -28,   92], dtype=int8)
    >>> activate_int8(x, "SIGMOID", Affine(0.1, 0), Affine(1 / 256, -128))
    array([-123,    0,  123,  127], dtype=int8)
    """
    if activation not in _ACTIVATIONS:
        raise UnsupportedError(f"MindSpore Lite has no int8 kernel for {activation}")
    return lookup(x, _ACTIVATIONS[activation](q, out, alpha))


def _relu(q: Affine, out: Affine, high: int) -> np.ndarray:
    multiplier, exponent = quantize_multiplier(np.float64(_F(q.scale) / _F(out.scale)))
    above = VALUES.astype(np.int64) - q.zero_point
    # Here the left shift comes after the multiplication.
    product = high_multiply(above, multiplier) << max(int(exponent), 0)
    scaled = rounding_shift(wrap32(product), max(-int(exponent), 0)) + out.zero_point
    return np.where(above <= 0, out.zero_point, np.minimum(scaled, high)).astype(np.int8)  # RELU6 beyond 127 wraps


def _sigmoid(q: Affine, out: Affine, _alpha: float) -> np.ndarray:
    real = _F(q.scale) * (VALUES.astype(_F) - q.zero_point)
    with np.errstate(over="ignore"):
        return rounded(_F(1) / (_F(1) + np.exp(-real)) / _F(out.scale), out.zero_point)


def _tanh(q: Affine, out: Affine, _alpha: float) -> np.ndarray:
    real = (VALUES.astype(_F) - q.zero_point) * _F(q.scale)
    value = np.where(np.abs(real) > 5, np.sign(real), tanh_quotient(real))
    return clamped(cast(round_half_away(value.astype(np.float64) / _F(out.scale).item() + out.zero_point), np.int32))


def _leaky_relu(q: Affine, out: Affine, alpha: float) -> np.ndarray:
    scale = _F(q.scale) * (_F(1) / _F(out.scale))
    x = VALUES.astype(_F)
    slope = np.where(VALUES <= 0, _F(alpha), _F(1))
    return rounded(fmaf(x * slope, scale, _F(-q.zero_point) * scale), out.zero_point)


def _multiplier16(factor: np.float32) -> tuple[int, int]:
    multiplier, exponent = (int(v) for v in quantize_multiplier(np.float64(factor)))
    return min(multiplier + (1 << 15) >> 16, 32767), exponent


def _hard_swish(q: Affine, out: Affine, _alpha: float) -> np.ndarray:
    fine = _F(1 / 128) * _F(q.scale)
    to_out, out_exponent = _multiplier16(fine / _F(out.scale))
    to_gate, gate_exponent = _multiplier16(fine / (_F(3) / _F(32768)))
    # int16 throughout: nnacl's names are input_value_scale, relu6_value, preshift_output_value
    x = ((VALUES.astype(np.int64) - q.zero_point) << 7).astype(np.int16).astype(np.int64)
    gate = x
    if gate_exponent > 0:
        gate = np.clip(gate << gate_exponent - 1, -32768, 32767)
    gate = high_multiply16(gate, to_gate)
    if gate_exponent > 0:
        gate = np.clip(gate << 1, -32768, 32767)
    elif gate_exponent < 0:
        gate = rounding_shift(gate, -gate_exponent)
    gate = (gate + (1 << 15)) >> 1
    product = high_multiply16(gate, high_multiply16(x, to_out))
    return clamped(rounding_shift(product, max(-out_exponent, 0)) + out.zero_point)


_ACTIVATIONS: dict[str, Callable[[Affine, Affine, float], np.ndarray]] = {
    "RELU": lambda q, out, _alpha: _relu(q, out, 127),
    "RELU6": lambda q, out, _alpha: _relu(q, out, stored_value(6, out)),
    "SIGMOID": _sigmoid,
    "TANH": _tanh,
    "LEAKY_RELU": _leaky_relu,
    "HSWISH": _hard_swish,
}
