"""One pass over a constant: the moments, extremes and levels of its numbers, found as fast as their type lets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from mlinspect import ir
from mlinspect.analysis.counts import (
    LONG,
    Levels,
    by_threads,
    count_all,
    count_channels,
    levels_of_channels,
    levels_of_counts,
    numbers_of,
    parts,
)
from mlinspect.analysis.float_sums import LARGE, channel_extremes, of_view
from mlinspect.analysis.moments import (
    HIGH,
    LOW,
    MEAN,
    ZEROS,
    Advance,
    Total,
    blocks,
    extent,
    merge,
    of_counts,
    of_rows,
    of_small,
    on_line,
)
from mlinspect.analysis.operands import grid, is_per_channel, parameters_fit, real_rows


class Found(NamedTuple):
    """What a pass finds. Records have a column a channel, or one of all where no figures of channels are wanted."""

    stored: np.ndarray  # record of the stored numbers
    real: np.ndarray  # record of the real values
    span: np.ndarray  # smallest and largest stored number of each channel, shape (2, channels)
    reach: np.ndarray  # largest finite magnitude among the real values of each channel
    counts: np.ndarray | None = None  # how often each of numbers_of occurs; None above 16 bits
    levels: Levels | None = None  # of each channel, in place of the counts, where figures of channels are wanted


class _Lines(NamedTuple):
    """Of each channel: real values are ``slope * stored + start``; and which stored number is 0, NaN where none."""

    slope: np.ndarray
    start: np.ndarray
    zero: np.ndarray


def measure(view: np.ndarray, tensor: ir.Tensor, model_format: str, each: bool, advance: Advance) -> Found:
    """Moments, extremes and levels of a constant.

    Parameters
    ----------
    view : ndarray, shape (outer, channels, inner)
        Its stored numbers, as ``operands.by_channel`` gives them.
    tensor : ir.Tensor
    model_format : {"armnn", "mslite"}
    each : bool
        Whether figures of each channel are wanted.
    advance : callable
        Told how many bytes were read, now and then.

    Examples
    --------
    >>> t = ir.Tensor(0, "w", 0, "constant", "int8", "Int8", (3,), data=np.int8([1, 3, 3]))
    >>> found = measure(t.array[None, None], t, "armnn", False, lambda nbytes: None)
    >>> found.span.tolist(), found.counts[[1 + 128, 3 + 128]].tolist()
    ([[1.0], [3.0]], [1, 2])
    """
    with np.errstate(all="ignore"):  # of broken parameters
        found = _way(view, tensor, model_format, each, advance)
    return found if each else _of_all(found)


def _way(view: np.ndarray, tensor: ir.Tensor, model_format: str, each: bool, advance: Advance) -> Found:
    """The fastest way that gives what is wanted."""
    if view.dtype.kind == "f" and view.itemsize > 2:
        return _of_floats(view, each, advance)
    lines = _lines(view, tensor, model_format) if view.itemsize <= 2 and view.size else None
    if not each and not is_per_channel(tensor) and (lines or _infinite(view, tensor)) and view.size:
        return _together(view, tensor, model_format, advance)
    if not each and lines and _summed(view) and (lines.zero == 0).all():
        return _by_sums(view, tensor, lines, model_format, advance)
    if view.itemsize == 1:
        return _by_counting(view, tensor, lines, model_format, each, advance)
    return _by_rows(view, tensor, model_format, each, advance)


def _of_all(found: Found) -> Found:
    """The same with one record of all channels."""
    return found._replace(stored=merge(found.stored[:, None]), real=merge(found.real[:, None]))


def _infinite(view: np.ndarray, tensor: ir.Tensor) -> int:
    """The bits of Inf where the numbers are floating-point ones of 16 bits, else 0."""
    return 0x7C00 if view.dtype == np.float16 else 0x7F80 if tensor.dtype == "bfloat16" and view.itemsize == 2 else 0


def _summed(view: np.ndarray) -> bool:
    """Whether sums of channels are found faster than counts: many numbers, in rows or columns that are not too long."""
    counted = view.itemsize == 1 and view.shape[2] >= LONG
    return view.size > LARGE and (len(view) == 1 or view.shape[2] == 1) and not counted


def joined(found: list[Found], each: bool) -> Found:
    """What was found in groups of channels, as one."""
    if len(found) == 1:
        return found[0]
    stored, real, span = (np.concatenate([f[i] for f in found], axis=1) for i in range(3))
    counts = [f.counts for f in found if f.counts is not None]
    levels = [f.levels for f in found if f.levels is not None]
    whole = Found(
        *(stored, real, span, np.concatenate([f.reach for f in found])),
        np.sum(counts, axis=0) if counts else None,
        Levels(*map(np.concatenate, zip(*levels, strict=True))) if levels else None,
    )
    return whole if each else _of_all(whole)


def _of_floats(view: np.ndarray, each: bool, advance: Advance) -> Found:
    real, reach = of_view(view, each, advance)
    return Found(np.zeros_like(real), real, np.full((2, view.shape[1]), np.nan), reach)


def _together(view: np.ndarray, tensor: ir.Tensor, model_format: str, advance: Advance) -> Found:
    """Numbers that mean the same in every channel: how often each occurs at all says what they look like."""
    if view.size > LARGE:
        with ThreadPoolExecutor(1) as other:
            ends = other.submit(_ends, view, tensor, model_format)
            counts = count_all(view, advance)
            span, reach = ends.result()
    else:
        counts, (span, reach) = count_all(view, advance), _ends(view, tensor, model_format)
    numbers = numbers_of(view.dtype)
    occur = counts > 0
    numbers, some = numbers[occur][None], counts[occur][None]
    stored, real = of_counts(some, numbers), of_counts(some, real_rows(numbers, tensor, slice(0, 1), model_format))
    return Found(stored, real, span, reach, counts)


def _ends(view: np.ndarray, tensor: ir.Tensor, model_format: str) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest stored number of each channel, and the largest finite magnitude of real values."""
    infinite = _infinite(view, tensor)
    if not infinite:
        span = np.array(channel_extremes(view))
        real = real_rows(span, tensor, slice(0, 1), model_format).astype(np.float64)
        return span.astype(np.float64), np.abs(real).max(axis=0)
    most = np.full(view.shape[1], -1, np.int16)
    for part, block in blocks(view.view(np.int16)):
        bits = block & 0x7FFF  # of magnitudes they are in order
        bits[bits >= infinite] = -1
        most[part] = np.maximum(most[part], bits.max(axis=2).max(axis=0))
    reach = real_rows(most.view(view.dtype)[None], tensor, slice(0, 1), model_format)[0].astype(np.float64)
    return np.full((2, len(most)), np.nan), np.where(most < 0, np.nan, reach)


def _by_sums(view: np.ndarray, tensor: ir.Tensor, lines: _Lines, model_format: str, advance: Advance) -> Found:
    """Many whole numbers of 8 or 16 bits, per channel: how often each occurs at all, and sums of each channel."""
    with ThreadPoolExecutor(1) as other:
        counted = other.submit(count_all, view, advance, map)
        sums, _ = of_view(view, True, lambda _: None)
        counts = counted.result()
    numbers = numbers_of(view.dtype)
    real = _on_lines(sums, lines, slice(None), view, tensor, model_format)
    real[ZEROS] = 0
    real[ZEROS, 0] = counts[numbers == 0].sum()
    return Found(of_counts(counts[None], numbers), real, sums[[LOW, HIGH]], extent(real), counts)


def _by_counting(
    view: np.ndarray, tensor: ir.Tensor, lines: _Lines | None, model_format: str, each: bool, advance: Advance
) -> Found:
    """8-bit numbers: how often each occurs in each channel says all there is to know."""
    numbers, limits, known = numbers_of(view.dtype), grid(tensor), parameters_fit(tensor, view.shape[1])

    def of_part(part: slice) -> Found:
        with np.errstate(all="ignore"):  # a thread's own
            return of_counted(part, count_channels(view[:, part]))

    def of_counted(part: slice, counts: np.ndarray) -> Found:
        stored, real = of_small(counts, numbers), Total(len(counts)).record()
        if lines is not None:
            real = _on_lines(stored, lines, part, view, tensor, model_format)
            place = np.nan_to_num(lines.zero[part] - numbers[0]).astype(np.intp)
            real[ZEROS] = np.where(np.isnan(lines.zero[part]), 0, counts[np.arange(len(counts)), place])
        elif known:
            occur = counts.any(axis=0)
            values = real_rows(np.broadcast_to(numbers[occur], (len(counts), occur.sum())), tensor, part, model_format)
            real = of_counts(counts[:, occur], values)
        found = Found(stored, real, stored[[LOW, HIGH]], extent(real))
        if each:
            return found._replace(levels=levels_of_counts(counts, numbers, limits))
        return _of_all(found)._replace(counts=counts.sum(axis=0))  # fewer figures to hold

    some, found = parts(view), []
    for part, figures in zip(some, by_threads(of_part, some), strict=True):
        found.append(figures)
        advance(view[:, part].nbytes)
    return joined(found, each)


def _lines(view: np.ndarray, tensor: ir.Tensor, model_format: str) -> _Lines | None:
    """Real values of whole numbers of 8 or 16 bits as lines; None where they are on none, or not told from its ends."""
    clusters = tensor.meta.get("quantClusters")
    if (clusters is not None and len(clusters)) or not parameters_fit(tensor, view.shape[1]):
        return None
    if view.dtype.kind not in "iu" or tensor.dtype == "bfloat16":
        return None
    every = slice(0, view.shape[1] if is_per_channel(tensor) else 1)
    numbers = numbers_of(view.dtype)
    ends = real_rows(np.tile(numbers[[0, -1]], (every.stop, 1)), tensor, every, model_format).astype(np.float64)
    slope = (ends[:, 1] - ends[:, 0]) / (len(numbers) - 1)
    zero = np.rint(numbers[0] - ends[:, 0] / slope)
    if not (np.isfinite(ends).all() and ((np.abs(slope) > 1e-30) & (np.abs(zero) < 4 * len(numbers))).all()):
        return None
    near = np.clip(zero, numbers[0], numbers[-1]).astype(view.dtype)
    exact = real_rows(near[:, None], tensor, every, model_format)[:, 0] == 0
    start = np.where(exact, -slope * zero, ends[:, 0] - slope * numbers[0])
    return _Lines(*(np.broadcast_to(values, view.shape[1]) for values in (slope, start, np.where(exact, zero, np.nan))))


def _on_lines(
    stored: np.ndarray, lines: _Lines, part: slice, view: np.ndarray, tensor: ir.Tensor, model_format: str
) -> np.ndarray:
    """Moments of real values, of those of the stored numbers of some channels; the zeros are not told."""
    real = on_line(stored, lines.slope[part], lines.start[part])
    ends = real_rows(stored[[LOW, HIGH]].T.astype(view.dtype), tensor, part, model_format)
    real[LOW], real[HIGH] = ends.min(axis=1), ends.max(axis=1)
    real[MEAN] = np.clip(real[MEAN], real[LOW], real[HIGH])
    return real


def _by_rows(view: np.ndarray, tensor: ir.Tensor, model_format: str, each: bool, advance: Advance) -> Found:
    """Whole numbers of more bits, and what has no line: sums of powers, channel by channel."""
    channels = view.shape[1]
    stored, real, known = Total(channels), Total(channels), parameters_fit(tensor, channels)
    integers = view.dtype.kind in "iu" and tensor.dtype != "bfloat16"
    for part, block in blocks(view):
        rows = block[0] if len(block) == 1 else block.swapaxes(0, 1).reshape(block.shape[1], -1)
        if known:
            exact = integers and not tensor.quantized  # float32 would round them
            values = rows if exact else real_rows(rows, tensor, part, model_format)
            real.add(part, of_rows(values.astype(np.float64)))
        if view.dtype.kind in "iu":
            stored.add(part, of_rows(rows.astype(np.float64)))
        advance(block.nbytes)
    counts = levels = None
    if view.itemsize == 2 and each:
        levels = levels_of_channels(view, grid(tensor))
    elif view.itemsize == 2:
        counts = count_all(view, lambda _: None)
    record = real.record()
    return Found(stored.record(), record, stored.record()[[LOW, HIGH]], extent(record), counts, levels)
