"""MindSpore Lite layer -> function on arrays, and its constants as the runtime loads them.

The runtime chooses a kernel by the type of the first operand that is a number: int8 operands mean int8 kernels,
whatever the file says of quantisation. Half floats are float32 throughout, as its fp16 is off: constants and inputs are
widened, and a Cast to float16 changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import ModelFormatError
from mlinspect.execute import (  # noqa: F401 (they register operators)
    control,
    ops_mslite,
    ops_mslite_elementwise,
    ops_mslite_int8,
    ops_mslite_misc,
    ops_mslite_shape,
    ops_mslite_train,
)
from mlinspect.execute.engine import Compute, as_tuple
from mlinspect.execute.registry import OPS, Call, Op, find_op
from mlinspect.execute.supplied import compute_by
from mlinspect.execute.upgrade_mslite import upgraded, upgraded_op
from mlinspect.execute.values import dequantize_array, quantize_array, real_weights
from mlinspect.kernels.quantize import dequantize

_DECIDING = frozenset("fbB?i")  # float32, int8, uint8, bool, int32 by their numpy characters
_WEIGHT_QUANT = ("QUANT_WEIGHT", "WeightQuant")
_TAKES_HANDLE = ("Switch", "SwitchLayer", "Call")


def as_loaded(network: ir.Network) -> ir.Network:
    """The network as the runtime sees it once it has loaded the file: as it is."""
    return network


def binder(network: ir.Network, mode: str) -> Callable[[ir.Layer], Compute | None]:
    """Gives ``bind(layer)`` for one network and mode."""
    consumers: dict[int, set[str]] = {}
    for layer in network.layers.values():
        for tensor in layer.inputs:
            consumers.setdefault(tensor, set()).add(layer.op)
    some_die = any(layer.op == "Merge" for layer in network.layers.values())

    def bind(layer: ir.Layer) -> Compute | None:
        entry = find_op("mslite", layer)
        extra: tuple[np.ndarray, ...] = ()
        if entry is None or entry.reference != "user":
            layer, extra = upgraded(layer, network.layout)
            entry = OPS["mslite"].get(layer.op)
        if entry is None:
            return None
        inputs, outputs = ([network.tensors[i] for i in ids] for ids in (layer.inputs, layer.outputs))
        takers = set().union(*(consumers.get(i, ()) for i in layer.outputs))
        call = Call(layer, tuple(inputs), tuple(outputs), mode, {"handle": not takers.isdisjoint(_TAKES_HANDLE)})
        if entry.reference == "user":  # whatever the type of the operands
            compute = compute_by(entry.function, call, entry.stored, "mslite", extra)
        else:
            compute = _compute(entry, OPS["mslite:int8"].get(layer.op), call, extra)
        return _unless_dead(compute, len(outputs)) if some_die and layer.op != "Merge" else compute

    return bind


def reference_of(network: ir.Network, layer: ir.Layer) -> str:
    """Whose arithmetic a layer follows: the vendor's, the operator's published definition, a user's, or nobody's."""
    own = find_op("mslite", layer)
    if own is not None and own.reference == "user":
        return "user"
    op = upgraded_op(layer, network.layout)
    entry, int8 = OPS["mslite"].get(op), OPS["mslite:int8"].get(op)
    if entry is None:
        return "none"
    first = next((network.tensors[i].dtype for i in layer.inputs if network.tensors[i].dtype in _NUMBERS), "")
    if first in ("int8", "uint8") and int8 is None and not entry.stored:
        return "published definition"  # the runtime has no kernel for it
    return entry.reference


_NUMBERS = ("float32", "float16", "int8", "int32", "bool", "uint8")


def _compute(entry: Op, int8: Op | None, call: Call, extra: tuple[np.ndarray, ...]) -> Compute:
    function = entry.function
    if entry.stored and int8 is None:
        return lambda *arrays: as_tuple(function(call, *arrays, *extra))

    def compute(*arrays: np.ndarray) -> tuple[Any, ...]:
        kind = ""
        for array in arrays:
            kind = array.dtype.char
            if kind in _DECIDING:
                break
        if kind in ("b", "B"):
            if int8 is not None and (kind == "b" or int8.stored):  # few take uint8
                return as_tuple(int8.function(call, *arrays, *extra))
            return _through_real(function, call, arrays, extra)
        return as_tuple(function(call, *arrays, *extra))

    return compute


def _through_real(
    function: Callable[..., Any], call: Call, arrays: Sequence[np.ndarray], extra: Sequence[np.ndarray]
) -> tuple[Any, ...]:
    """Where the runtime has no kernel for 8-bit operands: compute on real values, and quantise the results."""
    real = [
        dequantize_array(array, tensor) if array.dtype.itemsize == 1 and tensor.quantized else array
        for array, tensor in zip(arrays, call.inputs, strict=True)
    ]
    results = as_tuple(function(call, *real, *extra))
    return tuple(
        quantize_array(result, tensor) if result.dtype == np.float32 and tensor.dtype in ("int8", "uint8") else result
        for result, tensor in zip(results, call.outputs, strict=True)
    )


def _unless_dead(compute: Compute, outputs: int) -> Compute:
    """In files whose Switch leaves half of its outputs dead: what depends on them is dead, too."""

    def computed(*arrays: np.ndarray) -> tuple[Any, ...]:
        return (None,) * outputs if any(array is None for array in arrays) else compute(*arrays)

    return computed


# --- constants -------------------------------------------------------------------------------------------------------


def loader(network: ir.Network, mode: str) -> Callable[[ir.Tensor], np.ndarray]:
    """Gives ``load(tensor)``: a constant as the runtime's kernels get it, made once."""
    users: dict[int, tuple[ir.Layer, int]] = {}
    weights_only: set[int] = set()
    for layer in network.layers.values():
        for position, tensor in enumerate(layer.inputs):
            users.setdefault(tensor, (layer, position))
            if layer.meta.get("quantType") in _WEIGHT_QUANT:
                weights_only.add(tensor)
    loaded: dict[int, np.ndarray] = {}

    def load(tensor: ir.Tensor) -> np.ndarray:
        if tensor.index not in loaded:
            loaded[tensor.index] = _loaded(tensor)
        return loaded[tensor.index]

    def _loaded(tensor: ir.Tensor) -> np.ndarray:
        array = tensor.array
        assert array is not None
        if tensor.dtype == "string":
            return _strings(array, tensor.name)
        clusters = tensor.meta.get("quantClusters")
        if clusters is not None and len(clusters):
            return np.asarray(clusters, np.float32)[array.astype(np.int64) + 128]
        if tensor.dtype in ("float16", "bfloat16"):
            return dequantize_array(array, replace(tensor, quantization=None))
        if tensor.quantization is None or array.dtype.kind not in "iu":
            return array
        layer, position = users.get(tensor.index, (None, 0))
        small = tensor.quantized and array.dtype.itemsize <= 2
        if mode == "float" and layer is not None and array.dtype == np.int32 and _is_bias(layer, position):
            return _real_bias(array, tensor, network, layer)
        beside_floats = layer is not None and position > 0 and network.tensors[layer.inputs[0]].dtype == "float32"
        if tensor.index in weights_only or (small and (mode == "float" or beside_floats)):
            return real_weights(array, tensor.quantization)
        return array

    return load


def _strings(raw: np.ndarray, name: str) -> np.ndarray:
    """How many strings there are, where each begins and the last ends, and their bytes -> an array of bytes."""
    numbers = raw[: raw.size // 4 * 4].view(np.int32)
    count = int(numbers[0]) if numbers.size else -1
    if not 0 <= count <= numbers.size - 2:
        raise ModelFormatError(f"constant {name} of {raw.size} bytes does not hold {count} strings")
    ends = numbers[1 : count + 2].tolist()
    return np.array([raw[a:b].tobytes() for a, b in pairwise(ends)], object)


def _is_bias(layer: ir.Layer, position: int) -> bool:
    kinds = ("conv2d", "depthwise_conv2d", "conv2d_transpose", "fully_connected", "matmul")
    return position == 2 and layer.kind in kinds


def _real_bias(array: np.ndarray, tensor: ir.Tensor, network: ir.Network, layer: ir.Layer) -> np.ndarray:
    """int32 biases count in products of the operands' scales, whatever their own parameters say."""
    scales = [network.tensors[i].quantization for i in layer.inputs[:2]]
    if any(q is None for q in scales):
        q = tensor.quantization
        return dequantize(array, q.scale, q.zero_point, 0 if q.per_channel else None)  # type: ignore[union-attr]
    return (array * (scales[0].scale[0] * scales[1].scale)).astype(np.float32)  # type: ignore[union-attr]
