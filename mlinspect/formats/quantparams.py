"""MindSpore Lite's QuantParam records -> ir.Quantization, and the axis that channels lie along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlinspect.flatbuffer import Record
from mlinspect.formats.records import fits
from mlinspect.ir import Layer, Quantization

# fields that do not change the real values
_WITHOUT_VALUES = frozenset(("dstDtype", "roundType", "multiplier"))
# our name -> the file's
EXTRA = {
    "min": "min",
    "max": "max",
    "narrow_range": "narrowRange",
    "inited": "inited",
    "var_corr": "varCorr",
    "mean_corr": "meanCorr",
    "dst_dtype": "dstDtype",
    "round_type": "roundType",
    "multiplier": "multiplier",
}


def channel_axis(layer: Layer, position: int, rank: int, version: tuple[int, int, int]) -> int:
    """The axis of per-channel parameters of a layer's input, as the runtime's loader chooses it.

    Parameters
    ----------
    layer : Layer
        The layer that reads the tensor.
    position : int
        Which of its inputs the tensor is.
    rank : int
        Number of dimensions of the tensor.
    version : tuple of int
        Of the file's writer: files before 1.6 know axis 0, and 1 for some matrices.

    Returns
    -------
    int
        0 where no rule applies.

    Notes
    -----
    Source: MindSpore Lite 2.0 runtime, weight decoder (preferred dimension of a weight).
    """
    old = version < (1, 6, 0)
    if layer.kind == "matmul" and position < 2:
        if position == 1:
            transposed = bool(layer.attrs.get("transpose_b", layer.attrs.get("transposeB", False)))
        else:
            transposed = not layer.attrs.get("transpose_a", layer.attrs.get("transposeA", False))
        if old:
            return 0 if transposed else 1
        return max(rank - 2, 0) if transposed else max(rank - 1, 0)
    if layer.kind == "conv2d_transpose" and position == 1:
        depthwise = layer.attrs.get("group", 1) > 1
        return 0 if version < (1, 8, 0) or depthwise else max(rank - 1, 0)
    if layer.kind == "gather" and position == 0:
        return max(int(layer.attrs.get("axis", 0)), 0)
    return 0


def quantization_of(
    record: Record, shape: tuple[int, ...], dtype: str, axis: int, version: tuple[int, int, int]
) -> Quantization | None:
    """The parameters of a tensor; None if it has none, or only empty records that look like parameters.

    Notes
    -----
    ``inited`` is not asked: the runtime ignores it, and many files leave it false on real parameters. Converters up to
    1.5 put one QuantParam without any value on every tensor.
    """
    params: Sequence[Record] = record.get("quantParams") or ()
    if all(q.plan.present <= _WITHOUT_VALUES for q in params):
        return None
    # to readers up to 1.5 a scale that is not stored was 0, whatever the schema that reads it now
    old = (0, 0, 0) < version < (1, 6, 0)
    scale = np.array([0.0 if old and "scale" not in q.plan.present else q["scale"] for q in params], np.float64)
    extra = {ours: np.array([q[theirs] for q in params]) for ours, theirs in EXTRA.items() if theirs in params[0]}
    zero_point = np.array([q["zeroPoint"] for q in params], np.int64)
    symmetric = bool(dtype != "uint8" and not zero_point.any())
    bits = params[0].get("numBits", 8)
    if len(params) == 1:
        return Quantization(scale, zero_point, None, bits, symmetric, extra)
    found = Quantization(scale, zero_point, axis, bits, symmetric, extra)
    fitting = [i for i, size in enumerate(shape) if size == len(params)]
    # where file and rule disagree: the axis of that length, if there is just one
    return found if fits(found, shape) or len(fitting) != 1 else replace(found, axis=fitting[0])
