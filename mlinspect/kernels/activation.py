"""Activation functions: one table by name, computed in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.kernels import elementwise, libm, nnacl

_F = np.float32
_BLOCK = 1 << 15


class Elementary(NamedTuple):
    """Whose elementary functions an activation is made of; each maps a float32 array to a new one."""

    exp: elementwise.Unary
    tanh: elementwise.Unary
    log: elementwise.Unary = elementwise.UNARY["log"]
    erf: elementwise.Unary = elementwise.erf


FAST = Elementary(np.exp, np.tanh)
"""numpy's own, right to a last place or two: for results that stay float32."""
PRECISE = Elementary(libm.expf, libm.tanhf, libm.logf)
"""The C library's, as Arm NN calls it: for results that are rounded to integers or float16 afterwards."""
NNACL = Elementary(nnacl.exp, nnacl.tanh)
"""MindSpore Lite's approximations."""


def activate(
    x: np.ndarray,
    name: str,
    a: float = 0.0,
    b: float = 0.0,
    elementary: Elementary = FAST,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Apply the activation `name` of `ACTIVATIONS` to every element.

    Parameters
    ----------
    x : ndarray of float32, any shape
    name : str
        Key of `ACTIVATIONS`.
    a, b : float
        The function's parameters: upper and lower bound (``bounded_relu``), slope (``leaky_relu``, ``elu``), slope and
        offset (``linear``), outer and inner factor (``tanh``), threshold (``threshold_relu``, ``soft_shrink``,
        ``hard_shrink``).
    elementary : Elementary
        Whose exp, tanh, log and erf.
    out : ndarray of float32, optional
        Where to write; contiguous, of the shape of `x`. May be `x` itself.

    Returns
    -------
    ndarray of float32, shape of `x`
        `out` if given, else new memory.

    Raises
    ------
    UnsupportedError
        No such activation.
    ValueError
        `out` is not contiguous.

    Examples
    --------
    >>> activate(np.float32([-1, 0.5, 9]), "bounded_relu", a=6)
    array([0. , 0.5, 6. ], dtype=float32)
    """
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"no activation is called {name!r}")
    function = ACTIVATIONS[name]
    if out is None:
        out = np.empty(x.shape, _F)
    elif not out.flags.c_contiguous:
        raise ValueError("out must be contiguous")
    source, target, first, second = x.reshape(-1), out.reshape(-1), _F(a), _F(b)
    with np.errstate(all="ignore"):
        if x.size <= _BLOCK:
            function(source, target, first, second, elementary)
        else:
            for start in range(0, x.size, _BLOCK):
                part = slice(start, start + _BLOCK)
                function(source[part], target[part], first, second, elementary)
    return out


def prelu(x: np.ndarray, slope: np.ndarray | np.float32) -> np.ndarray:
    """``x < 0 ? slope * x : x``, the shapes broadcast (Arm NN's and MindSpore Lite's PReLU).

    Parameters
    ----------
    x, slope : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> prelu(np.float32([[-1, 2], [-4, -8]]), np.float32([0.5, 0.25]))
    array([[-0.5,  2. ],
           [-2. , -2. ]], dtype=float32)
    """
    with np.errstate(all="ignore"):
        y = np.multiply(x, slope, dtype=_F)
    x = np.ascontiguousarray(np.broadcast_to(x, y.shape))
    _take_over(y, x, np.logical_not(x < 0))
    return y


def _take_over(y: np.ndarray, x: np.ndarray, where: np.ndarray) -> None:
    """``y[where] = x[where]`` for contiguous float32, by masking bits: numpy's own way takes several times as long."""
    mask = where.astype(np.int32)
    np.negative(mask, out=mask)
    bits, wanted = y.view(np.int32), x.view(np.int32)
    mask &= bits ^ wanted
    bits ^= mask


def _clip(x: np.ndarray, y: np.ndarray, upper: np.float32, lower: np.float32, elementary: Elementary) -> None:
    np.fmin(np.fmax(x, lower, out=y), upper, out=y)  # a NaN gives the lower bound: std::min(a, std::max(b, x))


def _relu(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.fmax(x, _F(0), out=y)  # a NaN gives 0


def _leaky_relu(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    if 0 < a <= 1:
        np.maximum(x, x * a, out=y)
    else:
        product = x * a
        _take_over(product, x, x > 0)
        np.copyto(y, product)


def _sigmoid(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.divide(_F(1), _one_plus_exp_minus(x, elementary), out=y)


def _swish(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.divide(x, _one_plus_exp_minus(x, elementary), out=y)


def _one_plus_exp_minus(x: np.ndarray, elementary: Elementary) -> np.ndarray:
    e = elementary.exp(np.negative(x))
    e += _F(1)
    return e


def _tanh(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.multiply(elementary.tanh(x * b if b != 1 else x), a, out=y)


def _linear(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.multiply(x, a, out=y)
    y += b


def _elu(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    e = elementary.exp(np.minimum(x, _F(0)))
    e -= _F(1)
    e *= a
    below = x < 0  # -0 and NaN stay what they are
    np.copyto(y, x)
    np.copyto(y, e, where=below)


def _soft_relu(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    e = elementary.exp(x)
    e += _F(1)
    np.copyto(y, elementary.log(e))


def _softplus(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.log1p(elementary.exp(x), out=y)


def _hard_swish(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    t = x + _F(3)
    np.clip(t, _F(0), _F(6), out=t)  # a NaN stays
    np.multiply(x, t, out=y)
    y /= _F(6)  # last, as both runtimes do


def _hard_sigmoid(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    t = x + _F(3)
    np.fmin(np.fmax(t, _F(0), out=t), _F(6), out=t)  # a NaN gives 0
    np.divide(t, _F(6), out=y)


def _gelu(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    e = elementary.erf(np.divide(x, 2**0.5, dtype=float).astype(_F))  # Arm NN divides in double, then rounds
    e += _F(1)
    e *= _F(0.5)
    np.multiply(x, e, out=y)


def _gelu_tanh(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    inner = x * _F(0.035677408136)
    inner *= x
    inner += _F(0.79788456080287)
    inner *= x
    t = elementary.tanh(inner)
    t += _F(1)
    t *= x * _F(0.5)
    np.copyto(y, t)


def _soft_sign(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    size = np.abs(x)
    size += _F(1)
    np.divide(x, size, out=y)


def _selu(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    _elu(x, y, _F(1.6732632423543772), b, elementary)
    y *= _F(1.0507009873554805)


def _threshold_relu(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.copyto(y, np.where(x > a, x, _F(0)))


def _soft_shrink(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.subtract(x, np.clip(x, -a, a), out=y)


def _hard_shrink(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.copyto(y, np.where(np.abs(x) > a, x, _F(0)))


def _abs(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    below = x < 0  # -0 stays what it is
    np.copyto(y, x)
    np.negative(y, out=y, where=below)


def _sqrt(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.sqrt(x, out=y)


def _square(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.square(x, out=y)


def _sign(x: np.ndarray, y: np.ndarray, a: np.float32, b: np.float32, elementary: Elementary) -> None:
    np.sign(x, out=y)


ACTIVATIONS: Mapping[str, Callable[[np.ndarray, np.ndarray, np.float32, np.float32, Elementary], None]] = {
    "abs": _abs,
    "bounded_relu": _clip,
    "elu": _elu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "hard_shrink": _hard_shrink,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "leaky_relu": _leaky_relu,
    "linear": _linear,
    "relu": _relu,
    "selu": _selu,
    "sigmoid": _sigmoid,
    "sign": _sign,
    "soft_relu": _soft_relu,
    "soft_shrink": _soft_shrink,
    "soft_sign": _soft_sign,
    "softplus": _softplus,
    "sqrt": _sqrt,
    "square": _square,
    "swish": _swish,
    "tanh": _tanh,
    "threshold_relu": _threshold_relu,
}
"""Each writes ``f(x)`` to `y`, which may be `x`: ``f(x, y, a, b, elementary)``.

Arm NN: BoundedReLu is ``bounded_relu``, SoftReLu ``soft_relu`` = log(1 + exp x), TanH ``tanh`` = a tanh(b x).
MindSpore Lite: RELU6 is ``bounded_relu`` (6, 0), RELU1 (1, -1), HARD_TANH (max_val, min_val), TANH (1, 1), and GELU
``gelu_tanh`` where it is approximate.
"""
