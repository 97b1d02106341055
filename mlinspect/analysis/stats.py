"""What a model's constants look like in numbers, as stored and as the real values they stand for, chunk by chunk."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from mlinspect import ir
from mlinspect.analysis.columns import COLUMNS, frame
from mlinspect.analysis.counts import Levels, levels_of_counts, numbers_of
from mlinspect.analysis.measures import joined, measure
from mlinspect.analysis.moments import COUNT, HIGH, INF, LOW, M2, M4, MEAN, NAN, ZEROS, Advance
from mlinspect.analysis.operands import Use, grid, is_per_channel, network_of, uses
from mlinspect.analysis.pieces import pieces
from mlinspect.errors import InputError


def stats(model: Any, by: str = "tensor") -> pd.DataFrame:
    """Statistics of every constant.

    Parameters
    ----------
    model : Model or Network
    by : {"tensor", "channel"}
        One row a constant, or one a constant and output channel.

    Returns
    -------
    DataFrame
        Columns as ``mlinspect.describe("stats")`` and ``describe("channel_stats")`` say. Strings, and numbers of an
        unknown type, have a row without figures.

    Notes
    -----
    Constants are read in chunks, so memory stays small however large they are. Bit-packed ones are unpacked by groups
    of channels where those lie side by side; those packed in other ways whole, one at a time. Sums over more than 4
    million numbers of float32, or of 8 or 16 bits with parameters by channel, are made in float32, piece by piece,
    and added up in float64. After two seconds a progress bar appears.

    Examples
    --------
    >>> w = ir.Tensor(0, "w", 0, "constant", "float32", "Float32", (4,), data=np.float32([-1, 0, 0, 3]))
    >>> stats(ir.Network("armnn", "armnn_superset", "", (), {0: w})).loc[0, ["min", "max", "mean", "std"]].tolist()
    [-1.0, 3.0, 0.5, 1.5]
    """
    if by not in ("tensor", "channel"):
        raise InputError(f"by={by!r} is unknown: use 'tensor' or 'channel'")
    network = network_of(model)
    readers = uses(network)
    found = [tensor for _, tensor in sorted(network.tensors.items()) if tensor.data is not None]
    table = "stats" if by == "tensor" else "channel_stats"
    with tqdm(total=sum(t.nbytes for t in found), unit="B", unit_scale=True, delay=2, leave=False) as bar:
        measured = [_figures(t, readers.get(t.index), network.format, by == "channel", bar.update) for t in found]
    lengths = [len(figures["elements"]) for figures in measured]
    columns = {name: _column([f.pop(name, None) for f in measured], lengths) for name, _, _, _ in COLUMNS[table]}
    return frame(table, columns)


def _column(values: list[Any], lengths: list[int]) -> Any:
    """A column of arrays, or of one value for so many rows."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]
    missing = (np.full(length, np.nan) for length in lengths)
    return np.concatenate([m if v is None else v for v, m in zip(values, missing, strict=True)])


def _subject(tensor: ir.Tensor, use: Use | None) -> dict[str, Any]:
    """What is the same in every row of a tensor."""
    q = tensor.quantization if tensor.quantized else None
    return {
        "tensor": tensor.index,
        "name": tensor.name,
        "layer": None if use is None else use.layer.index,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "scheme": "none" if q is None else "per_channel" if q.per_channel else "per_tensor",
        "bits": None if q is None else q.bits,
        "nbytes": tensor.nbytes,
    }


def _figures(tensor: ir.Tensor, use: Use | None, model_format: str, each: bool, advance: Advance) -> dict[str, Any]:
    """The figures of a tensor as arrays: one number, or one a channel where ``each`` is true."""
    found, size, packed = [], 0, isinstance(tensor.data, ir.PackedData) and tensor.compression != "external"
    if tensor.dtype.startswith(("string", "unknown")):
        advance(tensor.nbytes)
        array = tensor.data.load() if isinstance(tensor.data, ir.PackedData) else tensor.data
        assert array is not None
        return {"elements": np.array([array.size]), "channel": np.array([0])} | _subject(tensor, use)
    limits = grid(tensor)
    for view, part in pieces(tensor, use):
        found.append(measure(view, part, model_format, each, (lambda _: None) if packed else advance))
        if packed:  # the bar counts the file's bytes
            advance(tensor.nbytes * view.size // max(prod(tensor.shape or ()), 1))
        size, numbers = size + view.size, view.dtype
    stored, real, span, reach, counts, levels = joined(found, each)
    used = _range_used(span, limits)
    if each:
        figures = {
            "elements": np.full(len(reach), size // max(len(reach), 1)),
            "channel": np.arange(len(reach)),
            "range_share": reach / (np.nanmax(reach, initial=0) or np.nan),
            "range_used": used,
        }
    else:
        alive = reach[reach > 0]
        ratio = alive.max() / alive.min() if len(alive) > 1 and size > len(reach) else np.nan
        together = _range_used(stored[[LOW, HIGH]], limits)
        figures = {
            "elements": np.array([size]),
            "channel_range_ratio": np.array([ratio]),
            "range_used": used.mean(keepdims=True) if is_per_channel(tensor) else together,
        }
        if counts is not None:
            levels = levels_of_counts(counts[None], numbers_of(numbers), limits)
    figures |= _named(real, "") | _levels(levels, figures["elements"], tensor, limits)
    if numbers.kind in "iu" and tensor.dtype != "bfloat16":
        figures |= _named(stored, "stored_")
        for name in ("stored_min", "stored_max", "stored_absmax"):  # columns of int64
            figures[name] = np.where(np.abs(figures[name]) < 2.0**63, figures[name], np.nan)
    return figures | _subject(tensor, use)


def _range_used(span: np.ndarray, limits: tuple[int, int] | None) -> np.ndarray:
    """Share of the grid between the smallest and the largest stored number."""
    if limits is None or limits[1] > 1 << 16:
        return np.full(span.shape[1], np.nan)
    used = (span[1] - span[0]) / (limits[1] - limits[0])
    return np.where(np.isfinite(used), used, np.nan)


def _named(record: np.ndarray, prefix: str) -> dict[str, np.ndarray]:
    """A record of moments as columns."""
    with np.errstate(all="ignore"):
        known = np.where(record[COUNT] > 0, 1.0, np.nan)
        variance = record[M2] / record[COUNT]
        columns = {
            "min": record[LOW] * known,
            "max": record[HIGH] * known,
            "absmax": np.maximum(np.abs(record[LOW]), np.abs(record[HIGH])) * known,
            "mean": record[MEAN] * known,
            "std": np.sqrt(variance),
            "kurtosis": np.where(variance > 0, record[M4] / record[COUNT] / variance**2 - 3, np.nan),
            "zeros": record[ZEROS],
            "nan": record[NAN],
            "inf": record[INF],
        }
    return {prefix + name: values for name, values in columns.items()}


def _levels(
    levels: Levels | None, elements: np.ndarray, tensor: ir.Tensor, limits: tuple[int, int] | None
) -> dict[str, np.ndarray]:
    if levels is None:
        return {}
    found = {
        "levels": levels.distinct,
        "entropy": levels.entropy,
        "compressed_bytes": np.ceil(elements * levels.entropy / 8),
    }
    if limits is None:
        return found
    q = tensor.quantization
    assert q is not None
    extremes = (1 if q.symmetric else 2) * (1 if len(elements) > 1 else len(q.scale))  # there without being clipped
    with np.errstate(invalid="ignore"):
        clipped = np.maximum(levels.at_qmin + levels.at_qmax - extremes, 0) / elements
    share = levels.distinct / (limits[1] - limits[0] + 1)
    return found | {"levels_share": share, "at_qmin": levels.at_qmin, "at_qmax": levels.at_qmax, "clipped": clipped}
