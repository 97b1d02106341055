"""An operator's attributes, checked against the schema and completed with its defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError, SchemaError, near
from mlinspect.flatbuffer import Decoder, Schema, encode
from mlinspect.formats.kinds import ARMNN, cast_kind, kind_of, mslite_kind
from mlinspect.formats.records import plain
from mlinspect.formats.write_records import wrapped

# how many entries MindSpore Lite's attributes of windows have; of those of 2, all are 1 or more
_ENTRIES = {"kernel_size": 2, "stride": 2, "strides": 2, "dilation": 2, "pad_list": 4, "pad": 4}
_OUTSIDE = ("layerBindingId",)  # attributes that Arm NN does not keep in the layer's descriptor


def attribute_table(schema: Schema, model_format: str, op: str) -> str | None:
    """Name of the table that holds an operator's attributes; None if it has none.

    Raises
    ------
    SchemaError
        There is no such operator; the message suggests similar names.
    """
    suffix = "Layer" if model_format == "armnn" else ""
    union = schema.enums["Layer" if model_format == "armnn" else "PrimitiveType"]
    ops = [name.removesuffix(suffix) for name in union.members.values()]
    if op not in ops:
        hint = near(op, ops) or f"; there are {', '.join(sorted(ops))}"
        raise SchemaError(f"{schema.name} has no operator {op!r}{hint}")
    if model_format == "mslite":
        return op
    return next((item.type for item in schema.tables[f"{op}Layer"].fields if item.name == "descriptor"), None)


def checked_attrs(schema: Schema, model_format: str, op: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as they would be read from a file: complete, enums by name, floats rounded to what is stored.

    Parameters
    ----------
    schema : Schema
    model_format : {"armnn", "mslite"}
    op : str
    attrs : mapping
        Those that are not the schema's defaults.

    Raises
    ------
    SchemaError
        An unknown attribute, or a value that does not fit it; the message says what would.

    Examples
    --------
    >>> from mlinspect.formats.records import layout_schema
    >>> schema = layout_schema("mslite", "msl2_newest")
    >>> checked_attrs(schema, "mslite", "LRN", {"depth_radius": 2, "beta": 0.75})
    {'depth_radius': 2, 'bias': 0.0, 'alpha': 0.0, 'beta': 0.75, 'norm_region': None}
    """
    table = attribute_table(schema, model_format, op)
    outside = {name: value for name, value in attrs.items() if name in _OUTSIDE}
    inside = {name: value for name, value in attrs.items() if name not in _OUTSIDE}
    if table is None:
        if inside:
            raise SchemaError(f"{op} has no attributes, so no {next(iter(inside))!r}")
        return outside
    # reading and writing are one description run both ways: what comes back is what is meant
    alone = replace(schema, root=table)
    read = plain(Decoder(np.frombuffer(encode(alone, wrapped(alone, table, inside), False), np.uint8), alone).root())
    return (read if isinstance(read, dict) else {"data": read}) | outside


def kind_with(model_format: str, layer: ir.Layer, tensors: Mapping[int, ir.Tensor]) -> str:
    """The common name of a layer's operator, by its attributes and operands."""
    if model_format == "armnn":
        return kind_of(ARMNN, layer.op, layer.attrs)
    if layer.op == "QuantDTypeCast":
        return cast_kind(tensors[layer.inputs[0]].dtype, tensors[layer.outputs[0]].dtype)
    return mslite_kind(layer.op, layer.attrs, [tensors[i].shape or () for i in layer.inputs[:2]])


def check_attrs(layer: ir.Layer, tensors: Mapping[int, ir.Tensor], given: Collection[str]) -> None:
    """Raise if attributes of MindSpore Lite's convolutions and pooling are impossible, or contradict the weights.

    Parameters
    ----------
    layer : Layer
        Of a MindSpore Lite model.
    tensors : mapping of int to Tensor
    given : collection of str
        The attributes to check.

    Raises
    ------
    InputError
        The message names the layer, the attribute, and what the weights say.
    """
    where = f"layer {layer.index} {layer.name!r}"
    windows = any(word in layer.op for word in ("Conv2", "Adder", "Pool"))
    for name in given if windows else ():
        value, entries = layer.attrs.get(name), _ENTRIES.get(name)
        if entries is None or value is None:
            continue
        if len(value) != entries:
            raise InputError(f"{where}: {name} has {entries} entries, not {len(value)} as {list(value)}")
        if entries == 2 and min(value) < 1 and not layer.attrs.get("global"):
            raise InputError(f"{where}: {name}={list(value)} must be 1 or more")
    for name, want in repeated_attrs(layer, tensors).items():
        value = layer.attrs[name]
        if name in given and value != want and value not in (None, 0):
            weights = tensors[layer.inputs[1]]
            raise InputError(
                f"{where}: {name}={list(value) if isinstance(value, tuple) else value} contradicts its weights "
                f"{weights.name!r} of shape {list(weights.shape or ())}: they want {want}"
            )


def repeated_attrs(layer: ir.Layer, tensors: Mapping[int, ir.Tensor]) -> dict[str, Any]:
    """Attributes of a MindSpore Lite convolution that repeat what its operands' shapes say, with what these say.

    Weights are ``[out, y, x, in / group]``, those of transposed convolutions ``[in, y, x, out / group]``.
    """
    shapes = [tensors[i].shape or () for i in layer.inputs[:2]]
    if len(shapes) < 2 or len(shapes[1]) != 4 or min(shapes[1]) < 1:
        return {}
    data, (first, height, width, last) = shapes
    said: dict[str, Any] = {"kernel_size": (height, width), "kernelH": height, "kernelW": width}
    group = layer.attrs.get("group") or 1
    if layer.op in ("Conv2DFusion", "AdderFusion", "Conv2D", "Adder"):
        if len(data) == 4 and data[3] > 0 and data[3] % last == 0:
            said["group"] = group = data[3] // last
        said |= {"in_channel": last * group, "out_channel": first, "channelIn": last * group, "channelOut": first}
    elif layer.op in ("Conv2dTransposeFusion", "DeConv2D"):
        said |= {"in_channel": first, "out_channel": last * group, "channelIn": first, "channelOut": last * group}
    elif layer.op not in ("DepthwiseConv2D", "DeDepthwiseConv2D"):
        return {}
    return {name: value for name, value in said.items() if name in layer.attrs}
