"""Constants from arrays: typed, and packed, as their format wants them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError

_BLOCK = 1 << 20  # numbers packed at a time; a multiple of 8 makes whole bytes

# format -> numpy's name of a type -> the format's, for numbers that are not quantised
VENDOR_DTYPES = {
    "armnn": {"float16": "Float16", "float32": "Float32", "int32": "Signed32", "int64": "Signed64", "bool": "Boolean"},
    "mslite": {
        **{f"{kind}{bits}": f"{kind.title()}{bits}" for kind in ("int", "float") for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
        "bool": "Bool",
    },
}


def with_numbers(tensor: ir.Tensor, array: np.ndarray) -> ir.Tensor:
    """The constant with these numbers as its stored ones.

    Integers of a width that MindSpore Lite packs bit by bit are packed so, whatever their packing was before; the
    others are stored plainly.

    Raises
    ------
    InputError
        A number does not fit the width.
    """
    stored = np.array(array)  # a copy, which the caller cannot change
    stored.flags.writeable = False
    data: np.ndarray | ir.PackedData = stored
    compression, nbytes = "none", stored.nbytes
    bits = tensor.quantization.bits if tensor.quantization is not None else 8
    if tensor.compression not in ("none", "external", "huffman") and stored.dtype.kind == "i" and bits not in (8, 16):
        raw = pack_bits(stored, bits)
        data, compression, nbytes = ir.PackedData(raw, lambda: stored), "bitpacking", raw.nbytes
    return replace(tensor, data=data, shape=stored.shape, compression=compression, nbytes=nbytes, file_offset=None)


def pack_bits(values: np.ndarray, bits: int) -> np.ndarray:
    """Pack signed integers into ``bits`` bits each, the lowest bit first, as MindSpore Lite's converter does.

    Parameters
    ----------
    values : ndarray of int8 or int16
    bits : int
        2 to 7 for int8, 9 to 15 for int16.

    Returns
    -------
    ndarray of uint8
        Filled up with zeros to whole numbers of the values' type.

    Raises
    ------
    InputError
        A value does not fit.

    Examples
    --------
    >>> pack_bits(np.array([7, -8, -1, 0], np.int8), 4)
    array([ 15, 135], dtype=uint8)
    """
    half = 1 << (bits - 1)
    if values.size and (values.min() < -half or values.max() >= half):
        raise InputError(f"{bits}-bit numbers go from {-half} to {half - 1}, not from {values.min()} to {values.max()}")
    flat = values.reshape(-1)
    parts = [np.zeros(0, np.uint8)]
    for start in range(0, len(flat), _BLOCK):
        words = (flat[start : start + _BLOCK].astype(np.int32) + half).astype("<u2").view(np.uint8).reshape(-1, 2)
        parts.append(np.packbits(np.unpackbits(words, axis=1, bitorder="little")[:, :bits], bitorder="little"))
    missing = -sum(map(len, parts)) % values.dtype.itemsize
    return np.concatenate([*parts, np.zeros(missing, np.uint8)])


def constant_tensor(model_format: str, number: int, name: str, array: np.ndarray, graph: int = 0) -> ir.Tensor:
    """A constant without quantisation."""
    vendor = VENDOR_DTYPES[model_format][array.dtype.name]
    layout = "NHWC" if model_format == "mslite" else None
    meta = {"nodeType": 0} if model_format == "mslite" else {}
    return ir.Tensor(
        *(number, name, graph, "constant", array.dtype.name, vendor, array.shape, layout, array),
        nbytes=array.nbytes,
        meta=meta,
    )
