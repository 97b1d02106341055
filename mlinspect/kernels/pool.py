"""Pooling over windows of one to three spatial axes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.quantize import round_half_away
from mlinspect.kernels.reduce import reduce
from mlinspect.kernels.windows import Pads, taps

_MINUS_ZERO = np.iinfo(np.int32).min  # its bits
_LOWEST = np.finfo(np.float32).min


def pool_output_size(size: int, window: int, stride: int, padding: tuple[int, int], ceil: bool = False) -> int:
    """Number of windows along an axis.

    Parameters
    ----------
    size, window, stride : int
    padding : (int, int)
        Cells before and after.
    ceil : bool
        Count a last window that reaches over the end.

    Returns
    -------
    int

    Notes
    -----
    MindSpore Lite ``AvgPoolFusion`` and ``MaxPoolFusion`` (``round_mode`` 1 is ceil). Arm NN files store the size.

    Examples
    --------
    >>> pool_output_size(8, 3, 2, (0, 0)), pool_output_size(8, 3, 2, (0, 0), ceil=True)
    (3, 4)
    """
    room = size + sum(padding) - window
    return (-(-room // stride) if ceil else room // stride) + 1


def _tap(k: int, n_in: int, n_out: int, stride: int, begin: int) -> tuple[slice, slice]:
    """Where tap ``k`` of the windows meets real cells: the windows, and the cells."""
    first = max(0, -((k - begin) // stride))
    last = max(first, min(n_out, (n_in - 1 + begin - k) // stride + 1))
    cell = first * stride - begin + k
    return slice(first, last), slice(cell, cell + (last - first - 1) * stride + 1 if last > first else cell, stride)


def fold_taps(
    x: np.ndarray,
    axes: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int],
    begin: Sequence[int],
    size: Sequence[int],
    combine: Callable[..., object],
    initial: float | np.floating,
) -> np.ndarray:
    """Combine the real cells of every window, tap after tap, each tap for all windows at once.

    Parameters
    ----------
    x : ndarray of float32
    axes : sequence of int
        Axes that the windows slide along.
    window, stride, begin, size : sequence of int
        By axis: window length, stride, padding before, number of windows.
    combine : callable
        ``np.add``, ``np.fmax``, ...; called as ``combine(so_far, cells, out=so_far)``.
    initial : float
        What every window starts from.

    Returns
    -------
    ndarray of float32
        Shape of ``x``, with ``size`` along ``axes``.

    Examples
    --------
    >>> fold_taps(np.float32([1, 2, 4]), (0,), (3,), (1,), (1,), (3,), np.add, 0).tolist()
    [3.0, 7.0, 6.0]
    """
    shape = list(x.shape)
    for axis, n in zip(axes, size, strict=True):
        shape[axis] = n
    out = np.full(shape, initial, x.dtype)
    taps = [
        [_tap(k, x.shape[axis], n, s, b) for k in range(w)]
        for axis, w, s, b, n in zip(axes, window, stride, begin, size, strict=True)
    ]
    target, source = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for tap in itertools.product(*taps):
        for axis, (windows, cells) in zip(axes, tap, strict=True):
            target[axis], source[axis] = windows, cells
        view = out[tuple(target)]
        combine(view, x[tuple(source)], out=view)
    return out


def _first_largest(largest: np.ndarray, cells: np.ndarray, out: np.ndarray) -> None:
    """Of -0 and +0 the one that comes first stays, as in ``if (cell > largest)``; ``np.fmax`` takes either."""
    np.copyto(out, cells, where=cells > largest)


def _by_window(x: np.ndarray, spans: list[np.ndarray], size: tuple[int, ...], mode: str) -> np.ndarray:
    """Reduce window after window: for few, large windows."""
    axes = tuple(range(1, x.ndim - 1))
    out = np.empty((x.shape[0], *size, x.shape[-1]), np.float32)
    for position in np.ndindex(*size):
        cells = [slice(None), *(slice(*span[:, i]) for span, i in zip(spans, position, strict=True))]
        out[:, *position] = reduce(x[tuple(cells)], mode, axes)
    return out


def _area(lengths: list[np.ndarray]) -> np.ndarray:
    """Products of lengths along the spatial axes, shaped to broadcast against ``[N, *spatial, C]``."""
    return functools.reduce(np.multiply, np.ix_(*lengths))[..., None]


def pool(
    x: np.ndarray,
    algorithm: str,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Pads,
    *,
    output_size: Sequence[int] | None = None,
    exclude_padding: bool = False,
    zero_from: Sequence[float] | None = None,
) -> np.ndarray:
    """Largest, average or root-mean-square value of every window.

    Parameters
    ----------
    x : ndarray of float32, shape (N, *spatial, C)
    algorithm : {"max", "average", "l2"}
        ``l2`` is the root of the average square.
    window, stride : sequence of int
        By spatial axis; to pool globally, ``window`` is the spatial shape.
    padding : sequence of (int, int)
        Cells before and after, by spatial axis.
    output_size : sequence of int, optional
        Windows by spatial axis where the last ones reach over the end (ceil); the default is the floor rule.
    exclude_padding : bool
        What averages are divided by. True: the number of real cells. False: the window's area, padding included, but
        cut where the padding ends.
    zero_from : sequence of float, optional
        By spatial axis: windows that start at this cell or later give 0; by default the first cell behind the image.
        A window without a real cell that starts earlier has the maximum -FLT_MAX and the average 0 (NaN if padding is
        excluded).

    Returns
    -------
    ndarray of float32, shape (N, *output_size, C)
        Padding is never a maximum. A window that ends before the first real cell gives 0.

    Raises
    ------
    UnsupportedError
        No such algorithm.

    Notes
    -----
    Arm NN ``Pooling2d`` and ``Pooling3d`` (``exclude_padding`` is ``PaddingMethod::Exclude``): sums are sequential
    float32 over the window; NaN is passed over by maxima. MindSpore Lite ``AvgPoolFusion`` excludes padding.

    Examples
    --------
    >>> x = np.float32([[1, 2, 3, 4]]).reshape(1, 1, 4, 1)
    >>> pool(x, "average", (1, 3), (1, 2), ((0, 0), (1, 1))).ravel().tolist()
    [1.0, 3.0]
    >>> pool(x, "average", (1, 3), (1, 2), ((0, 0), (1, 1)), exclude_padding=True).ravel().tolist()
    [1.5, 3.0]
    """
    if algorithm not in ("max", "average", "l2"):
        raise UnsupportedError(f"no pooling is called {algorithm!r}")
    spatial = x.shape[1:-1]
    axes = range(1, x.ndim - 1)
    steps = [max(1, step) for step in stride]  # Arm NN marks global pooling by stride 0
    if output_size is None:
        output_size = [pool_output_size(*axis) for axis in zip(spatial, window, steps, padding, strict=True)]
    size = tuple(output_size)

    spans, padded, shown = [], [], []
    for n_in, n_out, w, s, (begin, end), limit in zip(
        spatial, size, window, steps, padding, zero_from or spatial, strict=True
    ):
        start = np.arange(n_out) * s - begin
        stop = np.minimum(start + w, n_in + end)
        padded.append(stop - start)
        spans.append(np.clip([start, stop], 0, n_in))
        shown.append(((stop > 0) & (start < limit)).astype(int))

    def fold(values: np.ndarray, mode: str) -> np.ndarray:
        begins = [begin for begin, _ in padding]
        if mode == "max" and (values.view(np.int32) == _MINUS_ZERO).any():
            return fold_taps(values, axes, window, steps, begins, size, _first_largest, _LOWEST)
        if np.prod(size) < np.prod(window):
            return _by_window(values, spans, size, mode)
        if mode == "sum":
            return fold_taps(values, axes, window, steps, begins, size, np.add, 0)
        for axis, w, s, b, n in zip(axes, window, steps, begins, size, strict=True):  # maxima may go axis by axis
            values = fold_taps(values, [axis], [w], [s], [b], [n], np.fmax, _LOWEST)
        return values

    if algorithm == "max":
        out = fold(x, "max")
    else:
        out = fold(x * x if algorithm == "l2" else x, "sum")
        divisor = _area([stop - start for start, stop in spans] if exclude_padding else padded)
        with np.errstate(invalid="ignore"):
            out /= divisor.astype(np.float32)
        if algorithm == "l2":
            np.sqrt(out, out=out)
    hidden = _area(shown) == 0
    if hidden.any():
        out[np.broadcast_to(hidden, out.shape)] = 0
    return out


def max_pool_inside(x: np.ndarray, window: Sequence[int], stride: Sequence[int], size: Sequence[int]) -> np.ndarray:
    """Largest value of every window where all windows lie inside the image: quicker than :func:`pool`.

    Parameters
    ----------
    x : ndarray of float32, shape (N, H, W, C)
    window, stride, size : (int, int)
        Window length, stride and number of windows, along y and x.

    Returns
    -------
    ndarray of float32, shape (N, *size, C)
        Maxima start at -FLT_MAX and pass over NaN. Of -0 and +0 either may be the maximum.

    Notes
    -----
    MindSpore Lite ``MaxPoolFusion``.

    Examples
    --------
    >>> x = np.float32([1, 3, 2, 4]).reshape(1, 1, 4, 1)
    >>> max_pool_inside(x, (1, 2), (1, 2), (1, 2)).ravel().tolist()
    [3.0, 4.0]
    """
    first, *others = (cells for _, cells in taps(x, window, stride, (1, 1), size))
    y: np.ndarray = np.fmax(first, _LOWEST)
    for cells in others:
        np.fmax(y, cells, out=y)
    return y


def roi_pool(x: np.ndarray, rois: np.ndarray, size: Sequence[int], scale: float) -> np.ndarray:
    """Largest value of every bin of regions of interest.

    Parameters
    ----------
    x : ndarray of float32, shape (N, H, W, C)
    rois : ndarray of float32, shape (R, 5)
        Image index, y1, x1, y2, x2, both ends included.
    size : (int, int)
        Bins along each region's height and width; neighbours may share cells.
    scale : float
        Cells of ``x`` to a unit of the regions' coordinates.

    Returns
    -------
    ndarray of float32, shape (R, *size, C)
        A bin outside the image gives 0.

    Notes
    -----
    MindSpore Lite ``ROIPooling``.

    Examples
    --------
    >>> x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> roi_pool(x, np.float32([[0, 0, 0, 3, 2]]), (2, 1), 1).ravel().tolist()
    [6.0, 14.0]
    """
    corners = rois[:, 1:].astype(np.float32) * np.float32(scale)
    corners = round_half_away(corners.astype(np.float64))
    out = np.empty((len(rois), *size, x.shape[3]), np.float32)
    for region, roi, corner in zip(out, rois, corners, strict=True):
        spans = []
        for start, end, bins, n_in in zip(corner[:2], corner[2:], size, x.shape[1:3], strict=True):
            length = np.float32(max(end - start + 1, 1)) / np.float32(bins)
            edges = np.arange(bins + 1, dtype=np.float32) * length
            span = start + np.stack([np.floor(edges[:-1]), np.ceil(edges[1:])])
            spans.append(np.clip(span, 0, n_in).astype(int))
        image = x[int(roi[0])]
        for bin_ in np.ndindex(*size):
            cells = image[tuple(slice(*span[:, i]) for span, i in zip(spans, bin_, strict=True))]
            region[bin_] = reduce(cells, "max", (0, 1)) if cells.size else 0
    return out
