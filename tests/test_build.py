"""Models from nothing: they run, save, open again, and wrong lines are told what would be right."""

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, save
from mlinspect.errors import InputError, SchemaError

RNG = np.random.default_rng(0)


def again(model):
    """The model after a trip through a file."""
    found = mi.open(save.to_bytes(model.network))
    assert found.layers.op.tolist() == model.layers.op.tolist()
    return found


def test_a_convolution_in_ten_lines():
    weights = RNG.normal(size=(4, 3, 3, 2)).astype(np.float32)
    bias = RNG.normal(size=4).astype(np.float32)
    x = RNG.normal(size=(1, 6, 6, 2)).astype(np.float32)
    arm = (
        build.armnn()
        .input("x", (1, 6, 6, 2))
        .layer("Convolution2d", "conv", weights=weights, bias=bias, strideX=2, strideY=2, dataLayout="NHWC")
        .layer("Activation", "relu", activationFunction="ReLu")
        .output("y")
        .model()
    )
    ms = (
        build.mslite("net")
        .input("x", (1, 6, 6, 2))
        .layer("Conv2DFusion", "conv", weights, bias, kernel_size=(3, 3), stride=(2, 2), dilation=(1, 1), group=1,
               pad_mode="VALID", activation_type="RELU", in_channel=2, out_channel=4)
        .output("y")
        .model()
    )  # fmt: skip
    assert arm.outputs["shape"].tolist() == ms.outputs["shape"].tolist() == [(1, 2, 2, 4)]
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), (0, 1))[::2, ::2]
    wanted = np.maximum(np.einsum("yxchw,ohwc->yxo", windows, weights) + bias, 0)
    for model in (arm, ms, again(arm), again(ms)):
        (got,) = model.run({"x": x}).values()
        np.testing.assert_allclose(got[0], wanted, rtol=1e-5, atol=1e-5)
        assert model.outputs.name.tolist() == ["y"]
    assert again(ms).layers.kind.tolist() == ["conv2d"]
    assert again(arm).layers.kind.tolist() == ["input", "constant", "constant", "conv2d", "activation", "output"]


def test_one_parameter_of_mindspore_lite_is_per_tensor():
    weights = build.quantized(np.ones((1, 6), np.int8), [0.5], axis=0)
    layer = build.mslite().input("x", (1, 6)).layer("MatMulFusion", "fc", weights, transpose_b=True)
    model = layer.output("y").model()
    (index,) = (t.index for t in model.network.tensors.values() if t.data is not None)
    for made in (model, again(model), model.with_quant(index, scale=[0.25], axis=0)):
        q = made.network.tensors[index].quantization
        assert (q.axis, len(q.scale)) == (None, 1)


def test_quantised():
    weights = build.quantized(np.full((3, 1, 1, 4), 2, np.int8), np.array([0.5, 1, 2]), axis=0)
    bias = build.quantized(np.zeros(3, np.int32), 0.05)
    model = (
        build.armnn()
        .input("x", (1, 1, 1, 4), "int8", scale=0.1, zero_point=3)
        .layer("Convolution2d", "conv", weights=weights, bias=bias, scale=0.25, strideX=1, strideY=1, dataLayout="NHWC")
        .layer("Dequantize", "real")
        .output("y")
        .model()
    )  # fmt: skip
    assert set(model.tensors.vendor_dtype) == {"QAsymmS8", "QSymmS8", "Signed32", "Float32"}
    q = model.quant.query("name == 'conv/weights'")
    assert q.scale.tolist() == [0.5, 1, 2]
    # (13 - 3) * 0.1 * 2 * scale * 4 = 8 * scale
    for one in (model, again(model)):
        np.testing.assert_array_equal(one.run(np.full((1, 1, 1, 4), 13, np.int8))["y"].ravel(), [4, 8, 16])
    ms = (
        build.mslite()
        .input("x", (1, 4), "int8", scale=0.5, zero_point=-1)
        .layer("Activation", "relu", activation_type="RELU")
        .output()
        .model()
    )
    # parameters go on where none are given
    assert ms.tensors.set_index("name").zero_point.tolist() == [-1, -1]
    assert ms.run(np.array([[-5, -1, 1, 5]], np.int8))["relu"].tolist() == [[-1, -1, 1, 5]]


def test_types_that_an_operator_gives():
    model = (
        build.armnn()
        .input("x", (2, 3))
        .layer("ArgMinMax", "most", argMinMaxFunction="Max", axis=1)
        .layer("Shape", "size", "x")
        .layer("Comparison", "large", "x", np.array([[0.5]], np.float32), operation="Greater")
        .layer("Cast", "half", "x", dtype="float16")
        .output(tensor="most")
        .output(tensor="size")
        .output(tensor="large")
        .output(tensor="half")
        .model()
    )
    assert model.outputs.dtype.tolist() == ["int32", "int32", "bool", "float16"]
    assert model.outputs.binding_id.tolist() == [0, 1, 2, 3]
    x = np.array([[0, 2, 1], [3, 0, 0]], np.float32)
    for one in (model, again(model)):
        outputs = one.run(x)
        assert outputs["most"].tolist() == [1, 0]
        assert outputs["size"].tolist() == [2, 3]
        assert outputs["large"].tolist() == (x > 0.5).tolist()
    ms = build.mslite().input("x", (2, 3)).layer("Shape", "size").output().model()
    assert ms.outputs.dtype.tolist() == ["int32"]


def test_several_inputs_and_outputs():
    model = (
        build.armnn()
        .input("a", (1, 2, 3))
        .input("b", (1, 5, 3))
        .layer("Concat", "both", "a", "b", concatAxis=1)
        .output("y")
        .model()
    )
    a, b = (RNG.normal(size=(1, n, 3)).astype(np.float32) for n in (2, 5))
    for one in (model, again(model)):
        np.testing.assert_array_equal(one.run([a, b])["y"], np.concatenate([a, b], 1))
    split = (
        build.mslite()
        .input("x", (1, 6))
        .layer("Split", "parts", outputs=2, output_num=2, size_splits=(2, 4), axis=1)
        .output(tensor="parts:0")
        .output(tensor="parts:1")
        .model()
    )
    assert split.outputs["shape"].tolist() == [(1, 2), (1, 4)]


def test_members_of_arm_nn_layers():
    four = [np.full(3, n, np.float32) for n in (1, 4, 5, 2)]
    model = (
        build.armnn()
        .input("x", (1, 2, 2, 3))
        .layer(
            "BatchNormalization", "bn", gamma=four[3], beta=four[2], mean=four[0], variance=four[1], dataLayout="NHWC"
        )
        .output("y")
        .model()
    )
    for one in (model, again(model)):
        np.testing.assert_array_equal(one.run(np.full((1, 2, 2, 3), 7, np.float32))["y"], np.full((1, 2, 2, 3), 11))
        assert one.network.layers[1].members == ("mean", "variance", "beta", "gamma")


def test_errors_help():
    start = build.armnn().input("x", (1, 4))
    with pytest.raises(SchemaError, match=r"has no operator 'Conv2d'; did you mean .*'Convolution2d'"):
        start.layer("Conv2d", "c")
    with pytest.raises(SchemaError, match="did you mean 'Activation'"):
        start.layer("activation", "a")
    with pytest.raises(SchemaError, match=r"has no field 'function'; it has a, activationFunction, b"):
        start.layer("Activation", "a", function="ReLu")
    with pytest.raises(SchemaError, match="Floor has no attributes, so no 'mode'"):
        start.layer("Floor", "f", mode=1)
    with pytest.raises(SchemaError, match="FullyConnected has no constant 'weight'; it has weights, bias"):
        start.layer("FullyConnected", "fc", weight=np.ones((4, 2), np.float32))
    with pytest.raises(InputError, match="no tensor is called 'z'; there are x"):
        start.layer("Floor", "f", "z")
    with pytest.raises(InputError, match=r"layer \d 'fc' \(FullyConnected\) failed on \(float32\[1, 4\]"):
        start.layer("FullyConnected", "fc", weights=np.ones((5, 2), np.float32))
    with pytest.raises(InputError, match="pass the dtype that Quantize is to return"):
        build.armnn().input("x", (1, 4)).layer("Quantize", "q")
    with pytest.raises(InputError, match="there is no arithmetic for StandIn: pass the shape of its output"):
        build.armnn().input("x", (1, 4)).layer("StandIn", "s")
    with pytest.raises(InputError, match="two tensors called 'x'"):
        build.mslite().input("x", (1,)).input("x", (1,))
    x = build.mslite().input("x", (1, 4, 4, 2))
    for name, value in (("kernel_size", (5, 5)), ("stride", (1,)), ("group", 2)):
        with pytest.raises(InputError, match=f"layer 0 'c': {name}"):
            x.layer("Conv2DFusion", "c", np.ones((2, 3, 3, 2), np.float32), **{name: value})
    again = x.layer("Conv2DFusion", "c", np.ones((2, 3, 3, 2), np.float32), kernel_size=(3, 3)).output().model()
    assert again.tensors.name.tolist() == ["x", "c/input_1", "c"]  # what was refused left nothing behind
    with pytest.raises(InputError, match="no input yet"):
        build.mslite().layer("Abs", "a")
    with pytest.raises(InputError, match="no output"):
        build.mslite().input("x", (1,)).model()
    with pytest.raises(SchemaError, match="mslite has no type 'int3'"):
        build.mslite().input("x", (1,), "int3")
    with pytest.raises(InputError, match="2 scales do not lie along axis 0"):
        build.quantized(np.zeros((3, 2), np.int8), [1, 2], axis=0)
