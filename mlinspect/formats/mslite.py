"""MindSpore Lite's ``.ms``: file -> ir.

The file holds all nodes and all tensors once; subgraphs refer to them by position. Version strings, quantisation flags
and formats are often wrong; dims and data are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Record, Schema
from mlinspect.formats.kinds import cast_kind, mslite_kind
from mlinspect.formats.mslite_layouts import LAYOUTS, doubts, schemas
from mlinspect.formats.order import topological
from mlinspect.formats.quantparams import channel_axis, quantization_of
from mlinspect.formats.records import Reading, best_reading, dimensions, fits, plain, raw_table
from mlinspect.formats.tensordata import tensor_data
from mlinspect.formats.typeids import type_names, version_number
from mlinspect.ir import Graph, Layer, Network, Port, Tensor

__all__ = ["LAYOUTS", "find_reading", "read"]

# names of constants that have none in the file: kind of the layer that reads them -> input position -> name
_INPUT_NAMES = {
    "conv2d": {1: "weights", 2: "bias"},
    "depthwise_conv2d": {1: "weights", 2: "bias"},
    "conv2d_transpose": {1: "weights", 2: "bias"},
    "fully_connected": {1: "weights", 2: "bias"},
    "matmul": {1: "weights", 2: "bias"},
    "batch_norm": {1: "mean", 2: "variance"},
}
_NODE_META = ("nodeType", "quantType", "deviceType")
_TENSOR_META = ("nodeType", "quantClusters")
_SHOWN_ELSEWHERE = ("nodes", "allTensors", "subGraph", "version", "inputIndex", "outputIndex")
_INTEGERS = frozenset(("int8", "uint8", "int16", "int32", "int4"))
_MAX_ENDS = 1 << 16  # inputs or outputs that one node may have


def find_reading(buffer: np.ndarray, schema: Schema | None = None) -> Reading:
    """Decode a file under the layout that fits it, or under the given schema.

    Raises
    ------
    ModelFormatError
    """
    if schema is not None:
        return best_reading(buffer, [(schema.name, schema)], lambda root: 0)
    return best_reading(buffer, schemas(buffer), doubts)


def read(reading: Reading, folder: Path | None = None) -> Network:
    """Build the model from its records.

    Parameters
    ----------
    reading : Reading
    folder : Path, optional
        Where external weights may lie: the model's own folder.

    Raises
    ------
    ModelFormatError
        Records that do not fit together, as a node that reads a tensor that is not there.
    """
    return _Builder(reading, folder).network()


@dataclass
class _Part:
    """A subgraph, as positions in the file's lists."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[int, ...]
    tensors: tuple[int, ...]


class _Builder:
    """Collects tensors and layers of one file while its records are walked once."""

    def __init__(self, reading: Reading, folder: Path | None) -> None:
        self.reading = reading
        self.folder = folder
        self.root = reading.root
        self.version: str = self.root.get("version") or ""
        self.number = version_number(self.version)
        self.notes: list[str] = []
        self.records: list[Record] = self.root.get("allTensors") or []
        self.nodes: list[Record] = self.root.get("nodes") or []

    def network(self) -> Network:
        parts = self._parts()
        graph_of_node = {node: i for i, part in reversed(list(enumerate(parts))) for node in part.nodes}
        layers = [self._layer(i, node, graph_of_node.get(i, 0)) for i, node in enumerate(self.nodes)]
        tensors = self._tensors(layers, parts)
        graphs = tuple(self._graph(i, part, layers, tensors) for i, part in enumerate(parts))
        self._note_oddities(layers)
        meta = {
            name: plain(value)
            for name, value in self.root.items()
            if name in self.root.plan.present and name not in _SHOWN_ELSEWHERE
        }
        found = dict(enumerate(tensors))
        return Network("mslite", self.reading.layout, self.version, graphs, found, tuple(self.notes), meta)

    # ---- layers ------------------------------------------------------------------------------------------------------

    def _layer(self, position: int, node: Record, graph: int) -> Layer:
        primitive = node["primitive"]
        value = primitive["value"] if primitive is not None else None
        if value is None:
            op = f"Unknown({primitive['value_type'] if primitive is not None else 0})"
        else:
            op = self._op(value.plan.table)
        attrs = {} if op.startswith("Unknown(") else plain(value)
        if not isinstance(attrs, dict):  # a table whose only field is called data
            attrs = {"data": attrs}
        path = f"nodes[{position}]"
        inputs = self._numbers(node, "inputIndex", len(self.records), path, _MAX_ENDS)
        outputs = self._numbers(node, "outputIndex", len(self.records), path, _MAX_ENDS)
        meta = {name: node[name] for name in _NODE_META if name in node}
        if value is not None and (op.startswith("Unknown(") or value.plan.unknown):
            meta["raw"] = raw_table(self.reading.decoder, value, attrs)  # for a writer to carry over
        kind = self._kind(op, attrs, inputs)
        return Layer(position, node["name"] or "", op, kind, graph, attrs, inputs, outputs, (), meta)

    def _op(self, name: str) -> str:
        """The operator's name at the time of the file, for operators of which only the name has changed since."""
        if name == "MatMul" and self.reading.layout.startswith("msl2_r1"):
            return "MatMulFusion"
        if name == "SwitchLayer" and self.number[:2] == (1, 5):
            return "Merge"
        return name

    def _numbers(self, record: Record, field: str, limit: int, path: str, most: int | None = None) -> tuple[int, ...]:
        """A list of positions in the file's nodes or tensors."""
        listed = record[field]
        if listed is None or listed.size == 0:
            return ()
        if listed.max() >= limit:
            message = f"there is no position {listed.max()} in a list of {limit}"
            raise ModelFormatError(message, record.offset, f"{path}.{field}" if path else field)
        if most is not None and listed.size > most:
            raise ModelFormatError(
                f"{listed.size} tensors at one node; at most {most} are read", record.offset, f"{path}.{field}"
            )
        self.reading.decoder.claim(8 * listed.size, record.offset)
        return tuple(listed.tolist())

    def _kind(self, op: str, attrs: Mapping[str, Any], inputs: tuple[int, ...]) -> str:
        if op == "QuantDTypeCast":
            ends = [attrs[name] for name in ("src_t", "dst_t", "srcT", "dstT") if name in attrs]
            source, target = (type_names(end, self.number)[0] for end in ends)
            return cast_kind(source, target)
        dims = [self.records[i]["dims"] for i in inputs[:2]]
        return mslite_kind(op, attrs, [() if sizes is None else sizes for sizes in dims])

    # ---- graphs ------------------------------------------------------------------------------------------------------

    def _parts(self) -> list[_Part]:
        """The file's subgraphs; where it lists none, the whole file as one."""
        nodes, tensors, root = len(self.nodes), len(self.records), self.root
        inputs = self._numbers(root, "inputIndex", tensors, "")
        outputs = self._numbers(root, "outputIndex", tensors, "")
        listed = root.get("subGraph")
        if not listed:
            return [_Part(root["name"] or "", inputs, outputs, tuple(range(nodes)), tuple(range(tensors)))]
        parts = [
            _Part(
                graph["name"] or "",
                self._numbers(graph, "inputIndices", tensors, f"subGraph[{i}]"),
                self._numbers(graph, "outputIndices", tensors, f"subGraph[{i}]"),
                self._numbers(graph, "nodeIndices", nodes, f"subGraph[{i}]"),
                self._numbers(graph, "tensorIndices", tensors, f"subGraph[{i}]"),
            )
            for i, graph in enumerate(listed)
        ]
        # the main graph's ports are those that the file lists
        parts[0].inputs, parts[0].outputs = inputs or parts[0].inputs, outputs or parts[0].outputs
        stray = set(range(nodes)).difference(*(part.nodes for part in parts))
        if stray:
            self.notes.append(f"{len(stray)} nodes belong to no subgraph; they are shown in the main graph")
            parts[0].nodes += tuple(sorted(stray))
        return parts

    def _graph(self, number: int, part: _Part, layers: list[Layer], tensors: list[Tensor]) -> Graph:
        own = [layers[i] for i in dict.fromkeys(part.nodes) if layers[i].graph == number]
        order, stuck = topological([layer.inputs for layer in own], [layer.outputs for layer in own])
        if stuck:
            self.notes.append(f"{len(stuck)} layers of graph {number} depend on each other in a circle")
        return Graph(
            number,
            part.name,
            tuple(Port(tensors[t].name, t) for t in part.inputs),
            tuple(Port(tensors[t].name, t) for t in part.outputs),
            tuple(own[i] for i in order + stuck),
        )

    # ---- tensors -----------------------------------------------------------------------------------------------------

    def _tensors(self, layers: list[Layer], parts: list[_Part]) -> list[Tensor]:
        users: dict[int, tuple[Layer, int]] = {}  # tensor -> its first reader, and at which input
        names: dict[int, str] = {}  # for tensors without a name in the file
        for layer in layers:
            for position, tensor in enumerate(layer.inputs):
                users.setdefault(tensor, (layer, position))
            for position, tensor in enumerate(layer.outputs):
                names.setdefault(tensor, layer.label if len(layer.outputs) == 1 else f"{layer.label}:{position}")
        owners: dict[int, int] = {}
        roles: dict[int, str] = {}
        for number, part in enumerate(parts):
            owners |= {tensor: number for tensor in part.tensors if tensor not in owners}
            for role, ends in (("input", part.inputs), ("output", part.outputs)):
                for tensor in ends:
                    roles.setdefault(tensor, role)
        for position, tensor in enumerate(parts[0].inputs):
            names.setdefault(tensor, f"input_{position}")
        return [
            self._tensor(i, record, names.get(i), owners.get(i, 0), roles.get(i, "activation"), users.get(i))
            for i, record in enumerate(self.records)
        ]

    def _tensor(
        self, number: int, record: Record, made: str | None, graph: int, role: str, user: tuple[Layer, int] | None
    ) -> Tensor:
        name = record.get("name") or made or self._name_by_user(number, user)
        shape = dimensions(record["dims"], record)
        count = prod(shape)
        width = record["data"].size / count if count > 0 and record["data"] is not None else 0
        dtype, vendor = type_names(record["dataType"], self.number, width)
        axis = 0 if user is None else channel_axis(*user, len(shape), self.number)
        quantization = quantization_of(record, shape, dtype, axis, self.number)
        if quantization is not None and not fits(quantization, shape):
            self.notes.append(f"tensor {name}: {len(quantization.scale)} scales fit no axis of shape {shape}")
        stored = tensor_data(self.reading.decoder, record, name, dtype, shape, quantization, self.folder)
        self.notes += stored.notes
        return Tensor(
            number,
            name,
            graph,
            "constant" if stored.data is not None and role != "input" else role,
            dtype,
            vendor,
            shape,
            record["format"],
            stored.data,
            quantization,
            quantization is not None and dtype in _INTEGERS,
            stored.compression,
            stored.file_offset,
            stored.nbytes,
            {field: record[field] for field in _TENSOR_META if record.get(field) is not None},
        )

    @staticmethod
    def _name_by_user(number: int, user: tuple[Layer, int] | None) -> str:
        if user is None:
            return f"tensor_{number}"
        layer, position = user
        slot = _INPUT_NAMES.get(layer.kind, {}).get(position, f"input_{position}")
        return f"{layer.label}/{slot}"

    def _note_oddities(self, layers: list[Layer]) -> None:
        for op, count in sorted(Counter(layer.op for layer in layers).items()):
            if op.startswith("Unknown("):
                self.notes.append(f"{count} layers are of a type that the schema does not know: {op}")
        if any(layer.op == "Custom" and layer.attrs.get("type") == "ThirdPartyModel" for layer in layers):
            self.notes.append("contains another vendor's opaque model (Custom layer of type ThirdPartyModel)")
        if self.reading.doubts:
            self.notes.append(f"{self.reading.doubts} things do not fit the layout {self.reading.layout}")
