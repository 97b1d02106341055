"""Follow a new batch into the shapes that layers hold as attributes or constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.formats.packing import with_numbers

Shape = tuple[int, ...]

# Arm NN: attributes that hold a whole shape
_ARMNN = {"Reshape": "targetShape", "Stack": "inputShape", "Slice": "size", "StridedSlice": "end"}
# MindSpore Lite: constant operands that do
_MSLITE = {"Reshape": 1, "BroadcastTo": 1}


def with_batch(network: ir.Network, moved: Mapping[int, tuple[Shape | None, Shape]]) -> ir.Network:
    """The network with the batch of its inputs in every shape behind them whose first size was the old one.

    Parameters
    ----------
    network : Network
        Whose inputs have their new shapes.
    moved : mapping of int to pair of shapes
        Input -> its old and new shape.

    Returns
    -------
    Network
        Unchanged unless all inputs go from one batch to another, and only that changes.
    """
    batches = {(old[0], new[0]) for old, new in moved.values() if old and new and old[1:] == new[1:]}
    alike = all(old and old[1:] == new[1:] for old, new in moved.values())
    if not alike or len(batches) != 1:
        return network
    old, new = batches.pop()
    behind = set(moved)
    tensors, graphs = dict(network.tensors), []
    for graph in network.graphs:
        layers = []
        for layer in graph.layers:
            if not behind.isdisjoint(layer.inputs):
                behind.update(layer.outputs)
                layer = _layer(network.format, layer, old, new)
                position = _MSLITE.get(layer.op) if network.format == "mslite" else None
                if position is not None and position < len(layer.inputs):
                    operand = tensors[layer.inputs[position]]
                    tensors[operand.index] = _operand(operand, old, new)
            layers.append(layer)
        graphs.append(replace(graph, layers=tuple(layers)))
    return replace(network, graphs=tuple(graphs), tensors=tensors)


def _operand(tensor: ir.Tensor, old: int, new: int) -> ir.Tensor:
    sizes = tensor.array
    if tensor.data is None or sizes is None or sizes.ndim != 1 or not sizes.size or sizes[0] != old:
        return tensor
    return with_numbers(tensor, np.array([new, *sizes[1:]], sizes.dtype))


def _layer(model_format: str, layer: ir.Layer, old: int, new: int) -> ir.Layer:
    def first(sizes: Any) -> Any:
        return (new, *sizes[1:]) if sizes and sizes[0] == old else sizes

    attrs = dict(layer.attrs)
    if model_format == "armnn" and layer.op in _ARMNN:
        attrs[_ARMNN[layer.op]] = first(attrs[_ARMNN[layer.op]])
    elif model_format == "armnn" and layer.op == "Splitter":
        attrs["viewSizes"] = tuple(first(sizes) for sizes in attrs["viewSizes"])
    elif model_format == "mslite" and layer.op == "Reshape" and attrs.get("shape"):  # files of 2020
        attrs["shape"] = first(attrs["shape"])
    else:
        return layer
    return replace(layer, attrs=attrs)
