"""Arm NN's ``.armnn``: ir -> records, in today's schema; weights are written where the layer has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import UnsupportedError
from mlinspect.flatbuffer import Decoder, Schema
from mlinspect.flatbuffer.encode import RawTable
from mlinspect.formats.armnn_tensors import DTYPES, HOLDERS, tensor_type
from mlinspect.formats.ports import port_layers
from mlinspect.formats.records import Raw, layout_schema
from mlinspect.formats.write_records import Carrier, compact_numbers, same_parameters, wrapped

LAYOUT = "armnn_superset"
_BARE = "AdditionLayer"  # a layer with nothing but its LayerBase, which every layer begins with
_FIELDS = {"bias": "biases"}  # ours -> the schema's
_SCALAR = 2  # TensorInfo.dimensionality; 1: specified, 0: not


def write(network: ir.Network, schema: Schema | None = None) -> tuple[Schema, dict[str, Any], np.ndarray | None]:
    """The records of a network.

    Parameters
    ----------
    network : Network
        With a producer (a Constant layer) for every constant that is no member of a layer.
    schema : Schema, optional
        Write by this one instead of the newest.

    Returns
    -------
    schema, root, carried
        To be given to :func:`mlinspect.flatbuffer.encode.encode_parts`.

    Raises
    ------
    UnsupportedError
        Something that the format cannot express.
    """
    schema = schema or layout_schema("armnn", LAYOUT)
    return (schema, *_Writer(network, schema).root())


class _Writer:
    def __init__(self, network: ir.Network, schema: Schema) -> None:
        self.network = network
        self.schema = schema
        self.layers = network.graphs[0].layers
        # the vendor's loader uses an index as a position in the file, so they must be the same
        in_order = [layer.index for layer in self.layers]
        self.numbers = compact_numbers(in_order, in_order)
        self.sources = {
            tensor: (self.numbers[layer.index], slot)
            for layer in self.layers
            for slot, tensor in enumerate(layer.outputs)
        }
        self.carrier = Carrier(layer.meta["raw"] for layer in self.layers if "raw" in layer.meta)

    def root(self) -> tuple[dict[str, Any], np.ndarray | None]:
        graph = self.network.graphs[0]
        ordered = sorted(self.layers, key=lambda layer: self.numbers[layer.index])
        root = {
            "layers": [self._layer(layer) for layer in ordered],
            "inputIds": self._ids(graph, "Input"),
            "outputIds": self._ids(graph, "Output"),
            "featureVersions": self.network.meta.get("featureVersions"),
        }
        return root, self.carrier.bytes

    def _ids(self, graph: ir.Graph, op: str) -> list[int]:
        layers = port_layers(graph, op)
        if not self.network.meta.get("featureVersions", {}).get("bindingIdsScheme"):
            return [self.numbers[layer.index] for layer in layers]
        ids = [layer.attrs.get("layerBindingId", 0) for layer in layers]
        if len(set(ids)) < len(ids):
            raise UnsupportedError(f"the binding ids {ids} do not tell the {op} layers apart")
        return ids

    # ---- layers ------------------------------------------------------------------------------------------------------

    def _layer(self, layer: ir.Layer) -> dict[str, Any]:
        raw: Raw | None = layer.meta.get("raw")
        if layer.op.startswith("Unknown("):
            return {"layer_type": layer.op, "layer": self._unknown(layer)}
        name = f"{layer.op}Layer"
        table = self.schema.tables.get(name)
        if table is None:
            raise UnsupportedError(f"layer {layer.index} {layer.name!r}: {self.schema.name} has no {layer.op}")
        fields = {item.name: item for item in table.fields}
        base, attrs = self._base(layer), dict(layer.attrs)
        record: dict[str, Any] = {"base": base}
        if fields["base"].type == "BindableLayerBase":
            record["base"] = {"base": base, "layerBindingId": attrs.pop("layerBindingId", 0)}
        if "descriptor" in fields:
            kind = fields["descriptor"].type
            record["descriptor"] = wrapped(self.schema, kind, attrs) if raw is None else self.carrier.table(raw, layer)
        record |= self._members(layer, fields)
        if layer.op == "Constant":
            record["input"] = self._constant(self.network.tensors[layer.outputs[0]])
        return {"layer_type": name, "layer": record}

    def _unknown(self, layer: ir.Layer) -> RawTable:
        """A layer that is copied as it is, LayerBase included: which must still be right."""
        raw: Raw | None = layer.meta.get("raw")
        if raw is None or not self._still_so(layer, raw):
            raise UnsupportedError(
                f"layer {layer.index} {layer.name!r} is of a type that the schema does not know: neither it nor what "
                "it is connected to can be changed"
            )
        return self.carrier.table(raw, layer)

    def _still_so(self, layer: ir.Layer, raw: Raw) -> bool:
        base = Decoder(raw.buffer, self.schema).table(_BARE, raw.position)["base"]
        slots = sorted(base["inputSlots"] or (), key=lambda slot: slot["index"])
        sources = [tuple(slot["connection"].values()) for slot in slots]
        types = [tensor_type(slot["tensorInfo"]) for slot in base["outputSlots"] or ()]
        tensors = [self.network.tensors[tensor] for tensor in layer.outputs]
        parameters = zip((t.quantization for t in types), (t.quantization for t in tensors), strict=True)
        return (
            (base["index"], base["layerName"] or "") == (self.numbers[layer.index], layer.name)
            and sources == [self.sources.get(tensor) for tensor in layer.inputs]
            and [(t.vendor, t.shape) for t in types] == [(t.vendor_dtype, t.shape) for t in tensors]
            and all(same_parameters(*pair) for pair in parameters)
        )

    def _base(self, layer: ir.Layer) -> dict[str, Any]:
        inputs: list[dict[str, Any]] = []
        overridden = layer.meta.get("overriddenTensorInfo", {})
        for slot, tensor in enumerate(layer.slots):
            if tensor not in self.sources:
                name = self.network.tensors[tensor].name
                raise UnsupportedError(f"layer {layer.index} {layer.name!r}: no layer produces its input {name!r}")
            producer, output = self.sources[tensor]
            connection = {"sourceLayerIndex": producer, "outputSlotIndex": output}
            inputs.append({"index": slot, "connection": connection})
            if slot in overridden:
                inputs[-1] |= {"isOverridden": True, "overriddenTensorInfo": overridden[slot]}
        outputs = [
            {"index": slot, "tensorInfo": self._info(self.network.tensors[tensor], layer)}
            for slot, tensor in enumerate(layer.outputs)
        ]
        return {
            "index": self.numbers[layer.index],
            "layerName": layer.name,
            "layerType": layer.op,
            "inputSlots": inputs,
            "outputSlots": outputs,
        }

    def _members(self, layer: ir.Layer, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Constants kept inside the layer, by the fields of its table."""
        found: dict[str, Any] = {}
        params: dict[str, Any] = {}
        for name, tensor in layer.held.items():
            field = _FIELDS.get(name, name) if _FIELDS.get(name, name) in fields else name
            (found if field in fields else params)[field] = self._constant(self.network.tensors[tensor])
        if "inputParams" in fields:
            if layer.attrs.get("projectionEnabled") and "projectionBias" not in params:
                params["projectionBias"] = _ABSENT  # the loader requires the field, even if it is empty
            found["inputParams"] = params
        return found

    # ---- tensors -----------------------------------------------------------------------------------------------------

    def _info(self, tensor: ir.Tensor, layer: ir.Layer | None = None) -> dict[str, Any]:
        """A TensorInfo. Tensors without quantisation get the scale 0, as from the vendor's writer."""
        shape, q = tensor.shape, tensor.quantization
        info: dict[str, Any] = {
            "dimensions": [max(size, 0) for size in shape or ()],
            "dataType": "Float16" if tensor.dtype == "bfloat16" else tensor.vendor_dtype,
            "quantizationScale": 0.0 if q is None else q.scale[0],
            "quantizationOffset": 0 if q is None or q.per_channel else int(q.zero_point[0]),
        }
        if shape is None:
            info["dimensionality"] = 0
        elif layer is not None and layer.op == "Rank":
            info["dimensionality"] = _SCALAR
        elif min(shape, default=0) < 0:
            info["dimensionSpecificity"] = [size >= 0 for size in shape]
        if q is not None and q.per_channel:
            info |= {"quantizationScales": q.scale.astype(np.float32), "quantizationDim": q.axis}
        if tensor.vendor_dtype not in (*DTYPES, "BFloat16") and not tensor.vendor_dtype.startswith("Unknown("):
            raise UnsupportedError(f"tensor {tensor.name!r}: Arm NN has no type {tensor.vendor_dtype}")
        return info

    def _constant(self, tensor: ir.Tensor) -> dict[str, Any]:
        record: dict[str, Any] = {"info": self._info(tensor)}
        array = tensor.array
        if array is not None:
            holder = HOLDERS[array.dtype.itemsize]
            content = {"data": array.view(f"i{array.dtype.itemsize}")}
            if tensor.dtype == "bfloat16":  # the format has no number for it: float16's type, and no tag
                record |= {"data_type": 0, "data": (holder, content)}
            else:
                record |= {"data_type": holder, "data": content}
        return record


_ABSENT = {"info": {"dimensions": [], "dataType": "Float32", "quantizationScale": 0.0}}
