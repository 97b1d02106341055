"""Stored numbers <-> real float32 values of a tensor, as Arm NN's reference backend decodes and encodes them."""

from __future__ import annotations

import numpy as np

from mlinspect import ir
from mlinspect.errors import UnsupportedError
from mlinspect.kernels import quantize as q
from mlinspect.kernels.summation import Approximate, settle

_NUMPY = {"bfloat16": "uint16", "string": "object"}


def numpy_dtype(tensor: ir.Tensor) -> np.dtype:
    """numpy's type of a tensor's stored numbers.

    Raises
    ------
    UnsupportedError
        The file gives the tensor no type, or one that the schema does not know.
    """
    try:
        return np.dtype(_NUMPY.get(tensor.dtype, tensor.dtype))
    except TypeError:
        raise UnsupportedError(f"the type of tensor {tensor.name} is not known: {tensor.vendor_dtype}") from None


def dequantize_array(array: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """Real float32 values of stored numbers.

    Parameters
    ----------
    array : ndarray
        Of the tensor's stored type.
    tensor : ir.Tensor
        Says how: its dtype, quantisation and, for depthwise weights, layout.
    """
    if array.dtype == np.float32:
        return array
    if tensor.dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    quantization = tensor.quantization
    if quantization is None or array.dtype.kind not in "iu":
        return array.astype(np.float32)
    if tensor.layout == "MIHW" and quantization.axis is not None:
        # scales go by output channel i * M + m
        multiplier, channels = array.shape[:2]
        scale = quantization.scale.astype(np.float32).reshape(channels, multiplier).T[:, :, None, None]
        return array.astype(np.float32) * scale
    if quantization.axis is None:
        return q.dequantize(array, quantization.scale[0], quantization.zero_point[0])
    return q.dequantize(array, quantization.scale, quantization.zero_point, quantization.axis)


def real_weights(array: np.ndarray, quantization: ir.Quantization) -> np.ndarray:
    """Real values of a quantised constant as MindSpore Lite's loader makes them, its corrections applied."""
    corrections = {name: quantization.extra.get(name) for name in ("var_corr", "mean_corr")}
    return q.dequantize_weights(
        array, quantization.scale, quantization.zero_point, axis=quantization.axis, **corrections
    )


def quantize_array(values: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """Stored numbers of real float32 values."""
    dtype, quantization = numpy_dtype(tensor), tensor.quantization
    if quantization is None or dtype.itemsize > 2:
        return q.cast(values, dtype)
    if quantization.axis is None:
        return q.quantize(values, quantization.scale[0], quantization.zero_point[0], dtype)
    return q.quantize(values, quantization.scale, quantization.zero_point, dtype, quantization.axis)


def encode(result: np.ndarray | Approximate, tensor: ir.Tensor) -> np.ndarray:
    """What a layer stores of its result.

    Integers and booleans of the stored type are taken as they are; float32 values are quantised. Sums that BLAS made in
    its own order are settled first: those so close to a rounding tie that the order matters are summed as the vendor
    does.
    """
    dtype = numpy_dtype(tensor)
    if isinstance(result, Approximate):
        result = _settled(result, tensor, dtype)
    if result.dtype == dtype:
        return result
    return quantize_array(result, tensor)


def _settled(result: Approximate, tensor: ir.Tensor, dtype: np.dtype) -> np.ndarray:
    quantization = tensor.quantization
    if quantization is None or quantization.axis is not None or dtype.itemsize > 2:
        return settle(result, dtype=dtype)
    return settle(result, dtype=dtype, scale=quantization.scale[0], zero_point=int(quantization.zero_point[0]))
