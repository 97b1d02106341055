"""MindSpore Lite's ``.ms``: ir -> records of the newest layout (MSL2)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import UnsupportedError
from mlinspect.flatbuffer import Schema
from mlinspect.formats.quantparams import EXTRA
from mlinspect.formats.records import layout_schema
from mlinspect.formats.typeids import type_names, version_number
from mlinspect.formats.write_records import Carrier, compact_numbers, wrapped

LAYOUT = "msl2_newest"
_EXTERNAL_FROM = 1024  # bytes: smaller constants stay in the model's own file
_ALIGN = 16
# the reader's names of operators, which follow a file's age -> the schema's
_OTHER_NAMES = {"MatMulFusion": "MatMul", "Merge": "SwitchLayer"}
_SINCE_2020 = ("name", "subGraph")
_TYPE_IDS = 256  # more than there are types; the names of unknown ones hold their numbers


class External:
    """Constants that lie in a file beside the model.

    Attributes
    ----------
    parts : list of ndarray
        The file's content.
    """

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self._entries: list[dict[str, Any]] = []
        self._size = 0

    def add(self, data: np.ndarray) -> dict[str, Any]:
        """Add bytes to the file; returns the record that says where they lie."""
        gap = -self._size % _ALIGN
        self.parts += [np.zeros(gap, np.uint8), data]
        self._entries.append({"offset": self._size + gap, "length": data.nbytes})
        self._size += gap + data.nbytes
        return self._entries[-1]

    def named(self, stem: str) -> str:
        """The file's name, with a digest of its content: so it never replaces another model's constants."""
        digest = hashlib.blake2b(digest_size=8)
        for part in self.parts:
            digest.update(part.data)
        name = f"{stem}.{digest.hexdigest()}.msw"
        for entry in self._entries:
            entry["location"] = name
        return name


def write(
    network: ir.Network, schema: Schema | None = None, external: External | None = None
) -> tuple[Schema, dict[str, Any], np.ndarray | None]:
    """The records of a network.

    Parameters
    ----------
    network : Network
        With the operators and attributes of the newest layout, or of ``schema``.
    schema : Schema, optional
        Write by this one instead of the newest.
    external : External, optional
        Receives all constants but the small ones.

    Returns
    -------
    schema, root, carried
        To be given to :func:`mlinspect.flatbuffer.encode.encode_parts`.

    Raises
    ------
    UnsupportedError
        Something that the format cannot express.
    """
    schema = schema or layout_schema("mslite", LAYOUT)
    writer = _Writer(network, schema, external)
    return writer.schema, writer.root(), writer.carrier.bytes


class _Writer:
    def __init__(self, network: ir.Network, schema: Schema, external: External | None) -> None:
        self.network = network
        self.external = external
        self.version = version_number(network.version)
        self.schema = _with_scale_default(schema) if (0, 0, 0) < self.version < (1, 6, 0) else schema
        self.layers = [layer for graph in network.graphs for layer in graph.layers]
        in_order = [layer.index for layer in self.layers]
        self.nodes = compact_numbers(in_order, in_order)
        self.tensors = compact_numbers(network.tensors, sorted(network.tensors))
        self.carrier = Carrier(layer.meta["raw"] for layer in self.layers if "raw" in layer.meta)

    def root(self) -> dict[str, Any]:
        main = self.network.graphs[0]
        nodes = sorted(self.layers, key=lambda layer: self.nodes[layer.index])
        tensors = sorted(self.network.tensors.values(), key=lambda tensor: tensor.index)
        root = {
            **self.network.meta,
            "version": self.network.version or None,
            "inputIndex": self._numbers(port.tensor for port in main.inputs),
            "outputIndex": self._numbers(port.tensor for port in main.outputs),
            "nodes": [self._node(layer) for layer in nodes],
            "allTensors": [self._tensor(tensor) for tensor in tensors],
            "subGraph": [self._graph(graph) for graph in self.network.graphs],
        }
        return self._known("MetaGraph", root)

    def _known(self, table: str, record: dict[str, Any]) -> dict[str, Any]:
        """Without what the layouts of 2020 do not have: names of tensors, a list of subgraphs."""
        fields = {item.name for item in self.schema.tables[table].fields}
        return {name: value for name, value in record.items() if name in fields or name not in _SINCE_2020}

    def _numbers(self, tensors: Any) -> list[int]:
        return [self.tensors[tensor] for tensor in tensors]

    def _graph(self, graph: ir.Graph) -> dict[str, Any]:
        """A subgraph; the first that lists a tensor counts as the one it belongs to."""
        ends = [port.tensor for port in (*graph.inputs, *graph.outputs)]
        touched = {tensor for layer in graph.layers for tensor in (*layer.inputs, *layer.outputs)}.union(ends)
        own = [
            tensor.index
            for tensor in self.network.tensors.values()
            if tensor.graph == graph.index or (tensor.index in touched and tensor.graph < graph.index)
        ]
        return {
            "name": graph.name,
            "inputIndices": self._numbers(port.tensor for port in graph.inputs),
            "outputIndices": self._numbers(port.tensor for port in graph.outputs),
            "nodeIndices": [self.nodes[layer.index] for layer in graph.layers],
            "tensorIndices": sorted(self._numbers(own)),
        }

    def _node(self, layer: ir.Layer) -> dict[str, Any]:
        op = layer.op if layer.op in self.schema.tables else _OTHER_NAMES.get(layer.op, layer.op)
        raw = layer.meta.get("raw")
        if raw is not None:
            value: Any = self.carrier.table(raw, layer)
        elif op not in self.schema.tables:
            raise UnsupportedError(f"layer {layer.index} {layer.name!r}: {self.schema.name} has no {op}")
        else:
            value = wrapped(self.schema, op, layer.attrs)
        return {
            **{name: value for name, value in layer.meta.items() if name != "raw"},
            "name": layer.name,
            "primitive": {"value_type": op, "value": value},
            "inputIndex": self._numbers(layer.inputs),
            "outputIndex": self._numbers(layer.outputs),
        }

    # ---- tensors -----------------------------------------------------------------------------------------------------

    def _tensor(self, tensor: ir.Tensor) -> dict[str, Any]:
        number = next((i for i in range(_TYPE_IDS) if type_names(i, self.version)[1] == tensor.vendor_dtype), None)
        if number is None:
            raise UnsupportedError(f"tensor {tensor.name!r}: MindSpore Lite has no type {tensor.vendor_dtype}")
        record: dict[str, Any] = {
            **tensor.meta,
            "name": tensor.name,
            "dataType": number,
            "dims": list(tensor.shape or ()),
            "format": tensor.layout or "NCHW",
            "quantParams": _quant_params(tensor.quantization),
        }
        if tensor.data is not None:
            record |= self._data(tensor)
        return self._known("Tensor", record)

    def _data(self, tensor: ir.Tensor) -> dict[str, Any]:
        data, record = tensor.data, dict[str, Any]()
        if tensor.compression in ("none", "external"):
            array = tensor.array
        else:
            assert isinstance(data, ir.PackedData)
            array = data.raw
            if tensor.compression == "huffman":
                record["enableHuffmanCode"] = True
            elif tensor.compression != "bitpacking":  # the width alone says that
                record["weightQuantCompressType"] = tensor.compression.upper()
        assert array is not None
        stored = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if self.external is not None and stored.nbytes >= _EXTERNAL_FROM:
            return record | {"externalData": [self.external.add(stored)]}
        return record | {"data": stored}


def _quant_params(q: ir.Quantization | None) -> list[dict[str, Any]]:
    if q is None:
        return []
    columns: Mapping[str, Any] = {
        "scale": q.scale,
        "zeroPoint": q.zero_point,
        **{EXTRA[name]: values for name, values in q.extra.items()},
    }
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return [{"numBits": q.bits, **dict(zip(columns, row, strict=True))} for row in rows]


def _with_scale_default(schema: Schema) -> Schema:
    """To readers before 1.6 a scale that is not stored is 0, so a 1 must be."""
    params = schema.tables["QuantParam"]
    fields = tuple(replace(item, default=0.0) if item.name == "scale" else item for item in params.fields)
    return replace(schema, tables=schema.tables | {"QuantParam": replace(params, fields=fields)})
