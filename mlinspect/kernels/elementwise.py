"""Element by element arithmetic with numpy's broadcasting: tables of functions by name.

Differences between Arm NN and MindSpore Lite that the caller chooses by the function: elementary functions (exact here;
MindSpore Lite's approximations are in `mlinspect.kernels.nnacl`), and which operand wins in `maximum` and `minimum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from mlinspect.kernels.libm import fmaf

_F = np.float32
Unary = Callable[[np.ndarray], np.ndarray]
Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a < b ? b : a``: a NaN in `a` stays, one in `b` is ignored (Arm NN's Maximum, ``std::max``).

    MindSpore Lite (``a > b ? a : b``) is the same with the operands exchanged.

    Parameters
    ----------
    a, b : ndarray of one type, shapes that broadcast

    Returns
    -------
    ndarray

    Examples
    --------
    >>> maximum(np.float32([1, np.nan, 3]), np.float32([2, 2, np.nan]))
    array([ 2., nan,  3.], dtype=float32)
    """
    return np.maximum(a, np.fmax(b, a)) if a.dtype.kind == "f" else np.maximum(a, b)


def minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``b < a ? b : a``: a NaN in `a` stays, one in `b` is ignored (Arm NN's Minimum, ``std::min``).

    Parameters
    ----------
    a, b : ndarray of one type, shapes that broadcast

    Returns
    -------
    ndarray

    Examples
    --------
    >>> minimum(np.float32([1, np.nan, 3]), np.float32([2, 2, np.nan]))
    array([ 1., nan,  3.], dtype=float32)
    """
    return np.minimum(a, np.fmin(b, a)) if a.dtype.kind == "f" else np.minimum(a, b)


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient; integers truncate toward zero as C does.

    Parameters
    ----------
    a, b : ndarray of one type, shapes that broadcast

    Returns
    -------
    ndarray
        Of the operands' type. An integer division by zero, where the runtimes trap, gives 0.

    Examples
    --------
    >>> divide(np.int32([7, -7, 5]), np.int32([2, 2, 0]))
    array([ 3, -3,  0], dtype=int32)
    """
    with np.errstate(all="ignore"):
        return np.divide(a, b) if a.dtype.kind == "f" else (a - np.fmod(a, b)) // b


def floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``floor(a / b)``; on integers MindSpore Lite's FloorDiv truncates toward zero.

    Parameters
    ----------
    a, b : ndarray of one type, shapes that broadcast

    Returns
    -------
    ndarray

    Examples
    --------
    >>> floor_divide(np.float32([7, -7]), np.float32([2, 2])), floor_divide(np.int32([7, -7]), np.int32([2, 2]))
    (array([ 3., -4.], dtype=float32), array([ 3, -3], dtype=int32))
    """
    q = divide(a, b)
    return np.floor(q) if q.dtype.kind == "f" else q


def floor_mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Remainder with the divisor's sign: ``a - floor(a / b) * b``, rounded once (MindSpore Lite's FloorMod).

    Parameters
    ----------
    a, b : ndarray of one type, shapes that broadcast

    Returns
    -------
    ndarray

    Examples
    --------
    >>> floor_mod(np.float32([7, -7]), np.float32([2, 2]))
    array([1., 1.], dtype=float32)
    """
    with np.errstate(all="ignore"):
        if a.dtype.kind != "f":
            return np.remainder(a, b)
        return fmaf(-np.floor(a / b), b, a)


def power(x: np.ndarray, exponent: np.ndarray, scale: float = 1.0, shift: float = 0.0) -> np.ndarray:
    """``(scale * x + shift) ** exponent`` (MindSpore Lite's PowFusion).

    Parameters
    ----------
    x, exponent : ndarray of float32, shapes that broadcast

    Returns
    -------
    ndarray of float32
        NaN for a negative base with an exponent that is not whole.

    Examples
    --------
    >>> power(np.float32([2, 3]), np.float32(2), scale=2, shift=1)
    array([25., 49.], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return np.power(_F(scale) * x + _F(shift), exponent, dtype=float).astype(_F)


def exp_fusion(x: np.ndarray, exp: Unary, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> np.ndarray:
    """``base ** (scale * x + shift)`` as MindSpore Lite's ExpFusion really computes it.

    Base -1 stands for e. With a `scale` of 1 the base is ignored; with a `shift` the result is
    ``exp(x) * base ** shift``, `scale` and `base` of `x` being forgotten.

    Parameters
    ----------
    x : ndarray of float32
    exp : callable
        Which exponential: `mlinspect.kernels.nnacl.exp`, or ``UNARY["exp"]``.

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> exp_fusion(np.float32([1, 2]), UNARY["exp"], base=2, scale=3)
    array([ 8., 64.], dtype=float32)
    """
    log_base = 1.0 if base == -1 else math.log(base)
    if shift != 0:
        return exp(x) * _F(math.exp(log_base * shift))
    return exp(x if scale == 1 else x * _F(scale * log_base))


def erf(x: np.ndarray) -> np.ndarray:
    """Error function, in double and then rounded to float32.

    A polynomial that interpolates ``math.erf(x) / x`` in x squared up to 4, where erf is 1 in float32.

    Parameters
    ----------
    x : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> erf(np.float32([0, 0.5, -9]))
    array([ 0.       ,  0.5204999, -1.       ], dtype=float32)
    """
    value = np.clip(np.asarray(x, float), -4, 4)
    place = np.square(value)
    place /= 8
    place -= 1
    highest, *others = _erf_polynomial()
    y = np.full(value.shape, highest)
    for c in others:
        y *= place
        y += c
    y *= value
    return y.astype(_F)


@cache
def _erf_polynomial() -> list[float]:
    """Coefficients, highest power first, of ``erf(x) / x`` in ``x**2 / 8 - 1``; error below 1e-9."""
    chebyshev = np.polynomial.chebyshev
    points = chebyshev.chebpts1(28)
    roots = np.sqrt(8 * points + 8)
    values = [math.erf(r) / r for r in roots.tolist()]
    return chebyshev.cheb2poly(chebyshev.chebfit(points, values, 27))[::-1].tolist()


def rsqrt(x: np.ndarray) -> np.ndarray:
    """``1 / sqrt(x)``, both rounded to float32 (Arm NN; MindSpore Lite on x86 is off by up to 2.5e-4 relative).

    Parameters
    ----------
    x : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> rsqrt(np.float32([4, 0]))
    array([0.5, inf], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return _F(1) / np.sqrt(x)


def _quiet(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """`f` without numpy's warnings: infinities and NaN are answers here."""

    def quiet(*operands: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return f(*operands)

    return quiet


def _by_double(f: np.ufunc) -> Unary:
    """`f` rounded to float32 only once, as good C libraries do; numpy's own float32 code is off in the last place."""

    def rounded(x: np.ndarray) -> np.ndarray:
        out = np.empty(np.shape(x), _F)
        with np.errstate(all="ignore"):
            return f(x, out=out, dtype=float, casting="same_kind")

    return rounded


UNARY: dict[str, Unary] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": _by_double(np.cos),
    "erf": erf,
    "exp": _by_double(np.exp),
    "floor": np.floor,
    "is_finite": np.isfinite,
    "log": _by_double(np.log),
    "log1p": _by_double(np.log1p),
    "logical_not": np.logical_not,
    "neg": np.negative,
    "reciprocal": lambda x: divide(np.ones_like(x), x),
    "round": np.rint,  # halves to even
    "rsqrt": rsqrt,
    "sin": _by_double(np.sin),
    "sqrt": _quiet(np.sqrt),
    "square": _quiet(np.square),
}

BINARY: Mapping[str, Binary] = {
    "add": _quiet(np.add),
    "sub": _quiet(np.subtract),
    "mul": _quiet(np.multiply),
    "div": divide,
    "maximum": maximum,
    "minimum": minimum,
    "floor_div": floor_divide,
    "floor_mod": floor_mod,
    "mod": _quiet(np.fmod),  # C's, with the dividend's sign
    "squared_difference": _quiet(lambda a, b: np.square(a - b)),
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
}
"""Integers wrap modulo 2**32 (their width); comparisons and logic give bool."""
