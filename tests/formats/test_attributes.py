"""What MindSpore Lite's convolutions say twice: in their attributes and by the shapes of their weights."""

import pytest

from mlinspect import ir
from mlinspect.errors import InputError, SchemaError
from mlinspect.formats.attributes import attribute_table, check_attrs, kind_with, repeated_attrs
from mlinspect.formats.records import layout_schema


def layer(op, attrs, data, weights):
    shapes = [data, weights, None]
    tensors = {i: ir.Tensor(i, "xwy"[i], 0, "activation", "float32", "Float32", shapes[i]) for i in range(3)}
    return ir.Layer(0, "conv", op, "", 0, attrs, (0, 1), (2,)), tensors


NAMES = dict.fromkeys(("kernel_size", "group", "in_channel", "out_channel"))


@pytest.mark.parametrize(
    ("op", "data", "weights", "said"),
    [
        ("Conv2DFusion", (1, 5, 5, 8), (6, 3, 2, 4), ((3, 2), 2, 8, 6)),  # two groups of 4 input channels
        ("Conv2DFusion", (), (6, 3, 2, 4), ((3, 2), None, 4, 6)),  # data of unknown shape: as many groups as it says
        ("Conv2dTransposeFusion", (1, 5, 5, 6), (6, 3, 2, 4), ((3, 2), None, 6, 4)),
    ],
)
def test_weights_say_channels_and_windows(op, data, weights, said):
    found = repeated_attrs(*layer(op, NAMES, data, weights))
    assert found == {name: value for name, value in zip(NAMES, said, strict=True) if value is not None}


def test_depthwise_weights_of_2020_say_the_window_only():
    assert repeated_attrs(*layer("DepthwiseConv2D", {"kernelH": 3, "kernelW": 2}, (), (1, 3, 2, 8))) == {
        "kernelH": 3,
        "kernelW": 2,
    }


def test_other_layers_repeat_nothing():
    assert repeated_attrs(*layer("MatMulFusion", NAMES, (2, 3), (3, 4))) == {}
    assert repeated_attrs(*layer("ScaleFusion", NAMES, (1, 5, 5, 8), (6, 3, 2, 4))) == {}


def test_a_contradiction_names_layer_attribute_and_weights():
    attrs = {"kernel_size": (3, 3), "group": 1}
    with pytest.raises(InputError, match=r"layer 0 'conv': kernel_size=\[3, 3\] contradicts its weights 'w'"):
        check_attrs(*layer("Conv2DFusion", attrs, (1, 5, 5, 4), (6, 3, 2, 4)), ["kernel_size"])
    check_attrs(*layer("Conv2DFusion", attrs, (1, 5, 5, 4), (6, 3, 2, 4)), ["group"])


@pytest.mark.parametrize(
    ("data", "weights", "group", "kind"),
    [
        ((1, 5, 5, 8), (8, 3, 3, 1), 8, "depthwise_conv2d"),
        ((1, 5, 5, 8), (16, 3, 3, 1), 8, "depthwise_conv2d"),  # two output channels per input channel
        ((), (16, 3, 3, 1), 8, "depthwise_conv2d"),
        ((1, 5, 5, 4), (8, 3, 3, 1), 8, "conv2d"),  # the data contradict the groups
        ((1, 5, 5, 8), (8, 3, 3, 4), 2, "conv2d"),
        ((1, 5, 5, 8), (8, 3, 3, 8), 1, "conv2d"),
    ],
)
def test_one_input_channel_per_group_is_depthwise(data, weights, group, kind):
    assert kind_with("mslite", *layer("Conv2DFusion", {"group": group}, data, weights)) == kind


@pytest.mark.parametrize(("model_format", "layout"), [("armnn", "armnn_superset"), ("mslite", "msl2_newest")])
def test_an_unknown_operator_gets_a_hint(model_format, layout):
    with pytest.raises(SchemaError, match="has no operator 'Actvation'; did you mean 'Activation'"):
        attribute_table(layout_schema(model_format, layout), model_format, "Actvation")
    with pytest.raises(SchemaError, match="has no operator 'Zzz'; there are A"):
        attribute_table(layout_schema(model_format, layout), model_format, "Zzz")
