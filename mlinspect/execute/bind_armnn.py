"""Arm NN layer -> function on stored arrays: decode the operands, compute in float32, encode the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from mlinspect import ir
from mlinspect.execute import ops_armnn, ops_armnn_cells, ops_armnn_shape  # noqa: F401 (they register operators)
from mlinspect.execute.engine import Compute, as_tuple
from mlinspect.execute.registry import Call, Op, find_op
from mlinspect.execute.values import dequantize_array, encode


def as_optimized(network: ir.Network) -> ir.Network:
    """The network with what Arm NN's ``Optimize`` changes before any backend sees it.

    An 8-bit unsigned softmax always gets scale 1/256 and zero point 0, whatever the file says (with a warning).
    """
    changed = dict(network.tensors)
    wanted = ir.Quantization(np.array([1 / 256]), np.array([0]))
    for layer in network.layers.values():
        for i in layer.outputs:
            if layer.op == "Softmax" and network.tensors[i].dtype == "uint8":
                changed[i] = dataclasses.replace(network.tensors[i], quantization=wanted)
    return dataclasses.replace(network, tensors=changed)


def binder(network: ir.Network, mode: str) -> Callable[[ir.Layer], Compute | None]:
    """Gives ``bind(layer)`` for one network and mode; decoded constants are kept between layers and runs."""
    decoded: dict[int, np.ndarray] = {}

    def real(tensor: ir.Tensor, array: np.ndarray) -> np.ndarray:
        if array.dtype == np.float32:
            return array
        if tensor.data is None:
            return dequantize_array(array, tensor)
        if tensor.index not in decoded:
            decoded[tensor.index] = dequantize_array(array, tensor)
        return decoded[tensor.index]

    def bind(layer: ir.Layer) -> Compute | None:
        entry = find_op("armnn", layer)
        if entry is None:
            return None
        call = Call(
            layer,
            tuple(network.tensors[i] for i in layer.inputs),
            tuple(network.tensors[i] for i in layer.outputs),
            mode,
        )
        return _compute(entry, call, real)

    return bind


def _compute(entry: Op, call: Call, real: Callable[[ir.Tensor, np.ndarray], np.ndarray]) -> Compute:
    function, tensors = entry.function, call.inputs
    everything = entry.stored is True
    as_stored = set(range(len(tensors))) if everything else set(entry.stored or ())  # type: ignore[arg-type]
    plain = tuple(i in as_stored or (entry.integers and tensor.dtype == "int32") for i, tensor in enumerate(tensors))

    if call.mode == "float":

        def compute(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            # only real values flow; integers that stand for no real value stay what they are
            operands = [
                array if keep and not tensor.quantized else real(tensor, array)
                for array, tensor, keep in zip(arrays, tensors, plain, strict=True)
            ]
            results = as_tuple(function(call, *operands))
            return tuple(_unrounded(result, tensor) for result, tensor in zip(results, call.outputs, strict=True))

        return compute
    if everything:
        return lambda *arrays: as_tuple(function(call, *arrays))

    def compute_vendor(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        operands = [
            array if keep else real(tensor, array) for array, tensor, keep in zip(arrays, tensors, plain, strict=True)
        ]
        results = as_tuple(function(call, *operands))
        return tuple(encode(result, tensor) for result, tensor in zip(results, call.outputs, strict=True))

    return compute_vendor


def _unrounded(result: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """A result of float mode: real values, except where the tensor holds plain integers or booleans."""
    if tensor.quantized or tensor.dtype in ("float16", "float32"):
        return result.astype(np.float32, copy=False) if result.dtype.kind == "f" else dequantize_array(result, tensor)
    return encode(result, tensor)
