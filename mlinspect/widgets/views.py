"""One tensor's values as HTML: heat map, feature maps, histogram, numbers. Pure functions with small results.

However large the array, a picture has at most ``pixels.LIMIT`` pixels a side, a table ``ROWS`` by ``COLUMNS`` cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np

from mlinspect import ir
from mlinspect.execute.conditions import real_values
from mlinspect.execute.values import dequantize_array, grid
from mlinspect.html import shape_text, table
from mlinspect.kernels.agreement import Agreement, agreement
from mlinspect.widgets import pixels
from mlinspect.widgets.pixels import HIGH, INF, LOW, NAN

ROWS, COLUMNS = 12, 8
MAX_MAPS = 64  # channels that the grid of feature maps shows
BINS = 128
SIZE = 240  # pixels of a picture on the screen, about
VIEWS = {"maps": "feature maps", "map": "heat map", "histogram": "histogram", "numbers": "numbers"}
UNITS = {"real": "real values", "stored": "as stored"}
_CHANNELS_FIRST = ("NCHW", "OIHW", "MIHW", "NC4HW4", "NC8HW8")
_WORDS = {LOW: "at the type's lower end", HIGH: "at its upper end", INF: "Inf", NAN: "NaN"}


@dataclass(frozen=True)
class Shown:
    """A tensor to look at.

    Attributes
    ----------
    tensor : ir.Tensor
    array : ndarray
        As stored.
    unit : {"real", "stored"}
    reference : ndarray or None
        Real values of the same shape that should be there.
    decoded : ndarray or None
        The real values, where the format has its own way to get at them.
    """

    tensor: ir.Tensor
    array: np.ndarray
    unit: str = "real"
    reference: np.ndarray | None = None
    decoded: np.ndarray | None = None

    @cached_property
    def real(self) -> np.ndarray:
        """Real values."""
        if self.decoded is not None:
            return self.decoded
        if self.tensor.dtype == "bfloat16":
            return dequantize_array(self.array, self.tensor)
        return real_values(self.array, self.tensor)

    @cached_property
    def values(self) -> np.ndarray:
        """The numbers in the unit that is wanted."""
        return self.array if self.unit == "stored" else self.real

    @cached_property
    def error(self) -> np.ndarray | None:
        """Real values less those of the reference."""
        if self.reference is None or self.reference.shape != self.real.shape:
            return None
        with np.errstate(all="ignore"):
            return np.subtract(self.real, self.reference, dtype=np.float32)

    @cached_property
    def agreement(self) -> Agreement | None:
        """How well the real values agree with the reference."""
        return None if self.error is None or self.reference is None else agreement(self.reference, self.real)

    @cached_property
    def ends(self) -> tuple[int, int] | None:
        """Smallest and largest number of a quantised tensor's type; None for other tensors."""
        if not self.tensor.quantized or self.array.dtype.kind not in "iu" or self.array.itemsize > 2:
            return None
        q, bits = self.tensor.quantization, 8 * self.array.itemsize
        if q is not None and 1 <= q.bits < bits and self.tensor.data is not None:
            bits = q.bits
        return grid(self.array.dtype, bits)

    @cached_property
    def marks(self) -> np.ndarray | None:
        """LOW, HIGH, INF, NAN or 0 for each value; None when there are none.

        An end of the type that stands for real 0 is not marked: after a ReLU many values lie there.
        """
        if self.ends is not None:
            q, (low, high) = self.tensor.quantization, self.ends
            zero = q.shared[1] if q is not None and q.shared is not None else None
            found = np.zeros(self.array.shape, np.uint8)
            if zero != low:
                found[self.array == low] = LOW
            if zero != high:
                found[self.array == high] = HIGH
            return found
        if self.array.dtype.kind == "f" and not np.isfinite(self.array).all():
            return np.where(np.isnan(self.array), NAN, np.where(np.isinf(self.array), INF, 0)).astype(np.uint8)
        return None

    @cached_property
    def counts(self) -> dict[int, int]:
        """How often each mark occurs, where it does."""
        if self.marks is None:
            return {}
        found = np.bincount(self.marks.ravel(), minlength=5)
        return {mark: int(found[mark]) for mark in _WORDS if found[mark]}

    @property
    def centre(self) -> float:
        """The number that stands for 0."""
        q = self.tensor.quantization
        single = self.unit == "stored" and self.tensor.quantized and q is not None and len(q.zero_point)
        return float(q.zero_point[0]) if single and q is not None else 0.0


def planes(array: np.ndarray, layout: str | None) -> np.ndarray:
    """Any array as (batch, channels, rows, columns), a view where numpy can make one.

    Four axes are batch, rows, columns, channels, unless the layout says that the channels come second; axes before
    these count as batch. Three are batch, rows, columns; two are a matrix; one is a row.

    Examples
    --------
    >>> x = np.zeros((1, 5, 6, 3))
    >>> planes(x, "NHWC").shape, planes(x, "NCHW").shape, planes(x[0, 0], None).shape
    ((1, 3, 5, 6), (1, 5, 6, 3), (1, 1, 6, 3))
    """
    if array.ndim < 3:
        return array.reshape((1,) * (4 - array.ndim) + array.shape)
    if array.ndim == 3:
        return array[:, None]
    folded = array.reshape((-1, *array.shape[-3:]))
    return folded if layout in _CHANNELS_FIRST else folded.transpose(0, 3, 1, 2)


def figures(shown: Shown) -> str:
    """One line of facts: range, mean, zeros, marks; and the agreement with the reference.

    Examples
    --------
    >>> t = ir.Tensor(0, "x", 0, "activation", "float32", "Float", (2,))
    >>> figures(Shown(t, np.array([1, 0], "f4")))
    "<div class='mli-more'>min 0, max 1, mean 0.5, zeros 50.0%</div>"
    """
    values = shown.values
    finite = np.isfinite(values)
    good = values if finite.all() else values[finite]
    parts = [] if good.size else ["no finite values"]
    if good.size:
        parts = [
            f"min {_number(good.min())}",
            f"max {_number(good.max())}",
            f"mean {_number(good.mean(dtype=np.float64))}",
            f"zeros {_share(np.mean(shown.real == 0))}",
        ]
    marks = legend(shown)
    return f"<div class='mli-more'>{', '.join(parts)}{' ' if marks else ''}{marks}</div>"


def verdict(shown: Shown) -> str:
    """How well the values agree with the reference, in a line; empty without one.

    Examples
    --------
    >>> t = ir.Tensor(0, "x", 0, "activation", "float32", "Float", (2,))
    >>> verdict(Shown(t, np.array([1, 2], "f4"), reference=np.array([1, 2.1], "f4")))
    "<div class='mli-more'>against the reference: SQNR 27.3 dB, largest error 0.1, cosine 0.9998</div>"
    """
    if shown.reference is None:
        return ""
    if shown.agreement is None:
        sizes = f"{shape_text(shown.real.shape)}, not {shape_text(shown.reference.shape)}"
        return f"<div class='mli-more'>against the reference: {sizes}</div>"
    found = shown.agreement
    return (
        f"<div class='mli-more'>against the reference: SQNR {found.sqnr_db:.1f} dB, "
        f"largest error {_number(found.max_abs)}, cosine {found.cosine:.4f}</div>"
    )


def picture(shown: Shown, view: str, batch: int = 0, channel: int = 0, row: int = 0, column: int = 0) -> str:
    """A tensor in one of the ``VIEWS``, with its figures; beside it the error, where there is a reference.

    Parameters
    ----------
    shown : Shown
    view : {"map", "maps", "histogram", "numbers"}
    batch, channel : int
        Which plane (see `planes`); taken as the last one if there are not so many.
    row, column : int
        Where the table of numbers starts.

    Examples
    --------
    >>> t = ir.Tensor(0, "x", 0, "activation", "float32", "Float", (1, 4, 4, 2))
    >>> html = picture(Shown(t, np.ones((1, 4, 4, 2), "f4")), "maps")
    >>> html.count("<img"), len(html) < 6000
    (2, True)
    """
    if not isinstance(shown.array, np.ndarray) or shown.array.dtype.kind not in "iufb":
        return "<div class='mli-more'>no numbers</div>"
    if not shown.array.size:
        return f"<div class='mli-more'>empty: {shape_text(shown.array.shape)}</div>"
    draw = {"map": _map, "maps": _maps, "numbers": _numbers}
    if view == "histogram":
        body = _histogram(shown)
    else:
        planes_of = planes(shown.values, shown.tensor.layout)
        at = (min(batch, planes_of.shape[0] - 1), min(channel, planes_of.shape[1] - 1), row, column)
        body = draw[view](shown, *at)
    return f"{body}{figures(shown)}{verdict(shown)}"


def _maps(shown: Shown, batch: int, channel: int, row: int, column: int) -> str:
    """All channels of a batch, as small pictures of one scale."""
    return _pair(shown, lambda array: planes(array, shown.tensor.layout)[batch, :MAX_MAPS], f"batch {batch}")


def _map(shown: Shown, batch: int, channel: int, row: int, column: int) -> str:
    """One channel as a picture."""
    where = f"batch {batch}, channel {channel}"
    return _pair(shown, lambda array: planes(array, shown.tensor.layout)[batch, channel : channel + 1], where)


def _pair(shown: Shown, pick: Callable[[np.ndarray], np.ndarray], where: str) -> str:
    """Values, and beside them their error if there is a reference."""
    total = planes(shown.array, shown.tensor.layout).shape[1]
    marks = None if shown.marks is None else pick(shown.marks)
    chosen = pick(shown.values)
    if 1 < len(chosen) < total:
        where += f", the first {len(chosen)} of {total:,} channels"
    scale = _range(shown.values, shown.centre)
    parts = [_sheet(chosen, marks, scale, f"{UNITS[shown.unit]} of {shown.tensor.name}, {where}", where)]
    if shown.error is not None:
        limit = float(np.abs(shown.error[np.isfinite(shown.error)]).max(initial=0))
        title = f"error of {shown.tensor.name}, {where}"
        parts.append(_sheet(pick(shown.error), None, (-limit, limit, True), title, "error against the reference"))
    return f"<div class='mli-row'>{''.join(parts)}</div>"


def _range(values: np.ndarray, centre: float) -> tuple[float, float, bool]:
    """Lowest and highest value of the colours, and whether they part at the centre."""
    finite = np.isfinite(values)
    good = values if finite.all() else values[finite]
    if not good.size:
        return 0.0, 1.0, False
    low, high = float(good.min()), float(good.max())
    if low < centre:
        reach = max(high - centre, centre - low)
        return centre - reach, centre + reach, True
    return centre, max(high, centre), False


def _sheet(maps: np.ndarray, marks: np.ndarray | None, scale: tuple[float, float, bool], alt: str, caption: str) -> str:
    """Pictures of planes (channels, rows, columns) and the bar of their colours."""
    low, high, signed = scale
    count, rows, columns = maps.shape
    lines = max(1, round((count * columns / rows) ** 0.5)) if count > 1 else 1  # so that the sheet is about square
    lines = min(lines, count)
    limit = max(4, pixels.LIMIT // lines) if count > 1 else pixels.LIMIT
    values, small_marks = pixels.shrink(maps.astype(np.float32, copy=False), marks, limit)
    colours = pixels.palette(signed)
    codes = pixels.tile(pixels.colour_codes(values, small_marks, low, high), lines)
    factor = max(1, min(24, SIZE // max(codes.shape)))
    picture = pixels.image(codes, colours, alt, codes.shape[1] * factor, codes.shape[0] * factor)
    bar = pixels.image(
        np.linspace(0, 249, 100).astype(np.uint8)[None], colours, f"colours from {low:.4g} to {high:.4g}", 100, 10
    )
    return (
        f"<div class='mli-pic'><div class='mli-more'>{escape(caption)}</div>{picture}"
        f"<div class='mli-more'>{_number(low)} {bar} {_number(high)}</div></div>"
    )


def legend(shown: Shown) -> str:
    """What the colours of marks mean, for those that occur.

    Examples
    --------
    >>> t = ir.Tensor(0, "x", 0, "activation", "float32", "Float", (1,))
    >>> legend(Shown(t, np.array([np.nan], "f4")))
    "<span class='mli-key'><span style='background:rgb(0,0,0)'>&nbsp;&nbsp;</span> NaN 1</span>"
    """
    return " ".join(
        f"<span class='mli-key'><span style='background:rgb({','.join(map(str, pixels.MARKS[mark]))})'>"
        f"&nbsp;&nbsp;</span> {_WORDS[mark]} {count:,}</span>"
        for mark, count in shown.counts.items()
    )


def _histogram(shown: Shown) -> str:
    """How often values occur, on a logarithmic scale; the ends of a quantised type in the colours of their marks."""
    flat = shown.values.ravel()
    flat = flat.view(np.uint8) if flat.dtype == bool else flat
    flat = flat[np.isfinite(flat)] if flat.dtype.kind == "f" else flat
    if not flat.size:
        return ""
    low, high = float(flat.min()), float(flat.max())
    grid = shown.unit == "stored" and shown.ends is not None and shown.ends[1] - shown.ends[0] < 256
    if grid and shown.ends is not None:
        low, high = map(float, shown.ends)
        counts = np.bincount(flat.astype(np.int64) - int(low), minlength=int(high - low) + 1)
    else:
        counts, _ = np.histogram(flat, BINS, (low, high if high > low else low + 1))
    height, wide = 100, max(1, 256 // len(counts))
    heights = np.ceil(np.log1p(counts) / np.log1p(counts.max()) * height).astype(int)
    bars = np.where(np.arange(height)[::-1, None] < heights, 130, pixels.CLEAR).astype(np.uint8)
    if grid:
        for mark, end in ((LOW, 0), (HIGH, -1)):
            bars[:, end] = np.where(bars[:, end] == pixels.CLEAR, pixels.CLEAR, 250 + mark)
    bars = np.repeat(bars, wide, 1)
    tallest = int(counts.argmax())
    start = low + tallest * (1 if grid else (high - low) / len(counts))
    alt = f"histogram of {shown.tensor.name}: most values, {counts.max():,}, at {_number(start)}"
    width = max(256, bars.shape[1])
    ends = f"<span>{_number(low)}</span> <span>{_number(high)}</span>"
    said = f"{flat.size:,} {UNITS[shown.unit]}, logarithmic counts, tallest {counts.max():,} at {_number(start)}"
    return (
        f"<div class='mli-pic'><div class='mli-more'>{said}</div>"
        f"{pixels.image(bars, pixels.palette(False), alt, width, 100)}"
        f"<div class='mli-more mli-ends' style='width:{width}px'>{ends}</div></div>"
    )


def _numbers(shown: Shown, batch: int, channel: int, row: int, column: int) -> str:
    """A piece of one plane as a table; marked values carry a sign, errors stand below."""
    plane = planes(shown.values, shown.tensor.layout)[batch, channel]
    row, column = min(row, plane.shape[0] - 1), min(column, plane.shape[1] - 1)
    part = (slice(row, row + ROWS), slice(column, column + COLUMNS))

    def piece(array: np.ndarray | None) -> np.ndarray | None:
        return None if array is None else planes(array, shown.tensor.layout)[batch, channel][part]

    values, marks, errors = plane[part], piece(shown.marks), piece(shown.error)
    signs = {LOW: " ▼", HIGH: " ▲"}

    def cell(i: int, j: int) -> str:
        sign = "" if marks is None else signs.get(int(marks[i, j]), "")
        below = "" if errors is None else f"<br><small>{errors[i, j]:+.2g}</small>"
        return f"{_number(values[i, j])}{sign}{below}"

    rows = [[str(row + i), *(cell(i, j) for j in range(values.shape[1]))] for i in range(values.shape[0])]
    columns = ["", *(str(column + j) for j in range(values.shape[1]))]
    where = (
        f"batch {batch}, channel {channel}, rows {row} to {row + len(rows) - 1} of {plane.shape[0]:,}, "
        f"columns {column} to {column + len(columns) - 2} of {plane.shape[1]:,}"
        + ("; small: the error" if errors is not None else "")
    )
    return f"<div class='mli-more'>{where}</div>{table(columns, rows, numbers=range(len(columns)))}"


def _number(value: float | np.generic) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _share(share: float) -> str:
    return f"{share:.0%}" if share in (0, 1) else f"{share:.1%}"
