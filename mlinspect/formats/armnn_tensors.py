"""Arm NN's TensorInfo and ConstTensor records: types, shapes, quantisation, constant data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mlinspect.flatbuffer import Decoder, Record
from mlinspect.formats.records import dimensions, shaped
from mlinspect.ir import Quantization

# file's name of a type -> (numpy's name, quantised, symmetric)
DTYPES = {
    "Float16": ("float16", False, False),
    "Float32": ("float32", False, False),
    "QuantisedAsymm8": ("uint8", True, False),
    "Signed32": ("int32", False, True),
    "Boolean": ("bool", False, False),
    "QuantisedSymm16": ("int16", True, True),
    "QAsymmU8": ("uint8", True, False),
    "QSymmS16": ("int16", True, True),
    "QAsymmS8": ("int8", True, False),
    "QSymmS8": ("int8", True, True),
    "Signed64": ("int64", False, False),
}
# bytes of a number -> the table that holds such numbers
HOLDERS = {1: "ByteData", 2: "ShortData", 4: "IntData", 8: "LongData"}


class TensorType(NamedTuple):
    """What a TensorInfo says of a tensor."""

    dtype: str
    vendor: str
    shape: tuple[int, ...] | None
    quantization: Quantization | None = None


def tensor_type(info: Record | None) -> TensorType:
    """The type, shape and quantisation of a TensorInfo."""
    if info is None:
        return TensorType("unknown", "none", None)
    vendor = info["dataType"]
    dtype, quantized, symmetric = DTYPES.get(vendor) or (vendor.lower(), False, False)
    shape = _shape(info)
    scales: Any = info.get("quantizationScales")
    scale = info["quantizationScale"]
    per_axis = scales is not None and len(scales) > 0
    # 0.0 is what writers store for no quantisation, 1.0 the default: neither changes an int32
    if not quantized and not (vendor == "Signed32" and (per_axis or scale not in (0.0, 1.0))):
        return TensorType(dtype, vendor, shape)
    bits = 8 * np.dtype(dtype).itemsize
    if per_axis:
        zero_point, axis = np.zeros(len(scales), np.int64), int(info["quantizationDim"])
        quantization = Quantization(scales.astype(np.float64), zero_point, axis, bits, symmetric)
    else:
        zero_point = np.array([info["quantizationOffset"]], np.int64)
        quantization = Quantization(np.array([scale], np.float64), zero_point, None, bits, symmetric)
    return TensorType(dtype, vendor, shape, quantization)


def _shape(info: Record) -> tuple[int, ...] | None:
    if info.get("dimensionality", 1) == 0:  # not specified
        return None
    shape = dimensions(info["dimensions"], info)
    known = info.get("dimensionSpecificity")
    if known is None or known.all() or len(known) != len(shape):
        return shape
    return tuple(size if sure else -1 for size, sure in zip(shape, known.tolist(), strict=True))


def is_absent(const: Record) -> bool:
    """A ConstTensor without shape and numbers: how Arm NN 22.11 stores an optional tensor that is not there."""
    info, payload = const.get("info"), const.get("data")
    shape = None if info is None else info["dimensions"]
    values = None if payload is None else payload.get("data")
    return (shape is None or shape.size == 0) and (values is None or values.size == 0)


def constant_data(
    decoder: Decoder, const: Record, name: str, kind: TensorType
) -> tuple[np.ndarray | None, TensorType, str]:
    """A constant's numbers as a view of the file, its type as far as the numbers correct it, and what is odd ("").

    A payload whose union tag says NONE is read by the size of the type: 20.08 stores QAsymmS8 so, and BFloat16, which
    the file format has no number for, is stored as Float16 and NONE by all.
    """
    payload = const.get("data")
    if payload is None:
        return None, kind, f"constant {name} has no data"
    if payload.plan.table == "Unknown(0)":
        if kind.dtype == "float16":
            kind = TensorType("bfloat16", "BFloat16", kind.shape)
        payload = decoder.table(HOLDERS[_stored_type(kind, np.dtype(np.int8)).itemsize], payload.offset)
    values = payload.get("data")
    if values is None:
        values = np.zeros(0, np.int8)
    stored = _stored_type(kind, values.dtype)
    if values.nbytes % stored.itemsize:
        return values, kind, f"constant {name}: {kind.vendor} numbers are stored as {payload.plan.table}"
    values = values.view(stored)
    array = shaped(values, kind.shape)
    if array is None:
        return values, kind, f"constant {name} has {values.size} numbers for shape {kind.shape}"
    return array, kind, ""


def _stored_type(kind: TensorType, otherwise: np.dtype[Any]) -> np.dtype[Any]:
    """numpy's type of the stored numbers; ``otherwise`` if the file's type is not known."""
    if kind.dtype.startswith("unknown"):
        return otherwise
    return np.dtype("uint16" if kind.dtype == "bfloat16" else kind.dtype)
