"""Reductions, positions of extremes, running sums, the k largest.

Arm NN's reference backend adds float32 numbers one after the other in memory order; numpy adds the last axis pairwise.
The difference shows where a quantised result lies near a rounding tie, so sums here keep the vendor's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlinspect.errors import UnsupportedError

_BLOCK = 64  # rows transposed at a time: fits the cache, and is wide enough for SIMD


def normalize_axes(axes: Sequence[int] | int | None, ndim: int) -> tuple[int, ...]:
    """Axes as sorted numbers from 0; none given means all.

    Parameters
    ----------
    axes : sequence of int, int or None
        Negative axes count from the end.
    ndim : int

    Returns
    -------
    tuple of int

    Raises
    ------
    ValueError
        An axis lies outside the array.

    Examples
    --------
    >>> normalize_axes((-1, 0), 3), normalize_axes((), 2)
    ((0, 2), (0, 1))
    """
    return tuple(sorted(set(_in_order(axes, ndim))))


def _in_order(axes: Sequence[int] | int | None, ndim: int) -> list[int]:
    wanted = [] if axes is None else [int(axis) for axis in np.atleast_1d(axes)]
    if any(not -ndim <= axis < ndim for axis in wanted):
        raise ValueError(f"axes {tuple(wanted)} of an array with {ndim} axes")
    return [axis % ndim for axis in wanted] or list(range(ndim))


def _fold(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """``x`` as (before, reduced, after); a view when the reduced axes are neighbours."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    before = [axis for axis in kept if axis < axes[-1]]
    after = kept[len(before) :]
    sizes = [int(np.prod([x.shape[axis] for axis in group])) for group in (before, axes, after)]
    return np.ascontiguousarray(x.transpose(*before, *axes, *after)).reshape(sizes)


def sum_sequential(x: np.ndarray, axes: Sequence[int] | int | None = None, keepdims: bool = False) -> np.ndarray:
    """Sum in float32, one element after the other in memory order, as Arm NN's reference loops do.

    Parameters
    ----------
    x : ndarray of float32
    axes : sequence of int, int or None
        Axes to sum; none means all.
    keepdims : bool

    Returns
    -------
    ndarray of float32

    Examples
    --------
    A small addend is lost every time it meets the large partial sum:

    >>> x = np.float32([2**24] + 15 * [1])
    >>> float(sum_sequential(x)) - 2**24, float(x.sum()) - 2**24
    (0.0, 14.0)
    """
    axes = normalize_axes(axes, x.ndim)
    folded = _fold(x, axes)
    before, count, after = folded.shape
    if count == 0:
        total = np.zeros((before, after), np.float32)
    elif after > 1:
        total = np.add.reduce(folded, axis=1)  # numpy adds whole rows here: already sequential
    elif before < _BLOCK // 8:
        total = np.add.accumulate(folded, axis=1)[:, -1]
    else:
        blocks = np.array_split(folded[:, :, 0], -(-before // _BLOCK))
        total = np.concatenate([np.add.reduce(np.ascontiguousarray(block.T), axis=0) for block in blocks])
    total = total + np.float32(0)  # where the loops start from: -0 alone sums up to +0
    return total.reshape(_reduced_shape(x.shape, axes, keepdims))


def _reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _sum(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    if x.dtype == np.float32:
        return sum_sequential(x, axes, keepdims)
    return x.sum(axes, x.dtype, keepdims=keepdims)


def _prod(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    product = np.multiply.reduce(_fold(x, axes), axis=1, dtype=x.dtype)
    return product.reshape(_reduced_shape(x.shape, axes, keepdims))


def _mean(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    count = int(np.prod([x.shape[axis] for axis in axes]))
    total = _sum(x, axes, keepdims)
    if x.dtype == np.float32:
        return total / np.float32(count)
    return np.trunc(total / count).astype(x.dtype)


def _extreme(x: np.ndarray, axes: tuple[int, ...], keepdims: bool, largest: bool) -> np.ndarray:
    pick = np.fmax if largest else np.fmin  # these pass over NaN, as a strict comparison does
    limits = np.finfo(x.dtype) if x.dtype == np.float32 else np.iinfo(x.dtype)
    out = np.asarray(pick.reduce(x, axis=axes, initial=limits.min if largest else limits.max), x.dtype)
    if x.dtype == np.float32 and not out.all():  # fmax and fmin take either of -0 and +0, a comparison the first
        folded = _fold(x, axes)
        first = np.take_along_axis(folded, (folded == 0).argmax(axis=1, keepdims=True), axis=1)
        out = np.where(out == 0, first.reshape(out.shape), out)
    return out.reshape(_reduced_shape(x.shape, axes, keepdims))


_REDUCTIONS = {
    "sum": _sum,
    "mean": _mean,
    "prod": _prod,
    "max": lambda x, axes, keepdims: _extreme(x, axes, keepdims, True),
    "min": lambda x, axes, keepdims: _extreme(x, axes, keepdims, False),
    "sum_square": lambda x, axes, keepdims: _sum(x * x, axes, keepdims),
    "asum": lambda x, axes, keepdims: _sum(np.abs(x), axes, keepdims),
    "l2": lambda x, axes, keepdims: np.sqrt(_sum(x * x, axes, keepdims)),
    "all": lambda x, axes, keepdims: np.logical_and.reduce(x, axis=axes, keepdims=keepdims),
}


def reduce(x: np.ndarray, mode: str, axes: Sequence[int] | int | None = None, keepdims: bool = False) -> np.ndarray:
    """Reduce over axes, all at once.

    Parameters
    ----------
    x : ndarray of float32, int32 or bool
        Integers are reduced in their own type: sums and products wrap, the mean truncates toward zero.
    mode : {"sum", "mean", "prod", "max", "min", "sum_square", "asum", "l2", "all"}
        ``asum`` adds absolute values, ``l2`` is the root of ``sum_square``. Maxima start at -FLT_MAX, minima at
        FLT_MAX, and pass over NaN.
    axes : sequence of int, int or None
        None or empty: all axes.
    keepdims : bool

    Returns
    -------
    ndarray
        Of ``x``'s dtype.

    Raises
    ------
    UnsupportedError
        No such mode.

    Notes
    -----
    Arm NN ``Reduce`` and ``Mean`` (reference backend): sequential float32, the mean divided once at the end.

    Examples
    --------
    >>> reduce(np.float32([[1, 2], [3, 5]]), "mean", axes=1)
    array([1.5, 4. ], dtype=float32)
    """
    if mode not in _REDUCTIONS:
        raise UnsupportedError(f"no reduction is called {mode!r}")
    return _REDUCTIONS[mode](x, normalize_axes(axes, x.ndim), keepdims)


def reduce_by_axis(
    x: np.ndarray, mode: str, axes: Sequence[int] | int | None = None, keepdims: bool = False
) -> np.ndarray:
    """Reduce one axis after the other, in the order given.

    Parameters
    ----------
    x : ndarray of float32, int32 or bool
    mode : str
        As in `reduce`. For integers ``sum_square`` and ``asum`` are plain sums.
    axes : sequence of int, int or None
        None or empty: all axes.
    keepdims : bool

    Returns
    -------
    ndarray
        Of ``x``'s dtype.

    Notes
    -----
    MindSpore Lite ``ReduceFusion``. What its runtime 2.0.0 gets wrong is kept: a float32 maximum starts at the smallest
    positive normal number (``FLT_MIN``), so maxima below come out as that, unless nothing but axes of length 1 lies
    behind the reduced one, or all reduced axes have length 1.

    Examples
    --------
    >>> x = np.float32([[-1, -2], [-3, -4]])
    >>> reduce_by_axis(x, "max", 1).tolist(), reduce_by_axis(x, "max", 0).tolist()
    ([-1.0, -3.0], [1.1754943508222875e-38, 1.1754943508222875e-38])
    """
    order = _in_order(axes, x.ndim)
    out = x
    if mode in ("sum_square", "asum"):
        if x.dtype == np.float32:
            out = x * x if mode == "sum_square" else np.abs(x)
        mode = "sum"
    flawed = mode == "max" and x.dtype == np.float32 and any(x.shape[axis] > 1 for axis in order)
    for axis in order:
        out = reduce(out, mode, axis, keepdims=True)
        if flawed and np.prod(out.shape[axis + 1 :]) > 1:
            out = np.maximum(out, np.finfo(np.float32).tiny)
    return out.reshape(_reduced_shape(x.shape, tuple(order), keepdims))


def arg_extreme(x: np.ndarray, axis: int, largest: bool = True, first_nan_wins: bool = True) -> np.ndarray:
    """Index of the largest or smallest element along an axis, the first among equals.

    Parameters
    ----------
    x : ndarray of float32 or int32
    axis : int
    largest : bool
        False: the smallest.
    first_nan_wins : bool
        NaN never wins a strict comparison, but when a search starts from element 0 nothing beats a NaN there
        (Arm NN). False: the search starts from the type's limit, and NaN is passed over everywhere (MindSpore Lite).

    Returns
    -------
    ndarray of int64
        Without ``axis``.

    Notes
    -----
    Arm NN ``ArgMinMax``; MindSpore Lite ``ArgMaxFusion`` and ``ArgMinFusion`` with ``top_k`` 1.

    Examples
    --------
    >>> int(arg_extreme(np.float32([1, np.nan, 3, 3]), 0))
    2
    """
    find = np.argmax if largest else np.argmin
    index = find(x, axis=axis)
    if x.dtype != np.float32 or not np.isnan(np.take_along_axis(x, np.expand_dims(index, axis), axis)).any():
        return index
    worst = np.float32(-np.inf if largest else np.inf)
    cleaned = np.where(np.isnan(x), worst, x)
    index = find(cleaned, axis=axis)
    return np.where(np.isnan(x.take(0, axis)), 0, index) if first_nan_wins else index


def top_k(
    x: np.ndarray, k: int, axis: int = -1, largest: bool = True, in_order: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest (or smallest) elements along an axis; equal ones in order of their index.

    Parameters
    ----------
    x : ndarray of float32 or int32
        Integers are compared as float32, as the runtime does.
    k : int
    axis : int
    largest : bool
    in_order : bool
        False: the chosen elements come in the order of their index.

    Returns
    -------
    values : ndarray
        Of ``x``'s dtype; ``axis`` has k elements.
    indices : ndarray of int32

    Notes
    -----
    MindSpore Lite ``TopKFusion`` (whose ``largest`` the runtime ignores), and ``ArgMaxFusion`` / ``ArgMinFusion`` with
    ``top_k`` > 1.

    Examples
    --------
    >>> values, indices = top_k(np.float32([1, 7, 3, 7]), 3)
    >>> values.tolist(), indices.tolist()
    ([7.0, 7.0, 3.0], [1, 3, 2])
    """
    keys = x.astype(np.float32)
    order = np.argsort(-keys if largest else keys, axis=axis, kind="stable")
    chosen = order.take(np.arange(k), axis)
    if not in_order:
        chosen = np.sort(chosen, axis=axis)
    return np.take_along_axis(keys, chosen, axis).astype(x.dtype), chosen.astype(np.int32)


def cumsum(x: np.ndarray, axis: int, exclusive: bool = False, reverse: bool = False) -> np.ndarray:
    """Running sum along an axis, in ``x``'s own type.

    Parameters
    ----------
    x : ndarray of float32 or int32
    axis : int
    exclusive : bool
        Leave the element itself out.
    reverse : bool
        Sum from the end.

    Returns
    -------
    ndarray
        Shape and dtype of ``x``.

    Notes
    -----
    MindSpore Lite ``CumSum``.

    Examples
    --------
    >>> cumsum(np.int32([1, 2, 3]), 0, exclusive=True, reverse=True).tolist()
    [5, 3, 0]
    """
    along = np.moveaxis(x, axis, 0)
    along = along[::-1] if reverse else along
    if exclusive:
        total = np.zeros_like(along)
        np.add.accumulate(along[:-1], axis=0, dtype=x.dtype, out=total[1:])
    else:
        total = np.add.accumulate(along, axis=0, dtype=x.dtype)
    return np.ascontiguousarray(np.moveaxis(total[::-1] if reverse else total, 0, axis))
