"""Arm NN's layers that calculate: attributes -> kernel call, in the reference backend's arithmetic (22.11).

Functions take real float32 values and give real ones, which ``bind_armnn`` encodes; those registered with
``stored=True`` take and give stored numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.execute.registry import Call, choice, op
from mlinspect.execute.values import dequantize_array, encode, numpy_dtype
from mlinspect.kernels import conv, depthwise, elementwise, libm, matmul, normalize, pool, quantize, reduce, softmax
from mlinspect.kernels.activation import FAST, PRECISE, activate, prelu
from mlinspect.kernels.conv_transpose import conv2d_transpose_approximate
from mlinspect.kernels.summation import Approximate

armnn = partial(op, "armnn")


# --- helpers -----------------------------------------------------------------------------------------------------


def channels_last(x: np.ndarray, layout: str) -> np.ndarray:
    """An NCHW (NCDHW) array as NHWC (NDHWC), without a copy."""
    return np.moveaxis(x, 1, -1) if layout in ("NCHW", "NCDHW") else x


def channels_back(x: np.ndarray, layout: str) -> np.ndarray:
    """The reverse of :func:`channels_last`."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if layout in ("NCHW", "NCDHW") else x


def channel_axis(layout: str) -> int:
    """Where a layout has its channels."""
    return 1 if layout in ("NCHW", "NCDHW") else -1


def settled(call: Call, result: Approximate) -> np.ndarray:
    """Sums in BLAS order -> what the layer stores (in float mode: the sums themselves)."""
    return result.value if call.mode == "float" else encode(result, call.outputs[0])


def pads(attrs: dict, *sides: tuple[str, str]) -> tuple[tuple[int, int], ...]:
    """Padding attributes as ((before, after), ...)."""
    return tuple((attrs[f"pad{before}"], attrs[f"pad{after}"]) for before, after in sides)


C_LIBRARY = elementwise.UNARY | {"exp": libm.expf, "log": libm.logf, "sin": libm.sinf}


def functions(call: Call, *names: str) -> list[elementwise.Unary]:
    """Elementary functions: the C library's to the last bit if the result is rounded afterwards, else quick ones."""
    table = elementwise.UNARY if call.outputs[0].dtype == "float32" else C_LIBRARY
    return [table[name] for name in names]


YX = (("Top", "Bottom"), ("Left", "Right"))
ZYX = (("Front", "Back"), *YX)


def pointwise(call: Call, x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply a function of real values to each element; 8-bit tensors go through a table of all 256 results."""
    source, target = call.inputs[0], call.outputs[0]
    if call.mode == "float":
        return function(dequantize_array(x, source))

    def through(stored: np.ndarray) -> np.ndarray:
        return encode(function(dequantize_array(stored, source)), target)

    by_channel = any(t.quantization is not None and t.quantization.axis is not None for t in (source, target))
    if x.itemsize > 1 or x.dtype.kind not in "iu" or by_channel:
        return through(x)
    if "table" not in call.memo:
        call.memo["table"] = quantize.table_of(through, x.dtype)
    return quantize.lookup(x, call.memo["table"])


# --- activations and elementwise ---------------------------------------------------------------------------------

ACTIVATIONS = {
    "Sigmoid": "sigmoid",
    "TanH": "tanh",
    "Linear": "linear",
    "ReLu": "relu",
    "BoundedReLu": "bounded_relu",
    "SoftReLu": "soft_relu",
    "LeakyReLu": "leaky_relu",
    "Abs": "abs",
    "Sqrt": "sqrt",
    "Square": "square",
    "Elu": "elu",
    "HardSwish": "hard_swish",
    "Gelu": "gelu",
}


@armnn("Activation", stored=True)
def activation(call: Call, x: np.ndarray) -> np.ndarray:
    name = call.attrs["activationFunction"]
    if name == "SoftReLu" and call.mode == "vendor":
        name = "Sigmoid"  # Arm NN's deserialiser knows no SoftReLu and takes its default
    kernel = choice(ACTIVATIONS, name, "activation function")
    elementary = FAST if call.outputs[0].dtype == "float32" else PRECISE
    a, b = call.attrs["a"], call.attrs["b"]
    return pointwise(call, x, lambda real: activate(real, kernel, a, b, elementary))


@armnn("Prelu")
def prelu_layer(call: Call, x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return prelu(x, alpha)


UNARY = {"Abs": "abs", "Rsqrt": "rsqrt", "Sqrt": "sqrt", "Exp": "exp", "Neg": "neg", "Log": "log", "Sin": "sin"}
UNARY |= {"Ceil": "ceil", "LogicalNot": "logical_not", "Floor": "floor"}


@armnn("ElementwiseUnary", "Abs", "Rsqrt", "Floor", stored=True)
def elementwise_unary(call: Call, x: np.ndarray) -> np.ndarray:
    name = call.attrs.get("operation", call.layer.op)
    if name == "LogicalNot":
        return np.logical_not(x)
    return pointwise(call, x, *functions(call, choice(UNARY, name, "unary operation")))


BINARY = {"Addition": "add", "Subtraction": "sub", "Multiplication": "mul", "Division": "div"}
BINARY |= {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Maximum": "maximum", "Minimum": "minimum"}
BINARY |= {"SqDiff": "squared_difference", "FloorDiv": "floor_div"}


@armnn(
    "Addition", "Subtraction", "Multiplication", "Division", "Maximum", "Minimum", "ElementwiseBinary", integers=True
)
def elementwise_binary(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    name = call.attrs.get("operation", call.layer.op)
    if name == "Power":
        return np.asarray(elementwise.power(a, b), a.dtype)
    function = elementwise.BINARY[choice(BINARY, name, "binary operation")]
    if name == "FloorDiv" and a.dtype.kind != "f":
        return np.asarray(a // np.where(b == 0, 1, b), a.dtype)
    if call.outputs[0].dtype == "float16" and name in ("Maximum", "Minimum"):
        return np.where(a < b if name == "Maximum" else b < a, b, a)  # the quick way takes either of -0 and +0
    return function(a, b)


COMPARISONS = {"Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less"}
COMPARISONS |= {"LessOrEqual": "less_equal", "NotEqual": "not_equal"}


@armnn("Comparison", "Equal", "Greater")
def comparison(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    name = call.attrs.get("operation", call.layer.op)
    return elementwise.BINARY[COMPARISONS.get(name, "not_equal")](a, b)


@armnn("LogicalBinary", stored=True)
def logical_binary(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.logical_or(a, b) if call.attrs["operation"] == "LogicalOr" else np.logical_and(a, b)


@armnn("Quantize", "Dequantize", stored=True)
def requantize(call: Call, x: np.ndarray) -> np.ndarray:
    return pointwise(call, x, lambda real: real)


@armnn("Cast", stored=True)
def cast(call: Call, x: np.ndarray) -> np.ndarray:
    """The stored numbers themselves are converted: scale 1, zero point 0 on both sides, but for an int32's scale."""
    dtype = numpy_dtype(call.outputs[0])
    values = dequantize_array(x, call.inputs[0]) if x.dtype == np.int32 else x.astype(np.float32)
    if dtype.kind in "iu" and dtype.itemsize <= 2:
        return quantize.quantize(values, 1.0, 0, dtype)
    return quantize.cast(values, dtype)


# --- convolutions and products -----------------------------------------------------------------------------------


@armnn("Convolution2d")
def convolution2d(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    a = call.attrs
    layout = a["dataLayout"]
    sums = conv.conv2d_approximate(
        channels_last(x, layout),
        channels_last(weights, layout),
        _bias(call, bias, len(weights)),
        stride=(a["strideY"], a["strideX"]),
        padding=pads(a, *YX),
        dilation=(a.get("dilationY", 1), a.get("dilationX", 1)),
    )
    return channels_back(settled(call, sums), layout)


@armnn("DepthwiseConvolution2d")
def depthwise_convolution2d(
    call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    a = call.attrs
    layout = a["dataLayout"]
    if call.inputs[1].layout == "MIHW":
        weights = weights.transpose(2, 3, 1, 0)  # output channel i * M + m
        weights = weights.reshape(*weights.shape[:2], -1)
    else:
        weights = weights[0]
    result = depthwise.depthwise_conv2d(  # adds in the reference backend's order
        channels_last(x, layout),
        weights,
        _bias(call, bias, weights.shape[-1]),
        stride=(a["strideY"], a["strideX"]),
        padding=pads(a, *YX),
        dilation=(a.get("dilationY", 1), a.get("dilationX", 1)),
    )
    return channels_back(result, layout)


@armnn("Convolution3d")
def convolution3d(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    a = call.attrs
    layout = a["dataLayout"]
    sums = conv.conv3d_approximate(
        channels_last(x, layout),
        weights,
        _bias(call, bias, weights.shape[-1]),
        stride=(a["strideZ"], a["strideY"], a["strideX"]),
        padding=pads(a, *ZYX),
        dilation=(a["dilationZ"], a["dilationY"], a["dilationX"]),
    )
    return channels_back(settled(call, sums), layout)


@armnn("TransposeConvolution2d")
def transpose_convolution2d(
    call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    a = call.attrs
    layout = a["dataLayout"]
    sums = conv2d_transpose_approximate(
        channels_last(x, layout),
        channels_last(weights, layout),
        _bias(call, bias, len(weights)),
        stride=(a["strideY"], a["strideX"]),
        padding=pads(a, *YX),
    )
    return channels_back(settled(call, sums), layout)


def _bias(call: Call, bias: np.ndarray | None, filters: int) -> np.ndarray | None:
    if not call.attrs["biasEnabled"]:
        return None
    if bias is None or bias.size != filters:
        raise ValueError(f"a bias of {filters} numbers is wanted, there are {0 if bias is None else bias.size}")
    return bias.reshape(-1)


@armnn("FullyConnected")
def fully_connected(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    matrix = weights.T if call.attrs["transposeWeightsMatrix"] else weights
    sums = matmul.matmul_approximate(x.reshape(x.shape[0], -1), matrix, _bias(call, bias, matrix.shape[1]))
    return settled(call, sums).reshape(call.outputs[0].shape or (x.shape[0], -1))


@armnn("BatchMatMul")
def batch_matmul(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrices lie in the last two axes, or in H and W of NHWC and NDHWC; the adjoint is the adjugate."""
    operands = []
    for array, side in ((a, "X"), (b, "Y")):
        layout = call.attrs[f"dataLayout{side}"]
        last = layout in ("NHWC", "NDHWC") and array.ndim == len(layout)
        matrix = np.moveaxis(array, -1, 1) if last else array
        if matrix.ndim < 2:
            raise ValueError(f"operand {side} has {matrix.ndim} dimensions, a matrix has 2 or more")
        if call.attrs[f"adjoint{side}"]:
            matrix = matmul.adjugate(matrix)
        operands.append((matrix.swapaxes(-1, -2) if call.attrs[f"transpose{side}"] else matrix, last))
    (left, left_last), (right, right_last) = operands
    result = settled(call, matmul.matmul_approximate(left, right))
    return np.ascontiguousarray(np.moveaxis(result, 1, -1)) if left_last or right_last else result


# --- pooling, reductions, normalisation --------------------------------------------------------------------------


def _windows(size: int, window: int, stride: int, padding: tuple[int, int], ceil: bool) -> int:
    """Windows along an axis; one less if the last would start behind the image. Stride 0 means one for all."""
    if not stride:
        return 1
    count = pool.pool_output_size(size, window, stride, padding, ceil)
    return count - ((count - 1) * stride >= size + padding[0])


# Arm NN gives 0 for a window that starts beyond the image (start > size). It clips starts to the image before that
# test, which then finds none; only along X of Pooling2d it clips after it.
_NEVER_BEHIND = (math.inf, math.inf, math.inf)


@armnn("Pooling2d", "Pooling3d")
def pooling(call: Call, x: np.ndarray) -> np.ndarray:
    a = call.attrs
    layout = a["dataLayout"]
    deep = call.layer.op == "Pooling3d"
    axes = ("Z", "Y", "X") if deep else ("Y", "X")
    sizes = ("Depth", "Height", "Width") if deep else ("Height", "Width")
    x = channels_last(x, layout)
    window, stride = [a[f"pool{size}"] for size in sizes], [a[f"stride{axis}"] for axis in axes]
    padding, shape = pads(a, *(ZYX if deep else YX)), call.outputs[0].shape
    if shape is not None and len(shape) == x.ndim and min(shape) >= 0:
        size = shape[2:] if layout in ("NCHW", "NCDHW") else shape[1:-1]
    else:
        ceil = a["outputShapeRounding"] == "Ceiling"
        size = tuple(_windows(*axis, ceil) for axis in zip(x.shape[1:-1], window, stride, padding, strict=True))
    result = pool.pool(
        x,
        a["poolType"].lower(),
        window,
        stride,
        padding,
        output_size=size,
        exclude_padding=a["paddingMethod"] == "Exclude",
        zero_from=_NEVER_BEHIND if deep else (math.inf, x.shape[2] + 1),
    )
    return channels_back(result, layout)


@armnn("Mean", "Reduce")
def reduction(call: Call, x: np.ndarray) -> np.ndarray:
    axes = call.attrs["axis"] or range(x.ndim)
    mode = call.attrs.get("reduceOperation", "Mean").lower()
    result = reduce.reduce(x, "sum" if mode == "mean" else mode, axes, call.attrs["keepDims"])
    if mode == "mean":
        result = result / np.float32(math.prod(x.shape[axis] for axis in axes))  # an axis named twice counts twice
    return result.reshape(1) if result.ndim == 0 else result


@armnn("ArgMinMax")
def arg_min_max(call: Call, x: np.ndarray) -> np.ndarray:
    index = reduce.arg_extreme(x, call.attrs["axis"], call.attrs["argMinMaxFunction"] == "Max")
    return index.astype(numpy_dtype(call.outputs[0])).reshape(call.outputs[0].shape or index.shape)


@armnn("Softmax")
def softmax_layer(call: Call, x: np.ndarray) -> np.ndarray:
    return softmax.softmax(x, call.attrs.get("axis", -1), call.attrs["beta"], *functions(call, "exp"))


@armnn("LogSoftmax")
def log_softmax_layer(call: Call, x: np.ndarray) -> np.ndarray:
    return softmax.log_softmax(x, call.attrs["axis"], call.attrs["beta"], *functions(call, "exp", "log"))


@armnn("BatchNormalization")
def batch_normalization(
    call: Call, x: np.ndarray, mean: np.ndarray, variance: np.ndarray, beta: np.ndarray, gamma: np.ndarray
) -> np.ndarray:
    axis = channel_axis(call.attrs["dataLayout"]) if x.ndim > 2 else -1
    if any(constant.shape != x.shape[axis:][:1] for constant in (mean, variance, beta, gamma)):
        raise ValueError("mean, variance, beta and gamma have other lengths than the channels")
    return normalize.batch_norm(x, mean, variance, gamma, beta, epsilon=call.attrs["eps"], folded=True, axis=axis)


@armnn("InstanceNormalization")
def instance_normalization(call: Call, x: np.ndarray) -> np.ndarray:
    a = call.attrs
    result = normalize.instance_norm(channels_last(x, a["dataLayout"]), a["gamma"], a["beta"], epsilon=a["eps"])
    return channels_back(result, a["dataLayout"])


@armnn("L2Normalization")
def l2_normalization(call: Call, x: np.ndarray) -> np.ndarray:
    # lower ranks are aligned to the trailing axes of the layout
    axis = 1 - 4 + x.ndim if call.attrs["dataLayout"] == "NCHW" else x.ndim - 1
    if axis < 0:
        return normalize.l2_normalize(x[..., None], -1, epsilon=call.attrs["eps"])[..., 0]
    return normalize.l2_normalize(x, axis, epsilon=call.attrs["eps"])


@armnn("Normalization")
def normalization(call: Call, x: np.ndarray) -> np.ndarray:
    """Local response normalisation; its result is encoded with the input's quantisation, whatever the output says."""
    a = call.attrs
    if a["normMethodType"] == "LocalContrast":
        raise UnsupportedError("Arm NN's reference backend does not compute LocalContrast normalisation")
    across = a["normChannelType"] == "Across"
    result = normalize.local_response_norm(
        x,
        radius=a["normSize"] // 2,
        alpha=a["alpha"],
        beta=a["beta"],
        bias=a["k"],
        axes=channel_axis(a["dataLayout"]) if across else (-2, -1),
        divide=not across,
    )
    return result if call.mode == "float" else encode(result, call.inputs[0])
