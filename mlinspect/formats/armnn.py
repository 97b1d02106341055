"""Arm NN's ``.armnn``: file -> ir.

The file is a FlatBuffer without identifier, its layers a vector of unions. Connections name ``LayerBase.index``, which
is neither the position in the vector nor an order of execution. Whether a convolution's weights lie in the layer or
come through input slots 1 and 2 differs by operator and release: each layer shows it, the file's flags do not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Record, Schema
from mlinspect.formats.armnn_layouts import LAYOUTS, doubts, layer_base, schemas
from mlinspect.formats.armnn_tensors import constant_data, is_absent, tensor_type
from mlinspect.formats.kinds import ARMNN, kind_of
from mlinspect.formats.order import topological
from mlinspect.formats.ports import port_of
from mlinspect.formats.records import Reading, best_reading, fits, plain, raw_table
from mlinspect.ir import Graph, Layer, Network, Port, Quantization, Tensor

__all__ = ["LAYOUTS", "find_reading", "read"]

_MEMBER_NAMES = {"biases": "bias"}


def find_reading(buffer: np.ndarray, schema: Schema | None = None) -> Reading:
    """Decode a file under the layout that fits it, or under the given schema.

    Raises
    ------
    ModelFormatError
    """
    if schema is not None:
        return best_reading(buffer, [(schema.name, schema)], lambda root: 0)
    return best_reading(buffer, schemas(), doubts)


def read(reading: Reading) -> Network:
    """Build the model from its records.

    Raises
    ------
    ModelFormatError
        Records that do not fit together, as a connection that leads nowhere.
    """
    return _Builder(reading).network()


class _Item:
    """A layer while it is being put together."""

    def __init__(self, position: int, record: Record, base: Record, members: list[tuple[str, Record]]) -> None:
        self.position = position
        self.record = record
        self.base = base
        self.index: int = base["index"]
        self.op: str = record.plan.table.removesuffix("Layer")
        self.label: str = base["layerName"] or f"{self.op}_{self.index}"
        self.slots: list[Record] = base["outputSlots"] or []
        self.members = members  # constants kept inside the layer, by name
        self.meta: dict[str, Any] = {}
        self.attrs = _attrs(record)
        self.inputs: tuple[int, ...] = ()  # tensor ids: those of the input slots, then those of the members
        self.outputs: tuple[int, ...] = ()


def _attrs(record: Record) -> dict[str, Any]:
    descriptor, base = record.get("descriptor"), record["base"]
    attrs: dict[str, Any] = plain(descriptor) if descriptor is not None else {}
    if "layerBindingId" in base:
        attrs["layerBindingId"] = base["layerBindingId"]
    return attrs


class _Builder:
    """Collects tensors and layers of one file while its records are walked once."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.decoder = reading.decoder
        self.root = reading.root
        self.notes: list[str] = []
        self.tensors: dict[int, Tensor] = {}
        versions = self.root.get("featureVersions")
        self.versions: dict[str, Any] = {} if versions is None else plain(versions)
        # table -> its fields that are constants, but for that of a Constant layer
        self.constant_fields = {
            table.name: [item.name for item in table.fields if item.type == "ConstTensor" and item.name != "input"]
            for table in self.decoder.schema.tables.values()
        }
        self.layouts: dict[int, str] = {}  # tensor id -> order of its axes, known from the layer that reads it

    def network(self) -> Network:
        items = [self._item(i, holder) for i, holder in enumerate(self.root.get("layers") or ())]
        self._number_layers(items)
        self._number_tensors(items)
        for item in items:
            self._note_layouts(item)
        layers = [self._layer(item) for item in items]
        order, stuck = topological([item.inputs for item in items], [item.outputs for item in items])
        if stuck:
            first = items[stuck[0]].index
            self.notes.append(f"{len(stuck)} layers depend on each other in a circle, beginning with layer {first}")
        graph = self._graph([layers[i] for i in order + stuck])
        self._note_oddities(items)
        meta = {"featureVersions": self.versions} if self.versions else {}
        return Network("armnn", self.reading.layout, "", (graph,), self.tensors, tuple(self.notes), meta)

    def _item(self, position: int, holder: Record) -> _Item:
        record: Record | None = holder["layer"]
        if record is None:
            raise ModelFormatError("a layer without content", holder.offset, f"layers[{position}].layer")
        if record.plan.table.startswith("Unknown("):
            # every layer begins with its LayerBase, so that much can be read of an operator to come
            try:
                bare = self.decoder.table("AdditionLayer", record.offset)
            except ModelFormatError as error:
                raise error.within(f"layers[{position}].layer") from None
            bare.plan = record.plan
            record = bare
        base = layer_base(record)
        if base is None:
            raise ModelFormatError("a layer without LayerBase", record.offset, f"layers[{position}].layer.base")
        return _Item(position, record, base, self._members(record))

    def _members(self, record: Record) -> list[tuple[str, Record]]:
        params = record.get("inputParams")
        return [
            (_MEMBER_NAMES.get(name, name), value)
            for holder in ((record,) if params is None else (record, params))
            for name in self.constant_fields.get(holder.plan.table, ())
            if (value := holder[name]) is not None and not is_absent(value)
        ]

    def _number_layers(self, items: list[_Item]) -> None:
        indices = [item.index for item in items]
        if len(set(indices)) < len(indices):
            self.notes.append("layer indices repeat: layers are numbered by position, and connections may be wrong")
            for item in items:
                item.index = item.position
        elif indices != list(range(len(indices))):
            self.notes.append("layers are numbered by their own index, which is not their position in the file")

    def _number_tensors(self, items: list[_Item]) -> None:
        """Tensor ids go by position of the layer: its output slots, then the constants that it holds."""
        sources: dict[tuple[int, int], int] = {}  # (layer index, output slot) -> tensor id
        count = 0
        for item in items:
            for position, slot in enumerate(item.slots):
                key = (item.index, slot["index"])
                sources[key if key not in sources else (item.index, position)] = count + position
            item.outputs = tuple(range(count, count + len(item.slots)))
            count += len(item.slots)
            item.inputs = tuple(range(count, count + len(item.members)))
            count += len(item.members)
        for item in items:
            item.inputs = (*self._sources(item, sources), *item.inputs)

    def _sources(self, item: _Item, sources: dict[tuple[int, int], int]) -> list[int]:
        """Tensors that arrive at a layer's input slots, in the order of the slots' own numbers."""
        slots: list[Record] = item.base["inputSlots"] or []
        found = []
        for slot in sorted(slots, key=itemgetter("index")) if len(slots) > 1 else slots:
            connection = slot["connection"] or {}
            source = sources.get(tuple(connection.values()))  # type: ignore[arg-type]
            if source is None:
                path = f"layers[{item.position}].layer.base.inputSlots[{slots.index(slot)}].connection"
                what = "leads to layer {}, output {}, which is not there" if connection else "is missing"
                raise ModelFormatError(f"the connection {what.format(*connection.values())}", slot.offset, path)
            found.append(source)
            if slot.get("isOverridden") and slot["overriddenTensorInfo"] is not None:
                item.meta.setdefault("overriddenTensorInfo", {})[slot["index"]] = plain(slot["overriddenTensorInfo"])
        if item.meta:
            self.notes.append(f"layer {item.label} reads inputs under another type or shape than they have")
        return found

    def _note_layouts(self, item: _Item) -> None:
        """Note the order of a weight tensor's axes, which follows from the layer that reads it."""
        if len(item.inputs) < 2:
            return
        if item.op in ("Convolution2d", "TransposeConvolution2d"):
            layout = "OHWI" if item.attrs.get("dataLayout") == "NHWC" else "OIHW"
        elif item.op == "DepthwiseConvolution2d":
            layout = "1HWO" if self.versions.get("weightsLayoutScheme") else "MIHW"
        elif item.op == "Convolution3d":
            layout = "DHWIO"
        elif item.op == "FullyConnected":
            layout = "OI" if item.attrs.get("transposeWeightsMatrix") else "IO"
        else:
            return
        self.layouts[item.inputs[1]] = layout

    def _layer(self, item: _Item) -> Layer:
        """The layer; its tensors are added to the model."""
        role = {"Input": "input", "Constant": "constant"}.get(item.op, "activation")
        layout = item.attrs.get("dataLayout")
        const = item.record.get("input") if item.op == "Constant" else None
        for position, (number, slot) in enumerate(zip(item.outputs, item.slots, strict=True)):
            name = item.label if len(item.slots) == 1 else f"{item.label}:{position}"
            self._add_tensor(number, name, role, slot["tensorInfo"], const, layout)
        names = tuple(name for name, _ in item.members)
        for number, (name, const) in zip(item.inputs[len(item.inputs) - len(names) :], item.members, strict=True):
            self._add_tensor(number, f"{item.label}/{name}", "constant", None, const, None)
        kind = kind_of(ARMNN, item.op, item.attrs)
        name = item.base["layerName"] or ""
        meta = item.meta | self._kept(item)
        return Layer(item.index, name, item.op, kind, 0, item.attrs, item.inputs, item.outputs, names, meta)

    def _kept(self, item: _Item) -> dict[str, Any]:
        """Content that the schema does not know, for a writer to copy."""
        unknown = item.op.startswith("Unknown(")
        table = item.record if unknown else item.record.get("descriptor")
        if table is None or not (unknown or table.plan.unknown):
            return {}
        return {"raw": raw_table(self.decoder, table, item.attrs)}

    def _add_tensor(
        self, number: int, name: str, role: str, info: Record | None, const: Record | None, layout: str | None
    ) -> None:
        if const is not None and const["info"] is not None:
            info = const["info"]
        kind = tensor_type(info)
        if info is not None and kind.quantization is not None:
            self.decoder.claim(16 * len(kind.quantization.scale), info.offset)
        data = None
        if const is not None:
            data, kind, odd = constant_data(self.decoder, const, name, kind)
            self.notes += [odd] if odd else []
        layout = self.layouts.get(number, layout)
        if layout is not None and (kind.shape is None or len(kind.shape) != len(layout)):
            layout = None
        quantization = kind.quantization
        if quantization is not None and layout == "MIHW" and kind.shape is not None:
            quantization = _depthwise_axis(quantization, kind.shape)
        elif quantization is not None and not fits(quantization, kind.shape):
            self.notes.append(f"tensor {name}: {len(quantization.scale)} scales fit no axis of shape {kind.shape}")
        self.tensors[number] = Tensor(
            number,
            name,
            0,
            role,
            kind.dtype,
            kind.vendor,
            kind.shape,
            layout,
            data,
            quantization,
            quantization is not None,
            "none",
            None if data is None or not data.size else self.decoder.position(data),
            0 if data is None else data.nbytes,
        )

    def _graph(self, layers: list[Layer]) -> Graph:
        """Ports in the order of inputIds and outputIds, which hold layer indices or binding ids by the scheme."""
        by_binding = bool(self.versions.get("bindingIdsScheme"))
        ports: dict[str, tuple[Port, ...]] = {}
        for op, field in (("Input", "inputIds"), ("Output", "outputIds")):
            found = [layer for layer in layers if layer.op == op]
            listed = self.root.get(field)
            listed = [] if listed is None else listed[: len(layers)].tolist()
            rank = {number: i for i, number in reversed(list(enumerate(listed)))}
            numbers = [layer.attrs.get("layerBindingId", 0) if by_binding else layer.index for layer in found]
            if set(numbers) != set(rank):
                self.notes.append(f"{field} does not name the file's {len(found)} {op} layers")
            order = sorted(
                zip(numbers, found, strict=True), key=lambda pair: (rank.get(pair[0], len(rank)), pair[1].index)
            )
            ports[op] = tuple(port for _, layer in order if (port := port_of(layer)) is not None)
        for port in ports["Output"]:
            if self.tensors[port.tensor].role == "activation":
                self.tensors[port.tensor] = replace(self.tensors[port.tensor], role="output")
        return Graph(0, "", ports["Input"], ports["Output"], tuple(layers))

    def _note_oddities(self, items: list[_Item]) -> None:
        for op, count in sorted(Counter(item.op for item in items).items()):
            if op.startswith("Unknown("):
                self.notes.append(f"{count} layers are of a type that the schema does not know: {op}")
            elif op == "StandIn":
                self.notes.append(f"{count} StandIn layers: the converter met operators that it had no layer for")
        if self.reading.doubts:
            self.notes.append(f"{self.reading.doubts} things do not fit the layout {self.reading.layout}")


def _depthwise_axis(quantization: Quantization, shape: tuple[int, ...]) -> Quantization:
    """[M, I, H, W] weights have their scales by output channel i * M + m, whatever dimension the file names."""
    if quantization.axis is not None and shape[0] == 1 and len(quantization.scale) == shape[1]:
        return replace(quantization, axis=1)
    return quantization
