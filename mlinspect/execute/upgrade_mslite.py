"""MindSpore Lite's operators of 2020 (files without an identifier, and MSL1) in the names of the newest schema.

A row gives the new name, where each new attribute comes from, and which attributes are constant operands today.
Attributes of the same meaning are not listed: their names are only put into snake_case. Source: MindSpore Lite 1.5,
which reads those files so (``ops/compat/v0``, ``ops/populate/v0``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import ExecutionError

Attributes = Mapping[str, Any]
Source = str | tuple[str, ...] | Callable[[Attributes], Any]


@dataclass(frozen=True)
class Row:
    """How one operator of 2020 is written today.

    Attributes
    ----------
    op : str
        Its new name.
    attrs : mapping
        New attribute -> old one; several old ones make a vector; a callable gets all old attributes.
    operands : tuple
        Attributes that are constant operands today: names of int32 vectors, or ``(name, dtype)``.
    only_with : int
        How many inputs the operator has without them. Files with more inputs have the first of them already.
    """

    op: str
    attrs: Mapping[str, Source] = field(default_factory=dict)
    operands: tuple[str | tuple[str, str], ...] = ()
    only_with: int = 1


_ACTIVATION: dict[str, Source] = {"activation_type": "activationType"}
# everything but SAME_UPPER and VALID means explicit padding, SAME_LOWER too
_PAD_MODES = {"SAME_UPPER": "SAME", "SAME": "SAME", "VALID": "VALID"}
_PADDING: dict[str, Source] = {
    "pad_mode": lambda old: _PAD_MODES.get(old["padMode"], "PAD"),
    "pad_list": lambda old: _explicit_padding(old),
}
_CONV: dict[str, Source] = {
    "kernel_size": ("kernelH", "kernelW"),
    "stride": ("strideH", "strideW"),
    "dilation": ("dilateH", "dilateW"),
    **_PADDING,
    **_ACTIVATION,
}
_POOL: dict[str, Source] = {
    "kernel_size": ("windowH", "windowW"),
    "strides": ("strideH", "strideW"),
    "pad_mode": _PADDING["pad_mode"],
    "pad": _PADDING["pad_list"],
    **_ACTIVATION,
}
_ARG: dict[str, Source] = {"top_k": "topK", "keep_dims": "keepDims", "out_max_value": "outMaxValue"}
_RESIZE_METHODS = {"BILINEAR": "LINEAR", "NEAREST_NEIGHBOR": "NEAREST"}
_REDUCTIONS = {0: "NONE", 1: "MEAN", 2: "REDUCTION_SUM"}


def _explicit_padding(old: Attributes) -> tuple[int, ...]:
    """These files ignore the padding that a VALID operator lists."""
    names = ("padUp", "padDown", "padLeft", "padRight")
    return (0, 0, 0, 0) if old["padMode"] == "VALID" else tuple(old[name] for name in names)


def _pairs(name: str) -> Callable[[Attributes], list[list[int]]]:
    return lambda old: [list(old[name][i : i + 2]) for i in range(0, len(old[name]), 2)]


def _from_normalized_shape(old: Attributes) -> int:
    return -len(old["normalizedShape"] or ())


def _axes(old: Attributes) -> tuple[int, ...]:
    return (int(old["axis"]),)


ROWS: dict[str, Row] = {
    "Activation": Row("Activation", {"activation_type": "type", "approximate": lambda old: False}),
    "ActivationGrad": Row("ActivationGrad", {"activation_type": "type"}),
    "Add": Row("AddFusion", _ACTIVATION),
    "Adder": Row("AdderFusion", _CONV),
    "ArgMax": Row("ArgMaxFusion", _ARG),
    "ArgMin": Row("ArgMinFusion", _ARG),
    "BatchToSpace": Row("BatchToSpace", {"block_size": "blockShape", "crops": _pairs("crops")}),
    "BatchToSpaceND": Row("BatchToSpaceND", {"block_shape": "blockShape", "crops": _pairs("crops")}),
    "BiasGrad": Row("BiasAddGrad"),
    "BinaryCrossEntropy": Row("BinaryCrossEntropy", {"reduction": lambda old: _REDUCTIONS.get(old["reduction"])}),
    "BinaryCrossEntropyGrad": Row(
        "BinaryCrossEntropyGrad", {"reduction": lambda old: _REDUCTIONS.get(old["reduction"])}
    ),
    "BNGrad": Row("BatchNormGrad", {"epsilon": "eps"}),
    "Broadcast": Row("BroadcastTo"),
    "BroadcastTo": Row("BroadcastTo", operands=("dst_shape",)),
    "Cast": Row("Cast", operands=(("dstT", "int32"),)),
    "ConstantOfShape": Row("ConstantOfShape", {"value": lambda old: np.atleast_1d(old["value"]).tolist()}),
    "Conv2D": Row("Conv2DFusion", _CONV),
    "Conv2DGradFilter": Row("Conv2DBackpropFilterFusion", _CONV, ("filter_shape",), 2),
    "Conv2DGradInput": Row("Conv2DBackpropInputFusion", _CONV, ("input_shape",), 2),
    "DeConv2D": Row("Conv2dTransposeFusion", {**_CONV, "group": lambda old: 1}),
    "DeDepthwiseConv2D": Row("Conv2dTransposeFusion", {**_CONV, "depthwise": lambda old: True}),
    "DepthwiseConv2D": Row("Conv2DFusion", {**_CONV, "group": "channelIn"}),
    "DetectionPostProcess": Row(
        "DetectionPostProcess",
        {
            "scale": ("hScale", "wScale", "xScale", "yScale"),
            "nms_iou_threshold": "NmsIouThreshold",
            "nms_score_threshold": "NmsScoreThreshold",
            "max_detections": "MaxDetections",
            "detections_per_class": lambda old: old.get("DetectionsPerClass", old.get("DetectionsPreClass")),
            "max_classes_per_detection": lambda old: old.get(
                "MaxClassesPerDetection", old.get("MaxClassesPreDetection")
            ),
            "num_classes": "NumClasses",
            "use_regular_nms": "UseRegularNms",
        },
    ),
    "Div": Row("DivFusion", _ACTIVATION),
    "Dropout": Row("Dropout", {"keep_prob": lambda old: 1 - old["ratio"]}),
    "DropoutGrad": Row("DropoutGrad", {"keep_prob": lambda old: 1 - old["ratio"]}),
    "EmbeddingLookup": Row("EmbeddingLookupFusion"),
    "Exp": Row("ExpFusion"),
    "ExpandDims": Row("ExpandDims", operands=(("dim", "int32"),)),
    "FakeQuantWithMinMax": Row("FakeQuantWithMinMaxVars"),
    "FakeQuantWithMinMaxPerChannel": Row("FakeQuantWithMinMaxVarsPerChannel"),
    "Fill": Row("Fill", operands=("dims",)),
    "Flatten": Row("Flatten", {"axis": lambda old: 1}),
    "FullConnection": Row("FullConnection", {"has_bias": "hasBias", "use_axis": "useAxis", **_ACTIVATION}),
    "Gather": Row("Gather", operands=(("axis", "int32"),), only_with=2),
    "GeLU": Row("Activation", {"activation_type": lambda old: "GELU"}),
    "GroupConv2DGradInput": Row("Conv2DBackpropInputFusion", _CONV, ("input_shape",), 2),
    "Identity": Row("Depend"),
    "L2Norm": Row("L2NormalizeFusion", {**_ACTIVATION, "epsilon": lambda old: old["epsilon"] or 1e-6}),
    "LayerNorm": Row(
        "LayerNormFusion", {"begin_norm_axis": _from_normalized_shape, "begin_params_axis": _from_normalized_shape}
    ),
    "LeakyReLU": Row("LeakyRelu"),
    "LocalResponseNormalization": Row("LRN"),
    "Lrn": Row("LRN", {"depth_radius": lambda old: old["size"] // 2, "alpha": lambda old: old["alpha"] / old["size"]}),
    "Lstm": Row("LSTM", {"bidirectional": "bidirection"}),
    "MatMul": Row("MatMulFusion", {"transpose_a": "transposeA", "transpose_b": "transposeB"}),
    "Mean": Row("ReduceFusion", {"mode": lambda old: "ReduceMean"}, ("axis",)),
    "Min": Row("Minimum"),
    "Mul": Row("MulFusion", _ACTIVATION),
    "Nchw2Nhwc": Row("Transpose", operands=("nhwc",)),
    "Nhwc2Nchw": Row("Transpose", operands=("nchw",)),
    "OnnxInt8Dequantize": Row("QuantDTypeCast"),
    "OnnxInt8Quantize": Row("QuantDTypeCast"),
    "PReLU": Row("PReLUFusion", operands=(("slope", "float32"),)),
    "Pad": Row("PadFusion", operands=("paddings",)),
    "Partial": Row("PartialFusion", {"sub_graph_index": "subGraphIndex"}),
    "Permute": Row("Transpose", operands=("order",)),
    "Power": Row("PowFusion", operands=(("power", "float32"),)),
    "Range": Row("Range", {"d_type": "dType"}),
    "Reduce": Row("ReduceFusion", {"keep_dims": lambda old: bool(old["keepDims"])}, ("axes",)),
    "Reshape": Row("Reshape", operands=("shape",)),
    "Resize": Row(
        "Resize",
        {
            "method": lambda old: _RESIZE_METHODS.get(old["method"], old["method"]),
            # the coordinate mode of these files was never looked at
            "coordinate_transform_mode": lambda old: "ALIGN_CORNERS" if old["alignCorners"] else "ASYMMETRIC",
        },
    ),
    "Reverse": Row("ReverseV2"),
    "ReverseSequence": Row(
        "ReverseSequence", {"seq_dim": "seqAxis", "batch_dim": "batchAxis"}, operands=("seqLengths",)
    ),
    "Scale": Row("ScaleFusion", _ACTIVATION),
    "ScatterND": Row("ScatterNd"),
    "Sgd": Row("SGD", {"nesterov": "useNesterov"}),
    "Slice": Row("SliceFusion", operands=("begin", "size")),
    "SoftMax": Row("Softmax", {"axis": _axes}),
    "SoftmaxCrossEntropy": Row("SoftmaxCrossEntropyWithLogits"),
    "SpaceToBatch": Row("SpaceToBatch", {"block_size": "blockShape", "paddings": _pairs("paddings")}),
    "SpaceToBatchND": Row("SpaceToBatchND", {"block_shape": "blockShape", "paddings": _pairs("paddings")}),
    "SparseSoftmaxCrossEntropy": Row(
        "SparseSoftmaxCrossEntropyWithLogits", {"is_grad": lambda old: bool(old.get("isGrad", old.get("grad")))}
    ),
    "Split": Row("Split", {"output_num": "numberSplit", "axis": "splitDim"}),
    "StridedSlice": Row("StridedSlice", operands=("begin", "end", "stride")),
    "Sub": Row("SubFusion", _ACTIVATION),
    "Tile": Row("TileFusion", operands=("multiples",)),
    "TopK": Row("TopKFusion", {"axis": lambda old: -1, "largest": lambda old: 1}, (("k", "int32"),)),
    "Transpose": Row("Transpose", operands=("perm",)),
    "UnsortedSegmentSum": Row("UnsortedSegmentSum", operands=(("numSegments", "int32"),), only_with=2),
    "While": Row("While", {"cond_subgraph_index": "condSubgraphIndex", "body_subgraph_index": "bodySubgraphIndex"}),
}
ROWS |= {"ToFormat": Row("Depend"), "OptMomentum": Row("ApplyMomentum"), "BNGradInput": ROWS["BNGrad"]}

_POOLING = {"MAX_POOLING": ("MaxPoolFusion", "MaxPoolGrad"), "MEAN_POOLING": ("AvgPoolFusion", "AvgPoolGrad")}

# names and fields that MSL2 itself changed: 1.1.1 and before 1.5
_MSL2_ROWS: dict[str, Row] = {
    "ActivationGrad": Row(
        "ActivationGrad", {"activation_type": lambda old: old.get("activation_type", old.get("type"))}
    ),
    "BiasGrad": Row("BiasAddGrad"),
    "ControlDepend": Row("Depend"),
    "If": Row("Switch"),
    "Lrn": Row("LRN"),
    "MatMul": Row("MatMulFusion"),
    "PoolingGrad": Row("MaxPoolGrad", {"kernel_size": "window", "strides": "stride"}),
    "SparseSoftmaxCrossEntropy": ROWS["SparseSoftmaxCrossEntropy"],
}

_FIXED = {"nhwc": (0, 2, 3, 1), "nchw": (0, 3, 1, 2)}


def upgraded_op(layer: ir.Layer, layout: str) -> str:
    """The name that the newest schema has for a layer's operator; its own where there is no other.

    Examples
    --------
    >>> upgraded_op(ir.Layer(0, "", "Nchw2Nhwc", "transpose", 0, {}, (0,), (1,)), "ms_v0_r1_0")
    'Transpose'
    """
    if layer.op in ("Pooling", "PoolingGrad") and not layout.startswith("msl2"):
        return _POOLING.get(str(layer.attrs.get("poolingMode")), (layer.op, layer.op))[layer.op == "PoolingGrad"]
    row = ROWS.get(layer.op) if not layout.startswith("msl2") else _MSL2_ROWS.get(layer.op)
    return layer.op if row is None or layout == "msl2_newest" else row.op


def upgraded(layer: ir.Layer, layout: str) -> tuple[ir.Layer, tuple[np.ndarray, ...]]:
    """A layer in the names of the newest schema, and the constant operands to be appended to its own.

    Parameters
    ----------
    layer : ir.Layer
    layout : str
        Of its file, as ``"ms_v0_r1_0"``.

    Raises
    ------
    ExecutionError
        Attributes that its arithmetic needs are missing.

    Examples
    --------
    >>> old = ir.Layer(0, "", "Nchw2Nhwc", "transpose", 0, {}, (0,), (1,))
    >>> new, extra = upgraded(old, "ms_v0_r1_0")
    >>> new.op, extra
    ('Transpose', (array([0, 2, 3, 1], dtype=int32),))
    """
    try:
        return _upgraded(layer, layout)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        missing = ", ".join(name for name, value in layer.attrs.items() if value is None)
        said = f"the file gives no {missing}" if missing else "its attributes make no sense"
        raise ExecutionError(f"layer {layer.index} {layer.name!r} ({layer.op}): {said}: is it damaged?") from error


def _upgraded(layer: ir.Layer, layout: str) -> tuple[ir.Layer, tuple[np.ndarray, ...]]:
    if layout.startswith("msl2"):
        row = _MSL2_ROWS.get(layer.op)
        return (layer, ()) if row is None or layout == "msl2_newest" else (_renamed(layer, row, layer.attrs), ())
    old = dict(layer.attrs)
    kept = {snake_case(name): value for name, value in old.items()}
    if layer.op in ("Pooling", "PoolingGrad"):
        op = _POOLING[old["poolingMode"]][layer.op == "PoolingGrad"]
        return _renamed(layer, Row(op, _POOL), kept), ()
    row = ROWS.get(layer.op)
    if row is None:
        return replace(layer, attrs=kept), ()
    extra: tuple[np.ndarray, ...] = ()
    if row.only_with <= len(layer.inputs):
        missing = row.operands[len(layer.inputs) - row.only_with :]
        extra = tuple(_operand(wanted, old) for wanted in missing)
    return _renamed(layer, row, kept), extra


def _renamed(layer: ir.Layer, row: Row, kept: Attributes) -> ir.Layer:
    old, attrs = layer.attrs, dict(kept)
    for name, source in row.attrs.items():
        if callable(source):
            attrs[name] = source(old)
        elif isinstance(source, tuple):
            attrs[name] = tuple(old.get(part, 0) for part in source)
        else:
            attrs[name] = old.get(source)
    return replace(layer, op=row.op, attrs=attrs)


def _operand(wanted: str | tuple[str, str], old: Attributes) -> np.ndarray:
    if isinstance(wanted, tuple):
        name, dtype = wanted
        return np.asarray(old[name], dtype)
    return np.asarray(_FIXED.get(wanted, old.get(wanted, ())), np.int32)


def snake_case(name: str) -> str:
    """``keepDims`` -> ``keep_dims``.

    Examples
    --------
    >>> snake_case("NmsIouThreshold"), snake_case("pad_list")
    ('nms_iou_threshold', 'pad_list')
    """
    return "".join(("_" if i else "") + c.lower() if c.isupper() else c for i, c in enumerate(name))
