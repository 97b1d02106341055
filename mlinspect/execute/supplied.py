"""A user's function in a layer's place: what it is given, and what of its results is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import ExecutionError
from mlinspect.execute.engine import Compute, as_tuple
from mlinspect.execute.registry import Call, Function
from mlinspect.execute.values import dequantize_array, numpy_dtype, quantize_array, shape_fits


def compute_by(
    function: Function, call: Call, stored: bool, model_format: str, extra: Sequence[np.ndarray] = ()
) -> Compute:
    """``compute(*values of inputs) -> values of outputs`` of a user's function.

    Parameters
    ----------
    function : callable
        ``function(call, *arrays) -> array or tuple of arrays``.
    call : Call
    stored : bool
        Operands and results are the stored numbers; otherwise real float32 values, and integers and booleans that
        stand for themselves.
    model_format : {"armnn", "mslite"}
    extra : sequence of ndarray
        Operands more than the layer has in its file.

    Raises
    ------
    ExecutionError
        When it computes: too many or too few results, or one of another shape or, if stored, another type than
        the layer declares. Shapes and sizes that the layer does not declare may be any.
    """

    def compute(*arrays: Any) -> tuple[Any, ...]:
        operands = (
            arrays if stored else [_real(array, tensor) for array, tensor in zip(arrays, call.inputs, strict=True)]
        )
        results = as_tuple(function(call, *operands, *extra))
        if len(results) != len(call.outputs):
            raise ExecutionError(f"the function gives {len(results)} arrays, the layer {len(call.outputs)}")
        return tuple(
            _taken(np.asarray(result), tensor, call.mode, stored, model_format)
            for result, tensor in zip(results, call.outputs, strict=True)
        )

    return compute


def _real(array: Any, tensor: ir.Tensor) -> Any:
    narrow = tensor.dtype in ("float16", "bfloat16")
    if isinstance(array, np.ndarray) and (narrow or (tensor.quantized and array.dtype.kind in "iu")):
        return dequantize_array(array, tensor)
    return array


def _taken(result: np.ndarray, tensor: ir.Tensor, mode: str, stored: bool, model_format: str) -> np.ndarray:
    """A result as it flows on, checked."""
    if result.dtype == object and tensor.dtype != "string":
        raise ExecutionError(
            f"the function gives {type(result.tolist()).__name__} for tensor {tensor.name!r}, no array"
        )
    what = f"the function gives {result.dtype}{list(result.shape)} for tensor {tensor.name!r}"
    if not _fits(result.shape, tensor.shape, model_format):
        raise ExecutionError(f"{what}, the layer declares shape {list(tensor.shape or ())}")
    dtype = numpy_dtype(tensor)
    if model_format == "mslite" and tensor.dtype == "float16":
        dtype = np.dtype(np.float32)  # what its runtime computes with while fp16 is off
    if mode == "float" and tensor.quantized and result.dtype == dtype:
        return dequantize_array(result, tensor)
    real = mode == "float" and (tensor.quantized or dtype.kind == "f")
    wanted = np.dtype(np.float32) if real else dtype
    if result.dtype == wanted:
        return result
    if {result.dtype.kind, wanted.kind} == {"f"}:
        return result.astype(wanted)
    if stored or not {result.dtype.kind, wanted.kind} <= set("biuf"):
        raise ExecutionError(f"{what}, the layer declares {wanted}")
    if real or tensor.quantized:
        result = result.astype(np.float32)
    return result if real else quantize_array(result, tensor)


def _fits(shape: Sequence[int], declared: Sequence[int] | None, model_format: str) -> bool:
    if declared is None or (model_format == "mslite" and not declared):  # its files have no other word for unknown
        return True
    return shape_fits(shape, declared)
