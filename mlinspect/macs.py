"""Multiply-adds and parameters of a layer: one formula per kind of layer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlinspect import ir

MAX_COUNT = 2**48  # a damaged file may claim any shape; sums of counts below this fit 64 bits


def count_elements(shape: tuple[int, ...] | None) -> int | None:
    """Product of a shape; None when the rank or a size is unknown, or when no machine could hold so many.

    Examples
    --------
    >>> count_elements((2, 3)), count_elements(()), count_elements((-1, 3)), count_elements((2**31,) * 4)
    (6, 1, None, None)
    """
    if shape is None or (shape and min(shape) < 0):
        return None
    count = math.prod(shape)
    return count if count < MAX_COUNT else None


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
    """Multiply-adds of a layer's weights or matrices in one run: 0 where there are none, None when unknown.

    Parameters
    ----------
    layer : Layer
    ins, outs : list of Tensor
        The layer's operands, in the order of its slots.

    Examples
    --------
    >>> x = ir.Tensor(0, "x", 0, "activation", "float32", "Float32", (1, 8, 8, 3))
    >>> w = ir.Tensor(1, "w", 0, "constant", "float32", "Float32", (16, 3, 3, 3))
    >>> y = ir.Tensor(2, "y", 0, "activation", "float32", "Float32", (1, 8, 8, 16))
    >>> count_macs(ir.Layer(0, "c", "Convolution2d", "conv2d", 0, {}, (0, 1), (2,)), [x, w], [y])
    27648
    """
    formula = MACS.get(layer.kind)
    if formula is None:
        return None if UNKNOWN.fullmatch(layer.kind) else 0
    try:
        count = formula(ins, outs, layer.attrs)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):  # a size or an operand is not there
        return None
    return count if count < MAX_COUNT else None


Operands = list[ir.Tensor]


def _size(tensor: ir.Tensor) -> int:
    """Elements; TypeError when unknown."""
    return int(count_elements(tensor.shape))  # type: ignore[arg-type]


def _positions(tensor: ir.Tensor, attrs: Mapping[str, Any]) -> int:
    """Elements of an image but for its channels, which lie last unless Arm NN says otherwise."""
    channels = tensor.shape[1 if attrs.get("dataLayout") in ("NCHW", "NCDHW") else -1]  # type: ignore[index]
    return _size(tensor) // channels


def _conv(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    """Every weight once a place of the output, whatever the weights' layout and groups: each belongs to one channel."""
    return _size(ins[1]) * _positions(outs[0], attrs)


def _conv_transpose(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    return _size(ins[1]) * _positions(ins[0], attrs)


def _dense(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    return _size(ins[1]) * _positions(outs[0], {})


def _matmul(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    turned = any(attrs.get(name) for name in ("transpose_a", "transposeA", "transposeX", "adjointX"))
    return _size(outs[0]) * ins[0].shape[-2 if turned else -1]  # type: ignore[index]


def _recurrent(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    """All weight matrices once a step and row of the batch. Biases have an axis less than the matrices."""
    weights = [t for t in ins[1:] if t.data is not None and t.shape is not None]
    rank = max(len(t.shape or ()) for t in weights)
    return _positions(ins[0], {}) * sum(_size(t) for t in weights if len(t.shape or ()) == rank)


def _once_an_element(ins: Operands, outs: Operands, attrs: Mapping[str, Any]) -> int:
    return _size(outs[0])


MACS: dict[str, Callable[[Operands, Operands, Mapping[str, Any]], int]] = {
    "batch_norm": _once_an_element,
    "conv2d": _conv,
    "conv2d_transpose": _conv_transpose,
    "conv3d": _conv,
    "depthwise_conv2d": _conv,
    "fully_connected": _dense,
    "gru": _recurrent,
    "lstm": _recurrent,
    "matmul": _matmul,
    "scale": _once_an_element,
}

# Kinds that hide what they compute, run other layers, or train; whatever else is not in MACS has no products to sum.
UNKNOWN = re.compile(
    "unknown|custom.*|stand_in|pre_compiled|black_box|gen_op|if|while|loop|call|partial|switch.*|"
    "attention|adder.*|affine|mfcc|audio.*|splice|.*fft.*|.*grad.*|.*backprop.*"
)
