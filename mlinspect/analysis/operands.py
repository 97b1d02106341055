"""Constants seen by what reads them: which axis holds the output channels, and the same numbers in one common order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mlinspect import constants, ir
from mlinspect.errors import InputError
from mlinspect.execute import values
from mlinspect.execute.values import numpy_dtype
from mlinspect.macs import MACS

_CHANNEL_AXIS = {"OHWI": 0, "OIHW": 0, "1HWO": 3, "DHWIO": 4, "OI": 0, "IO": 1}
_ROLES = {"FusedBatchNorm": ("gamma", "beta", "mean", "variance"), "BatchNorm": ("mean", "variance")}
_SUMS_BY_CHANNEL = ("conv2d", "depthwise_conv2d", "conv2d_transpose", "conv3d", "fully_connected")


class Use(NamedTuple):
    """The first layer that reads a constant, and at which of its inputs."""

    layer: ir.Layer
    slot: int


def short(value: Any) -> str:
    """A value as a message names it: on one line, without all the numbers of an array.

    Examples
    --------
    >>> short("net.ms"), short(np.zeros((1, 8, 8, 1)))
    ("'net.ms'", 'array([[[[0.], [0.], [0.], [0.],... (ndarray)')
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:32]}... ({type(value).__name__})"


def network_of(model: Any) -> ir.Network:
    """A Network as it is, or that of a Model.

    Raises
    ------
    InputError
        It is neither.
    """
    network = getattr(model, "network", model)
    if not isinstance(network, ir.Network):
        raise InputError(f"{short(model)} is no model: open a file with mlinspect.open first")
    return network


def uses(network: ir.Network) -> dict[int, Use]:
    """Tensor id -> its first reader, in execution order; tensors that nobody reads are not in it."""
    found: dict[int, Use] = {}
    for layer in network.layers.values():
        for slot, tensor in enumerate(layer.inputs):
            found.setdefault(tensor, Use(layer, slot))
    return found


def is_weight(tensor: ir.Tensor, use: Use | None) -> bool:
    """A constant matrix or filter that a layer multiplies its input with.

    Examples
    --------
    >>> w = ir.Tensor(1, "w", 0, "constant", "float32", "Float32", (2, 3), data=np.zeros((2, 3), "f4"))
    >>> is_weight(w, Use(ir.Layer(0, "", "FullyConnected", "fully_connected", 0, {}, (0, 1), (2,)), 1))
    True
    """
    return (
        use is not None
        and use.layer.kind in MACS
        and tensor.data is not None
        and len(tensor.shape or ()) > 1
        and (tensor.quantized or tensor.dtype in ("float32", "float16", "bfloat16", "float64"))
    )


def role(use: Use | None) -> str:
    """What a constant is for: ``weights``, ``bias``, ``gamma``, ...

    Examples
    --------
    >>> role(Use(ir.Layer(0, "", "MatMulFusion", "matmul", 0, {}, (0, 1, 2), (3,)), 2))
    'bias'
    """
    if use is None:
        return ""
    layer, slot = use
    first = len(layer.slots)
    if layer.members and slot >= first:
        return layer.members[slot - first]
    names = _ROLES.get(layer.op, ("weights", "bias") if layer.kind in MACS else ())
    return names[slot - 1] if 0 < slot <= len(names) else f"input_{slot}"


def channel_axis(tensor: ir.Tensor, use: Use | None) -> int | None:
    """The axis of a constant that the output channels of its reader lie along, None where it has no such axis.

    Where the tensor is quantised per channel, the axis of its parameters. A depthwise ``MIHW`` filter has its channels
    along two axes; 1 stands for both.
    """
    rank, q = len(tensor.shape or ()), tensor.quantization
    if tensor.layout == "MIHW" and rank == 4:
        return 1
    if tensor.quantized and q is not None and q.axis is not None and 0 <= q.axis < rank:
        return q.axis
    if use is None or rank < 2 or use.slot == 0:
        return None
    if tensor.layout in _CHANNEL_AXIS and len(tensor.layout) == rank:
        return _CHANNEL_AXIS[tensor.layout]
    if use.slot != 1:
        return None
    if use.layer.kind == "conv2d_transpose":
        return rank - 1 if use.layer.attrs.get("group", 1) in (0, 1) else 0
    if use.layer.kind == "matmul":
        attrs = use.layer.attrs
        return rank - 2 if attrs.get("transpose_b", attrs.get("transposeB", attrs.get("transposeY"))) else rank - 1
    return 0 if use.layer.kind in _SUMS_BY_CHANNEL else None


def by_channel(array: np.ndarray, tensor: ir.Tensor, use: Use | None) -> np.ndarray:
    """A constant as (outer, channels, inner), without copying (but for depthwise filters of a multiplier above 1).

    Examples
    --------
    >>> t = ir.Tensor(1, "w", 0, "constant", "float32", "Float32", (5, 7), layout="IO")
    >>> by_channel(np.zeros((5, 7)), t, Use(ir.Layer(0, "", "", "fully_connected", 0, {}, (), ()), 1)).shape
    (5, 7, 1)
    """
    axis = channel_axis(tensor, use) if array.shape == tensor.shape and array.size else None
    if axis is None:
        return array.reshape(1, 1, -1)
    if tensor.layout == "MIHW":
        return array.swapaxes(0, 1).reshape(1, array.shape[0] * array.shape[1], -1)
    return array.reshape(prod(array.shape[:axis]), array.shape[axis], -1)


def matrix(array: np.ndarray, tensor: ir.Tensor, use: Use | None) -> np.ndarray:
    """A constant as (output channels, the rest), in the order that both formats' weights can be brought to.

    Filters become rows of height, width, input channel, whatever layout they are stored in; matrices get their output
    channels first; vectors become one column.

    Examples
    --------
    >>> t = ir.Tensor(1, "w", 0, "constant", "float32", "Float32", (2, 3), layout="IO")
    >>> use = Use(ir.Layer(0, "", "", "fully_connected", 0, {}, (), ()), 1)
    >>> matrix(np.arange(6).reshape(2, 3), t, use).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    if array.shape != tensor.shape or array.ndim == 0:
        return array.reshape(1, -1)
    if array.ndim == 1:
        return array.reshape(-1, 1)
    if tensor.layout == "OIHW":
        array = array.transpose(0, 2, 3, 1)
    axis = channel_axis(tensor, use)
    if axis is None:
        return array.reshape(array.shape[0], -1)
    if tensor.layout == "MIHW":
        return by_channel(array, tensor, use)[0]
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def matrix_shape(tensor: ir.Tensor, use: Use | None) -> tuple[int, int] | None:
    """The shape of the constant's matrix, told without reading (or unpacking) it; None where it is odd or empty."""
    if tensor.shape is None or min(tensor.shape, default=1) < 1:
        return None
    proxy = np.broadcast_to(np.int8(0), tensor.shape)
    rows, columns = matrix(proxy, tensor, use).shape
    return rows, columns


def is_per_channel(tensor: ir.Tensor) -> bool:
    """Whether a tensor is quantised with parameters of its own for each channel."""
    return tensor.quantized and tensor.quantization is not None and tensor.quantization.per_channel


def parameters_fit(tensor: ir.Tensor, channels: int) -> bool:
    """Whether a tensor has as many scales and zero points as it needs."""
    q = tensor.quantization
    if q is None or not tensor.quantized:
        return True
    return len(q.scale) == len(q.zero_point) == (channels if q.per_channel else 1)


def of_channels(q: ir.Quantization, channels: slice | Sequence[int]) -> ir.Quantization:
    """Parameters of some channels only."""
    extra = {name: values[channels] for name, values in q.extra.items()}
    return replace(q, scale=q.scale[channels], zero_point=q.zero_point[channels], extra=extra)


def real_rows(rows: np.ndarray, tensor: ir.Tensor, channels: slice | Sequence[int], model_format: str) -> np.ndarray:
    """Real values of stored numbers, one row a channel of the tensor.

    Parameters
    ----------
    rows : ndarray, shape (channels, n)
        Stored numbers.
    channels : slice or sequence of int
        Which channels of the tensor they belong to.
    model_format : {"armnn", "mslite"}

    Returns
    -------
    ndarray of float32, shape (channels, n)
    """
    q = tensor.quantization
    if q is not None and q.per_channel:
        q = replace(of_channels(q, channels), axis=0)
    return constants.real(replace(tensor, data=rows, layout=None, quantization=q), model_format)


def grid(tensor: ir.Tensor) -> tuple[int, int] | None:
    """Smallest and largest stored number of a quantised tensor; None when it has no grid.

    Examples
    --------
    >>> q = ir.Quantization(np.array([0.1]), np.array([0]), bits=4)
    >>> grid(ir.Tensor(0, "w", 0, "constant", "int8", "Int8", (3,), quantization=q, quantized=True))
    (-8, 7)
    """
    q = tensor.quantization
    if q is None or not tensor.quantized or not 1 <= q.bits <= 32:
        return None
    dtype = numpy_dtype(tensor)
    return values.grid(dtype, q.bits) if dtype.kind in "iu" else None


def most_clipped(bits: int) -> float:
    """Share of values at the ends of a grid from which on values were clipped; of few levels, the outermost hold much.

    Examples
    --------
    >>> most_clipped(8), most_clipped(4)
    (0.01, 0.125)
    """
    return max(0.01, 2.0 ** (1 - bits))
