"""MindSpore's type numbers, version strings, and the axis that a weight's channels lie along."""

import pytest

from mlinspect.formats.quantparams import channel_axis
from mlinspect.formats.typeids import type_names, version_number
from mlinspect.ir import Layer


def layer_of(kind, **attrs):
    return Layer(0, "n", kind, kind, 0, attrs, (0, 1), (2,))


@pytest.mark.parametrize(
    ("layer", "position", "rank", "version", "axis"),
    [
        (layer_of("conv2d"), 1, 4, (2, 0, 0), 0),
        (layer_of("fully_connected"), 1, 2, (2, 0, 0), 0),
        (layer_of("matmul", transpose_b=True), 1, 2, (2, 0, 0), 0),
        (layer_of("matmul", transpose_b=False), 1, 2, (2, 0, 0), 1),
        (layer_of("matmul", transpose_b=False), 1, 3, (2, 0, 0), 2),
        (layer_of("matmul", transpose_b=True), 1, 3, (2, 0, 0), 1),
        (layer_of("matmul", transpose_a=True), 0, 3, (2, 0, 0), 2),
        (layer_of("matmul", transpose_a=False), 0, 3, (2, 0, 0), 1),
        (layer_of("matmul", transpose_b=False), 1, 3, (1, 5, 0), 1),
        (layer_of("matmul", transpose_b=True), 1, 3, (1, 5, 0), 0),
        (layer_of("matmul", transpose_a=True), 0, 3, (1, 5, 0), 1),
        (layer_of("matmul", transpose_b=False), 1, 3, (0, 0, 0), 1),
        (layer_of("matmul", transpose_b=False), 2, 1, (2, 0, 0), 0),
        (layer_of("conv2d_transpose", group=1), 1, 4, (1, 8, 0), 3),
        (layer_of("conv2d_transpose", group=1), 1, 4, (1, 7, 9), 0),
        (layer_of("conv2d_transpose", group=4), 1, 4, (2, 0, 0), 0),
        (layer_of("gather", axis=2), 0, 3, (2, 0, 0), 2),
    ],
)
def test_axis_of_channels(layer, position, rank, version, axis):
    assert channel_axis(layer, position, rank, version) == axis


@pytest.mark.parametrize(
    ("type_id", "version", "names"),
    [
        (12, (2, 0, 0), ("string", "String")),
        (30, (0, 0, 0), ("bool", "Bool")),
        (33, (1, 2, 0), ("int16", "Int16")),
        (0, (2, 0, 0), ("unknown", "Unknown")),
        (17, (2, 0, 0), ("tensortype", "TensorType")),
        (45, (1, 1, 0), ("complex64", "Complex64")),
        (47, (1, 5, 0), ("int4", "Int4")),
        (45, (2, 0, 0), ("float64", "Double")),
        (45, (2, 2, 0), ("bfloat16", "BFloat16")),
        (50, (2, 2, 0), ("int4", "Int4")),
        (99, (2, 2, 0), ("unknown(99)", "Unknown(99)")),
        (-1, (2, 2, 0), ("unknown(-1)", "Unknown(-1)")),
        (46, (1, 2, 0), ("unknown(46)", "Unknown(46)")),
    ],
)
def test_type_ids(type_id, version, names):
    assert type_names(type_id, version) == names


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("MindSpore Lite 1.5.0", (1, 5, 0)),
        ("MindSpore Lite 2.2.0.20231010", (2, 2, 0)),
        ("MindSpore Lite 2.6", (2, 6, 0)),
        ("2.0.0", (0, 0, 0)),
        ("", (0, 0, 0)),
        ("MindSpore Lite " + "9" * 5000 + ".1", (0, 0, 0)),
    ],
)
def test_version_numbers(text, number):
    assert version_number(text) == number
