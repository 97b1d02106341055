"""Arm NN layer -> function on stored arrays: decode the operands, compute in float32, encode the results."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence

import numpy as np

from mlinspect import ir
from mlinspect.execute import ops_armnn, ops_armnn_cells, ops_armnn_shape  # noqa: F401 (they register operators)
from mlinspect.execute.engine import Compute, as_tuple
from mlinspect.execute.registry import Call, Op, find_op
from mlinspect.execute.supplied import compute_by
from mlinspect.execute.values import dequantize_array, encode

# How many dimensions the first operands must have (0: any), for layers that would fail on others with a message that
# does not say so.
RANKS = {
    "Convolution2d": (4, 4),
    "DepthwiseConvolution2d": (4, 4),
    "TransposeConvolution2d": (4, 4),
    "Convolution3d": (5, 5),
    "FullyConnected": (0, 2),
    "Pooling2d": (4,),
    "Pooling3d": (5,),
    "Normalization": (4,),
    "InstanceNormalization": (4,),
    "Resize": (4,),
    "ResizeBilinear": (4,),
    "SpaceToBatchNd": (4,),
    "BatchToSpaceNd": (4,),
    "SpaceToDepth": (4,),
    "DepthToSpace": (4,),
    "DetectionPostProcess": (3, 3, 2),
    "Lstm": (2, 2, 2),
    "QLstm": (2, 2, 2),
    "UnidirectionalSequenceLstm": (3, 2, 2),
}


def as_loaded(network: ir.Network) -> ir.Network:
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
        if entry.reference == "user":
            return compute_by(entry.function, call, entry.stored, "armnn")
        return _compute(entry, call, real)

    return bind


def loader(network: ir.Network, mode: str) -> Callable[[ir.Tensor], np.ndarray]:
    """Gives ``load(tensor)``: a constant's numbers as stored, or in float mode as the real values."""

    def load(tensor: ir.Tensor) -> np.ndarray:
        array = tensor.array
        assert array is not None
        return dequantize_array(array, tensor) if mode == "float" and tensor.quantized else array

    return load


def reference_of(network: ir.Network, layer: ir.Layer) -> str:
    """Whose arithmetic a layer follows: the vendor's, the operator's published definition, a user's, or nobody's."""
    if layer.kind in ("input", "output", "constant"):
        return "vendor"
    entry = find_op("armnn", layer)
    return "none" if entry is None else entry.reference


def _checked(entry: Op, layer: ir.Layer) -> Callable[..., tuple[np.ndarray, ...]]:
    """The operator's function as ``function(call, *arrays)``, constants that the layer holds passed by their names."""
    parameters = list(inspect.signature(entry.function).parameters.values())[1:]
    names = [parameter.name for parameter in parameters]
    any_number = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [] if any_number else [p.name for p in parameters if p.default is p.empty]
    named = (
        names[: len(layer.slots)] + list(layer.members)
        if set(layer.members) <= set(names)
        else names[: len(layer.inputs)]
    )
    missing = [name for name in needed if name not in named]
    in_order = any_number or named == names[: len(named)]
    ranks: Sequence[int] = RANKS.get(layer.op, ())
    if not in_order:
        by_name = dict(zip(names, ranks, strict=False))
        ranks = [by_name.get(name, 0) for name in named]

    def checked(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        if missing:
            raise ValueError(f"operands are missing: {', '.join(missing)}")
        for i, (array, rank) in enumerate(zip(arrays, ranks, strict=False)):
            if rank and array.ndim != rank:
                raise ValueError(f"operand {i} has {array.ndim} dimensions instead of {rank}")
        if not any_number and len(arrays) > len(names):
            raise ValueError(f"{len(arrays)} operands, where {len(names)} have a meaning: {', '.join(names)}")
        if in_order:
            return as_tuple(entry.function(call, *arrays))
        return as_tuple(entry.function(call, **dict(zip(named, arrays, strict=True))))

    return checked


def _compute(entry: Op, call: Call, real: Callable[[ir.Tensor, np.ndarray], np.ndarray]) -> Compute:
    function, tensors = _checked(entry, call.layer), call.inputs
    plain = tuple(entry.stored or (entry.integers and tensor.dtype == "int32") for tensor in tensors)

    if call.mode == "float":

        def compute(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            # only real values flow; integers that stand for no real value stay what they are
            operands = [
                array if keep and not tensor.quantized else real(tensor, array)
                for array, tensor, keep in zip(arrays, tensors, plain, strict=True)
            ]
            results = function(call, *operands)
            return tuple(_unrounded(result, tensor) for result, tensor in zip(results, call.outputs, strict=True))

        return compute
    if entry.stored:
        return lambda *arrays: function(call, *arrays)

    def compute_vendor(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        operands = [
            array if keep else real(tensor, array) for array, tensor, keep in zip(arrays, tensors, plain, strict=True)
        ]
        results = function(call, *operands)
        return tuple(encode(result, tensor) for result, tensor in zip(results, call.outputs, strict=True))

    return compute_vendor


def _unrounded(result: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """A result of float mode: real values, except where the tensor holds plain integers or booleans."""
    if tensor.quantized or tensor.dtype in ("float16", "float32"):
        return result.astype(np.float32, copy=False) if result.dtype.kind == "f" else dequantize_array(result, tensor)
    return encode(result, tensor)
