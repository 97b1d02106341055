"""MindSpore Lite's operators on int8: parameters of the operands' quantisation -> fixed-point kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import UnsupportedError
from mlinspect.execute import ops_mslite_misc
from mlinspect.execute import ops_mslite_shape as moving
from mlinspect.execute.ops_mslite import (
    convolved,
    deconvolved,
    flattened,
    matrices,
    new_size,
    pooled_windows,
    prepared,
    windows_of,
)
from mlinspect.execute.ops_mslite_elementwise import UNARY, aligned_shape, axis_of, fused, reduced_axes
from mlinspect.execute.registry import Call, op
from mlinspect.kernels import int8, int8_move, int8_reduce, int8_unary, matmul
from mlinspect.kernels.int8 import Affine
from mlinspect.kernels.shape import along

on_int8 = partial(op, "mslite:int8")
_F = np.float32


def affine(tensor: ir.Tensor) -> Affine:
    """A tensor's parameters.

    Raises
    ------
    UnsupportedError
        It has none.
    """
    q = tensor.quantization
    if q is None:
        raise UnsupportedError(f"tensor {tensor.name!r} is int8 without quantisation parameters")
    return Affine(float(q.scale[0]), int(q.zero_point[0]))


def source(call: Call, i: int = 0) -> Affine:
    """Parameters of an operand."""
    return _kept(call, "inputs", i)


def target(call: Call, i: int = 0) -> Affine:
    """Parameters of a result."""
    return _kept(call, "outputs", i)


def _kept(call: Call, side: str, i: int) -> Affine:
    key = f"{side}{i}"
    if key not in call.memo:
        call.memo[key] = affine(getattr(call, side)[i])
    found: Affine = call.memo[key]
    return found


def activation_of(call: Call) -> str:
    """The fused activation's name."""
    return str(call.attrs.get("activation_type") or "")


# --- sums of products ------------------------------------------------------------------------------------------------


def centred(x: np.ndarray, q: Affine) -> np.ndarray:
    """Stored numbers without their zero point, in as narrow a type as holds them."""
    return np.subtract(x, q.zero_point, dtype=np.int16)


def centred_weights(call: Call, weights: np.ndarray) -> np.ndarray:
    """The second operand without its zero points; a constant is converted once."""

    def make(stored: np.ndarray) -> np.ndarray:
        first, q = affine(call.inputs[1]), call.inputs[1].quantization
        if q is None or q.axis is None or len(q.zero_point) == 1:
            return centred(stored, first)
        return np.subtract(stored, along(q.zero_point, q.axis, stored.ndim), dtype=np.int16, casting="unsafe")

    return prepared(call, "centred", weights, make)


def operands(
    call: Call,
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None,
    depth_axes: tuple[int, ...],
    padded: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Without zero points, for a kernel that sums along ``depth_axes`` of the weights.

    As float32 numbers where even the largest sum is exact in them, which saves BLAS the conversions; else as integers.
    The zero point of an input that is not padded goes into the bias, which saves a pass over the input.
    """
    kept = call.memo.get("exact")
    if kept is None or kept[0] is not weights or kept[1] is not bias or kept[2] is not padded:
        kept = call.memo["exact"] = (weights, bias, padded, *_exact(call, weights, bias, depth_axes, padded))
    dtype, zero_point, filters, bias = kept[3:]
    centre = x.astype(dtype)
    if zero_point:
        centre -= zero_point
    return centre, filters, bias


def _exact(
    call: Call, weights: np.ndarray, bias: np.ndarray | None, depth_axes: tuple[int, ...], padded: bool
) -> tuple[type, int, np.ndarray, np.ndarray | None]:
    """(what the products are made in, what to take off the input, weights, bias)."""
    zero_point, filters = source(call).zero_point, centred_weights(call, weights)
    off = zero_point if padded else 0
    added = np.zeros(1, np.int64) if bias is None else bias.astype(np.int64)
    if not padded:
        added = added - zero_point * filters.sum(depth_axes, dtype=np.int64)
    largest = np.abs(filters, dtype=np.int64).sum(depth_axes).max(initial=0) * max(128 + off, 127 - off)
    if largest + np.abs(added).max(initial=0) >= 1 << 24:
        return np.int16, zero_point, filters, bias
    return _F, off, filters.astype(_F), None if bias is None and padded else added.astype(_F)


def finished(call: Call, sums: np.ndarray) -> np.ndarray:
    """Sums, as int32 or as exact float32, -> int8."""
    if "requantizer" not in call.memo:
        q = call.inputs[1].quantization
        scale = q.scale if q is not None and len(q.scale) > 1 else source(call, 1).scale
        parameters = source(call).scale, scale, target(call), activation_of(call)
        call.memo["requantizer"] = int8.requantizer_of_sums(*parameters)
    stored: np.ndarray = call.memo["requantizer"](sums)
    return stored


@on_int8("Conv2DFusion")
def conv2d_fusion(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    padded = any(map(any, windows_of(call, x, weights.shape[1:3])[1]))
    return finished(call, convolved(call, *operands(call, x, weights, bias, (1, 2, 3), padded)))


@on_int8("Conv2dTransposeFusion")
def conv2d_transpose_fusion(
    call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    return finished(call, deconvolved(call, *operands(call, x, weights, bias, (0, 1, 2))))


@on_int8("FullConnection")
def full_connection(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    rows, filters, bias = operands(call, x, weights, bias, (1,))
    rows, lead = flattened(call, rows, weights)
    return finished(call, matmul.matmul(rows, filters.T, bias)).reshape(*lead, -1)


@on_int8("MatMulFusion")
def matmul_fusion(call: Call, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    if isinstance(a, DynamicallyQuantized):
        return dynamic_matmul(call, a, b, bias)
    rows, filters, bias = operands(call, a, b, bias, (-1 if call.attrs.get("transpose_b") else -2,))
    left, right = matrices(call, rows, filters)
    return finished(call, matmul.matmul(left, right, bias))


# --- dynamic quantisation --------------------------------------------------------------------------------------------


class DynamicallyQuantized(np.ndarray):
    """int8 numbers that carry the parameters which their own range gave."""

    parameters: Affine

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, DynamicallyQuantized) and hasattr(other, "parameters"):
            self.parameters = other.parameters


@op("mslite", "DynamicQuant")
def dynamic_quant(call: Call, x: np.ndarray) -> np.ndarray:
    if call.mode == "float":
        return x
    stored, q = int8_move.dynamic_quantize(x, call.attrs["symmetric"])
    carrier = stored.view(DynamicallyQuantized)
    carrier.parameters = q
    return carrier


def dynamic_matmul(call: Call, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """MatMulFusion behind DynamicQuant: integer sums, float result."""
    q = a.parameters  # type: ignore[attr-defined]
    left, right = matrices(call, centred(np.asarray(a), q), centred_weights(call, b))
    weights = call.inputs[1].quantization
    assert weights is not None
    sums = matmul.matmul(left, right)
    return fused(call, int8_move.dynamic_matmul_output(sums, q.scale, weights.scale.astype(np.float32), bias))


# --- element by element ----------------------------------------------------------------------------------------------


@on_int8("AddFusion")
def add_fusion(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return int8.add_int8(a, b, source(call), source(call, 1), target(call), activation_of(call))


@on_int8("BiasAdd")
def bias_add(call: Call, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return int8.add_int8(x, bias.reshape(-1), source(call), source(call, 1), target(call))


_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "SubFusion": int8.sub_int8,
    "MulFusion": int8.mul_int8,
    "DivFusion": int8.div_int8,
}


@on_int8(*_BINARY)
def binary(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _BINARY[call.layer.op](a, b, source(call), source(call, 1), target(call))


@on_int8("PowFusion")
def power(call: Call, x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    a = call.attrs
    return int8.power_int8(x, exponent, source(call), source(call, 1), target(call), a["scale"], a["shift"])


@on_int8("ScaleFusion")
def scale_fusion(call: Call, x: np.ndarray, scale: np.ndarray, offset: np.ndarray | None = None) -> np.ndarray:
    along = aligned_shape(scale, x, call.attrs["axis"])
    return int8.scale_int8(
        x,
        scale.reshape(along),
        None if offset is None else offset.reshape(along),
        source(call),
        source(call, 1),
        None if offset is None else source(call, 2),
        target(call),
        activation_of(call),
    )


@on_int8(*(name for name in UNARY if name not in ("Neg", "Erf", "IsFinite", "Log1p")))
def unary(call: Call, x: np.ndarray) -> np.ndarray:
    return int8_unary.unary_int8(x, call.layer.op, source(call), target(call))


@on_int8("Activation")
def activation(call: Call, x: np.ndarray) -> np.ndarray:
    return int8_unary.activate_int8(x, activation_of(call), source(call), target(call), call.attrs.get("alpha", 0.0))


@on_int8("BatchNorm")
def batch_norm(call: Call, x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    params = source(call), source(call, 1), source(call, 2)
    return int8.batch_norm_int8(x, mean, variance, params, target(call), call.attrs["epsilon"])


@on_int8("FusedBatchNorm")
def fused_batch_norm(
    call: Call, x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    params = source(call), source(call, 3), source(call, 4)
    return int8.batch_norm_int8(
        x,
        mean,
        variance,
        params,
        target(call),
        call.attrs["epsilon"],
        (scale, source(call, 1)),
        (offset, source(call, 2)),
    )


# --- windows, axes ---------------------------------------------------------------------------------------------------


@on_int8("AvgPoolFusion", "MaxPoolFusion")
def pooling(call: Call, x: np.ndarray) -> np.ndarray:
    window, stride, padding, size = pooled_windows(call, x)
    begin = padding[0][0], padding[1][0]
    kernel = int8_reduce.max_pool_int8 if call.layer.op == "MaxPoolFusion" else int8_reduce.avg_pool_int8
    return kernel(x, window, stride, begin, size, source(call), target(call))


@on_int8("ReduceFusion")
def reduce_fusion(call: Call, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    chosen = reduced_axes(call, x, axes)
    y = int8_reduce.reduce_int8(x, call.attrs["mode"], chosen, source(call), target(call))
    return y if call.attrs["keep_dims"] else y.squeeze(tuple(chosen))


@on_int8("Softmax")
def softmax(call: Call, x: np.ndarray) -> np.ndarray:
    return int8_reduce.softmax_int8(x, source(call), axis_of(call))


@on_int8("L2NormalizeFusion")
def l2_normalize(call: Call, x: np.ndarray) -> np.ndarray:
    return int8_reduce.l2_normalize_int8(x, source(call).zero_point)


@on_int8("Resize")
def resize(call: Call, x: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
    size, aligned = new_size(call, x, wanted), call.attrs["coordinate_transform_mode"] == "ALIGN_CORNERS"
    if call.attrs["method"] == "NEAREST":
        return int8_reduce.resize_nearest_int8(x, size, aligned)
    if call.attrs["method"] != "LINEAR":
        raise UnsupportedError(f"MindSpore Lite has no int8 kernel for {call.attrs['method']} resizing")
    return int8_reduce.resize_linear_int8(x, size, source(call).zero_point, aligned)


# --- movement --------------------------------------------------------------------------------------------------------


def rescaled(call: Call, x: np.ndarray, output: int = 0) -> np.ndarray:
    """Stored numbers by the result's parameters instead of the operand's."""
    if call.inputs[0].quantization is None or call.outputs[output].quantization is None:
        return x
    return int8_move.rescale_int8(x, source(call), target(call, output), call.layer.op)


@on_int8("Concat")
def concat(call: Call, *arrays: np.ndarray) -> np.ndarray:
    return int8_move.concat_int8(arrays, [affine(tensor) for tensor in call.inputs], target(call), call.attrs["axis"])


@on_int8("Reshape")
def reshape(call: Call, x: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
    return rescaled(call, moving.reshape(call, x, wanted))


@on_int8("Squeeze")
def squeeze(call: Call, x: np.ndarray) -> np.ndarray:
    return rescaled(call, moving.squeeze(call, x))


@on_int8("Crop")
def crop(call: Call, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    return rescaled(call, moving.crop(call, x, like))


@on_int8("SliceFusion")
def slice_fusion(call: Call, x: np.ndarray, begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    return rescaled(call, moving.slice_fusion(call, x, begin, size))


@on_int8("Split")
def split(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(rescaled(call, part, i) for i, part in enumerate(moving.split(call, x)))


@on_int8("Gather")
def gather(call: Call, x: np.ndarray, indices: np.ndarray, axis: np.ndarray) -> np.ndarray:
    return rescaled(call, moving.gather_layer(call, x, indices, axis))


@on_int8("DepthToSpace")
def depth_to_space(call: Call, x: np.ndarray) -> np.ndarray:
    return rescaled(call, moving.depth_to_space(call, x))


@on_int8("BatchToSpace", "BatchToSpaceND")
def batch_to_space(call: Call, x: np.ndarray, *operands: np.ndarray) -> np.ndarray:
    return rescaled(call, moving.batch_to_space(call, x))


@on_int8("PadFusion")
def pad_fusion(
    call: Call, x: np.ndarray, paddings: np.ndarray | None = None, value: np.ndarray | None = None
) -> np.ndarray:
    constant = float(call.attrs["constant_value"] if value is None else value.reshape(-1)[0])
    return moving.padded(call, x, paddings, int(int8_move.pad_value_int8(constant, source(call))))


@on_int8("DetectionPostProcess")
def detection_post_process(call: Call, *arrays: np.ndarray) -> tuple[Any, ...]:
    """On real values, as the runtime's kernel does it, too."""
    real = [
        int8_move.dequantize_int8(x, *affine(tensor)) if x.dtype == np.int8 else x
        for x, tensor in zip(arrays, call.inputs, strict=True)
    ]
    return ops_mslite_misc.detection_post_process(call, *real)


# takes uint8, too
@on_int8("QuantDTypeCast", stored=True)
def quant_dtype_cast(call: Call, x: np.ndarray) -> np.ndarray:
    if "cast" not in call.memo:
        call.memo["cast"] = _cast(call, x)
    result: np.ndarray = call.memo["cast"](x)
    return result


def _cast(call: Call, x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    kind, q = call.outputs[0].dtype, call.outputs[0].quantization or call.inputs[0].quantization
    if kind == "float32":
        if q is None or len(q.scale) == 1 or q.axis is None:
            scale, zero_point = (1.0, 0) if q is None else (float(q.scale[0]), int(q.zero_point[0]))
            return int8_move.dequantizer_int8(scale, zero_point)
        return int8_move.dequantizer_int8(q.scale, q.zero_point, q.axis, x.ndim)
    if kind != str(x.dtype):
        return int8_move.flip_sign
    real, stored = int8_move.dequantizer_int8(*source(call)), int8_move.quantizer_int8(target(call))
    return lambda x: stored(real(x))
