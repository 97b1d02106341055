"""Lint rules about the graph: what is missing, unused, misshapen, or refused by the vendors' runtimes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod
from typing import Any

from mlinspect import ir
from mlinspect.analysis.operands import matrix_shape
from mlinspect.analysis.rule import SUMS, Finding, Look, narrow, rule
from mlinspect.macs import MACS

_EFFECT = re.compile("output|assign.*|apply.*|adam|sgd|.*optimizer.*")  # done for what they change
_BORDERS = ("quantize", "dequantize", "requantize")

# ---- what is missing -------------------------------------------------------------------------------------------------


@rule("no-outputs", "error", "convert again, naming the graph's outputs: nothing can be asked of the model")
def no_outputs(look: Look) -> Iterator[Finding]:
    """The model has no output."""
    if not (look.network.graphs and look.network.graphs[0].outputs):
        yield Finding(None, None, "the main graph has no outputs")


@rule("no-inputs", "warning", "convert again, naming the graph's inputs: the answer is always the same")
def no_inputs(look: Look) -> Iterator[Finding]:
    """The model has no input."""
    if not (look.network.graphs and look.network.graphs[0].inputs):
        yield Finding(None, None, "the main graph has no inputs")


@rule("missing-tensor", "error", "restore the constant, or connect the input")
def missing_tensor(look: Look) -> Iterator[Finding]:
    """A layer reads a tensor that is neither given nor stored."""
    for i, readers in sorted(look.readers.items()):
        tensor = look.tensors[i]
        absent = tensor.shape is not None and 0 in tensor.shape
        if tensor.data is None and i not in look.producers and i not in look.ports_in and not absent:
            yield Finding(readers[0].layer.index, i, f"{tensor.name}: no layer gives it, and it has no data")


@rule("empty-constant", "error", "restore the constant's data")
def empty_constant(look: Look) -> Iterator[Finding]:
    """A constant has no numbers."""
    for tensor in look.constants:
        use = look.uses.get(tensor.index)
        wanted = tensor.shape is None or 0 not in tensor.shape or (use is not None and use.layer.kind in MACS)
        if wanted and tensor.array is not None and tensor.array.size == 0:
            yield look.at(tensor, f"{tensor.vendor_dtype} of shape {tensor.shape} without data")


@rule("constant-size", "error", "restore the data or the shape")
def constant_size(look: Look) -> Iterator[Finding]:
    """A constant has not as many numbers as its shape says."""
    for tensor in look.constants:
        if tensor.dtype.startswith(("string", "unknown")) or tensor.shape is None or tensor.array is None:
            continue
        size = tensor.array.size
        if size and size != prod(tensor.shape):
            yield look.at(tensor, f"{size} numbers for shape {tensor.shape}")


@rule("unreadable-constant", "error", "convert again: the file is damaged")
def unreadable_constant(look: Look) -> Iterator[Finding]:
    """A packed constant cannot be unpacked."""
    for i, why in look.unreadable.items():
        yield look.at(look.tensors[i], why)


@rule("unknown-type", "error", "open the file with the schema of the vendor's fork: mlinspect.open(path, schema=...)")
def unknown_type(look: Look) -> Iterator[Finding]:
    """A constant is of a type that is not known."""
    for tensor in look.constants:
        if tensor.dtype.startswith("unknown"):
            yield look.at(tensor, f"type {tensor.vendor_dtype}")


@rule(
    "unknown-operator", "error", "open the file with the schema of the vendor's fork: mlinspect.open(path, schema=...)"
)
def unknown_operator(look: Look) -> Iterator[Finding]:
    """An operator is not known."""
    for layer in look.layers:
        if layer.op.startswith("Unknown("):
            yield Finding(layer.index, None, f"{layer.name or 'layer'}: {layer.op}")


# ---- what does not fit -----------------------------------------------------------------------------------------------


@rule("input-channels", "error", "check the data layout (NHWC or NCHW) and the group attribute")
def input_channels(look: Look) -> Iterator[Finding]:
    """Weights do not fit the channels of their input."""
    for layer, x, w, _ in look.sums():
        if layer.kind != "conv2d" or not x.shape or not w.shape or len(x.shape) != 4 or len(w.shape) != 4:
            continue
        first = layer.attrs.get("dataLayout") == "NCHW"
        given, taken = x.shape[1 if first else 3], w.shape[1 if first else 3] * max(layer.attrs.get("group", 1), 1)
        if given > 0 and taken > 0 and given != taken:
            yield Finding(
                layer.index, w.index, f"{layer.name or layer.op}: weights for {taken} channels, input has {given}"
            )


@rule("bias-length", "error", "store one bias an output channel")
def bias_length(look: Look) -> Iterator[Finding]:
    """Not as many biases as output channels."""
    for layer, _, w, b in look.sums():
        shape = matrix_shape(w, look.uses.get(w.index))
        if (
            b is None
            or not b.shape
            or min(b.shape) < 1
            or shape is None
            or (layer.kind == "matmul" and len(w.shape or ()) != 2)
        ):
            continue
        if w.data is not None and b.data is not None and prod(b.shape) not in (shape[0], 1):
            yield Finding(layer.index, b.index, f"{b.name}: {prod(b.shape)} biases for {shape[0]} output channels")


# ---- what is of no use -----------------------------------------------------------------------------------------------


def _useful(look: Look) -> set[int]:
    """Layers that an output needs; those of subgraphs, whose outputs go who knows where, by the same rule."""
    needed, layers = set(look.ports_out), set()
    for layer in reversed(look.layers):
        if needed.intersection(layer.outputs) or not layer.outputs or _EFFECT.fullmatch(layer.kind):
            layers.add(layer.index)
            needed.update(layer.inputs)
    return layers


@rule("dangling", "warning", "remove the layer, or make its result an output")
def dangling(look: Look) -> Iterator[Finding]:
    """Nobody reads what a layer gives."""
    for layer in look.layers:
        ends = [i for i in layer.outputs if i in look.readers or i in look.ports_out]
        if layer.outputs and not ends and layer.kind not in ("input", "constant") and not _EFFECT.fullmatch(layer.kind):
            yield Finding(layer.index, layer.outputs[0], f"{layer.name or layer.op}: its result is not used")


@rule("unreachable", "warning", "remove it with all that it leads to")
def unreachable(look: Look) -> Iterator[Finding]:
    """A layer leads to no output."""
    useful = _useful(look)
    for layer in look.layers:
        read = any(i in look.readers for i in layer.outputs)
        if layer.index not in useful and read and layer.kind not in ("input", "constant"):
            yield Finding(layer.index, layer.outputs[0], f"{layer.name or layer.op}: no output depends on it")


@rule("unused-constant", "info", "remove it: it only makes the file larger")
def unused_constant(look: Look) -> Iterator[Finding]:
    """Nobody reads a constant."""
    for tensor in look.constants:
        if tensor.index not in look.readers and tensor.index not in look.ports_out:
            yield Finding(None, tensor.index, f"{tensor.name}: {tensor.nbytes} bytes that nobody reads")


@rule("duplicate-names", "warning", "name them apart: by name, only one can be found")
def duplicate_names(look: Look) -> Iterator[Finding]:
    """Layers or inputs share a name."""
    for graph in look.network.graphs:
        names: dict[str, list[int]] = defaultdict(list)
        for layer in graph.layers:
            names[layer.name].append(layer.index)
        for name, indices in names.items():
            if name and len(indices) > 1:
                yield Finding(indices[1], None, f"{len(indices)} layers are called {name!r}")
        for ports in (graph.inputs, graph.outputs):
            for name, count in Counter(port.name for port in ports).items():
                if count > 1:
                    yield Finding(None, None, f"{count} inputs or outputs are called {name!r}")


@rule("quantize-pair", "info", "remove both layers, or one requantisation in their place")
def quantize_pair(look: Look) -> Iterator[Finding]:
    """Values are dequantised only to be quantised again."""
    for layer in look.layers:
        if layer.kind == "quantize" and layer.inputs:
            before = look.producers.get(layer.inputs[0])
            if before is not None and before.kind == "dequantize":
                yield Finding(
                    layer.index, layer.inputs[0], f"{layer.name or layer.op} takes back {before.name or before.op}"
                )


def _islands(look: Look) -> Iterator[list[ir.Layer]]:
    """Layers computed in float between quantised ones."""
    floats = {
        layer.index: layer
        for layer in look.layers
        if layer.kind not in (*_BORDERS, "input", "output", "constant")
        and layer.outputs
        and "float" in look.tensors[layer.outputs[0]].dtype
    }
    parent = {i: i for i in floats}

    def find(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for layer in floats.values():
        for tensor in layer.inputs:
            before = look.producers.get(tensor)
            if before is not None and before.index in floats:
                parent[find(layer.index)] = find(before.index)
    groups: dict[int, list[ir.Layer]] = defaultdict(list)
    for layer in floats.values():
        groups[find(layer.index)].append(layer)
    for group in groups.values():
        taken = [i for layer in group for i in layer.inputs if look.tensors[i].data is None]
        given = [use.layer for layer in group for i in layer.outputs for use in look.readers.get(i, ())]
        sources = [look.producers[i] for i in taken if i in look.producers]
        enters = any(layer.kind == "dequantize" or narrow(look.tensors[layer.outputs[0]]) for layer in sources)
        leaves = any(layer.kind == "quantize" or any(narrow(look.tensors[i]) for i in layer.outputs) for layer in given)
        if enters and leaves and not look.ports_in.intersection(taken):
            yield group


@rule(
    "float-island",
    "info",
    "quantise them too, if the runtime has kernels for them: each border costs a pass over the data and a rounding",
)
def float_island(look: Look) -> Iterator[Finding]:
    """Layers run in float between quantised ones."""
    for group in _islands(look):
        if not any(layer.kind in SUMS for layer in group):
            names = ", ".join(layer.name or layer.op for layer in group[:4]) + (", ..." if len(group) > 4 else "")
            yield Finding(group[0].index, group[0].outputs[0], f"in float between quantised layers: {names}")


@rule("float-product", "warning", "quantise it: that is where the time goes; else keep its neighbours in float too")
def float_product(look: Look) -> Iterator[Finding]:
    """A convolution or matrix product runs in float between quantised layers."""
    for group in _islands(look):
        heavy = [layer for layer in group if layer.kind in SUMS]
        for layer in heavy:
            yield Finding(layer.index, layer.outputs[0], f"{layer.name or layer.op}: {layer.kind} in float")


# ---- what the runtimes refuse ----------------------------------------------------------------------------------------


@rule("node-order", "error", "sort the nodes: MindSpore Lite runs them as they stand in the file")
def node_order(look: Look) -> Iterator[Finding]:
    """A node comes before one whose result it reads."""
    if look.network.format != "mslite":
        return
    for layer in look.layers:
        for tensor in layer.inputs:
            before = look.producers.get(tensor)
            if before is not None and before.graph == layer.graph and before.index > layer.index:
                yield Finding(layer.index, tensor, f"{layer.name or layer.op} stands before {before.name or before.op}")
                break


@rule("refused", "error", "replace the operator, or run the layer in float32")
def refused(look: Look) -> Iterator[Finding]:
    """The vendor's runtime refuses the operator."""
    why = _REFUSALS[look.network.format]
    for layer in look.layers:
        reason = why(layer, [look.tensors[i] for i in layer.inputs])
        if reason:
            yield Finding(layer.index, None, f"{layer.name or layer.op}: {reason}")


# Sources: MindSpore Lite 2.0.0's CPU runtime and Arm NN 22.11's CpuRef, asked with files of one layer each.
_NO_KERNEL = {"Elu", "LeakyRelu", "GroupNormFusion", "ScatterElements", "FillV2", "NonZero", "All", "LinSpace",
              "Depend", "FormatTranspose", "BatchToSpaceND", "Dropout"}  # fmt: skip
_NO_INT8_KERNEL = {"Maximum", "Minimum", "SquaredDifference", "FloorDiv", "FloorMod", "RealDiv", "Equal", "NotEqual",
                   "Greater", "GreaterEqual", "Less", "LessEqual", "Neg", "PReLUFusion", "TileFusion", "GatherNd",
                   "LayerNormFusion", "ArgMaxFusion", "ArgMinFusion", "Flatten"}  # fmt: skip
_NO_INT32_KERNEL = {"Square", "DivFusion", "RealDiv", "LogicalOr"}
_ACTIVATIONS = {"RELU", "RELU6", "LEAKY_RELU", "SIGMOID", "TANH", "SWISH", "HSWISH", "HSIGMOID", "HARD_TANH", "GELU",
                "SOFTPLUS", "ELU"}  # fmt: skip
_INT8_ACTIVATIONS = {"RELU", "RELU6", "SIGMOID", "TANH", "HSWISH", "LEAKY_RELU"}
_NO_ACTIVATION = (None, "NO_ACTIVATION")


def _mslite_refuses(layer: ir.Layer, ins: list[ir.Tensor]) -> str | None:
    """Why MindSpore Lite 2.0.0 refuses a layer; None where it does not."""
    dtype = ins[0].dtype if ins else ""
    function = layer.attrs.get("activation_type", layer.attrs.get("type"))  # older files: type
    if layer.op in _NO_KERNEL:
        return f"MindSpore Lite 2.0.0 has no kernel for {layer.op}"
    if layer.op == "Activation" and function not in (_INT8_ACTIVATIONS if dtype == "int8" else _ACTIVATIONS):
        return f"MindSpore Lite 2.0.0 has no {function} on {dtype}"
    if (dtype == "int8" and layer.op in _NO_INT8_KERNEL) or (dtype == "int32" and layer.op in _NO_INT32_KERNEL):
        return f"MindSpore Lite 2.0.0 has no {layer.op} on {dtype}"
    if layer.op == "AddFusion" and (dtype == "int64" or (dtype == "int32" and function not in _NO_ACTIVATION)):
        return f"MindSpore Lite 2.0.0 has no AddFusion on {dtype}" + (f" with {function}" if dtype == "int32" else "")
    if layer.op == "PadFusion" and len(ins) < 2:
        return "MindSpore Lite wants the paddings as second input"
    if layer.op == "Gather" and len(ins) > 2 and ins[2].array is not None and (ins[2].array < 0).any():
        return "MindSpore Lite refuses a negative axis"
    if (
        layer.op == "SliceFusion"
        and ins
        and ins[0].shape
        and len(layer.attrs.get("axes") or ()) not in (0, len(ins[0].shape))
    ):
        return "MindSpore Lite wants a slice of all axes"
    if layer.op == "BroadcastTo" and -1 in (layer.attrs.get("shape") or ()):
        return "MindSpore Lite refuses -1 in the shape to broadcast to"
    if layer.op == "Conv2dTransposeFusion" and 1 < layer.attrs.get("group", 1) != (ins[0].shape or (0,))[-1]:
        return "MindSpore Lite knows transposed convolutions of groups only as depthwise ones"
    return None


_NO_WORKLOAD = {"StandIn", "PreCompiled", "Merge", "Switch", "QuantizedLstm"}


def _armnn_refuses(layer: ir.Layer, ins: list[ir.Tensor]) -> str | None:
    """Why Arm NN's reference backend refuses a layer; None where it does not."""
    types = [t.vendor_dtype for t in ins]
    if layer.op in _NO_WORKLOAD:
        return f"Arm NN's CpuRef does not run {layer.op}"
    if layer.op == "FullyConnected" and len(ins) > 1 and "QSymmS8" in types[1]:
        return "Arm NN's CpuRef wants fully connected weights of the input's own type, not QSymmS8"
    if layer.op == "Softmax" and types[:1] == ["QSymmS8"]:
        return "Arm NN's CpuRef has no softmax on QSymmS8"
    if layer.op == "Gather" and layer.attrs.get("axis", 0) != 0:
        return "Arm NN's CpuRef gathers along axis 0 only"
    if layer.op == "Normalization" and layer.attrs.get("normMethodType") == "LocalContrast":
        return "Arm NN's CpuRef has no LocalContrast normalisation"
    if layer.op == "ArgMinMax" and types[:1] == ["Signed64"]:
        return "Arm NN's CpuRef fails on ArgMinMax of Signed64"
    if layer.op in ("Rank", "Shape") and types[:1] == ["Boolean"]:
        return f"Arm NN's CpuRef has no {layer.op} of Boolean"
    if "Signed64" in types and layer.op != "ArgMinMax" and any(t.data is not None for t in ins):
        return "Arm NN's CpuRef has no constants of Signed64"
    if layer.op == "Lstm" and layer.attrs.get("projectionEnabled") and "projectionBias" not in layer.members:
        return "Arm NN's CpuRef gives arbitrary results for a projection without bias"
    return None


_REFUSALS: dict[str, Any] = {"mslite": _mslite_refuses, "armnn": _armnn_refuses}
