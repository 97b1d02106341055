"""Arithmetic beside the multiply-adds of ``mlinspect.macs``: one formula a kind of layer.

One operation is one addition, multiplication, division, comparison, rounding, or one value of a function such as
``exp`` or ``tanh``. Moving numbers costs none.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from mlinspect import ir
from mlinspect.macs import count_elements

# function -> operations a value, by the names of either format
ACTIVATIONS = {
    "Abs": 1, "ABS": 1, "BoundedReLu": 2, "ELU": 3, "Elu": 3, "FAST_GELU": 8, "GELU": 5, "HARD_TANH": 2, "HSIGMOID": 4,
    "HSWISH": 5, "HardSwish": 5, "LEAKY_RELU": 2, "LeakyReLu": 2, "Linear": 2, "NO_ACTIVATION": 0, "RELU": 1,
    "RELU1": 2, "RELU6": 2, "ReLu": 1, "SELU": 4, "SIGMOID": 4, "SIGN": 1, "SOFTPLUS": 3, "SOFTSIGN": 3, "SWISH": 5,
    "Sigmoid": 4, "SoftReLu": 3, "Sqrt": 1, "Square": 1, "TANH": 1, "TanH": 3,
}  # fmt: skip

# kind -> operations an element of output 0
PER_OUTPUT = {
    "abs": 1, "add": 1, "batch_norm": 0, "bias_add": 1, "cast": 1, "ceil": 1, "cos": 1, "cumulative_sum": 1,
    "dequantize": 2, "div": 1, "equal": 1, "erf": 1, "exp": 1, "floor": 1, "floor_div": 2, "floor_mod": 3, "greater": 1,
    "greater_equal": 1, "greater_or_equal": 1, "group_norm": 7, "instance_norm": 7, "is_finite": 1, "l2_norm": 3,
    "layer_norm": 7, "less": 1, "less_equal": 1, "less_or_equal": 1, "log": 1, "log1p": 2, "log_softmax": 5,
    "logical_and": 1, "logical_not": 1, "logical_or": 1, "logical_xor": 1, "maximum": 1, "minimum": 1, "mod": 3,
    "mul": 1, "neg": 1, "not_equal": 1, "power": 1, "prelu": 2, "quantize": 3, "reciprocal": 1, "requantize": 5,
    "round": 1, "rsqrt": 2, "scale": 0, "select": 1, "sin": 1, "softmax": 5, "sqrt": 1, "square": 1,
    "squared_difference": 2, "sub": 1, "where": 1,
}  # fmt: skip

# kind -> operations an element of input 0
PER_INPUT = {
    "arg_max": 1, "arg_min": 1, "dynamic_quant": 5, "reduce_all": 1, "reduce_l2": 2, "reduce_max": 1, "reduce_mean": 1,
    "reduce_min": 1, "reduce_prod": 1, "reduce_sum": 1, "reduce_sum_abs": 2, "reduce_sum_square": 2,
}  # fmt: skip
_ONCE_MORE = ("reduce_mean", "reduce_l2")  # a division, a root of each result

MOVES = {
    "batch_to_space", "broadcast_to", "channel_shuffle", "concat", "constant", "constant_of_shape", "crop",
    "depth_to_space", "embedding_lookup", "expand_dims", "fill", "flatten", "gather", "gather_d", "gather_nd",
    "identity", "input", "mem_copy", "memcopy", "map", "one_hot", "ones_like", "output", "pad", "rank", "reshape",
    "reverse", "reverse_sequence", "shape", "slice", "space_to_batch", "space_to_depth", "split", "split_with_overlap",
    "squeeze", "stack", "strided_slice", "tile", "transpose", "tril", "triu", "unsqueeze", "unstack", "zeros_like",
}  # fmt: skip


def count_operations(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int | None:
    """Operations of one run beside multiply-adds, fused biases and activations included; None when unknown.

    Parameters
    ----------
    layer : Layer
    ins, outs : list of Tensor
        The layer's operands, in the order of its slots.

    Examples
    --------
    >>> x = ir.Tensor(0, "x", 0, "activation", "float32", "Float32", (1, 8, 8, 3))
    >>> count_operations(ir.Layer(0, "a", "Addition", "add", 0, {}, (0, 0), (1,)), [x, x], [x])
    192
    """
    try:
        count = _own(layer, ins, outs)
        if count is None:
            return None
        fused = layer.attrs.get("activation_type", "NO_ACTIVATION") if layer.kind != "activation" else "NO_ACTIVATION"
        return count + (ACTIVATIONS[fused] * _size(outs[0]) if fused != "NO_ACTIVATION" else 0)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):  # a size or an operand is not there
        return None


def _own(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int | None:
    kind = layer.kind
    if kind in MOVES:
        return 0
    if kind in PER_OUTPUT:
        return PER_OUTPUT[kind] * _size(outs[0])
    if kind in PER_INPUT:
        return PER_INPUT[kind] * _size(ins[0]) + (_size(outs[0]) if kind in _ONCE_MORE else 0)
    formula = FORMULAS.get(kind)
    return None if formula is None else formula(layer, ins, outs)


def _size(tensor: ir.Tensor) -> int:
    """Elements; TypeError when unknown."""
    return int(count_elements(tensor.shape))  # type: ignore[arg-type]


Formula = Callable[[ir.Layer, list[ir.Tensor], list[ir.Tensor]], int]


def _bias(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    """One addition an output, where there is a bias."""
    return _size(outs[0]) if len(ins) > 2 else 0


def _activation(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    names = ("activationFunction", "activation_type", "type")
    function = next(layer.attrs[name] for name in names if name in layer.attrs)
    return ACTIVATIONS[function] * _size(outs[0])


def _window(layer: ir.Layer, x: ir.Tensor) -> int:
    """Places that a pooling window covers, borders included."""
    attrs = layer.attrs
    if attrs.get("global"):
        return prod(x.shape[1:3])  # type: ignore[index]
    if "poolWidth" in attrs:
        return int(attrs["poolWidth"] * attrs["poolHeight"] * attrs.get("poolDepth", 1))
    return prod(attrs["kernel_size"]) if "kernel_size" in attrs else int(attrs["windowW"] * attrs["windowH"])


def _max_pool(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    return (_window(layer, ins[0]) - 1) * _size(outs[0])


def _average_pool(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    """Additions, and one division."""
    return _window(layer, ins[0]) * _size(outs[0])


def _l2_pool(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    """Squares, additions, a division, a root."""
    return (2 * _window(layer, ins[0]) + 1) * _size(outs[0])


def _resize(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    """Bilinear: three interpolations of three operations. Cubic: five of four products and three additions."""
    method = str(layer.attrs.get("method", "Bilinear")).lower()  # Arm NN's ResizeBilinear has no such attribute
    rate = 0 if method.startswith("nearest") else 35 if method.startswith("cubic") else 9
    return rate * _size(outs[0])


def _local_response_norm(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    """The square; the window's sum; scaling, offset, power, product."""
    radius = layer.attrs["normSize"] // 2 if "normSize" in layer.attrs else layer.attrs["depth_radius"]
    places = 2 * radius + 1
    if layer.attrs.get("normChannelType") == "Within":
        places *= places
    return (places + 4) * _size(outs[0])


def _add_n(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    return (len(ins) - 1) * _size(outs[0])


def _lstm(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    """A unit and step: 8 additions to the gates, 3 sigmoids, 2 tanh, 4 for cell and output (no peephole, no norm)."""
    return (8 + 3 * ACTIVATIONS["SIGMOID"] + 2 + 4) * _size(outs[0 if layer.op == "LSTM" else -1])


def _gru(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int:
    """A unit and step: 6 additions to the gates, 2 sigmoids, tanh, reset, 4 to mix old and new."""
    return (6 + 2 * ACTIVATIONS["SIGMOID"] + 1 + 1 + 4) * _size(outs[0])


FORMULAS: dict[str, Formula] = {
    "activation": _activation,
    "add_n": _add_n,
    "average_pool2d": _average_pool,
    "average_pool3d": _average_pool,
    "conv2d": _bias,
    "conv2d_transpose": _bias,
    "conv3d": _bias,
    "depthwise_conv2d": _bias,
    "fully_connected": _bias,
    "gru": _gru,
    "l2_pool2d": _l2_pool,
    "l2_pool3d": _l2_pool,
    "local_response_norm": _local_response_norm,
    "lstm": _lstm,
    "matmul": _bias,
    "max_pool2d": _max_pool,
    "max_pool3d": _max_pool,
    "resize": _resize,
}
