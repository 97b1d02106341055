"""MindSpore Lite's convolutions, products, pooling, normalisation and recurrent layers, in float32.

Images are NHWC whatever the ``format`` attribute says. Channels and kernel sizes come from the operands' own shapes:
the attributes repeat them, or hold 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from mlinspect.execute.ops_mslite_elementwise import fused
from mlinspect.execute.ops_mslite_shape import TYPES
from mlinspect.execute.registry import Call, choice, op
from mlinspect.kernels import conv, depthwise, int8_move, matmul, normalize, pool, recurrent_nnacl, resize
from mlinspect.kernels.conv_transpose import conv2d_transpose
from mlinspect.kernels.depthwise_fused import depthwise_conv2d_fused, spread_taps
from mlinspect.kernels.int8 import Affine
from mlinspect.kernels.windows import NO_PADDING, Pads, output_size, pad_zero, windows

mslite = partial(op, "mslite")
published = partial(op, "mslite", reference="published definition")


# --- windows ---------------------------------------------------------------------------------------------------------


def last_two(values: Sequence[int] | None, default: int = 1) -> tuple[int, int]:
    """(y, x) of an attribute that may have entries for batch and channel before, or be absent."""
    return (int(values[-2]), int(values[-1])) if values is not None and len(values) >= 2 else (default, default)


def padding_of(
    mode: str,
    listed: Sequence[int] | None,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int] = (1, 1),
) -> Pads:
    """((top, bottom), (left, right)): TensorFlow's SAME, or what is listed, which the runtime adds for VALID, too."""
    if mode != "SAME":
        if listed is None or len(listed) < 4:
            return NO_PADDING
        top, bottom, left, right = (int(n) for n in listed[:4])
        return (top, bottom), (left, right)
    pads = []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return tuple(pads)


def windows_of(call: Call, x: np.ndarray, kernel: tuple[int, ...]) -> tuple[tuple[int, int], Pads, tuple[int, int]]:
    """(stride, padding, dilation) of a convolution."""
    kept = call.memo.get("windows")
    if kept is None or kept[:2] != (x.shape, kernel):
        a = call.attrs
        stride, dilation = last_two(a["stride"]), last_two(a["dilation"])
        padding = padding_of(a["pad_mode"], a["pad_list"], x.shape[1:3], kernel, stride, dilation)
        kept = call.memo["windows"] = (x.shape, kernel, stride, padding, dilation)
    return kept[2:]


def prepared(call: Call, name: str, source: np.ndarray, make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What a layer makes of a constant operand, kept as long as the operand is the same array."""
    kept = call.memo.get(name)
    if kept is None or kept[0] is not source:
        kept = call.memo[name] = (source, make(source))
    return kept[1]


def depthwise_weights(weights: np.ndarray) -> np.ndarray:
    """[O, H, W, 1] -> [H, W, O]."""
    return np.ascontiguousarray(weights[..., 0].transpose(1, 2, 0))


def groups_of(call: Call, x: np.ndarray, weights: np.ndarray) -> int:
    """Groups of a convolution, of its operands: the ``group`` attribute repeats them, or is 0.

    Source: MindSpore Lite, ``nnacl/infer/conv2d_infer.c``, which refuses a file that contradicts itself here.
    """
    groups, over = divmod(x.shape[-1], weights.shape[-1])
    said = call.attrs.get("group") or groups
    if over or said != groups:
        raise ValueError(f"{x.shape[-1]} input channels do not fit weights {list(weights.shape)} in {said} groups")
    return groups


def convolved(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """The sums of a convolution, of float32 or of integers without zero point."""
    stride, padding, dilation = windows_of(call, x, weights.shape[1:3])
    groups = groups_of(call, x, weights)
    if groups == x.shape[-1] > 1:
        taps = prepared(call, "taps", weights, depthwise_weights)
        if x.dtype == np.float32 and stride[1] == 1 and len(weights) == groups:
            height, width = conv.output_size(x.shape[1:3], weights.shape[1:3], stride, padding, dilation)
            if height * width * groups <= 1 << 16:  # larger images are quicker tap by tap
                spread = prepared(call, f"taps{width}", taps, partial(spread_taps, width=width))
                if bias is not None:
                    bias = prepared(call, f"bias{width}", bias, partial(np.tile, reps=width))
                return depthwise_conv2d_fused(x, spread, bias, stride=stride, padding=padding, dilation=dilation)
        return depthwise.depthwise_conv2d(x, taps, bias, stride=stride, padding=padding, dilation=dilation)
    return conv.conv2d(x, weights, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


@mslite("Conv2DFusion")
def conv2d_fusion(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    return fused(call, convolved(call, x, weights, bias))


@published("AdderFusion")
def adder_fusion(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """A convolution that sums ``-|x - w|`` in place of products (AdderNet)."""
    kernel = weights.shape[1:3]
    stride, padding, dilation = windows_of(call, x, kernel)
    size = output_size(x.shape[1:3], kernel, stride, padding, dilation)
    view = windows(pad_zero(x, padding), kernel, stride, dilation, size)
    y = np.stack([-np.abs(view - filter_).sum((-3, -2, -1)) for filter_ in weights], -1)
    return fused(call, y if bias is None else y + bias)


def transposed_weights(weights: np.ndarray, groups: int) -> np.ndarray:
    """[I, H, W, O / groups] -> [O, H, W, I / groups]."""
    inputs, height, width, outputs = weights.shape
    parts = weights.reshape(groups, inputs // groups, height, width, outputs)
    return np.ascontiguousarray(parts.transpose(0, 4, 2, 3, 1).reshape(-1, height, width, inputs // groups))


def deconvolved(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """The sums of a transposed convolution, of float32 or of integers without zero point."""
    a = call.attrs
    kernel, stride, dilation = weights.shape[1:3], last_two(a["stride"]), last_two(a["dilation"])
    more = last_two(a.get("output_paddings"), 0)
    groups = x.shape[-1] if a.get("depthwise") else max(int(a.get("group") or 1), 1)
    swapped = prepared(call, "swapped", weights, partial(transposed_weights, groups=groups))
    return conv2d_transpose(
        x,
        swapped,
        bias,
        stride=stride,
        padding=transposed_padding(call, kernel, stride, dilation),
        dilation=dilation,
        output_padding=more,
        groups=groups,
    )


def transposed_padding(call: Call, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Pads:
    """SAME makes the output ``size * stride``, cutting half of what is over (rounded down) at the top and the left."""
    if call.attrs["pad_mode"] != "SAME":
        return padding_of(call.attrs["pad_mode"], call.attrs["pad_list"], (0, 0), kernel, stride, dilation)
    over = [(k - 1) * d + 1 - s for k, s, d in zip(kernel, stride, dilation, strict=True)]
    return tuple((max(n, 0) // 2, n - max(n, 0) // 2) for n in over)


@mslite("Conv2dTransposeFusion")
def conv2d_transpose_fusion(
    call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    return fused(call, deconvolved(call, x, weights, bias))


# --- products --------------------------------------------------------------------------------------------------------


def matrices(call: Call, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The operands as matrices to multiply: views."""
    if call.attrs.get("transpose_a"):
        a = a.swapaxes(-1, -2)
    if call.attrs.get("transpose_b"):
        b = b.swapaxes(-1, -2)
    return a, b


@mslite("MatMulFusion")
def matmul_fusion(call: Call, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    left, right = matrices(call, a, b)
    if left.ndim == 1 or right.ndim == 1:
        y = np.matmul(left, right)
        return fused(call, y if bias is None else y + bias)
    return fused(call, matmul.matmul(left, right, None if bias is None else bias.reshape(-1)))


def flattened(call: Call, x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """A fully connected layer's operand as a matrix, and the shape of its result without the last axis."""
    if call.attrs.get("use_axis"):
        lead = x.shape[: call.attrs["axis"]]
        return x.reshape(-1, weights.shape[-1]), lead
    rows = x.reshape(-1, weights.shape[-1])
    return rows, rows.shape[:1]


@mslite("FullConnection")
def full_connection(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    rows, lead = flattened(call, x, weights)
    return fused(call, matmul.matmul(rows, weights.T, bias)).reshape(*lead, -1)


# --- pooling ---------------------------------------------------------------------------------------------------------


def pooled_windows(call: Call, x: np.ndarray) -> tuple[tuple[int, int], tuple[int, int], Pads, list[int]]:
    """(window, stride, padding, output size)."""
    kept = call.memo.get("windows")
    if kept is None or kept[0] != x.shape:
        kept = call.memo["windows"] = (x.shape, _pooled_windows(call, x))
    return kept[1]


def _pooled_windows(call: Call, x: np.ndarray) -> tuple[tuple[int, int], tuple[int, int], Pads, list[int]]:
    a = call.attrs
    if a["global"]:
        return (x.shape[1], x.shape[2]), (1, 1), NO_PADDING, [1, 1]
    window, stride = last_two(a["kernel_size"]), last_two(a["strides"])
    padding = padding_of(a["pad_mode"], a.get("pad"), x.shape[1:3], window, stride)
    ceil = a.get("round_mode") == "CEIL" and a["pad_mode"] != "SAME"
    size = [
        pool.pool_output_size(n, w, s, p, ceil)
        for n, w, s, p in zip(x.shape[1:3], window, stride, padding, strict=True)
    ]
    return window, stride, padding, size


@mslite("AvgPoolFusion", "MaxPoolFusion")
def pooling(call: Call, x: np.ndarray) -> np.ndarray:
    window, stride, padding, size = pooled_windows(call, x)
    kind = "max" if call.layer.op == "MaxPoolFusion" else "average"
    if kind == "average" and size == [1, 1] and window == x.shape[1:3] and not any(map(any, padding)):
        cells = x.reshape(len(x), -1, x.shape[-1])  # one window: BLAS adds faster
        return fused(call, (_share(cells.shape[1]) @ cells)[:, :, None])
    reach = [(n - 1) * s + w for n, s, w in zip(size, stride, window, strict=True)]
    if kind == "max" and not any(map(any, padding)) and reach[0] <= x.shape[1] and reach[1] <= x.shape[2]:
        return fused(call, pool.max_pool_inside(x, window, stride, size))
    return fused(call, pool.pool(x, kind, window, stride, padding, output_size=size, exclude_padding=True))


@cache
def _share(count: int) -> np.ndarray:
    """A row that makes a matrix product a mean."""
    return np.full((1, count), np.float32(1) / np.float32(count), np.float32)


@mslite("ROIPooling")
def roi_pooling(call: Call, x: np.ndarray, rois: np.ndarray) -> np.ndarray:
    a = call.attrs
    return pool.roi_pool(x, rois, (a["pooled_h"], a["pooled_w"]), a["scale"])


# --- normalisation ---------------------------------------------------------------------------------------------------


@mslite("BatchNorm")
def batch_norm(call: Call, x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return normalize.batch_norm(x, mean, variance, epsilon=call.attrs["epsilon"])


@mslite("FusedBatchNorm")
def fused_batch_norm(
    call: Call, x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray | tuple[np.ndarray, ...]:
    y = normalize.batch_norm(x, mean, variance, scale, offset, epsilon=call.attrs["epsilon"])
    # files for training have more outputs: the moments, which stay as they are outside training
    rest = (scale, offset, mean, variance)[: len(call.outputs) - 1]
    return (y, *rest) if rest else y


@mslite("InstanceNorm")
def instance_norm(call: Call, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    epsilon = call.attrs["epsilon"]
    if call.inputs[0].layout == "NCHW":
        y = normalize.instance_norm_one_pass(np.moveaxis(x, 1, -1), gamma, beta, epsilon=epsilon, double=True)
        return np.ascontiguousarray(np.moveaxis(y, -1, 1))
    return normalize.instance_norm_one_pass(x, gamma, beta, epsilon=epsilon)


@mslite("LayerNormFusion")
def layer_norm(
    call: Call, x: np.ndarray, gamma: np.ndarray | None = None, beta: np.ndarray | None = None
) -> np.ndarray | tuple[np.ndarray, ...]:
    begin = call.attrs["begin_norm_axis"] % x.ndim
    y = normalize.layer_norm(x, gamma, beta, epsilon=call.attrs["epsilon"], begin_axis=begin)
    if len(call.outputs) == 1:
        return y
    axes = tuple(range(begin, x.ndim))  # for training: mean and variance, too
    return y, x.mean(axes, keepdims=True), x.var(axes, keepdims=True)


@published("GroupNormFusion")
def group_norm(call: Call, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    groups, epsilon = call.attrs["num_groups"], call.attrs["epsilon"]
    if call.inputs[0].layout == "NCHW":
        y = normalize.group_norm(np.moveaxis(x, 1, -1), groups, gamma, beta, epsilon=epsilon)
        return np.ascontiguousarray(np.moveaxis(y, -1, 1))
    return normalize.group_norm(x, groups, gamma, beta, epsilon=epsilon)


@mslite("L2NormalizeFusion")
def l2_normalize(call: Call, x: np.ndarray) -> np.ndarray:
    axes = call.attrs["axis"]
    axes = list(range(x.ndim)) if axes is None or not len(axes) else list(axes)
    return fused(call, normalize.l2_normalize(x, axes, epsilon=call.attrs["epsilon"]))


@published("LpNormalization")
def lp_normalize(call: Call, x: np.ndarray) -> np.ndarray:
    axis, p = call.attrs["axis"], call.attrs["p"] or 2
    norm = np.abs(x).sum(axis, keepdims=True) if p == 1 else np.sqrt(np.square(x).sum(axis, keepdims=True))
    return x / norm


@mslite("LRN")
def local_response_norm(call: Call, x: np.ndarray) -> np.ndarray:
    a = call.attrs
    return normalize.local_response_norm(x, radius=a["depth_radius"], alpha=a["alpha"], beta=a["beta"], bias=a["bias"])


# --- images ----------------------------------------------------------------------------------------------------------

TRANSFORMS = {"ASYMMETRIC": "asymmetric", "ALIGN_CORNERS": "align_corners", "HALF_PIXEL": "half_pixel"}


def new_size(call: Call, x: np.ndarray, wanted: np.ndarray | None) -> tuple[int, int]:
    """(height, width): from the second operand, as sizes or as float factors, or from the attributes."""
    if wanted is None or not wanted.size:
        return int(call.attrs["new_height"]), int(call.attrs["new_width"])
    values = wanted.reshape(-1)
    if values.size == 4:
        values = values[1:3] if call.inputs[1].layout != "NCHW" or values[-1] == 1 else values[2:4]
    if values.dtype.kind == "f":
        height, width = (np.float32(n) * np.float32(f) for n, f in zip(x.shape[1:3], values, strict=True))
        return int(height + np.float32(0.5)), int(width + np.float32(0.5))
    return int(values[0]), int(values[1])


@mslite("Resize")
def resize_layer(call: Call, x: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
    a = call.attrs
    return resize.resize(
        x,
        new_size(call, x, wanted),
        a["method"].lower(),
        choice(TRANSFORMS, a["coordinate_transform_mode"], "coordinate transform"),
        by_division=call.mode == "vendor",
        cubic_coeff=a.get("cubic_coeff") or -0.75,
    )


@mslite("CropAndResize")
def crop_and_resize(
    call: Call, x: np.ndarray, boxes: np.ndarray, box_indices: np.ndarray, size: np.ndarray
) -> np.ndarray:
    wanted = size.reshape(-1).tolist()
    return resize.crop_and_resize(x, boxes, box_indices, wanted, call.attrs["extrapolation_value"])


# --- recurrent layers ------------------------------------------------------------------------------------------------


@mslite("LSTM")
def lstm(call: Call, x: np.ndarray, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
    a = call.attrs
    zoneout = {"zoneout_hidden": a.get("zoneout_hidden", 0.0), "zoneout_cell": a.get("zoneout_cell", 0.0)}
    if len(operands) == 3:  # files for training: one vector of all weights
        hidden, cell, flat = operands
        directions = 2 if a["bidirectional"] else 1
        weights = recurrent_nnacl.split_lstm_weights(flat, x.shape[-1], cell.shape[-1], directions)
        y, hidden, cell = recurrent_nnacl.lstm(x, *weights, hidden, cell, **zoneout)
        y = y.swapaxes(1, 2).reshape(*y.shape[:1], y.shape[2], -1)
        # what the runtime hands on to the gradient, and nobody else reads
        rest = [np.zeros(0, np.float32)] * (len(call.outputs) - 3)
        return (y, hidden, cell, *rest)
    from_input, from_state, bias, hidden, cell, *projection = operands
    return recurrent_nnacl.lstm(
        x, from_input, from_state, bias, hidden, cell, projection=projection[0] if projection else None, **zoneout
    )


@mslite("GRU")
def gru(
    call: Call,
    x: np.ndarray,
    from_input: np.ndarray,
    from_state: np.ndarray,
    bias: np.ndarray,
    hidden: np.ndarray,
    length: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    steps = None if length is None else int(length.reshape(-1)[0])
    return recurrent_nnacl.gru(x, from_input, from_state, bias, hidden, sequence_length=steps)


# --- quantisation ----------------------------------------------------------------------------------------------------


@mslite("QuantDTypeCast")
def quant_dtype_cast(call: Call, x: np.ndarray) -> np.ndarray:
    """float32 -> int8 or uint8; what starts from those is among the int8 operators. Nothing happens to real values."""
    wanted = call.outputs[0].dtype
    q = call.outputs[0].quantization or call.inputs[0].quantization
    if call.mode == "float" and {call.inputs[0].dtype, wanted} == {"int8", "uint8"}:
        return _other_sign(call, x)
    if call.mode == "float" or q is None or x.dtype != np.float32 or wanted not in ("int8", "uint8"):
        return x
    if "quantizer" not in call.memo:
        parameters = Affine(float(q.scale[0]), int(q.zero_point[0]))
        from_uint8 = "dst_dtype" in q.extra and TYPES.get(int(q.extra["dst_dtype"][0])) == "uint8"
        call.memo["quantizer"] = (
            partial(int8_move.quantize_uint8, q=parameters)
            if wanted == "uint8"
            else int8_move.quantizer_int8(parameters, from_uint8)
        )
    stored: np.ndarray = call.memo["quantizer"](x)
    return stored


def _other_sign(call: Call, x: np.ndarray) -> np.ndarray:
    """Between int8 and uint8 stored numbers move by 128; where a file's zero points forget that, real values move."""
    source, target = call.inputs[0].quantization, call.outputs[0].quantization
    if source is None or target is None:
        return x
    step = -128 if call.outputs[0].dtype == "int8" else 128
    missing = int(source.zero_point[0]) + step - int(target.zero_point[0])
    return (x / np.float32(source.scale[0]) + np.float32(missing)) * np.float32(target.scale[0]) if missing else x
