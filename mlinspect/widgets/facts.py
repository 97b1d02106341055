"""A layer as HTML: its neighbours in the graph, its attributes, its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.html import code, shape_text, table

MAX_NEIGHBOURS = 6  # neighbours on a side that are drawn


def button(label: str, trait: str, value: object, title: str) -> str:
    """A button that sets a trait of the form around it; `label` is HTML already.

    Examples
    --------
    >>> button("relu", "target", 3, "go there")
    "<button class='mli-go' data-set='target' data-value='3' title='go there'>relu</button>"
    """
    marks = f"data-set='{trait}' data-value='{escape(str(value))}' title='{escape(title)}'"
    return f"<button class='mli-go' {marks}>{label}</button>"


def neighbourhood(network: ir.Network, layer: ir.Layer, trait: str = "target") -> str:
    """The layers that a layer reads from and those that read it, as boxes from left to right.

    Parameters
    ----------
    network : ir.Network
    layer : ir.Layer
    trait : str
        The trait that a click on a neighbour sets to its index.

    Examples
    --------
    >>> a = ir.Layer(0, "a", "Relu", "activation", 0, {}, (0,), (1,))
    >>> b = ir.Layer(1, "b", "Relu", "activation", 0, {}, (1,), (2,))
    >>> t = {i: ir.Tensor(i, "t", 0, "activation", "float32", "Float", (2,)) for i in range(3)}
    >>> n = ir.Network("armnn", "", "", (ir.Graph(0, "", (), (), (a, b)),), t)
    >>> "data-value='0'" in neighbourhood(n, b)
    True
    """
    reads = [(t, _maker(network, t)) for t in dict.fromkeys(layer.inputs) if network.tensors[t].data is None]
    gives = [(t, one) for t in layer.outputs for one in _readers(network, t) or [None]]
    here = f"<b>{escape(layer.op)}</b><br>{code(layer.name)}"
    columns = (_boxes(network, reads, trait, "from"), "→", f"<div class='mli-here'>{here}</div>", "→",
               _boxes(network, gives, trait, "to"))  # fmt: skip
    return f"<table class='mli-graph'><tr>{''.join(f'<td>{column}</td>' for column in columns)}</tr></table>"


def _maker(network: ir.Network, tensor: int) -> ir.Layer | None:
    return next((layer for layer in network.layers.values() if tensor in layer.outputs), None)


def _readers(network: ir.Network, tensor: int) -> list[ir.Layer | None]:
    return [layer for layer in network.layers.values() if tensor in layer.inputs]


def _boxes(network: ir.Network, found: Sequence[tuple[int, ir.Layer | None]], trait: str, way: str) -> str:
    def box(tensor: int, layer: ir.Layer | None) -> str:
        size = shape_text(network.tensors[tensor].shape)
        if layer is None:
            role = network.tensors[tensor].role
            return f"<div class='mli-box'><b>{escape(role)}</b><br>{code(network.tensors[tensor].name)}<br>{size}</div>"
        label = f"<b>{escape(layer.op)}</b><br>{code(layer.name)}"
        return f"<div class='mli-box'>{button(label, trait, layer.index, f'{way} {layer.name}')}<br>{size}</div>"

    more = f"<div class='mli-more'>and {len(found) - MAX_NEIGHBOURS} more</div>" if len(found) > MAX_NEIGHBOURS else ""
    return "".join(box(*one) for one in found[:MAX_NEIGHBOURS]) + more


def attributes(layer: ir.Layer) -> str:
    """The layer's attributes as a table; empty ones are left out.

    Examples
    --------
    >>> attributes(ir.Layer(0, "a", "Relu", "activation", 0, {"a": 1.5, "list": ()}, (), ())).count("<tr>")
    1
    """
    rows = [[code(name), escape(_short(value))] for name, value in layer.attrs.items() if not _empty(value)]
    return table((), rows) if rows else "<div class='mli-more'>no attributes</div>"


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | tuple | list | np.ndarray) and len(value) == 0)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray | list | tuple) and len(value) > 8:
        return f"{', '.join(map(str, value[:8]))}, ... ({len(value):,})"
    text = ", ".join(map(str, value)) if isinstance(value, np.ndarray | list | tuple) else str(value)
    return text if len(text) <= 80 else text[:79] + "…"


def operands(network: ir.Network, layer: ir.Layer, trait: str = "operand") -> str:
    """Inputs and outputs of a layer: type, shape, quantisation.

    A click sets the trait: ``operand`` to ``in0``, ``out0``, ..., any other to the tensor's id.

    Examples
    --------
    >>> t = {0: ir.Tensor(0, "x", 0, "input", "float32", "Float", (2,))}
    >>> n = ir.Network("armnn", "", "", (), t)
    >>> "data-value='in0'" in operands(n, ir.Layer(0, "a", "Relu", "activation", 0, {}, (0,), ()))
    True
    """
    rows = []
    for slot, index in slots(layer):
        tensor = network.tensors[index]
        label = button(code(tensor.name), trait, slot if trait == "operand" else index, "look at it")
        rows.append([slot, label, escape(tensor.dtype), shape_text(tensor.shape), escape(quantization_text(tensor))])
    return table(("", "tensor", "type", "shape", "quantisation"), rows)


def slots(layer: ir.Layer) -> list[tuple[str, int]]:
    """(``out0``, tensor id), ... and then the inputs likewise.

    Examples
    --------
    >>> slots(ir.Layer(0, "a", "Relu", "activation", 0, {}, (7,), (9,)))
    [('out0', 9), ('in0', 7)]
    """
    return [(f"out{i}", t) for i, t in enumerate(layer.outputs)] + [(f"in{i}", t) for i, t in enumerate(layer.inputs)]


def quantization_text(tensor: ir.Tensor) -> str:
    """How a tensor is quantised, in a few words.

    Examples
    --------
    >>> q = ir.Quantization(np.array([0.5, 0.25]), np.array([0, 0]), axis=0)
    >>> quantization_text(ir.Tensor(0, "w", 0, "constant", "int8", "Int8", (2,), quantization=q, quantized=True))
    '2 channels, scales 0.25 to 0.5'
    """
    q = tensor.quantization if tensor.quantized else None
    if q is None or not len(q.scale):
        return ""
    bits = f", {q.bits} bits" if q.bits != 8 else ""
    if q.per_channel:
        return f"{len(q.scale)} channels, scales {q.scale.min():.4g} to {q.scale.max():.4g}{bits}"
    return f"scale {q.scale[0]:.4g}, zero point {q.zero_point[0]}{bits}"


def options(pairs: Iterable[tuple[object, str]]) -> str:
    """(value, label) pairs as ``<option>`` elements.

    Examples
    --------
    >>> options([(1, "a<b")])
    "<option value='1'>a&lt;b</option>"
    """
    return "".join(
        f"<option value='{escape(str(value), quote=True)}'>{escape(label)}</option>" for value, label in pairs
    )
