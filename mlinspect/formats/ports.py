"""The ports of a graph, where data enter and leave: Arm NN has layers for them, MindSpore Lite lists tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlinspect.ir import Graph, Layer, Network, Port

# Arm NN's operator -> the graph's list of ports
PORTS = {"Input": "inputs", "Output": "outputs"}


def port_of(layer: Layer) -> Port | None:
    """Arm NN: the port of an Input or Output layer; None if nothing is connected to it.

    Examples
    --------
    >>> port_of(Layer(2, "y", "Output", "output", 0, {"layerBindingId": 7}, (5,), ()))
    Port(name='y', tensor=5, binding_id=7)
    """
    ends = layer.outputs if layer.op == "Input" else layer.inputs
    return Port(layer.label, ends[0], layer.attrs.get("layerBindingId")) if ends else None


def port_layers(graph: Graph, op: str) -> list[Layer]:
    """Arm NN: the Input or Output layers that belong to the graph's ports, in the order of the ports."""
    left = [layer for layer in graph.layers if layer.op == op]
    found = []
    for port in getattr(graph, PORTS[op]):
        layer = next(layer for layer in left if port_of(layer) == port)
        left.remove(layer)  # two ports may be alike
        found.append(layer)
    return found


def with_ports(before: Network, after: Network) -> Network:
    """``after``, with the names and binding ids of its ports taken from its layers (Arm NN) or tensors.

    Parameters
    ----------
    before : Network
        Whose ports and layers agree; the ports keep their order.
    after : Network
        With the same layers by index, and the same tensors by id.
    """
    layers, graphs = after.layers, []
    for old, new in zip(before.graphs, after.graphs, strict=True):
        ports: dict[str, Any] = {}
        for op, field in PORTS.items():
            if after.format == "armnn":
                found = [port_of(layers[layer.index]) for layer in port_layers(old, op)]
            else:
                found = [replace(port, name=after.tensors[port.tensor].name) for port in getattr(old, field)]
            ports[field] = tuple(port for port in found if port is not None)
        graphs.append(replace(new, **ports))
    return replace(after, graphs=tuple(graphs))
