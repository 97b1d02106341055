"""MindSpore Lite's operators that work element by element, and reductions, in its CPU runtime's arithmetic (2.0.0).

In float mode the operators' definitions count, where the runtime departs from them (see ``mi.quirks("mslite")``).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from mlinspect.execute.registry import Call, choice, op
from mlinspect.kernels import elementwise, nnacl, reduce, softmax
from mlinspect.kernels.activation import FAST, NNACL, activate, prelu

mslite = partial(op, "mslite")
published = partial(op, "mslite", reference="published definition")

# --- activations -----------------------------------------------------------------------------------------------------

# name -> kernel and its two parameters: numbers, or names of attributes
ACTIVATIONS: dict[str, tuple[str, float | str, float | str]] = {
    "RELU": ("relu", 0, 0),
    "SIGMOID": ("sigmoid", 0, 0),
    "RELU6": ("bounded_relu", 6, 0),
    "ELU": ("elu", "alpha", 0),
    "LEAKY_RELU": ("leaky_relu", "alpha", 0),
    "ABS": ("abs", 0, 0),
    "RELU1": ("bounded_relu", 1, -1),
    "SOFTSIGN": ("soft_sign", 0, 0),
    "SOFTPLUS": ("softplus", 0, 0),
    "TANH": ("tanh", 1, 1),
    "SELU": ("selu", 0, 0),
    "HSWISH": ("hard_swish", 0, 0),
    "HSIGMOID": ("hard_sigmoid", 0, 0),
    "THRESHOLDRELU": ("threshold_relu", "alpha", 0),
    "LINEAR": ("linear", 1, 0),
    "HARD_TANH": ("bounded_relu", "max_val", "min_val"),
    "SIGN": ("sign", 0, 0),
    "SWISH": ("swish", 0, 0),
    "GELU": ("gelu", 0, 0),
    "FAST_GELU": ("gelu_tanh", 0, 0),
}
NO_ACTIVATION = ("NO_ACTIVATION", None)


# what operators fuse has no parameters of its own
_FUSED = {
    name: (kernel, 0 if isinstance(a, str) else a, 0 if isinstance(b, str) else b)
    for name, (kernel, a, b) in ACTIVATIONS.items()
}


@mslite("Activation")
def activation(call: Call, x: np.ndarray) -> np.ndarray:
    name = call.attrs["activation_type"]
    if name in NO_ACTIVATION:
        return x
    if name == "RELU" and x.dtype == np.int32:
        return np.maximum(x, 0)
    kernel, *parameters = choice(ACTIVATIONS, name, "activation")
    if name == "GELU" and call.attrs.get("approximate"):
        kernel = "gelu_tanh"
    a, b = (call.attrs.get(p, 0) if isinstance(p, str) else p for p in parameters)
    return activate(x, kernel, a, b, NNACL if call.mode == "vendor" else FAST)


def fused(call: Call, y: np.ndarray) -> np.ndarray:
    """The activation that an operator applies to its result, in place."""
    name = call.attrs.get("activation_type")
    if name in NO_ACTIVATION:
        return _folded(call, y) if call.mode == "float" else y
    if y.dtype != np.float32:
        return np.clip(y, 0, 6 if name == "RELU6" else None)
    kernel, a, b = choice(_FUSED, name, "activation")
    return activate(y, kernel, a, b, NNACL if call.mode == "vendor" else FAST, np.ascontiguousarray(y))


def _folded(call: Call, y: np.ndarray) -> np.ndarray:
    """The ReLU or ReLU6 that a converter dropped because int8 does it anyway.

    An output whose stored -128 means 0 clamps at 0 by saturation, and one that ends at 6 clamps at 6. Real values have
    no such ends, so float mode clamps them here.
    """
    q = call.outputs[0].quantization
    if q is None or call.outputs[0].dtype != "int8" or q.zero_point[0] != -128:
        return y
    six = abs(float(q.scale[0]) * 255 - 6) < 0.06
    return np.clip(y, np.float32(0), np.float32(6) if six else None)


@published("Elu")
def elu(call: Call, x: np.ndarray) -> np.ndarray:
    return activate(x, "elu", call.attrs["alpha"])


@published("LeakyRelu")
def leaky_relu(call: Call, x: np.ndarray) -> np.ndarray:
    return activate(x, "leaky_relu", call.attrs["negative_slope"])


@mslite("PReLUFusion")
def prelu_fusion(call: Call, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """One slope for all, or one for each channel of the last axis: its size says which, whatever ``channel_shared``."""
    return prelu(x, slope.reshape(-1)[0] if slope.size == 1 else slope.reshape(-1))


@mslite("Clip")
def clip(call: Call, x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    """The runtime looks at the attributes only; the definition prefers the operands."""
    bounds = [call.attrs["min"], call.attrs["max"]]
    if call.mode == "float":
        bounds = [bound if given is None else given for given, bound in zip((low, high), bounds, strict=True)]
    if x.dtype != np.float32:
        return np.clip(x, *(np.asarray(bound).astype(x.dtype) for bound in bounds))
    return np.fmin(np.fmax(x, np.float32(bounds[0])), np.float32(bounds[1]))


# --- one operand -----------------------------------------------------------------------------------------------------

UNARY = {"Abs": "abs", "Ceil": "ceil", "Floor": "floor", "Neg": "neg", "Round": "round", "Rsqrt": "rsqrt"}
UNARY |= {"Sin": "sin", "Cos": "cos", "Sqrt": "sqrt", "Square": "square", "Reciprocal": "reciprocal", "Erf": "erf"}
UNARY |= {"IsFinite": "is_finite", "Log": "log", "Log1p": "log1p", "LogicalNot": "logical_not"}
_APPROXIMATED = {"Cos": nnacl.cos, "Log": nnacl.log}


@mslite(*UNARY)
def unary(call: Call, x: np.ndarray) -> np.ndarray:
    name = call.layer.op
    approximated = _APPROXIMATED.get(name) if call.mode == "vendor" and x.dtype == np.float32 else None
    if approximated is not None:
        return approximated(x)
    result = elementwise.UNARY[UNARY[name]](x)
    return result.astype(x.dtype) if name == "LogicalNot" else result


_OF_2020 = {"Tan": np.tan, "Asin": np.arcsin, "Atan": np.arctan}


@published(*_OF_2020)
def unary_of_2020(call: Call, x: np.ndarray) -> np.ndarray:
    return _OF_2020[call.layer.op](x.astype(np.float64)).astype(np.float32)


@mslite("ExpFusion")
def exp_fusion(call: Call, x: np.ndarray) -> np.ndarray:
    base, scale, shift = (call.attrs[name] for name in ("base", "scale", "shift"))
    if call.mode == "vendor":
        return elementwise.exp_fusion(x, nnacl.exp, base, scale, shift)
    with np.errstate(all="ignore"):
        log_base = 1.0 if base == -1 else np.log(base)
        return np.exp((np.float64(scale) * x + shift) * log_base).astype(np.float32)


# --- two operands ----------------------------------------------------------------------------------------------------

BINARY = {"AddFusion": "add", "SubFusion": "sub", "MulFusion": "mul", "DivFusion": "div", "RealDiv": "div"}
BINARY |= {"FloorDiv": "floor_div", "FloorMod": "floor_mod", "Mod": "mod", "SquaredDifference": "squared_difference"}
BINARY |= {"Equal": "equal", "NotEqual": "not_equal", "Greater": "greater", "GreaterEqual": "greater_equal"}
BINARY |= {"Less": "less", "LessEqual": "less_equal"}


@mslite(*BINARY)
def binary(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    result = elementwise.BINARY[BINARY[call.layer.op]](*alike(a, b))
    if call.mode == "vendor" and call.layer.op in ("SubFusion", "DivFusion"):
        return result  # which ignore their activation
    return fused(call, result)


def alike(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Operands of one type: the first one's, which the runtime chooses its kernel by (numpy would widen)."""
    return (a, b) if a.dtype == b.dtype else (a, b.astype(a.dtype))


@mslite("Maximum", "Minimum")
def extreme(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # a > b ? a : b: a NaN on either side gives b
    return (elementwise.maximum if call.layer.op == "Maximum" else elementwise.minimum)(*reversed(alike(a, b)))


@mslite("LogicalAnd", "LogicalOr", "LogicalXor")
def logical(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """On numbers, 0 is false; the result keeps their type. The runtime's LogicalAnd of int32 combines bits."""
    if call.mode == "vendor" and call.layer.op == "LogicalAnd" and a.dtype == np.int32:
        return a & b
    function = {"LogicalAnd": np.logical_and, "LogicalOr": np.logical_or}.get(call.layer.op, np.logical_xor)
    return function(a != 0, b != 0).astype(a.dtype)


@mslite("PowFusion")
def power(call: Call, x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    return elementwise.power(x, exponent, call.attrs["scale"], call.attrs["shift"])


@mslite("BiasAdd")
def bias_add(call: Call, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return x + bias.reshape(-1)


@mslite("AddN")
def add_n(call: Call, *arrays: np.ndarray) -> np.ndarray:
    total = arrays[0] + arrays[1] if len(arrays) > 1 else arrays[0]
    for array in arrays[2:]:
        total = total + array
    return total


ELTWISE = {"PROD": np.multiply, "SUM": np.add, "MAXIMUM": np.maximum}


@mslite("Eltwise")
def eltwise(call: Call, a: np.ndarray, *others: np.ndarray) -> np.ndarray:
    function = choice(ELTWISE, call.attrs["mode"], "element-wise mode")
    for other in others:
        a = function(a, other)
    return a


@mslite("ScaleFusion")
def scale_fusion(call: Call, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    shape = aligned_shape(scale, x, call.attrs["axis"])
    y = x * scale.reshape(shape)
    if bias is not None:
        y += bias.reshape(shape)
    return fused(call, y)


def aligned_shape(part: np.ndarray, x: np.ndarray, axis: int) -> list[int]:
    """The shape in which a scale, laid along the axes from ``axis`` on, broadcasts against ``x``."""
    axis %= x.ndim
    return [*[1] * axis, *part.shape, *[1] * (x.ndim - axis - part.ndim)]


# --- reductions ------------------------------------------------------------------------------------------------------

REDUCTIONS = {"ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod", "ReduceSum": "sum"}
REDUCTIONS |= {"ReduceSumSquare": "sum_square", "ReduceASum": "asum", "ReduceAll": "all", "ReduceL2": "l2"}


def reduced_axes(call: Call, x: np.ndarray, axes: np.ndarray | None) -> list[int]:
    """All axes where none are named; with ``reduce_to_end`` those from the first one named."""
    listed = [] if axes is None else [int(axis) % max(x.ndim, 1) for axis in axes.reshape(-1)]
    if call.attrs.get("reduce_to_end") and listed:
        return list(range(listed[0], x.ndim))
    return listed or list(range(x.ndim))


@mslite("ReduceFusion")
def reduce_fusion(call: Call, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    mode, keep = choice(REDUCTIONS, call.attrs["mode"], "reduction"), bool(call.attrs["keep_dims"])
    if x.ndim == 0:
        return x
    function = reduce.reduce_by_axis if call.mode == "vendor" else reduce.reduce
    y = function(x, mode, reduced_axes(call, x, axes), keep)
    if call.attrs.get("reduce_to_end") and y.dtype == np.float32:
        y = y * np.float32(call.attrs["coeff"])
    return y


@published("All")
def all_true(call: Call, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    return reduce.reduce(
        x != 0, "all", None if axes is None else axes.reshape(-1).tolist(), bool(call.attrs["keep_dims"])
    )


@mslite("ArgMaxFusion", "ArgMinFusion")
def arg_extreme(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...] | np.ndarray:
    a = call.attrs
    axis, largest, keep = a["axis"] % x.ndim, call.layer.op == "ArgMaxFusion", a["keep_dims"]
    if a["top_k"] > 1:
        values, indices = reduce.top_k(x, a["top_k"], axis, largest)
    else:
        indices = np.expand_dims(reduce.arg_extreme(x, axis, largest, first_nan_wins=False), axis)
        values = np.take_along_axis(x, indices, axis)
        if not keep:
            indices, values = indices.squeeze(axis), values.squeeze(axis)
    results = indices.astype(np.int32), values
    if len(call.outputs) == 2:
        return results
    return results[1 if a["out_max_value"] else 0]


@mslite("TopKFusion")
def top_k(call: Call, x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a = call.attrs
    largest = call.mode == "vendor" or bool(a["largest"])  # the runtime does not look at it
    return reduce.top_k(x, int(k.reshape(-1)[0]), a["axis"], largest, a["sorted"])


@mslite("CumSum")
def cumulative_sum(call: Call, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    return reduce.cumsum(x, int(axis.reshape(-1)[0]), call.attrs["exclusive"], call.attrs["reverse"])


def axis_of(call: Call, default: int = -1) -> int:
    """The one axis of an operator that lists its axes."""
    axes = call.attrs.get("axis")
    return int(axes[0]) if isinstance(axes, tuple | list) and len(axes) else default


@mslite("Softmax")
def softmax_layer(call: Call, x: np.ndarray) -> np.ndarray:
    axis = axis_of(call)
    y = np.exp(x - x.max(axis, keepdims=True))
    y /= y.sum(axis, keepdims=True)
    return y


@mslite("LogSoftmax")
def log_softmax_layer(call: Call, x: np.ndarray) -> np.ndarray:
    return softmax.log_softmax(x, call.attrs["axis"])
