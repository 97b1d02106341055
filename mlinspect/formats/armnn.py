"""Arm NN's ``.armnn``: file -> ir.

The file is a FlatBuffer without identifier, its layers a vector of unions. Connections name ``LayerBase.index``, which
is neither the position in the vector nor an order of execution. Where a convolution's weights lie (in the layer, or
behind input slots 1 and 2) differs by operator and release and is told by each layer itself, not by the flags.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Decoder, Record, Schema
from mlinspect.formats.kinds import ARMNN, kind_of
from mlinspect.formats.order import topological
from mlinspect.formats.records import Reading, best_reading, layout_schema, plain
from mlinspect.ir import Graph, Layer, Network, Port, Quantization, Tensor

# newest first; the last three are states of the schema between releases
LAYOUTS = (
    "armnn_superset",
    "armnn_19_05",
    "armnn_19_02",
    "armnn_2019_02_11_seed",
    "dev_2019_07_29_pre_quantized_lstm",
    "dev_2019_05_10_pre_dilation",
    "dev_2019_03_01_pre_batchnorm",
)

# file's name of a type -> (numpy's name, quantised, symmetric)
DTYPES = {
    "Float16": ("float16", False, False),
    "Float32": ("float32", False, False),
    "QuantisedAsymm8": ("uint8", True, False),
    "Signed32": ("int32", False, True),
    "Boolean": ("bool", False, False),
    "QuantisedSymm16": ("int16", True, True),
    "QAsymmU8": ("uint8", True, False),
    "QSymmS16": ("int16", True, True),
    "QAsymmS8": ("int8", True, False),
    "QSymmS8": ("int8", True, True),
    "Signed64": ("int64", False, False),
}
_PAYLOAD = {1: "ByteData", 2: "ShortData", 4: "IntData", 8: "LongData"}
_MEMBER_NAMES = {"biases": "bias"}
_TRANSPOSE_CONVOLUTION_BUG = ("Convolution2d", "TransposeConvolution2dLayer")


def schemas() -> Iterable[tuple[str, Schema]]:
    """Every layout with its schema, newest first."""
    return ((layout, layout_schema("armnn", layout)) for layout in LAYOUTS)


def read(buffer: np.ndarray, candidates: Iterable[tuple[str, Schema]] | None = None) -> Network:
    """Read a file.

    Parameters
    ----------
    buffer : ndarray of uint8
    candidates : iterable of (layout name, Schema), optional
        Layouts to try instead of the known ones.

    Returns
    -------
    Network

    Raises
    ------
    ModelFormatError
    """
    reading = best_reading(buffer, schemas() if candidates is None else candidates, _doubts)
    return _Builder(reading).network()


def _doubts(root: Record) -> int:
    """Signs that the layout is not the file's: union members that contradict the layer's own type, stray fields."""
    found = len(root.plan.unknown)
    for any_layer in root.get("layers") or ():
        layer = any_layer.get("layer")
        if layer is None or layer.plan.table.startswith("Unknown("):
            found += 1
            continue
        found += len(layer.plan.unknown)
        base = _base(layer)
        if base is None:
            found += 1
            continue
        kind = base.get("layerType")
        if f"{kind}Layer" != layer.plan.table and (kind, layer.plan.table) != _TRANSPOSE_CONVOLUTION_BUG:
            found += 1
        descriptor = layer.get("descriptor")
        if isinstance(descriptor, Record):
            found += len(descriptor.plan.unknown)
            # before May 2019 slot 6 was biasEnabled: read as dilationX it is a one that no writer would store, as one
            # is the default; slot 7 was the data layout: a zero dilationY
            if descriptor.plan.table in ("Convolution2dDescriptor", "DepthwiseConvolution2dDescriptor"):
                present = descriptor.plan.present
                found += "dilationX" in present and descriptor["dilationX"] & 0xFF == 1
                found += "dilationY" in present and descriptor["dilationY"] & 0xFF == 0
    return found


def _base(layer: Record) -> Record | None:
    """LayerBase, which Input and Output layers hold one level deeper."""
    base = layer.get("base")
    return base.get("base") if base is not None and base.plan.table == "BindableLayerBase" else base


def _tensor_type(info: Record | None) -> tuple[str, str, tuple[int, ...] | None, Quantization | None, bool]:
    """(numpy dtype, file's dtype, shape, quantisation, quantised) of a TensorInfo."""
    if info is None:
        return "unknown", "none", None, None, False
    vendor = info["dataType"]
    dtype, quantized, symmetric = DTYPES.get(vendor, (vendor.lower(), False, False))
    dimensions = info["dimensions"]
    shape: tuple[int, ...] | None = () if dimensions is None else tuple(dimensions.tolist())
    dimensionality = info.get("dimensionality", 1)
    if dimensionality == 0:
        shape = None
    specific = info.get("dimensionSpecificity")
    if shape and specific is not None and len(specific) == len(shape) and not specific.all():
        shape = tuple(size if known else -1 for size, known in zip(shape, specific.tolist(), strict=True))
    scales = info.get("quantizationScales")
    per_axis = scales is not None and len(scales) > 0
    scale = info["quantizationScale"]
    # 0.0 is what writers store for no quantisation, 1.0 the default: neither changes an int32
    if not quantized and not (vendor == "Signed32" and (per_axis or scale not in (0.0, 1.0))):
        return dtype, vendor, shape, None, False
    if per_axis:
        zero_points = np.zeros(len(scales), np.int64)
        axis = int(info["quantizationDim"])
        quantization = Quantization(scales.astype(np.float64), zero_points, axis, _bits(dtype), symmetric)
    else:
        offset = np.array([info["quantizationOffset"]], np.int64)
        quantization = Quantization(np.array([scale], np.float64), offset, None, _bits(dtype), symmetric)
    return dtype, vendor, shape, quantization, True


def _bits(dtype: str) -> int:
    return 8 * np.dtype(dtype).itemsize


class _Builder:
    """Collects tensors and layers of one file while its records are walked once."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.decoder: Decoder = reading.decoder
        self.root = reading.root
        self.notes: list[str] = []
        self.tensors: dict[int, Tensor] = {}
        versions = self.root.get("featureVersions")
        self.versions = plain(versions) if versions is not None else {}
        self.layouts: dict[int, str] = {}  # tensor id -> order of its axes, told by the layer that takes it
        self.slots: dict[tuple[int, int], int] = {}  # (layer index, output slot) -> tensor id

    def network(self) -> Network:
        records = [self._layer_record(i, any_layer) for i, any_layer in enumerate(self.root.get("layers") or ())]
        bases = [self._base(i, record) for i, record in enumerate(records)]
        indices = self._indices(bases)
        ops = [record.plan.table.removesuffix("Layer") for record in records]
        attrs = [self._attrs(record) for record in records]
        # tensor ids: a layer's output slots, then the constants that it holds
        members: list[list[tuple[str, Record, int]]] = []
        count = 0
        for record, base, index in zip(records, bases, indices, strict=True):
            for position, slot in enumerate(base.get("outputSlots") or ()):
                number = slot["index"]
                key = (index, number if (index, number) not in self.slots else position)
                self.slots[key] = count
                count += 1
            held = []
            for name, const in self._members(record):
                held.append((name, const, count))
                count += 1
            members.append(held)
        inputs = [
            self._inputs(i, base) + tuple(number for *_, number in held)
            for i, (base, held) in enumerate(zip(bases, members, strict=True))
        ]
        for op, attr, taken in zip(ops, attrs, inputs, strict=True):
            self._note_layouts(op, attr, taken)
        layers = []
        next_id = 0
        for i, (record, base, op) in enumerate(zip(records, bases, ops, strict=True)):
            name = base.get("layerName") or ""
            label = name or f"{op}_{indices[i]}"
            outputs = base.get("outputSlots") or ()
            for position, slot in enumerate(outputs):
                tensor_name = label if len(outputs) == 1 else f"{label}:{position}"
                const = record.get("input") if op == "Constant" else None
                layout = attrs[i].get("dataLayout")
                self._add_tensor(next_id + position, tensor_name, slot.get("tensorInfo"), const, op, layout, i)
            for member, const, number in members[i]:
                self._add_tensor(number, f"{label}/{member}", const.get("info"), const, "Constant", None, i)
            made = tuple(range(next_id, next_id + len(outputs)))
            next_id += len(outputs) + len(members[i])
            kind = kind_of(ARMNN, op, attrs[i])
            names = tuple(member for member, *_ in members[i])
            layers.append(Layer(indices[i], name, op, kind, 0, attrs[i], inputs[i], made, names))
        order, stuck = topological(inputs, [layer.outputs for layer in layers])
        if stuck:
            self.notes.append(f"{len(stuck)} layers wait for each other in a circle, layer {indices[stuck[0]]} first")
        graph = self._graph([layers[i] for i in order + stuck], bases, records)
        self._note_oddities(ops, indices)
        meta = {"featureVersions": self.versions} if self.versions else {}
        return Network("armnn", self.reading.layout, "", (graph,), self.tensors, tuple(self.notes), meta)

    def _layer_record(self, position: int, any_layer: Record) -> Record:
        layer = any_layer.get("layer")
        if layer is None:
            raise ModelFormatError("a layer without content", any_layer.offset, f"layers[{position}].layer")
        if layer.plan.table.startswith("Unknown("):
            # every layer begins with its LayerBase, so that much can be read of an operator to come
            bare = self.decoder.table("AdditionLayer", layer.offset)
            bare.plan = layer.plan
            return bare
        return layer

    def _base(self, position: int, record: Record) -> Record:
        base = _base(record)
        if base is None:
            raise ModelFormatError("a layer without LayerBase", record.offset, f"layers[{position}].layer.base")
        return base

    def _indices(self, bases: list[Record]) -> list[int]:
        indices = [int(base["index"]) for base in bases]
        if len(set(indices)) == len(indices):
            return indices
        self.notes.append("layer indices repeat, so layers are numbered by position and connections may be wrong")
        return list(range(len(bases)))

    def _attrs(self, record: Record) -> dict[str, Any]:
        descriptor = record.get("descriptor")
        attrs = plain(descriptor) if descriptor is not None else {}
        base = record.get("base")
        if base is not None and base.plan.table == "BindableLayerBase":
            attrs["layerBindingId"] = base["layerBindingId"]
        return attrs

    def _members(self, record: Record) -> list[tuple[str, Record]]:
        """Constants kept inside the layer, by field name."""
        found = []
        params = record.get("inputParams")
        for holder in (record, params) if params is not None else (record,):
            for name, value in holder.items():
                if isinstance(value, Record) and value.plan.table == "ConstTensor" and name != "input":
                    info = value.get("info")
                    empty = info is None or info["dimensions"] is None or len(info["dimensions"]) == 0
                    if empty and (value.get("data") is None or value["data"].get("data") is None):
                        continue  # Arm NN 22.11's way to store an optional tensor that is not there
                    found.append((_MEMBER_NAMES.get(name, name), value))
        return found

    def _inputs(self, position: int, base: Record) -> tuple[int, ...]:
        slots = sorted(enumerate(base.get("inputSlots") or ()), key=lambda item: item[1]["index"])
        found = []
        for number, slot in slots:
            connection = slot.get("connection")
            source = None
            if connection is not None:
                source = self.slots.get((connection["sourceLayerIndex"], connection["outputSlotIndex"]))
            if source is None:
                path = f"layers[{position}].layer.base.inputSlots[{number}].connection"
                what = "is missing" if connection is None else "leads to layer {}, output {}, which is not there".format(
                    *connection.values()
                )
                raise ModelFormatError(f"the connection {what}", slot.offset, path)
            found.append(source)
        return tuple(found)

    def _note_layouts(self, op: str, attrs: dict[str, Any], inputs: tuple[int, ...]) -> None:
        if len(inputs) < 2:
            return
        if op in ("Convolution2d", "TransposeConvolution2d"):
            self.layouts[inputs[1]] = "OHWI" if attrs.get("dataLayout") == "NHWC" else "OIHW"
        elif op == "DepthwiseConvolution2d":
            self.layouts[inputs[1]] = "1HWO" if self.versions.get("weightsLayoutScheme") else "MIHW"
        elif op == "Convolution3d":
            self.layouts[inputs[1]] = "DHWIO"
        elif op == "FullyConnected":
            self.layouts[inputs[1]] = "OI" if attrs.get("transposeWeightsMatrix") else "IO"

    def _add_tensor(
        self,
        number: int,
        name: str,
        info: Record | None,
        const: Record | None,
        op: str,
        layout: str | None,
        position: int,
    ) -> None:
        is_constant = op == "Constant" and const is not None
        if is_constant and const is not None and const.get("info") is not None:
            info = const["info"]
        dtype, vendor, shape, quantization, quantized = _tensor_type(info)
        if layout is not None and (shape is None or len(shape) != len(layout)):
            layout = None
        layout = self.layouts.get(number, layout)
        if quantization is not None and quantization.axis is not None and layout == "MIHW" and shape:
            quantization = _depthwise_axis(quantization, shape)
        data = None
        if is_constant and const is not None:
            data, dtype, vendor = self._data(name, const, dtype, vendor, shape)
        self.tensors[number] = Tensor(
            number,
            name,
            0,
            "constant" if is_constant else "input" if op == "Input" else "activation",
            dtype,
            vendor,
            shape,
            layout,
            data,
            quantization,
            quantized,
            file_offset=None if data is None or not data.size else self._offset_of(data),
            nbytes=0 if data is None else data.nbytes,
        )

    def _offset_of(self, data: np.ndarray) -> int:
        return int(data.__array_interface__["data"][0] - self.decoder.buffer.__array_interface__["data"][0])

    def _data(
        self, name: str, const: Record, dtype: str, vendor: str, shape: tuple[int, ...] | None
    ) -> tuple[np.ndarray | None, str, str]:
        """A constant's numbers; a payload whose union tag says NONE is read by the size of the type."""
        payload = const.get("data")
        if payload is None:
            self.notes.append(f"constant {name} has no data")
            return None, dtype, vendor
        if payload.plan.table == "Unknown(0)":
            if dtype == "float16":  # how Arm NN stores BFloat16, which the file format has no number for
                dtype, vendor = "bfloat16", "BFloat16"
            payload = self.decoder.table(_PAYLOAD[_itemsize(dtype)], payload.offset)
        values = payload.get("data")
        if values is None:
            values = np.zeros(0, np.uint8)
        try:
            values = values.view("uint16" if dtype == "bfloat16" else dtype)
        except (TypeError, ValueError):
            self.notes.append(f"constant {name}: {vendor} numbers are stored as {payload.plan.table}, shown as stored")
        if shape is not None and int(np.prod(shape, dtype=object)) == values.size:
            return values.reshape(shape), dtype, vendor
        self.notes.append(f"constant {name} has {values.size} numbers for shape {shape}")
        return values, dtype, vendor

    def _graph(self, layers: list[Layer], bases: list[Record], records: list[Record]) -> Graph:
        """Ports in the order of inputIds and outputIds, which hold layer indices or binding ids by the scheme."""
        by_binding = bool(self.versions.get("bindingIdsScheme"))
        ports = {}
        for op, field in (("Input", "inputIds"), ("Output", "outputIds")):
            found = [layer for layer in layers if layer.op == op]
            listed = self.root.get(field)
            wanted = listed.tolist() if listed is not None else []
            rank = {number: i for i, number in reversed(list(enumerate(wanted)))}

            def key(layer: Layer, rank: dict[int, int] = rank) -> tuple[int, int]:
                number = layer.attrs["layerBindingId"] if by_binding else layer.index
                return rank.get(number, len(rank)), layer.index

            found.sort(key=key)
            if len(wanted) != len(found):
                self.notes.append(f"{field} lists {len(wanted)} but the file has {len(found)} {op} layers")
            ends = [layer.outputs if op == "Input" else layer.inputs for layer in found]
            ports[op] = tuple(
                Port(layer.name or f"{op}_{layer.index}", end[0], layer.attrs["layerBindingId"])
                for layer, end in zip(found, ends, strict=True)
                if end
            )
        for port in ports["Output"]:
            tensor = self.tensors[port.tensor]
            if tensor.role == "activation":
                self.tensors[port.tensor] = _with_role(tensor, "output")
        return Graph(0, "", ports["Input"], ports["Output"], tuple(layers))

    def _note_oddities(self, ops: list[str], indices: list[int]) -> None:
        if indices != list(range(len(indices))):
            self.notes.append("layers are numbered by their own index, which is not their position in the file")
        for op in sorted(set(ops)):
            if op.startswith("Unknown("):
                self.notes.append(f"{ops.count(op)} layers are of a type that the schema does not know: {op}")
        if count := ops.count("StandIn"):
            self.notes.append(f"{count} StandIn layers: the converter met operators that it had no layer for")
        if self.reading.doubts:
            self.notes.append(f"{self.reading.doubts} fields do not fit the layout {self.reading.layout}")


def _itemsize(dtype: str) -> int:
    try:
        return np.dtype("uint16" if dtype == "bfloat16" else dtype).itemsize
    except TypeError:
        return 1


def _depthwise_axis(quantization: Quantization, shape: tuple[int, ...]) -> Quantization:
    """[M, I, H, W] weights have their scales by output channel i * M + m, whatever dimension the file names."""
    if len(shape) == 4 and shape[0] == 1 and len(quantization.scale) == shape[1]:
        q = quantization
        return Quantization(q.scale, q.zero_point, 1, q.bits, q.symmetric)
    return quantization


def _with_role(tensor: Tensor, role: str) -> Tensor:
    values = {name: getattr(tensor, name) for name in Tensor.__slots__}
    return Tensor(**(values | {"role": role}))
