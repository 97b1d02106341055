"""Stored numbers <-> real float32 values of a tensor, as Arm NN's reference backend decodes and encodes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlinspect import ir
from mlinspect.errors import UnsupportedError
from mlinspect.kernels import quantize as q
from mlinspect.kernels.shape import along
from mlinspect.kernels.summation import Approximate, settle

_NUMPY = {"bfloat16": "uint16", "string": "object"}


def numpy_dtype(tensor: ir.Tensor) -> np.dtype:
    """numpy's type of a tensor's stored numbers.

    Parameters
    ----------
    tensor : ir.Tensor

    Returns
    -------
    dtype
        uint16 for bfloat16, object for strings.

    Raises
    ------
    UnsupportedError
        The file gives the tensor no type, or one that the schema does not know.
    """
    try:
        return np.dtype(_NUMPY.get(tensor.dtype, tensor.dtype))
    except TypeError:
        raise UnsupportedError(f"the type of tensor {tensor.name} is not known: {tensor.vendor_dtype}") from None


def shape_fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    """Whether an array's shape is the declared one, where -1 stands for any size.

    Parameters
    ----------
    shape, declared : sequence of int

    Returns
    -------
    bool

    Examples
    --------
    >>> shape_fits((2, 3), (-1, 3)), shape_fits((2, 3), (6,))
    (True, False)
    """
    if len(shape) != len(declared):
        return False
    return shape == declared or all(want in (-1, n) for n, want in zip(shape, declared, strict=True))


def dequantize_array(array: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """Real float32 values of stored numbers.

    Parameters
    ----------
    array : ndarray
        Of the tensor's stored type.
    tensor : ir.Tensor
        Says how: its dtype, quantisation and, for depthwise weights, layout.

    Returns
    -------
    ndarray of float32
        `array` itself where it is float32 already.

    Examples
    --------
    >>> q = ir.Quantization(np.array([0.5]), np.array([10]))
    >>> tensor = ir.Tensor(0, "x", 0, "activation", "uint8", "QAsymmU8", (2,), quantization=q, quantized=True)
    >>> dequantize_array(np.uint8([10, 13]), tensor)
    array([0. , 1.5], dtype=float32)
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
    """Real values of a quantised constant as MindSpore Lite's loader makes them, its corrections applied.

    Parameters
    ----------
    array : ndarray of int
    quantization : ir.Quantization

    Returns
    -------
    ndarray of float32, shape of `array`
    """
    corrections = {name: quantization.extra.get(name) for name in ("var_corr", "mean_corr")}
    return q.dequantize_weights(
        array, quantization.scale, quantization.zero_point, axis=quantization.axis, **corrections
    )


def quantize_array(values: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """Stored numbers of real float32 values.

    Parameters
    ----------
    values : ndarray of float32
    tensor : ir.Tensor
        Says how, as for :func:`dequantize_array`.

    Returns
    -------
    ndarray of the tensor's stored type
        The nearest numbers, clamped to the type; where the tensor is not quantised, the values cast.

    Examples
    --------
    >>> q = ir.Quantization(np.array([0.5]), np.array([10]))
    >>> tensor = ir.Tensor(0, "x", 0, "activation", "uint8", "QAsymmU8", (2,), quantization=q, quantized=True)
    >>> quantize_array(np.float32([1.5, -99]), tensor)
    array([13,  0], dtype=uint8)
    """
    dtype, quantization = numpy_dtype(tensor), tensor.quantization
    if quantization is None or dtype.itemsize > 2:
        return q.cast(values, dtype)
    if quantization.axis is None:
        return q.quantize(values, quantization.scale[0], quantization.zero_point[0], dtype)
    if tensor.layout == "MIHW":  # scales go by output channel i * M + m
        multiplier, channels, *size = values.shape
        rows = values.swapaxes(0, 1).reshape(-1, *size)
        stored = q.quantize(rows, quantization.scale, quantization.zero_point, dtype, 0)
        return np.ascontiguousarray(stored.reshape(channels, multiplier, *size).swapaxes(0, 1))
    return q.quantize(values, quantization.scale, quantization.zero_point, dtype, quantization.axis)


def grid(dtype: np.dtype, bits: int) -> tuple[int, int]:
    """Smallest and largest of an integer type's numbers that so many bits hold.

    Parameters
    ----------
    dtype : dtype
    bits : int

    Returns
    -------
    low, high : int

    Examples
    --------
    >>> grid(np.dtype("int8"), 4), grid(np.dtype("uint8"), 4)
    ((-8, 7), (0, 15))
    """
    info = np.iinfo(dtype)
    spare = max(info.bits - max(bits, 1), 0)
    return int(info.min) >> spare, int(info.max) >> spare


def quantize_constant(values: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """Stored numbers of a constant's real float32 values: the nearest on its grid, of biases in int32 too.

    Parameters
    ----------
    values : ndarray of float32
    tensor : ir.Tensor
        Its ``quantization.bits`` bound the stored numbers.

    Returns
    -------
    ndarray of the tensor's stored type
    """
    dtype, quantization = numpy_dtype(tensor), tensor.quantization
    if quantization is None or dtype.kind not in "iu":
        return quantize_array(values, tensor)
    if dtype.itemsize <= 2:
        return quantize_array(values, tensor).clip(*grid(dtype, quantization.bits))
    scale, zero = quantization.scale, quantization.zero_point
    if quantization.axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    else:
        scale, zero = (along(p, quantization.axis, values.ndim) for p in (scale, zero))
    limits = np.iinfo(dtype)
    return (np.rint(values / np.where(scale == 0, 1, scale)) + zero).clip(limits.min, limits.max).astype(dtype)


def encode(result: np.ndarray | Approximate, tensor: ir.Tensor) -> np.ndarray:
    """What a layer stores of its result.

    Integers and booleans of the stored type are taken as they are; float32 values are quantised. Sums that BLAS made in
    its own order are settled first: those so close to a rounding tie that the order matters are summed as the vendor
    does.

    Parameters
    ----------
    result : ndarray or Approximate
    tensor : ir.Tensor

    Returns
    -------
    ndarray of the tensor's stored type
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
