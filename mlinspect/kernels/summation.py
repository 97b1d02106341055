"""The vendor's results at the speed of BLAS: all sums in the order of BLAS, the few that matter again in the vendor's.

Arm NN's reference backend adds float32 products one after the other; BLAS adds them in an order of its own. The two
sums differ by parts in 10^6. A stored (rounded) result shows that only where the sum lies that close to a rounding tie.
Such elements, well under 1 % of an 8-bit tensor, are summed once more in the vendor's order; so are float32 sums that
may have overflowed on the way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from mlinspect.kernels.memory import aligned, small_buffers
from mlinspect.kernels.quantize import quantize

_F = np.float32
_ULP = 2.0**-24  # a float32 rounding moves a number by this part of it at most
_BLOCK = 1 << 16  # elements whose scratch stays in the cache
_HUGE = 1e38  # sums below this never overflow
_ALL_SAFE = np.uint64(0x0101010101010101)  # eight times True

Terms = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Approximate(NamedTuple):
    """Sums of products in BLAS order, and what it takes to have some of them in the vendor's order.

    Attributes
    ----------
    value : ndarray of float32
        C-contiguous.
    relative : float
        Part of the error bound in proportion to the value.
    absolute : callable
        ``absolute(index) -> ndarray``: the other part, by flat index; ``absolute(None)``: the largest, NaN left out.
        Costly, so called only when needed.
    at : callable
        ``at(index) -> ndarray of float32``: the values at flat indices as the vendor sums them.
    may_overflow : callable
        ``may_overflow() -> bool``: whether finite operands are so large that partial sums may exceed float32.
        Costly, so called only when a value is not finite or huge.
    """

    value: np.ndarray
    relative: float
    absolute: Callable[[np.ndarray | None], np.ndarray]
    at: Callable[[np.ndarray], np.ndarray]
    may_overflow: Callable[[], bool] = lambda: False


def approximate(
    value: np.ndarray,
    bias: np.ndarray | None,
    depth: int,
    operands: tuple[np.ndarray, np.ndarray],
    squares: Callable[[], tuple[np.ndarray, np.ndarray]],
    terms: Terms,
    axes: Sequence[int],
) -> Approximate:
    """Pair sums of products with the bound of their error and the way to sum them in order.

    Two float32 sums of the same products in different orders differ by the roundings of their partial sums. Each
    rounding is up to 2^-24 of a partial sum and independent of the others, so `depth` of them add up to
    ``sqrt(depth)`` roundings of a typical partial sum. A typical partial sum is no larger than the final sum plus a few
    times what randomly signed products add up to, about ``norm(left) * norm(right) / sqrt(depth)``. With the factors 2
    and 10 below, all distances found on layers, real and random, were less than 0.4 of the bound. The bound can fail
    only for thousands of products of which the second half takes away what the first half added, and a wrong result
    would need a rounding tie at just that place, too.

    Parameters
    ----------
    value : ndarray of float32, shape (..., filters)
        The sums in any order, bias included.
    bias : ndarray of float32, shape (filters,), or None
        Comes last.
    depth : int
        Products a sum.
    operands : (ndarray, ndarray)
        Whose elements are multiplied.
    squares : callable
        -> sums of squares of the left operands, shape (positions, groups), and of the right ones, (batches, filters).
        Positions are the leading axes of `value`; groups share out the filters evenly, batches the positions.
    terms, axes
        As for :func:`sum_in_order`.

    Returns
    -------
    Approximate

    Examples
    --------
    >>> x, w = np.float32([[3, 4], [0, 1]]), np.float32([[1], [-2]])
    >>> squares, terms = (
    ...     lambda: (np.float32([[25], [1]]), np.float32([[5]])),
    ...     lambda i: (x[i], np.tile(w.T, (len(i), 1))),
    ... )
    >>> sums = approximate(x @ w, None, 2, (x, w), squares, terms, (1,))
    >>> sums.at(np.array([0, 1])), (sums.absolute(np.array([0, 1])) * 2**24).round(1)
    (array([-5., -2.], dtype=float32), array([47.4,  9.5], dtype=float32))
    """
    filters, root = value.shape[-1], max(1, depth) ** 0.5
    relative = 2 * root * _ULP

    @functools.cache
    def factors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        left, right = squares()
        offset = np.zeros(filters, _F) if bias is None else np.abs(bias) * _F(relative)
        return np.sqrt(left) * _F(min(10, 3 * root) * _ULP), np.sqrt(right), offset

    def absolute(index: np.ndarray | None) -> np.ndarray:
        left, right, offset = factors()
        if index is None:
            # where an operand is NaN, so is the sum in any order
            peak, other, most = (np.fmax.reduce(part, axis=None, initial=0) for part in (left, right, offset))
            return peak * other + most
        position, o = np.divmod(index, filters)
        group, batch = o // (filters // left.shape[1]), position // (len(left) // len(right))
        return left[position, group] * right[batch, o] + offset[o]

    def at(index: np.ndarray) -> np.ndarray:
        total = sum_in_order(index, depth, terms, axes)
        return total if bias is None else total + bias[index % filters]

    def may_overflow() -> bool:
        largest = [_largest_finite(part) for part in operands]
        return math.prod(largest) * depth + (0 if bias is None else _largest_finite(bias)) > _HUGE

    return Approximate(value, relative, absolute, at, may_overflow)


def _largest_finite(x: np.ndarray) -> float:
    size = np.abs(x)
    return float(size.max(initial=0, where=np.isfinite(size)))


def sum_in_order(index: np.ndarray, depth: int, terms: Terms, axes: Sequence[int]) -> np.ndarray:
    """Sums of products, strictly one after the other in float32, without fused multiply-add.

    Parameters
    ----------
    index : ndarray of int, shape (n,)
        Which sums; handed to `terms` in pieces so that memory stays bounded.
    depth : int
        Products a sum.
    terms : callable
        Indices, shape (m,) -> two float32 arrays of shape (m, ...) whose product is to be summed over all other axes.
    axes : sequence of int
        Those axes in the order of summing, the outermost first.

    Returns
    -------
    ndarray of float32, shape (n,)

    Examples
    --------
    >>> x = np.float32([[1e8, 1, -1e8, 1]])
    >>> sum_in_order(np.array([0]), 4, lambda i: (x[i], np.ones_like(x)[i]), (1,))
    array([1.], dtype=float32)
    """
    out = np.empty(len(index), _F)
    step = max(64, (1 << 18) // max(1, depth))
    with small_buffers(), np.errstate(all="ignore"):
        for start in range(0, len(index), step):
            left, right = terms(index[start : start + step])
            n = len(left)
            # rows 16 numbers apart from a round size do not fall into the same cache lines when read across
            products = aligned((n, depth + 16), _F)[:, :depth].reshape(left.shape)
            np.multiply(left, right, out=products)
            in_order = products.transpose(*axes, 0)
            rows = np.empty(in_order.shape, _F)
            np.copyto(rows, in_order)
            out[start : start + n] = _add_rows(rows.reshape(depth, n))
    return out


def _add_rows(rows: np.ndarray) -> np.ndarray:
    """Row after row added to a total that starts from +0; a single column numpy would sum by pairs."""
    total = np.add.reduce(rows, axis=0) if rows.shape[1] > 1 else np.add.accumulate(rows, axis=0)[-1]
    return total + _F(0)


def settle(
    approximate: Approximate, *, dtype: DTypeLike, scale: float | None = None, zero_point: int = 0
) -> np.ndarray:
    """What the vendor's runtime stores of these sums, bit for bit.

    Parameters
    ----------
    approximate : Approximate
    dtype : the stored type
        float16: rounded to nearest even. An integer type of 8 or 16 bits, with a `scale`: quantised as
        :func:`~mlinspect.kernels.quantize.quantize` does. Anything else: the float32 values are given back.
    scale : float, optional
    zero_point : int

    Returns
    -------
    ndarray of `dtype`, shape of ``approximate.value``

    Notes
    -----
    Arm NN's reference backend: decode, sum in float32 one after the other, encode.

    Examples
    --------
    >>> in_blas_order = np.float32([0.7501, 0.7499999, 0.2])
    >>> exact = np.float32([0.7501, 0.75, 0.2])
    >>> sums = Approximate(in_blas_order, 0.0, lambda i: np.float32(1e-6), lambda i: exact[i])
    >>> settle(sums, dtype=np.int8, scale=0.5)
    array([2, 2, 0], dtype=int8)
    """
    dtype = np.dtype(dtype)
    value = approximate.value.reshape(-1)
    if dtype == np.float16:
        stored, doubtful = _store_half(approximate, value)
    elif scale is not None and dtype.kind in "iu" and dtype.itemsize <= 2:
        stored, doubtful = _store_integers(approximate, value, dtype, _F(scale), zero_point)
    else:
        return _overflown(approximate)
    if len(doubtful):
        exact = approximate.at(doubtful)
        with np.errstate(over="ignore"):
            stored[doubtful] = exact if scale is None else quantize(exact, scale, zero_point, dtype)
    return stored.reshape(approximate.value.shape)


def _overflown(approximate: Approximate) -> np.ndarray:
    """The float32 values, summed in order if partial sums beyond float32 may have made some infinite or NaN."""
    value = approximate.value.reshape(-1)
    with np.errstate(all="ignore"):
        if np.isfinite(np.dot(value, value)) or not approximate.may_overflow():
            return approximate.value
    return approximate.at(np.arange(value.size)).reshape(approximate.value.shape)


def _store_integers(
    approximate: Approximate, value: np.ndarray, dtype: np.dtype, scale: np.float32, zero_point: int
) -> tuple[np.ndarray, np.ndarray]:
    """Quantised values, and the indices of those that the order of summing may change."""
    limits = np.iinfo(dtype)
    low, high = float(limits.min - zero_point), float(limits.max - zero_point)
    inverse = _F(1) / scale  # quicker than to divide; what it rounds more counts as error
    relative = approximate.relative + 6 * _ULP
    error = relative * (max(-low, high) + 1) + float(approximate.absolute(None)) / float(scale)
    near, shift = _F(0.5 - error), _F(zero_point)
    ends = _F(low - 0.25), _F(high + 0.25)  # round to the ends, and lie near no tie
    stored, found = np.empty(value.size, dtype), []
    distances, levels = aligned((2, min(value.size, _BLOCK)), _F)
    safe = np.ones(-(-distances.size // 8) * 8, bool)
    with np.errstate(all="ignore"):
        for start in range(0, value.size, _BLOCK):
            part = value[start : start + _BLOCK]
            n = len(part)
            distance, level = distances[:n], levels[:n]
            np.multiply(part, inverse, out=distance)
            np.clip(distance, *ends, out=distance)
            np.rint(distance, out=level)
            np.subtract(distance, level, out=distance)
            np.abs(distance, out=distance)
            np.less(distance, near, out=safe[:n])  # false for NaN
            safe[n:] = True
            eight = np.flatnonzero(safe.view(np.uint64) != _ALL_SAFE)  # an eighth of the numbers to look through
            candidates = (eight[:, None] * 8 + np.arange(8)).reshape(-1)
            found.append(start + candidates[~safe[candidates]])
            level += shift
            np.copyto(stored[start : start + n], level, casting="unsafe")
        index = np.concatenate(found) if found else np.empty(0, np.intp)
        if len(index):
            level = value[index] / scale
            error = (relative * np.abs(value[index]) + approximate.absolute(index)) / scale
            certain = (np.abs(level - np.rint(level)) < 0.5 - error) | (level > high + 1) | (level < low - 1)
            index = index[~certain]
    return stored, index


def _store_half(approximate: Approximate, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values as float16, and the indices of those that the order of summing may change."""
    stored, candidates = np.empty(value.size, np.float16), []
    largest = _F(approximate.absolute(None))

    def differ(v: np.ndarray, absolute: np.ndarray | np.floating) -> np.ndarray:
        error = np.abs(v) * _F(approximate.relative) + absolute
        low, high = (v - error).astype(np.float16), (v + error).astype(np.float16)
        return low.view(np.uint16) != high.view(np.uint16)  # signs of zeros count

    with np.errstate(all="ignore"):
        for start in range(0, value.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            np.copyto(stored[part], value[part], casting="unsafe")
            candidates.append(start + np.flatnonzero(differ(value[part], largest)))
        index = np.concatenate(candidates) if candidates else np.empty(0, np.intp)
        return stored, index[differ(value[index], approximate.absolute(index))]
