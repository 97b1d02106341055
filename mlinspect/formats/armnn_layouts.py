"""The layouts that ``.armnn`` files have had, and which of them a file has.

Arm NN writes neither identifier nor version. But every layer names its own type twice, in its base and by the union
that holds it, and the two agree under the right layout only.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlinspect.flatbuffer import Record, Schema
from mlinspect.formats.records import layout_schema

# newest first; those called dev_ are states of the schema between releases, a day to some months long
LAYOUTS = (
    "armnn_superset",
    "armnn_19_05",
    "armnn_19_02",
    "armnn_2019_02_11_seed",
    "dev_2021_02_03_reduce_old",
    "dev_2019_07_29_pre_quantized_lstm",
    "dev_2019_05_10_pre_dilation",
    "dev_2019_03_01_pre_batchnorm",
    "dev_2019_02_21_fullyconnected",
    "dev_2019_02_20_permute",
    "dev_2019_02_20_activation",
    "dev_2019_02_20_depthwise",
    "dev_2019_02_19_conv2d",
    "dev_2019_02_19_reshape",
    "dev_2019_02_19_pooling",
    "dev_2019_02_18_pre_pooling",
)

# how all writers up to 22.11 (and perhaps later ones) store it: the union is right, the type is not
_TRANSPOSE_CONVOLUTION = ("Convolution2d", "TransposeConvolution2dLayer")
_CONVOLUTIONS = ("Convolution2dDescriptor", "DepthwiseConvolution2dDescriptor")


def schemas() -> Iterable[tuple[str, Schema]]:
    """Every layout with its schema, newest first."""
    return ((layout, layout_schema("armnn", layout)) for layout in LAYOUTS)


def layer_base(layer: Record) -> Record | None:
    """LayerBase, which Input and Output layers hold one level deeper."""
    base: Record | None = layer.get("base")
    return base.get("base") if base is not None and base.plan.table == "BindableLayerBase" else base


def doubts(root: Record) -> int | None:
    """How many layers contradict the layout that they were decoded by; None if most of them do.

    Layers that are newer than the newest layout do not agree, but speak for no other layout either.
    """
    holders = root.get("layers") or ()
    wrong = [holder for holder in holders if holder.get("layer") is None or not _agrees(holder["layer"])]
    newest = max(layout_schema("armnn", LAYOUTS[0]).enums["Layer"].members)
    contrary = sum(holder["layer_type"] <= newest for holder in wrong)
    return None if 2 * contrary > len(holders) else len(wrong) + sum(map(_misread, holders))


def _agrees(layer: Record) -> bool:
    base = layer_base(layer)
    if base is None:
        return False
    name, kind = layer.plan.table, base.get("layerType")
    # a bindable base read as a plain one has no slots; every plain base has both
    plain = "inputSlots" in base.plan.present or "outputSlots" in base.plan.present
    return plain and (name == f"{kind}Layer" or (kind, name) == _TRANSPOSE_CONVOLUTION)


def _misread(holder: Record) -> bool:
    """A descriptor that another layout explains better, though each of its fields fits."""
    descriptor = (holder["layer"] or {}).get("descriptor")
    if descriptor is None:
        return False
    present = descriptor.plan.present
    if descriptor.plan.table == "Pooling2dDescriptor":  # without any size: the Softmax of a day before
        return present == {"poolType"}
    if descriptor.plan.table not in _CONVOLUTIONS or "dilationX" not in descriptor:
        return False
    # Before May 2019 there was no dilation. What was biasEnabled then is dilationX now and looks like a stored 1, but 1
    # is the default, which no writer stores; what was dataLayout is dilationY now and looks like a stored 0. Where the
    # fields that follow are stored, the file is a new one.
    if "biasEnabled" in present or "dataLayout" in present:
        return False
    if "dilationX" in present:
        return bool(descriptor["dilationX"] & 0xFF == 1)
    return "dilationY" in present and descriptor["dilationY"] & 0xFF == 0
