"""The weights of a layer against the numbers that their type can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlinspect import ir
from mlinspect.analysis.operands import grid, most_clipped
from mlinspect.errors import InputError
from mlinspect.plot.style import BLUE, GREY, ORANGE, VERMILION, axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LEVELS = 4096  # more levels than this are binned
MAX_TICKS = 300  # more levels than this are not drawn under the axis


def weights(tensor: ir.Tensor, ax: Axes | None = None) -> Axes:
    """How often each stored number occurs, over all numbers that the type can hold.

    For quantised weights one bar is one level of the quantisation grid, of all channels together (each channel has
    its own scale, but the same levels), and the grid itself is drawn under the axis. Levels outside the used range are
    shaded: they cost precision and hold nothing. Bars at the ends of the grid that hold more than the extremes that
    the range is made for, and more than 1 % of all values (more on grids of few levels), are red: values were clipped.
    Other weights get a plain histogram of their values.

    Parameters
    ----------
    tensor : Tensor
        A constant.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        When the tensor is not a constant, or holds no numbers.

    Examples
    --------
    >>> q = ir.Quantization(np.array([0.1]), np.array([0]), bits=4)
    >>> w = ir.Tensor(
    ...     0,
    ...     "w",
    ...     0,
    ...     "constant",
    ...     "int8",
    ...     "Int8",
    ...     (3,),
    ...     data=np.array([-2, 1, 1], np.int8),
    ...     quantization=q,
    ...     quantized=True,
    ... )
    >>> weights(w).get_xlabel()
    'stored value'
    """
    values = tensor.array
    if values is None or values.size == 0 or values.dtype.kind not in "iuf":
        raise InputError(f"tensor {tensor.name!r} is not a constant of numbers")
    ax = axes(ax, 7, 3.2)
    q = tensor.quantization if tensor.quantized else None
    flat = np.asarray(values).ravel()
    levels = grid(tensor)
    if q is None or levels is None or q.bits >= MAX_LEVELS.bit_length():
        finite = flat[np.isfinite(flat)].astype(np.float64)
        ax.hist(finite, bins=100, color=BLUE)
        ax.set_xlabel("stored value" if tensor.quantized else "value")
        what = f"{flat.size:,} values of {tensor.dtype}"
    else:
        low, high = min(levels[0], int(flat.min())), max(levels[1], int(flat.max()))
        counts = np.bincount(flat.astype(np.int64) - low, minlength=high - low + 1)
        used = np.flatnonzero(counts) + low
        bars = ax.bar(np.arange(low, high + 1), counts, width=1.0 if high - low >= 64 else 0.9, color=BLUE, linewidth=0)
        clipped = int(counts[: levels[0] - low + 1].sum() + counts[levels[1] - low :].sum())
        clipped = max(clipped - (1 if q.symmetric else 2) * len(q.scale), 0)
        if clipped > most_clipped(q.bits) * flat.size:
            for bar in (*bars[: levels[0] - low + 1], *bars[levels[1] - low :]):
                bar.set_color(VERMILION)
        if high - low < MAX_TICKS:
            places = np.arange(levels[0], levels[1] + 1)
            ax.vlines(places, -0.035, -0.005, GREY, linewidth=0.6, transform=ax.get_xaxis_transform(), clip_on=False)
            ax.tick_params(axis="x", pad=8)
        for start, stop in ((low - 0.5, used[0] - 0.5), (used[-1] + 0.5, high + 0.5)):
            if stop > start:
                ax.axvspan(start, stop, color=ORANGE, alpha=0.25, linewidth=0)
        ax.set_xlim(low - 0.5, high + 0.5)
        ax.set_xlabel("stored value")
        what = f"{len(used)} of {high - low + 1} levels used, {_scales(q)}"
        what += f", {clipped / flat.size:.1%} clipped" if clipped > most_clipped(q.bits) * flat.size else ""
    ax.axvline(0 if q is None or q.per_channel else float(q.zero_point[0]), color=GREY, linewidth=0.8)
    ax.set_ylabel("weights")
    return tidy(ax, plain(tensor.name), what)


def _scales(q: ir.Quantization) -> str:
    if not q.per_channel:
        return f"scale {q.scale[0]:.4g}, zero point {q.zero_point[0]}" if len(q.scale) else "no scale"
    return f"{len(q.scale)} channels with scales from {q.scale.min():.4g} to {q.scale.max():.4g}"
