"""How much a layer computes and how many numbers it has learnt: one formula a kind of layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlinspect import ir


def count_elements(shape: tuple[int, ...] | None) -> int | None:
    """Product of a shape; None when the rank or a size is unknown.

    Examples
    --------
    >>> count_elements((2, 3)), count_elements(()), count_elements((-1, 3))
    (6, 1, None)
    """
    return None if shape is None or (shape and min(shape) < 0) else math.prod(shape)


def count_params(kind: str, constants: Iterable[ir.Tensor]) -> int:
    """Elements of the constants that a layer computes with.

    Integers that are not quantised are shapes, axes or indices, and do not count, unless the layer sums products:
    then they are weights and biases.

    Examples
    --------
    >>> bias = ir.Tensor(0, "b", 0, "constant", "int32", "Signed32", (8,))
    >>> count_params("conv2d", [bias]), count_params("reshape", [bias])
    (8, 0)
    """
    return sum(count_elements(t.shape) or 0 for t in constants if kind in MACS or t.quantized or "float" in t.dtype)


def count_macs(layer: ir.Layer, ins: list[ir.Tensor], outs: list[ir.Tensor]) -> int | None:
    """Multiply-adds of one run of a layer: 0 where no products are summed, None when unknown.

    Parameters
    ----------
    layer : Layer
    ins, outs : list of Tensor
        The layer's operands, in the order of its slots.

    Examples
    --------
    >>> x = ir.Tensor(0, "x", 0, "activation", "float32", "Float32", (1, 8, 8, 3))
    >>> w = ir.Tensor(1, "w", 0, "constant", "float32", "Float32", (16, 3, 3, 3), layout="OHWI")
    >>> y = ir.Tensor(2, "y", 0, "activation", "float32", "Float32", (1, 8, 8, 16))
    >>> count_macs(ir.Layer(0, "c", "Convolution2d", "conv2d", 0, {}, (0, 1), (2,)), [x, w], [y])
    27648
    """
    formula = MACS.get(layer.kind)
    if formula is None:
        return None if layer.kind in UNKNOWN else 0
    try:
        return formula(ins, outs, layer.attrs)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):  # a size, an axis or an operand is not known
        return None


# Kinds that hide what they compute; whatever else is not in MACS sums no products.
UNKNOWN = frozenset({"unknown", "custom", "stand_in", "call", "partial", "switch"})


def _size(tensor: ir.Tensor) -> int:
    """Elements; TypeError when unknown."""
    return int(count_elements(tensor.shape))  # type: ignore[arg-type]


def _dim(tensor: ir.Tensor, letter: str) -> int:
    """Size of one axis of a weight tensor, by its letter in the layout; TypeError or ValueError when unknown."""
    return tensor.shape[(tensor.layout or "").index(letter)]  # type: ignore[index]


Operands = list[ir.Tensor]


def _conv_macs(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    """Kernel volume x input channels of the group, for each output element."""
    return _size(outs[0]) * (_size(ins[1]) // _dim(ins[1], "O"))


def _depthwise_macs(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    return _size(outs[0]) * _dim(ins[1], "H") * _dim(ins[1], "W")


def _deconv_macs(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    """Each input element meets the kernel volume x output channels of the group."""
    return _size(ins[0]) * (_size(ins[1]) // _dim(ins[1], "I"))


def _dense_macs(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    """All weights, once a row of the batch."""
    return _size(ins[1]) * (_size(outs[0]) // outs[0].shape[-1])  # type: ignore[index]


def _matmul_macs(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    turned = any(attrs.get(name) for name in ("transpose_a", "transposeA", "transposeX", "adjointX"))
    return _size(outs[0]) * ins[0].shape[-2 if turned else -1]  # type: ignore[index]


def _recurrent_macs(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    """All weight matrices, once a step and row of the batch. Biases have one axis less than the matrices."""
    weights = [t for t in ins[1:] if t.data is not None and t.shape is not None]
    rank = max(len(t.shape or ()) for t in weights)
    steps = _size(ins[0]) // ins[0].shape[-1]  # type: ignore[index]
    return steps * sum(_size(t) for t in weights if len(t.shape or ()) == rank)


def _once_an_element(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    return _size(outs[0])


MACS: dict[str, Callable[[Operands, Operands, Mapping[str, Any]], int]] = {
    "conv2d": _conv_macs,
    "conv3d": _conv_macs,
    "depthwise_conv2d": _depthwise_macs,
    "conv2d_transpose": _deconv_macs,
    "fully_connected": _dense_macs,
    "matmul": _matmul_macs,
    "lstm": _recurrent_macs,
    "gru": _recurrent_macs,
    "batch_normalization": _once_an_element,
    "scale": _once_an_element,
}
