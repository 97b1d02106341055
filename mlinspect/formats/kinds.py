"""Our common vocabulary for operators: one ``kind`` for what either format calls by its own name.

A row maps a format's operator to a kind; ``{x}`` is filled from the attribute ``x`` through ``VALUES``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

ARMNN: dict[str, str] = {
    "Activation": "activation",
    "BatchMatMul": "matmul",
    "BatchNormalization": "batch_norm",
    "BatchToSpaceNd": "batch_to_space",
    "ArgMinMax": "arg_{argMinMaxFunction}",
    "Comparison": "{operation}",
    "Convolution2d": "conv2d",
    "Convolution3d": "conv3d",
    "DepthwiseConvolution2d": "depthwise_conv2d",
    "Division": "div",
    "Addition": "add",
    "ElementwiseBinary": "{operation}",
    "ElementwiseUnary": "{operation}",
    "InstanceNormalization": "instance_norm",
    "L2Normalization": "l2_norm",
    "LogicalBinary": "{operation}",
    "LogSoftmax": "log_softmax",
    "Mean": "reduce_mean",
    "Merger": "concat",
    "Multiplication": "mul",
    "Normalization": "local_response_norm",
    "Permute": "transpose",
    "Pooling2d": "{poolType}_pool2d",
    "Pooling3d": "{poolType}_pool3d",
    "QLstm": "lstm",
    "QuantizedLstm": "lstm",
    "Reduce": "reduce_{reduceOperation}",
    "ResizeBilinear": "resize",
    "ReverseV2": "reverse",
    "SpaceToBatchNd": "space_to_batch",
    "Splitter": "split",
    "Subtraction": "sub",
    "TransposeConvolution2d": "conv2d_transpose",
    "UnidirectionalSequenceLstm": "lstm",
}

MSLITE: dict[str, str] = {
    "ArgMax": "arg_max",
    "ArgMaxFusion": "arg_max",
    "ArgMin": "arg_min",
    "ArgMinFusion": "arg_min",
    "AddFusion": "add",
    "AvgPoolFusion": "average_pool2d",
    "BatchNorm": "batch_norm",
    "BatchToSpaceND": "batch_to_space",
    "BiasAdd": "add",
    "Broadcast": "broadcast_to",
    "Conv2D": "conv2d",
    "Conv2DFusion": "conv2d",
    "Conv2dTransposeFusion": "conv2d_transpose",
    "CumSum": "cumulative_sum",
    "DeConv2D": "conv2d_transpose",
    "DeDepthwiseConv2D": "conv2d_transpose",
    "DepthwiseConv2D": "depthwise_conv2d",
    "DivFusion": "div",
    "Eltwise": "{mode}",
    "EmbeddingLookup": "embedding_lookup",
    "EmbeddingLookupFusion": "embedding_lookup",
    "ExpFusion": "exp",
    "FullConnection": "fully_connected",
    "FusedBatchNorm": "batch_norm",
    "GLU": "glu",
    "GRU": "gru",
    "GroupNormFusion": "group_norm",
    "InstanceNorm": "instance_norm",
    "L2NormalizeFusion": "l2_norm",
    "L2Norm": "l2_norm",
    "LRN": "local_response_norm",
    "LSTM": "lstm",
    "LayerNorm": "layer_norm",
    "LayerNormFusion": "layer_norm",
    "LocalResponseNormalization": "local_response_norm",
    "Lrn": "local_response_norm",
    "Lstm": "lstm",
    "MatMul": "matmul",
    "MatMulFusion": "matmul",
    "MaxPoolFusion": "max_pool2d",
    "Mean": "reduce_mean",
    "MulFusion": "mul",
    "Nchw2Nhwc": "transpose",
    "Nhwc2Nchw": "transpose",
    "PReLU": "prelu",
    "PReLUFusion": "prelu",
    "PadFusion": "pad",
    "Partial": "partial",
    "PartialFusion": "partial",
    "Permute": "transpose",
    "Pooling": "{poolingMode}_pool2d",
    "PowFusion": "power",
    "RealDiv": "div",
    "Reduce": "reduce_{mode}",
    "ReduceFusion": "reduce_{mode}",
    "ReverseV2": "reverse",
    "ScaleFusion": "scale",
    "SliceFusion": "slice",
    "SoftMax": "softmax",
    "SpaceToBatchND": "space_to_batch",
    "SubFusion": "sub",
    "TileFusion": "tile",
    "TopK": "top_k",
    "TopKFusion": "top_k",
    "ZerosLike": "zeros_like",
}

VALUES: dict[str, str] = {
    "MAX_POOLING": "max",
    "MEAN_POOLING": "average",
    "PROD": "mul",
    "SUM": "add",
    "Sub": "sub",
    "SqDiff": "squared_difference",
    "ReduceASum": "sum_abs",
}


@lru_cache(1024)
def snake_case(name: str) -> str:
    """``SpaceToDepth`` -> ``space_to_depth``."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def kind_of(table: Mapping[str, str], op: str, attrs: Mapping[str, Any]) -> str:
    """The common name of an operator.

    Examples
    --------
    >>> kind_of(ARMNN, "Pooling2d", {"poolType": "Average"}), kind_of(ARMNN, "SpaceToDepth", {})
    ('average_pool2d', 'space_to_depth')
    """
    if op.startswith("Unknown("):
        return "unknown"
    row = table.get(op)
    if row is None:
        return snake_case(op)
    if "{" not in row:
        return row
    field = row[row.index("{") + 1 : row.index("}")]
    value = str(attrs.get(field))
    if value.startswith("Unknown("):
        return "unknown"
    value = VALUES.get(value) or snake_case(value.removeprefix("Reduce"))
    return row.replace(f"{{{field}}}", value)


def mslite_kind(op: str, attrs: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> str:
    """The common name of a MindSpore Lite operator; a convolution with one input channel per group is depthwise.

    Parameters
    ----------
    op : str
    attrs : mapping
    shapes : sequence of sequences of int
        Of the layer's first two inputs: data and weights ``[out, y, x, in / group]``; empty where unknown.

    Examples
    --------
    >>> mslite_kind("Conv2DFusion", {"group": 8}, [(1, 4, 4, 8), (8, 3, 3, 1)])
    'depthwise_conv2d'
    """
    kind = kind_of(MSLITE, op, attrs)
    group = attrs.get("group", 1)
    if kind != "conv2d" or group <= 1 or len(shapes) < 2:
        return kind
    data, weights = shapes[:2]
    single = len(weights) == 4 and weights[3] == 1 and (len(data) != 4 or data[3] == group)
    return "depthwise_conv2d" if single else kind


def cast_kind(source: str, target: str) -> str:
    """The common name of a cast between two types, by numpy's names, that quantises or dequantises."""
    if source.startswith("float"):
        return "quantize"
    return "dequantize" if target.startswith("float") else "requantize"
