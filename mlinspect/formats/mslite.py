"""MindSpore Lite's ``.ms``: file -> ir.

The file holds all nodes and all tensors once; subgraphs refer to them by position. The identifier at byte 4 tells the
generation (none, MSL1, MSL2), the version string the layout within it, and a layout that leaves stored fields without
a name is not the file's. Version strings, quantisation flags and formats are often wrong; dims and data are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Record, Schema
from mlinspect.formats.kinds import MSLITE, kind_of
from mlinspect.formats.order import topological
from mlinspect.formats.quantparams import channel_axis, quantization_of
from mlinspect.formats.records import Reading, best_reading, layout_schema, plain, unknown_slots
from mlinspect.formats.tensordata import tensor_data
from mlinspect.formats.typeids import type_names, version_number
from mlinspect.ir import Graph, Layer, Network, Port, Tensor

_MSL2 = ("msl2_newest", "msl2_r1_3", "msl2_r1_2", "msl2_r1_1_1")
LAYOUTS = (*_MSL2, "msl1_r1_1", "ms_v0_r1_0", "ms_v0_compat", "ms_v0_r0_7", "msl2_2021_11_seed")

# got a new name and nothing else in December 2021
_RENAMED = {"MatMul": "MatMulFusion"}

# what a constant is called by the layer that takes it, by input position, where the file gives no name
_INPUT_NAMES = {
    "conv2d": {1: "weights", 2: "bias"},
    "depthwise_conv2d": {1: "weights", 2: "bias"},
    "conv2d_transpose": {1: "weights", 2: "bias"},
    "fully_connected": {1: "weights", 2: "bias"},
    "matmul": {1: "weights", 2: "bias"},
    "batch_norm": {1: "mean", 2: "variance"},
}


def candidates(buffer: np.ndarray) -> list[str]:
    """Layouts that a file may have, likeliest first, by its identifier and version string."""
    identifier = bytes(buffer[4:8])
    if identifier == b"MSL1":
        return ["msl1_r1_1", "ms_v0_compat"]
    if not identifier.startswith(b"MSL"):
        return ["ms_v0_r1_0", "ms_v0_compat", "ms_v0_r0_7"]
    number = version_number(_version_text(buffer))[:2]
    first = (
        "msl2_newest"
        if number >= (1, 5) or number == (0, 0)
        else "msl2_r1_3"
        if number >= (1, 3)
        else "msl2_r1_2"
        if number == (1, 2)
        else "msl2_r1_1_1"
    )
    return [first, *(layout for layout in _MSL2 if layout != first)]


def schemas(buffer: np.ndarray) -> Iterable[tuple[str, Schema]]:
    """The layouts of :func:`candidates` with their schemas."""
    return ((layout, layout_schema("mslite", layout)) for layout in candidates(buffer))


def _version_text(buffer: np.ndarray) -> str:
    """The version string, without trusting any layout: it is the one string that begins so."""
    head = bytes(buffer[-4096:]) + bytes(buffer[:4096])
    at = head.find(b"MindSpore Lite ")
    return head[at : at + 40].split(b"\0")[0].decode("ascii", "replace") if at >= 0 else ""


def read(
    buffer: np.ndarray,
    options: Iterable[tuple[str, Schema]] | None = None,
    folder: Path | None = None,
) -> Network:
    """Read a file.

    Parameters
    ----------
    buffer : ndarray of uint8
    options : iterable of (layout name, Schema), optional
        Layouts to try instead of the known ones.
    folder : Path, optional
        Where external weights may lie: the model's own folder.

    Returns
    -------
    Network

    Raises
    ------
    ModelFormatError
    """
    reading = best_reading(buffer, schemas(buffer) if options is None else options, unknown_slots)
    return _Builder(reading, folder).network()


class _Builder:
    """Collects tensors and layers of one file while its records are walked once."""

    def __init__(self, reading: Reading, folder: Path | None) -> None:
        self.reading = reading
        self.folder = folder
        self.root = reading.root
        self.version = self.root.get("version") or ""
        self.number = version_number(self.version)
        self.notes: list[str] = []
        self.records: list[Record] = self.root.get("allTensors") or []
        self.nodes: list[Record] = self.root.get("nodes") or []

    def network(self) -> Network:
        nodes = [self._node(i, node) for i, node in enumerate(self.nodes)]
        subgraphs = self._subgraphs()
        graph_of_node = {n: g for g, (_, _, _, members, _) in reversed(list(enumerate(subgraphs))) for n in members}
        users: dict[int, tuple[int, int]] = {}  # tensor -> (node, input position) that takes it first
        producers: dict[int, tuple[int, int]] = {}
        for i, (_, _, _, inputs, outputs) in enumerate(nodes):
            for position, tensor in enumerate(inputs):
                users.setdefault(tensor, (i, position))
            for position, tensor in enumerate(outputs):
                producers.setdefault(tensor, (i, position))
        layers = [
            Layer(
                i,
                node.get("name") or "",
                op,
                self._kind(op, attrs, inputs),
                graph_of_node.get(i, 0),
                attrs,
                inputs,
                outputs,
                meta={
                    name: plain(value) for name, value in node.items() if name in ("quantType", "deviceType", "nodeType")
                },
            )
            for i, (node, (op, attrs, _, inputs, outputs)) in enumerate(zip(self.nodes, nodes, strict=True))
        ]
        tensors = self._tensors(layers, subgraphs, users, producers)
        graphs = tuple(self._graph(i, subgraph, layers, tensors) for i, subgraph in enumerate(subgraphs))
        self._note_oddities(layers)
        meta = {
            name: plain(value)
            for name, value in self.root.items()
            if name not in ("nodes", "allTensors", "subGraph", "version", "inputIndex", "outputIndex")
            and name in self.root.plan.present
        }
        return Network(
            "mslite", self.reading.layout, self.version, graphs, dict(enumerate(tensors)), tuple(self.notes), meta
        )

    def _node(self, position: int, node: Record) -> tuple[str, dict[str, Any], Record | None, tuple[int, ...], tuple[int, ...]]:
        """(op, attributes, primitive record, inputs, outputs) of one node."""
        primitive = node.get("primitive")
        value = primitive.get("value") if primitive is not None else None
        if value is not None:
            op = value.plan.table
            if self.reading.layout.startswith("msl2_r1"):
                op = _RENAMED.get(op, op)
        else:
            tag = primitive["value_type"] if primitive is not None else 0
            op = f"Unknown({tag})"
        attrs = {} if value is None or op.startswith("Unknown(") else plain(value)
        if not isinstance(attrs, dict):  # a table whose only field is called data
            attrs = {"data": attrs}
        ends = []
        for field in ("inputIndex", "outputIndex"):
            listed = node.get(field)
            numbers = tuple(listed.tolist()) if listed is not None else ()
            if any(number >= len(self.records) for number in numbers):
                raise ModelFormatError(
                    f"tensor {max(numbers)} is not among the {len(self.records)} of the file",
                    node.offset,
                    f"nodes[{position}].{field}",
                )
            ends.append(numbers)
        return op, attrs, value, ends[0], ends[1]

    def _kind(self, op: str, attrs: Mapping[str, Any], inputs: tuple[int, ...]) -> str:
        kind = kind_of(MSLITE, op, attrs)
        if op == "QuantDTypeCast":
            source, target = (type_names(attrs.get(name, 0), self.number)[0] for name in ("src_t", "dst_t"))
            if "srcT" in attrs:
                source, target = (type_names(attrs[name], self.number)[0] for name in ("srcT", "dstT"))
            return "quantize" if source.startswith("float") else "dequantize" if target.startswith("float") else "requantize"
        if kind == "conv2d" and attrs.get("group", 1) > 1 and len(inputs) > 1:
            weights, data = self.records[inputs[1]].get("dims"), self.records[inputs[0]].get("dims")
            if weights is not None and len(weights) == 4 and weights[3] == 1:
                channels = int(data[3]) if data is not None and len(data) == 4 else attrs["group"]
                if attrs["group"] == channels:
                    return "depthwise_conv2d"
        return kind

    def _subgraphs(self) -> list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """(name, inputs, outputs, nodes, tensors) of each subgraph; the whole file where it lists none."""

        def numbers(record: Record, field: str, limit: int, path: str) -> tuple[int, ...]:
            listed = record.get(field)
            found = tuple(listed.tolist()) if listed is not None else ()
            if any(number >= limit for number in found):
                raise ModelFormatError(f"{max(found)} is not among the {limit} of the file", record.offset, path)
            return found

        n, t, root = len(self.nodes), len(self.records), self.root
        inputs, outputs = numbers(root, "inputIndex", t, "inputIndex"), numbers(root, "outputIndex", t, "outputIndex")
        listed = root.get("subGraph")
        if not listed:
            return [(root.get("name") or "", inputs, outputs, tuple(range(n)), tuple(range(t)))]
        found = []
        for i, graph in enumerate(listed):
            path = f"subGraph[{i}]."
            found.append(
                (
                    graph.get("name") or "",
                    # the main graph's ports are those that the file lists
                    inputs if i == 0 and inputs else numbers(graph, "inputIndices", t, path + "inputIndices"),
                    outputs if i == 0 and outputs else numbers(graph, "outputIndices", t, path + "outputIndices"),
                    numbers(graph, "nodeIndices", n, path + "nodeIndices"),
                    numbers(graph, "tensorIndices", t, path + "tensorIndices"),
                )
            )
        stray = set(range(n)).difference(*(members for *_, members, _ in found))
        if stray:
            self.notes.append(f"{len(stray)} nodes belong to no subgraph; they are shown in the main graph")
            name, ins, outs, members, own = found[0]
            found[0] = (name, ins, outs, members + tuple(sorted(stray)), own)
        return found

    def _tensors(
        self,
        layers: list[Layer],
        subgraphs: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]],
        users: dict[int, tuple[int, int]],
        producers: dict[int, tuple[int, int]],
    ) -> list[Tensor]:
        owner: dict[int, int] = {}
        roles: dict[int, str] = {}
        for g, (_, inputs, outputs, _, own) in enumerate(subgraphs):
            for tensor in own:
                owner.setdefault(tensor, g)
            for tensor in inputs:
                roles.setdefault(tensor, "input")
            for tensor in outputs:
                roles.setdefault(tensor, "output")
        inputs = subgraphs[0][1]
        found = []
        for i, record in enumerate(self.records):
            user = users.get(i)
            name = record.get("name") or ""
            if not name:
                if i in producers:
                    layer = layers[producers[i][0]]
                    name = layer.name or f"{layer.op}_{layer.index}"
                    if len(layer.outputs) > 1:
                        name += f":{producers[i][1]}"
                elif i in inputs:
                    name = f"input_{inputs.index(i)}"
                elif user is not None:
                    layer = layers[user[0]]
                    slot = _INPUT_NAMES.get(layer.kind, {}).get(user[1], f"input_{user[1]}")
                    name = f"{layer.name or f'{layer.op}_{layer.index}'}/{slot}"
                else:
                    name = f"tensor_{i}"
            found.append(self._tensor(i, name, record, owner.get(i, 0), roles.get(i), layers[user[0]] if user else None, user))
        return found

    def _tensor(
        self,
        number: int,
        name: str,
        record: Record,
        graph: int,
        role: str | None,
        layer: Layer | None,
        user: tuple[int, int] | None,
    ) -> Tensor:
        type_id = record["dataType"]
        dtype, vendor = type_names(type_id, self.number)
        dims = record.get("dims")
        shape = tuple(dims.tolist()) if dims is not None else ()
        position = user[1] if user is not None else -1
        axis = channel_axis(layer, position, len(shape), self.number) if layer is not None else 0
        quantization, empty = quantization_of(record, shape, dtype, axis, self.number)
        contents = tensor_data(self.reading.decoder, record, name, dtype, shape, quantization, self.folder)
        self.notes += contents.notes
        is_constant = contents.data is not None and role != "input"
        quantized = quantization is not None and not empty and dtype in ("int8", "uint8", "int16", "int32", "int4")
        layout = record.get("format")
        return Tensor(
            number,
            name,
            graph,
            "constant" if is_constant else role or "activation",
            dtype,
            vendor,
            shape,
            layout if isinstance(layout, str) else None,
            contents.data,
            quantization if dtype in ("int8", "uint8", "int16", "int32", "int4") or not empty else None,
            quantized,
            contents.compression,
            contents.file_offset,
            contents.nbytes,
            {field: record[field] for field in ("nodeType", "quantClusters") if record.get(field) is not None},
        )

    def _graph(
        self,
        number: int,
        subgraph: tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        layers: list[Layer],
        tensors: list[Tensor],
    ) -> Graph:
        name, inputs, outputs, members, _ = subgraph
        own = [layers[i] for i in members if layers[i].graph == number]
        order, stuck = topological([layer.inputs for layer in own], [layer.outputs for layer in own])
        if stuck:
            self.notes.append(f"{len(stuck)} layers of graph {number} wait for each other in a circle")
        return Graph(
            number,
            name,
            tuple(Port(tensors[t].name, t) for t in inputs),
            tuple(Port(tensors[t].name, t) for t in outputs),
            tuple(own[i] for i in order + stuck),
        )

    def _note_oddities(self, layers: list[Layer]) -> None:
        unknown = sorted({layer.op for layer in layers if layer.op.startswith("Unknown(")})
        for op in unknown:
            count = sum(layer.op == op for layer in layers)
            self.notes.append(f"{count} layers are of a type that the schema does not know: {op}")
        if any(layer.op == "Custom" and layer.attrs.get("type") == "ThirdPartyModel" for layer in layers):
            self.notes.append("holds another vendor's opaque model (Custom layer of type ThirdPartyModel)")
        if self.reading.doubts:
            self.notes.append(f"{self.reading.doubts} fields do not fit the layout {self.reading.layout}")
