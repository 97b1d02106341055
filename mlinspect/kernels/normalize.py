"""Batch, instance, layer, group, L2 and local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlinspect.kernels.pool import fold_taps
from mlinspect.kernels.reduce import normalize_axes, sum_sequential
from mlinspect.kernels.shape import along

_LONG = 1024  # numbers that make an inner loop long enough
_BLOCK = 1 << 15  # numbers of a block that stays in the cache


def batch_norm(
    x: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    gamma: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    epsilon: float,
    folded: bool = False,
    axis: int = -1,
) -> np.ndarray:
    """``gamma * (x - mean) / sqrt(variance + epsilon) + beta`` with given moments.

    Parameters
    ----------
    x : ndarray of float32
    mean, variance : ndarray of float32, shape (C,)
    gamma, beta : ndarray of float32, shape (C,), optional
        1 and 0 by default.
    epsilon : float
    folded : bool
        True: ``m * x + (beta - m * mean)`` with ``m = gamma / sqrt(variance + epsilon)``, which rounds differently
        where the mean is large.
    axis : int
        The channels' axis.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    Arm NN ``BatchNormalization`` is folded; MindSpore Lite ``BatchNorm`` and ``FusedBatchNorm`` (scale, offset) are
    not.

    Examples
    --------
    >>> batch_norm(np.float32([[4, 5]]), np.float32([2, 5]), np.float32([4, 1]), epsilon=0).tolist()
    [[1.0, 0.0]]
    """
    slope = (np.float32(1) if gamma is None else gamma) / np.sqrt(variance + np.float32(epsilon))
    shift = np.zeros_like(mean) if beta is None else beta
    if folded:
        return by_channel(x, axis, (np.multiply, slope), (np.add, shift - slope * mean))
    return by_channel(x, axis, (np.subtract, mean), (np.multiply, slope), (np.add, shift))


def by_channel(x: np.ndarray, axis: int, *steps: tuple[np.ufunc, np.ndarray]) -> np.ndarray:
    """Combine every channel with its own number, several times over.

    Where the channels lie last in a large tensor, their numbers are repeated until numpy's inner loop is long, and all
    steps are done to a block of rows while it is in the cache.

    Parameters
    ----------
    x : ndarray of float32
    axis : int
        The channels' axis.
    *steps : (ufunc, ndarray of float32 of shape (C,))
        In their order: ``x = ufunc(x, values)``.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Examples
    --------
    >>> by_channel(np.float32([[1, 2], [3, 4]]), -1, (np.multiply, np.float32([2, 1])), (np.add, np.float32([0, 9])))
    array([[ 2., 11.],
           [ 6., 13.]], dtype=float32)
    """
    if axis % x.ndim != x.ndim - 1 or not x.flags.c_contiguous or x.size < _BLOCK:
        for function, values in steps:
            x = function(x, along(values, axis, x.ndim))
        return x
    channels = x.shape[-1]
    rows = x.size // channels
    repeat = next(r for r in range(1, rows + 1) if rows % r == 0 and (r * channels >= _LONG or r == rows))
    out = np.empty(x.shape, np.float32)
    source, target = x.reshape(-1, repeat * channels), out.reshape(-1, repeat * channels)
    tiled = [(function, np.tile(values, repeat)) for function, values in steps]
    block = max(1, _BLOCK // (repeat * channels))
    for start in range(0, len(source), block):
        part = target[start : start + block]
        operand = source[start : start + block]
        for function, values in tiled:
            operand = function(operand, values, out=part)
    return out


def instance_norm(x: np.ndarray, gamma: np.ndarray | float, beta: np.ndarray | float, *, epsilon: float) -> np.ndarray:
    """Normalise every channel of every image by its own mean and population variance, found in two passes.

    Parameters
    ----------
    x : ndarray of float32, shape (N, *spatial, C)
    gamma, beta : ndarray of float32, shape (C,), or float
    epsilon : float
        Added to the variance.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    Arm NN ``InstanceNormalization`` (reference backend: sequential float32).

    Examples
    --------
    >>> instance_norm(np.float32([1, 3, 5, 7]).reshape(1, 2, 2, 1), 5, 10, epsilon=20).ravel().tolist()
    [7.0, 9.0, 11.0, 13.0]
    """
    axes = tuple(range(1, x.ndim - 1))
    count = np.float32(np.prod(x.shape[1:-1]))
    centred = x - sum_sequential(x, axes, keepdims=True) / count
    variance = sum_sequential(centred * centred, axes, keepdims=True) / count
    centred *= np.asarray(gamma, np.float32)
    centred /= np.sqrt(variance + np.float32(epsilon))
    centred += np.asarray(beta, np.float32)
    return centred


def _fused_square_sum(x: np.ndarray) -> np.ndarray:
    """Sum of squares along axis 0, one after the other in float32, each product and sum rounded once together.

    MindSpore Lite's binary has such fused multiply-adds. Where a variance is the difference of two nearly equal
    moments, the last place of their sums decides its leading digits.
    """
    total = np.zeros(x.shape[1:], np.float32)
    for squares in np.square(x, dtype=np.float64):  # exact
        total = (total + squares).astype(np.float32)
    return total


def _inverse_deviation(mean: np.ndarray, mean_square: np.ndarray, epsilon: float) -> np.ndarray:
    """``1 / sqrt(mean_square - mean**2 + epsilon)`` with a fused multiply-subtract."""
    variance = (mean_square - np.square(mean, dtype=np.float64)).astype(np.float32)
    return np.float32(1) / np.sqrt(variance + np.float32(epsilon))


def instance_norm_one_pass(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, *, epsilon: float, double: bool = False
) -> np.ndarray:
    """:func:`instance_norm` from the sums of ``x`` and ``x * x``, which loses digits where the mean is large.

    Parameters
    ----------
    x : ndarray of float32, shape (N, *spatial, C)
    gamma, beta : ndarray of float32, shape (C,)
    epsilon : float
        Added to the variance.
    double : bool
        Sum in float64 instead of float32.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    MindSpore Lite ``InstanceNorm``; ``double`` for tensors whose format is NCHW.

    Examples
    --------
    >>> x, five, ten = np.float32([1, 3, 5, 7]).reshape(1, 2, 2, 1), np.float32([5]), np.float32([10])
    >>> instance_norm_one_pass(x, five, ten, epsilon=20).ravel().tolist()
    [7.0, 9.0, 11.0, 13.0]
    """
    places = x.reshape(x.shape[0], -1, x.shape[-1])
    count = places.shape[1]
    if double:
        wide = places.mean(1, np.float64)
        slope = gamma / np.sqrt((places * places).mean(1, np.float64) - wide * wide + epsilon)
        mean, slope = wide.astype(np.float32), slope.astype(np.float32)
    else:
        mean = sum_sequential(places, 1) / np.float32(count)
        mean_square = _fused_square_sum(np.moveaxis(places, 1, 0)) / np.float32(count)
        slope = gamma * _inverse_deviation(mean, mean_square, epsilon)
    out = places - mean[:, None]
    out *= slope[:, None]
    out += beta
    return out.reshape(x.shape)


def layer_norm(
    x: np.ndarray,
    gamma: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    epsilon: float,
    begin_axis: int = -1,
) -> np.ndarray:
    """Normalise the trailing axes together.

    Parameters
    ----------
    x : ndarray of float32
    gamma, beta : ndarray of float32, optional
        Broadcast against ``x``'s trailing axes.
    epsilon : float
        Added to the variance.
    begin_axis : int
        First of the axes to normalise.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    MindSpore Lite ``LayerNormFusion`` (``begin_norm_axis``): the variance is the mean square less the squared mean, in
    float32. Both are summed in 8 lanes (from 32 elements on), then 4 (from 16 on), then one by one.

    Examples
    --------
    >>> layer_norm(np.float32([[1, 3], [5, 5]]), epsilon=0.0001).round(3).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    begin_axis %= x.ndim
    outer, length = int(np.prod(x.shape[:begin_axis])), int(np.prod(x.shape[begin_axis:]))
    rows = x.reshape(outer, length)
    total, squares, done = np.zeros(outer, np.float32), np.zeros(outer, np.float32), 0
    for lanes in (8, 4):
        if length >= 4 * lanes:
            end = length - (length - done) % lanes
            blocks = rows[:, done:end].reshape(outer, (end - done) // lanes, lanes)
            total += sum_sequential(sum_sequential(blocks, 1), 1)
            squares += sum_sequential(_fused_square_sum(np.moveaxis(blocks, 1, 0)), 1)
            done = end
    for rest in rows[:, done:].T:
        total += rest
        squares = (squares + np.square(rest, dtype=np.float64)).astype(np.float32)
    mean = total / np.float32(length)
    out = rows - mean[:, None]
    out *= _inverse_deviation(mean, squares / np.float32(length), epsilon)[:, None]
    out = out.reshape(x.shape)
    if gamma is not None:
        out *= gamma
    if beta is not None:
        out += beta
    return out


def group_norm(x: np.ndarray, groups: int, gamma: np.ndarray, beta: np.ndarray, *, epsilon: float) -> np.ndarray:
    """Normalise the channels of every image in groups.

    Parameters
    ----------
    x : ndarray of float32, shape (N, *spatial, C)
    groups : int
        Divides C.
    gamma, beta : ndarray of float32, shape (C,)
    epsilon : float
        Added to the variance.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    MindSpore Lite ``GroupNormFusion`` (which the runtime 2.0.0 has no kernel for).

    Examples
    --------
    >>> x = np.float32([1, 3, 8, 8]).reshape(1, 1, 1, 4)
    >>> group_norm(x, 2, np.ones(4, np.float32), np.zeros(4, np.float32), epsilon=3).ravel().tolist()
    [-0.5, 0.5, 0.0, 0.0]
    """
    batch, channels = x.shape[0], x.shape[-1]
    out = x.reshape(batch, -1, groups, channels // groups)
    out = out - out.mean((1, 3), np.float64, keepdims=True).astype(np.float32)
    variance = np.square(out).mean((1, 3), np.float64, keepdims=True).astype(np.float32)
    out /= np.sqrt(variance + np.float32(epsilon))
    out = out.reshape(x.shape)
    out *= gamma
    out += beta
    return out


def l2_normalize(x: np.ndarray, axes: Sequence[int] | int = -1, *, epsilon: float) -> np.ndarray:
    """``x / sqrt(max(sum(x * x), epsilon))``: epsilon is a floor, not an addend.

    Parameters
    ----------
    x : ndarray of float32
    axes : sequence of int or int
        Axes that the squares are summed along.
    epsilon : float

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    Arm NN ``L2Normalization`` (reference backend: sequential float32 over the channels, then a product with the
    reciprocal root); MindSpore Lite ``L2NormalizeFusion``.

    Examples
    --------
    >>> l2_normalize(np.float32([[0, 4], [0, 0.5]]), epsilon=1).tolist()
    [[0.0, 1.0], [0.0, 0.5]]
    """
    squares = sum_sequential(x * x, normalize_axes(axes, x.ndim), keepdims=True)
    return x * (np.float32(1) / np.sqrt(np.maximum(squares, np.float32(epsilon))))


def local_response_norm(
    x: np.ndarray,
    *,
    radius: int,
    alpha: float,
    beta: float,
    bias: float,
    axes: Sequence[int] | int = -1,
    divide: bool = False,
) -> np.ndarray:
    """``x * (bias + alpha * sum)**-beta``, the sum being of the squares at most ``radius`` cells away.

    Parameters
    ----------
    x : ndarray of float32
    radius : int
        The window spans ``2 * radius + 1`` cells, cut at the borders.
    alpha, beta, bias : float
        ``alpha`` is not divided by the window's size.
    axes : sequence of int or int
        Axes that the window spans: the channels', or two.
    divide : bool
        True: ``x / (bias + alpha * sum)**beta``, which rounds differently.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    Arm NN ``Normalization``, LocalBrightness (``bias`` is its ``k``, ``radius`` half its ``normSize``): Across takes
    the channels; Within takes the last two axes, whatever the layout, and divides. MindSpore Lite ``LRN``
    (``depth_radius``) takes the channels.

    Examples
    --------
    >>> local_response_norm(np.float32([0, 1, 2]), radius=1, alpha=3, beta=0.5, bias=1).tolist()
    [0.0, 0.25, 0.5]
    """
    axes = normalize_axes(axes, x.ndim)
    ones, radii = [1] * len(axes), [radius] * len(axes)
    window = [2 * radius + 1] * len(axes)
    base = fold_taps(x * x, axes, window, ones, radii, [x.shape[axis] for axis in axes], np.add, 0)
    base *= np.float32(alpha)
    base += np.float32(bias)
    exponent = float(np.float32(beta))
    # powf is right to the last bit nearly always, numpy's float32 power is not: go through float64
    scale = np.power(base.astype(np.float64), exponent if divide else -exponent).astype(np.float32)
    return x / scale if divide else x * scale
