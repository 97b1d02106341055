"""Matrix products: float32 through BLAS, integers exactly through floating-point BLAS."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlinspect.kernels.summation import Approximate, approximate

_F = np.float32
_SINGLE = np.dtype(np.float32)


class Exactness(NamedTuple):
    """How a product is made without rounding that its type would not show.

    Attributes
    ----------
    dtype : dtype
        What BLAS computes in.
    depth : int
        Products that BLAS may sum in one go.
    out : dtype
        Of the result.
    """

    dtype: np.dtype
    depth: int
    out: np.dtype


def exactness(left: np.ndarray, right: np.ndarray) -> Exactness:
    """The cheapest exact way to multiply matrices: for integers, float32 while every sum stays below 2^24.

    Above that float32 in pieces of the inner axis, or float64 (below 2^53) where the pieces would be short. That is an
    order of magnitude faster than numpy's integer matmul, which does not use BLAS.

    Parameters
    ----------
    left : ndarray
        Of any shape: only its largest magnitude matters.
    right : ndarray, shape (..., K, N)

    Returns
    -------
    Exactness

    Raises
    ------
    ValueError
        The types differ in kind, or products of two elements may exceed 2^53.

    Examples
    --------
    >>> a, b = np.full((1, 1000), 127, np.int8), np.full((1000, 1), -128, np.int8)
    >>> exactness(a, b).depth, exactness(a, b).dtype, exactness(a, b).out
    (1032, dtype('float32'), dtype('int32'))
    """
    depth = right.shape[-2]
    if left.dtype == right.dtype == _SINGLE:
        return Exactness(_SINGLE, depth, _SINGLE)
    if left.dtype.kind not in "iu" or right.dtype.kind not in "iu":
        raise ValueError(f"cannot multiply {left.dtype} and {right.dtype}: give float32 or integers")
    largest = _peak(left) * _peak(right)
    if largest * 64 < 1 << 24:
        return Exactness(_SINGLE, ((1 << 24) - 1) // max(1, largest), np.dtype(np.int32))
    if largest >= 1 << 53:
        raise ValueError(f"products of these {left.dtype} and {right.dtype} numbers exceed 2^53")
    return Exactness(np.dtype(np.float64), ((1 << 53) - 1) // largest, np.dtype(np.int32))


def _peak(q: np.ndarray) -> int:
    return max(-int(q.min()), int(q.max())) if q.size else 0


def multiply(left: np.ndarray, right: np.ndarray, out: np.ndarray, depth: int) -> None:
    """``out[...] = left @ right`` summed exactly, `depth` products at a time.

    Parameters
    ----------
    left : ndarray, shape (..., M, K)
    right : ndarray, shape (..., K, N)
        Both already of :attr:`Exactness.dtype`.
    out : ndarray, shape (..., M, N)
        Of the same type, or int32 (sums beyond it wrap around, as in C).
    depth : int
        :attr:`Exactness.depth`.

    Examples
    --------
    >>> out = np.empty((1, 1), np.int32)
    >>> multiply(np.float32([[4095, 4097]]), np.float32([[4096], [4096]]), out, depth=1)
    >>> out
    array([[33554432]], dtype=int32)
    """
    if out.dtype == left.dtype:
        np.matmul(left, right, out=out)
        return
    for start in range(0, right.shape[-2], depth):
        piece = slice(start, start + depth)
        part = np.matmul(left[..., piece], right[..., piece, :])
        if part.dtype == np.float64:
            part = part.astype(np.int64)  # may lie outside int32
        if start == 0:
            np.copyto(out, part, casting="unsafe")
        else:
            out += part.astype(np.int32)


def matmul(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Matrix product with broadcast batch axes, plus a bias.

    Parameters
    ----------
    a : ndarray of float32 or integers, shape (..., M, K)
    b : ndarray of the same kind, shape (..., K, N)
        A transposed view (``weights.T``) costs nothing.
    bias : ndarray, shape (N,), optional

    Returns
    -------
    ndarray, shape (..., M, N)
        float32; for integers the exact int32 accumulators.

    Raises
    ------
    ValueError
        Shapes or types do not fit together.

    Notes
    -----
    Arm NN ``FullyConnected`` and ``BatchMatMul``, MindSpore Lite ``FullConnection`` and ``MatMulFusion``. Integers are
    multiplied as they are: subtract zero points before.

    Examples
    --------
    >>> matmul(np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]), np.float32([0, 1]))
    array([[13., 17.]], dtype=float32)
    >>> matmul(np.int8([[127, 127]]), np.int8([[127], [127]]))
    array([[32258]], dtype=int32)
    """
    dtype, depth, out_dtype = exactness(a, b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty((*batch, a.shape[-2], b.shape[-1]), out_dtype)
    multiply(a.astype(dtype, copy=False), b.astype(dtype, copy=False), out, depth)
    if bias is not None:
        out += bias
    return out


def matmul_approximate(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> Approximate:
    """:func:`matmul` of float32, with what :func:`~mlinspect.kernels.summation.settle` needs to know.

    Parameters
    ----------
    a : ndarray of float32, shape (..., M, K)
    b : ndarray of float32, shape (..., K, N)
    bias : ndarray of float32, shape (N,), optional

    Returns
    -------
    Approximate

    Notes
    -----
    Arm NN ``FullyConnected`` and ``BatchMatMul``: sequential over K, bias last.

    Examples
    --------
    >>> a, b = np.float32([[1e8, 1, -1e8, 1]]), np.ones((4, 1), np.float32)
    >>> matmul_approximate(a, b).at(np.array([0]))
    array([1.], dtype=float32)
    """
    value = matmul(a, b, bias)
    *batch, rows, filters = value.shape
    depth = a.shape[-1]

    def squares() -> tuple[np.ndarray, np.ndarray]:
        left, right = np.einsum("...ik,...ik->...i", a, a), np.einsum("...kj,...kj->...j", b, b)
        left, right = np.broadcast_to(left, (*batch, rows)), np.broadcast_to(right, (*batch, filters))
        return left.reshape(-1, 1), right.reshape(-1, filters)

    def terms(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lefts = np.broadcast_to(a, (*batch, rows, depth))
        rights = np.broadcast_to(b.swapaxes(-1, -2), (*batch, filters, depth))
        *outer, row, column = np.unravel_index(index, value.shape)
        return lefts[*outer, row], rights[*outer, column]

    return approximate(value, bias, depth, (a, b), squares, terms, (1,))


def adjugate(a: np.ndarray) -> np.ndarray:
    """Transposed cofactor matrix of square matrices, which Arm NN calls their adjoint.

    Parameters
    ----------
    a : ndarray of float32, shape (..., N, N)

    Returns
    -------
    ndarray of float32, shape (..., N, N)

    Raises
    ------
    ValueError
        The matrices are not square.

    Notes
    -----
    Arm NN ``BatchMatMul`` (``adjointX``, ``adjointY``), operation by operation in float32: determinants of 2 x 2 minors
    by their formula, of larger ones by elimination, where a zero pivot is swapped with the next row below it that has
    none; of a 1 x 1 matrix the element itself.

    Examples
    --------
    >>> adjugate(np.float32([[1, 2], [3, 4]]))
    array([[ 4., -2.],
           [-3.,  1.]], dtype=float32)
    """
    n = a.shape[-1]
    if a.shape[-2] != n:
        raise ValueError(f"the adjugate of {a.shape[-2]} x {n} matrices does not exist: they must be square")
    if n == 1:
        return a.copy()
    keep = np.array([[k for k in range(n) if k != i] for i in range(n)])
    # [..., i, j, n - 1, n - 1]: without row i and column j
    minors = a[..., keep[:, None, :, None], keep[None, :, None, :]]
    sign = np.where(np.add.outer(np.arange(n), np.arange(n)) % 2, _F(-1), _F(1))
    return np.ascontiguousarray((sign * _determinant(minors)).swapaxes(-1, -2))


def _determinant(m: np.ndarray) -> np.ndarray:
    """Of matrices in the last two axes, which are overwritten."""
    n = m.shape[-1]
    if n == 1:
        return m[..., 0, 0]
    if n == 2:
        return m[..., 0, 0] * m[..., 1, 1] - m[..., 0, 1] * m[..., 1, 0]
    shape, m = m.shape[:-2], m.reshape(-1, n, n)
    every = np.arange(len(m))
    total, sign, regular = np.ones(len(m), _F), np.ones(len(m), _F), np.ones(len(m), bool)
    with np.errstate(all="ignore"):
        for k in range(n):
            usable = ~_vanishes(m[:, k:, k])
            regular &= usable.any(axis=1)
            pivot = k + usable.argmax(axis=1)
            swapped = m[every, pivot]
            m[every, pivot] = m[:, k]
            m[:, k] = swapped
            sign[regular & (pivot != k)] *= -1
            total *= m[:, k, k]
            below = m[:, k + 1 :, k, None]
            step = below / m[:, k, None, None, k] * m[:, None, k, k:]
            m[:, k + 1 :, k:] -= np.where(_vanishes(below), _F(0), step)
    return (np.where(regular, total, _F(0)) * sign).reshape(shape)


def _vanishes(x: np.ndarray) -> np.ndarray:
    """What Arm NN's elimination takes for a zero: subnormal numbers, and infinities by the way it compares."""
    size = np.abs(x)
    return (size < np.finfo(_F).tiny) | (size == np.inf)
