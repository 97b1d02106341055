"""Edits: new networks that share what did not change; shapes follow; inconsistent ones are refused with the reason."""

from dataclasses import replace

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, edit, infer, save
from mlinspect.errors import InputError, SchemaError, UnsupportedError


@pytest.fixture(scope="module")
def arm():
    return mi.open(mi.samples.path("digits_cnn_u8.armnn"))


@pytest.fixture(scope="module")
def ms():
    return mi.open(mi.samples.path("digits_cnn.ms"))


@pytest.fixture(scope="module")
def int8():
    return mi.open(mi.samples.path("digits_cnn_int8.ms"))


IMAGES = mi.samples.digits().images[:3, ..., None].astype("float32") / 16


def shared(old, new):
    """How many tensors and layers of the new network are the old one's own objects."""
    tensors = sum(new.tensors[i] is tensor for i, tensor in old.tensors.items() if i in new.tensors)
    layers = sum(new.layers[i] is layer for i, layer in old.layers.items() if i in new.layers)
    return tensors, layers


def of(network, op, number=0):
    return [layer for layer in network.graphs[0].layers if layer.op == op][number]


# ---- attributes ----------------------------------------------------------------------------------------------------


def test_with_attrs_changes_one_layer_and_nothing_else(ms):
    old = ms.network
    new = edit.with_attrs(old, "/stem/Conv", activation_type="NO_ACTIVATION")
    assert shared(old, new) == (len(old.tensors), len(old.layers) - 1)
    assert old.layers[0].attrs["activation_type"] == "RELU"
    assert new.layers[0].attrs == {**old.layers[0].attrs, "activation_type": "NO_ACTIVATION"}
    assert np.min(mi.Model(new).trace(IMAGES[:1])[old.layers[0].outputs[0]]) < 0
    saved = mi.open(save.to_bytes(new))
    assert saved.network.layers[0].attrs == new.layers[0].attrs


def test_shapes_behind_follow(ms):
    old = ms.network
    strided = edit.with_attrs(old, of(old, "MaxPoolFusion").index, strides=(1, 1))
    trace = mi.Model(strided).trace(IMAGES[:1])
    for i in trace:
        assert trace[i].shape == strided.tensors[i].shape, strided.tensors[i].name
    before = of(old, "MaxPoolFusion").outputs[0]
    assert strided.tensors[before].shape != old.tensors[before].shape


def test_kind_follows(arm):
    pool = of(arm.network, "Pooling2d")
    assert pool.kind == "max_pool2d"
    new = edit.with_attrs(arm.network, pool.index, poolType="Average")
    assert new.layers[pool.index].kind == "average_pool2d"


def test_wrong_attributes_say_what_would_be_right(ms, arm):
    with pytest.raises(SchemaError, match=r"Conv2DFusion has no field 'stride_x'; it has .*stride"):
        edit.with_attrs(ms.network, 0, stride_x=2)
    with pytest.raises(SchemaError, match="enum ActivationType has no value 'Relu'; it has NO_ACTIVATION, RELU"):
        edit.with_attrs(ms.network, 0, activation_type="Relu")
    with pytest.raises(SchemaError, match="'two' is not of type uint"):
        edit.with_attrs(arm.network, of(arm.network, "Convolution2d").index, strideX="two")
    with pytest.raises(InputError, match="no layer 'conv9'"):
        edit.with_attrs(ms.network, "conv9", group=1)


def test_inconsistent_attributes_are_refused_with_the_reason(arm, ms):
    conv = of(arm.network, "Convolution2d")
    with pytest.raises(InputError, match=r"would not be consistent: layer \d+ .*would not fit"):
        edit.with_attrs(arm.network, conv.index, dataLayout="NCHW")
    reshape = of(arm.network, "Reshape")
    with pytest.raises(InputError, match="reshape"):
        edit.with_attrs(arm.network, reshape.index, targetShape=(1, 7))
    with pytest.raises(InputError, match="would not be consistent"):
        edit.with_attrs(ms.network, of(ms.network, "Conv2DFusion", 3).index, stride=(2, 2))


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("kernel_size", (5, 5), r"of shape \[32, 3, 3, 32\]: they want \(3, 3\)"),
        ("kernel_size", (3,), r"has 2 entries, not 1 as \[3\]"),
        ("in_channel", 7, "they want 32"),
        ("out_channel", 9, "they want 32"),
        ("group", 2, "they want 1"),
        ("stride", (2,), "has 2 entries, not 1"),
        ("stride", (1, 1, 1), "has 2 entries, not 3"),
        ("stride", (0, 1), "must be 1 or more"),
        ("dilation", (1,), "has 2 entries"),
        ("pad_list", (1, 1), "has 4 entries, not 2"),
    ],
)
def test_attributes_that_contradict_the_weights_are_refused(ms, int8, name, value, said):
    for model in (ms, int8):
        index = next(one.index for one in model.network.layers.values() if one.name == "/res/Conv")
        with pytest.raises(InputError, match=rf"layer {index} '/res/Conv': {name}.*{said}"):
            edit.with_attrs(model.network, "/res/Conv", **{name: value})
        same = edit.with_attrs(model.network, "/res/Conv", kernel_size=(3, 3), in_channel=32, out_channel=32, group=1)
        assert same.layers == model.network.layers


def test_groups_of_a_depthwise_convolution(ms):
    with pytest.raises(InputError, match=r"layer 1 '/dw/Conv': group=4 contradicts its weights 'dw.weight'.*want 16"):
        edit.with_attrs(ms.network, "/dw/Conv", group=4)


def test_windows_of_pooling(ms, arm):
    for name, value in (("strides", (2,)), ("kernel_size", (0, 2)), ("pad", (1,))):
        with pytest.raises(InputError, match=f"layer 3 '/MaxPool': {name}"):
            edit.with_attrs(ms.network, "/MaxPool", **{name: value})
    pool = of(arm.network, "Pooling2d").index
    for name in ("poolWidth", "strideX"):
        with pytest.raises(InputError, match=f"layer {pool} .*{name}"):
            edit.with_attrs(arm.network, pool, **{name: 0})


def test_attributes_that_repeat_the_weights_shape_follow_it():
    x = build.mslite().input("x", (1, 8, 8, 2))
    model = (
        x.layer("Conv2DFusion", "c", np.ones((4, 3, 3, 2), "f4"), kernel_size=(3, 3), out_channel=4).output().model()
    )
    other = edit.with_constant(model.network, "c/input_1", np.ones((6, 5, 5, 2), np.float32))
    assert other.layers[0].attrs == {**model.network.layers[0].attrs, "kernel_size": (5, 5), "out_channel": 6}
    assert other.tensors[other.graphs[0].outputs[0].tensor].shape == (1, 4, 4, 6)


def test_binding_ids_of_ports_follow(arm):
    network = arm.network
    port = next(layer for layer in network.graphs[0].layers if layer.op == "Input")
    new = edit.with_attrs(network, port.index, layerBindingId=77)
    assert [p.binding_id for p in new.graphs[0].inputs] == [77]
    assert mi.open(save.to_bytes(new)).inputs.binding_id.tolist() == [77]


def test_layers_without_arithmetic_may_change_but_not_what_they_get():
    model = (
        build.armnn()
        .input("x", (1, 6))
        .layer("Activation", "relu", activationFunction="ReLu")
        .layer("StandIn", "odd", shape=(1, 3), numInputs=1, numOutputs=1)
        .output("y")
        .model()
    )
    new = edit.with_attrs(model.network, "odd", numInputs=2)
    assert of(new, "StandIn").attrs["numInputs"] == 2
    with pytest.raises(UnsupportedError, match="no arithmetic for StandIn"):
        edit.with_input_shape(model.network, (2, 6))


# ---- constants -----------------------------------------------------------------------------------------------------


def test_with_constant(ms):
    old = ms.network
    weights = ms.weights["head.weight"]
    new = edit.with_constant(old, "head.weight", weights * 2)
    assert shared(old, new) == (len(old.tensors) - 1, len(old.layers))
    model = mi.open(save.to_bytes(new))
    np.testing.assert_array_equal(model.weights["head.weight"], weights * 2)
    np.testing.assert_array_equal(ms.weights["head.weight"], weights)
    assert np.isnan(model.tensors.file_offset.astype(float)).sum() < len(model.tensors)


def test_the_array_is_taken_over_not_shared(ms):
    array = ms.weights["head.bias"].copy()
    new = edit.with_constant(ms.network, "head.bias", array)
    array[:] = 99
    assert not (mi.Model(new).weights["head.bias"] == 99).any()
    with pytest.raises(ValueError, match="read-only"):
        mi.Model(new).weights["head.bias"][0] = 1


def test_real_values_are_quantised(int8):
    name = "dw.weight"
    real = int8.dequantized[name]
    same = edit.with_constant(int8.network, name, real, quantize=True)
    np.testing.assert_array_equal(mi.Model(same).weights[name], int8.weights[name])
    with pytest.raises(InputError, match=r"wants int8, not float32: use .astype\(np.int8\), or pass quantize=True"):
        edit.with_constant(int8.network, name, real)


@pytest.mark.parametrize(
    "archive, name", [("mslite-converted.zip", f"cnn_{kind}.ms") for kind in ("wq4", "wq8", "wq12")]
)
def test_packed_constants_are_packed_again(golden, archive, name):
    model = mi.open(golden(archive).model(name))
    for tensor in model.network.tensors.values():
        if tensor.data is None or not tensor.quantized or tensor.array.size < 20:
            continue
        half = 1 << (tensor.quantization.bits - 1)
        values = np.random.default_rng(0).integers(-half, half, tensor.shape).astype(tensor.dtype)
        new = edit.with_constant(model.network, tensor.index, values)
        assert new.tensors[tensor.index].nbytes == tensor.nbytes
        again = mi.open(save.to_bytes(new))
        assert again.network.tensors[tensor.index].compression == tensor.compression
        np.testing.assert_array_equal(again.weights[tensor.index], values)
        if tensor.compression == "bitpacking":
            with pytest.raises(
                InputError, match=f"{tensor.quantization.bits}-bit numbers go from {-half} to {half - 1}"
            ):
                edit.with_constant(model.network, tensor.index, values - half)


def test_entropy_coded_constants_become_plain_ones(golden):
    found = golden("mslite-converted.zip")
    model = mi.open(found.model("mlp_mixed.ms"))
    tensor = next(t for t in model.network.tensors.values() if t.compression.startswith("fse"))
    new = edit.with_constant(model.network, tensor.index, model.weights[tensor.index])
    again = mi.open(save.to_bytes(new))
    np.testing.assert_array_equal(again.weights[tensor.index], model.weights[tensor.index])
    arrays = found.arrays("mlp_mixed.npz")
    inputs = [arrays[name] for name in sorted(arrays) if name.startswith("in_")]
    np.testing.assert_array_equal([*again.run(inputs).values()], [*model.run(inputs).values()])


def test_constants_of_another_shape(ms):
    for shape in ((10, 7), (12, 32)):  # the second would fit but for the bias
        with pytest.raises(InputError, match="would not be consistent"):
            edit.with_constant(ms.network, "head.weight", np.zeros(shape, np.float32))
    model = build.mslite().input("x", (2, 4)).layer("MatMulFusion", "mm", np.ones((4, 3), np.float32)).output().model()
    wider = edit.with_constant(model.network, "mm/input_1", np.ones((4, 5), np.float32))
    assert wider.tensors[wider.graphs[0].outputs[0].tensor].shape == (2, 5)


def test_not_a_constant(ms):
    with pytest.raises(InputError, match="is not a constant: its role is input"):
        edit.with_constant(ms.network, "image", np.zeros(3, np.float32))
    with pytest.raises(InputError, match=r"no tensor is called 'heat'"):
        edit.with_constant(ms.network, "heat", np.zeros(3, np.float32))


# ---- quantisation --------------------------------------------------------------------------------------------------


def test_with_quant_changes_the_parameters_alone(arm):
    network = arm.network
    tensor = of(network, "Convolution2d").outputs[0]
    q = network.tensors[tensor].quantization
    new = edit.with_quant(network, tensor, zero_point=7, scale=q.scale[0] * 3)
    assert shared(network, new) == (len(network.tensors) - 1, len(network.layers))
    assert new.tensors[tensor].quantization.zero_point.tolist() == [7]
    # what is not given stays
    part = edit.with_quant(network, tensor, zero_point=7)
    np.testing.assert_array_equal(part.tensors[tensor].quantization.scale, q.scale)
    again = mi.open(save.to_bytes(new)).network
    found = next(t for t in again.tensors.values() if t.name == new.tensors[tensor].name)
    assert found.quantization.scale[0] == np.float32(q.scale[0] * 3)


def test_a_wrong_zero_point_can_be_tried_out(arm):
    """The use of it: with the parameters moved the answers get worse, and moving them back repairs them."""
    network, labels = arm.network, mi.samples.digits().labels[:40]
    images = mi.samples.digits().images[:40, ..., None].astype("float32") / 16
    tensor = of(network, "FullyConnected").inputs[0]
    q = network.tensors[tensor].quantization
    weights = of(network, "FullyConnected").inputs[1]
    w = network.tensors[weights].quantization
    broken = edit.with_quant(network, weights, zero_point=int(w.zero_point[0]) ^ 0x60)
    repaired = edit.with_quant(broken, weights, zero_point=w.zero_point)

    def right(one):
        model = mi.Model(one)
        found = [next(iter(model.run(image[None], quantize=True).values())).argmax() for image in images]
        return int((np.array(found) == labels).sum())

    assert right(network) == right(repaired) > 35 > right(broken)
    assert q is not None


def test_per_channel(int8):
    network = int8.network
    tensor = network.tensors[next(i for i, t in network.tensors.items() if t.name == "pw.weight")]
    channels = tensor.shape[0]
    scale = np.linspace(0.01, 0.02, channels)
    new = edit.with_quant(network, tensor.index, scale=scale)
    q = mi.open(save.to_bytes(new)).network.tensors[tensor.index].quantization
    np.testing.assert_array_equal(q.scale, scale)
    assert q.axis == 0
    assert len(q.zero_point) == channels
    with pytest.raises(InputError, match=r"has .* channels along axis 0, not 3"):
        edit.with_quant(network, tensor.index, scale=[1, 2, 3])
    with pytest.raises(InputError, match="the runtime expects its channels along axis 0, not 3"):
        edit.with_quant(network, tensor.index, scale=np.ones(tensor.shape[3]), axis=3)
    single = edit.with_quant(network, tensor.index, scale=[0.5], zero_point=[0])
    assert single.tensors[tensor.index].quantization.axis is None


def test_parameters_that_make_no_sense(arm, int8):
    u8 = of(arm.network, "Convolution2d").outputs[0]
    for values, reason in [
        ({"zero_point": 256}, "go from 0 to 255"),
        ({"scale": 0.0}, "positive and finite"),
        ({"scale": np.inf}, "positive and finite"),
        ({"bits": 4}, "Arm NN knows no other width"),
        ({"zero_point": 1.5}, "zero points are integers"),
        ({"scale": [1, 2], "zero_point": [1, 2, 3]}, "do not go together"),
        ({"scale": [1, 2]}, "say along which axis"),
    ]:
        with pytest.raises(InputError, match=reason):
            edit.with_quant(arm.network, u8, **values)
    floats = mi.open(mi.samples.path("digits_cnn.ms")).network
    with pytest.raises(InputError, match="is of type Float32, which holds no quantised values"):
        edit.with_quant(floats, "image", scale=1.0)
    symmetric = (
        build.armnn()
        .input("x", (1, 4), "QSymmS8", scale=0.5)
        .layer("Reshape", "r", targetShape=(4,))
        .output("y")
        .model()
        .network
    )
    with pytest.raises(InputError, match="QSymmS8 has no zero point"):
        edit.with_quant(symmetric, "x", zero_point=3)
    low = next(i for i, t in int8.network.tensors.items() if t.name == "pw.weight")
    with pytest.raises(InputError, match="9 bits do not fit Int8"):
        edit.with_quant(int8.network, low, bits=9)


# ---- without -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits_cnn.ms", "digits_cnn.armnn"])
def test_without_the_last_layer(name):
    model = mi.open(mi.samples.path(name))
    softmax = of(model.network, "Softmax")
    new = edit.without(model.network, softmax.index)
    trace = model.trace(IMAGES[:1])
    logits = trace[softmax.inputs[0]]
    assert softmax.outputs[0] not in new.tensors
    for one in (mi.Model(new), mi.open(save.to_bytes(new))):
        (got,) = one.run(IMAGES[:1]).values()
        np.testing.assert_array_equal(got, logits)
    assert new.tensors[softmax.inputs[0]].role == "output"


def test_without_a_layer_in_the_midst(ms, arm):
    relu = of(arm.network, "Activation")
    new = edit.without(arm.network, relu.index)
    taker = next(layer for layer in arm.network.layers.values() if relu.outputs[0] in layer.inputs)
    assert new.layers[taker.index].inputs[0] == relu.inputs[0]
    assert mi.Model(new).run(IMAGES[:1], quantize=True)
    # a layer that changes the shape leaves the others without what they need
    with pytest.raises(InputError, match="would not be consistent"):
        edit.without(arm.network, of(arm.network, "Pooling2d", 1).index)
    with pytest.raises(InputError, match="needs one output and at least one such input"):
        edit.without(arm.network, of(arm.network, "Input").index)
    # its constants go with it
    conv = of(ms.network, "Conv2DFusion", 1)
    less = edit.without(ms.network, conv.index)
    assert set(ms.network.tensors) - set(less.tensors) == {conv.outputs[0], *conv.inputs[1:]}


def test_without_drops_constant_layers():
    weights = np.ones((4, 4), np.float32)
    model = (
        build.armnn()
        .input("x", (1, 4))
        .layer("FullyConnected", "fc", weights=weights)
        .layer("Activation", "relu", activationFunction="ReLu")
        .output("y")
        .model()
    )
    assert "Constant" in set(model.layers.op)
    new = edit.without(model.network, "fc")
    assert [layer.op for layer in new.layers.values()] == ["Input", "Activation", "Output"]
    again = mi.open(save.to_bytes(new))  # gaps in the numbers of layers are closed
    assert again.layers.index.tolist() == [0, 1, 2]


# ---- names and shapes ----------------------------------------------------------------------------------------------


def test_rename(ms, arm):
    new = edit.rename(ms.network, layers={"/stem/Conv": "first"}, tensors={"image": "x", "head.bias": "b"})
    assert new.graphs[0].inputs[0].name == "x"
    model = mi.open(save.to_bytes(new))
    assert model.layers.name.iloc[0] == "first"
    assert {"x", "b"} < set(model.tensors.name)
    conv = of(arm.network, "Convolution2d")
    new = edit.rename(arm.network, layers={conv.index: "conv", of(arm.network, "Output").index: "scores"})
    assert {"conv", "conv/weights", "conv/bias"} < {tensor.name for tensor in new.tensors.values()}
    assert [port.name for port in new.graphs[0].outputs] == ["scores"]
    assert list(mi.open(save.to_bytes(new)).run(IMAGES[:1], quantize=True)) == ["scores"]
    with pytest.raises(InputError, match="Arm NN does not name tensors"):
        edit.rename(arm.network, tensors={0: "x"})


@pytest.mark.parametrize("name", mi.samples.names())
def test_a_larger_batch(name):
    model = mi.open(mi.samples.path(name))
    new = edit.with_input_shape(model.network, (3, 8, 8, 1))
    batch = mi.Model(new).trace(IMAGES, quantize=True)
    single = [model.run(image[None], quantize=True) for image in IMAGES]
    for i in batch:
        if isinstance(new.tensors[i].shape, tuple):
            assert batch[i].shape == new.tensors[i].shape
    for output, array in batch.outputs.items():
        np.testing.assert_allclose(array, np.concatenate([one[output] for one in single]), rtol=1e-5, atol=1e-6)
    again = mi.open(save.to_bytes(new))
    assert again.inputs["shape"].tolist() == [(3, 8, 8, 1)]


def test_a_larger_image():
    weights = np.ones((2, 3, 3, 1), np.float32)
    model = (
        build.armnn()
        .input("x", (1, 9, 9, 1))
        .layer("Convolution2d", "conv", weights=weights, strideX=1, strideY=1, dataLayout="NHWC")
        .layer("Pooling2d", "pool", poolType="Max", poolWidth=2, poolHeight=2, strideX=2, strideY=2)
        .output("y")
        .model()
    )
    assert model.outputs["shape"].iloc[0] == (1, 3, 3, 2)
    new = edit.with_input_shape(model.network, {"x": (1, 15, 12, 1)})
    assert mi.Model(new).outputs["shape"].iloc[0] == (1, 6, 5, 2)


def test_shapes_that_do_not_fit(ms):
    dense = build.mslite().input("x", (2, 4)).layer("MatMulFusion", "mm", np.ones((4, 3), np.float32)).output().model()
    with pytest.raises(InputError, match=r"would not be consistent: layer 0 'mm' \(MatMulFusion\) would not fit"):
        edit.with_input_shape(dense.network, (2, 5))
    with pytest.raises(InputError, match=r"no input 'picture'; it has 'image'"):
        edit.with_input_shape(ms.network, {"picture": (1, 8, 8, 1)})
    for shape in ((0, 8, 8, 1), ("a", 8), None, 3.5):
        with pytest.raises(InputError, match="cannot have the shape"):
            edit.with_input_shape(ms.network, shape)


# ---- inference of shapes -------------------------------------------------------------------------------------------


def test_shapes_of_every_arm_nn_layer_are_found(golden):
    """Each layer of every file of 22.11, run on zeros without being told its shapes, gives what the file declares."""
    found = golden("armnn-22.11.zip")
    count = 0
    for name in found.names:
        network = mi.open(found.model(name)).network
        for layer in network.layers.values():
            if layer.op in ("Input", "Output", "Constant", "Fill"):  # the sizes of Fill are data
                continue
            bare = {i: replace(network.tensors[i], shape=None) for i in layer.outputs}
            declared = infer.sizes(network, layer)
            if layer.op not in ("FullyConnected", "DetectionPostProcess"):
                declared = infer.sizes(replace(network, tensors={**network.tensors, **bare}), layer)
            try:
                values = infer.run_alone(network, layer, {}, declared)
            except UnsupportedError:
                continue
            for i in layer.outputs:
                tensor = network.tensors[i]
                assert infer.as_given(tensor, values[i], "armnn") is tensor, f"{name}: {layer.op}"
                count += 1
    assert count > 1200


def test_an_edit_of_a_layer_runs_that_layer_alone(ms, monkeypatch):
    ran = []
    execute = infer.execute

    def watched(program, *rest, **more):
        ran.append(len(program.steps))
        return execute(program, *rest, **more)

    monkeypatch.setattr(infer, "execute", watched)
    edit.with_attrs(ms.network, 0, activation_type="RELU6")
    assert ran[0] == 1
    assert len(ran) <= 2


def test_fewer_bits_than_the_stored_numbers_need(int8):
    name = "res.weight"
    with pytest.raises(
        InputError, match=r"stores numbers from -1\d\d to 1\d\d, and 4 bits hold -8 to 7: .*quantize=True"
    ):
        edit.with_quant(int8.network, name, bits=4)
    real, q = int8.dequantized[name], int8.network.tensors[edit.find_tensor(int8.network, name).index].quantization
    coarse = edit.with_quant(int8.network, name, scale=q.scale * 127 / 7)
    narrow = edit.with_quant(edit.with_constant(coarse, name, real, quantize=True), name, bits=4)
    again = mi.Model(edit.with_constant(narrow, name, real * 2, quantize=True))  # to the ends of the grid
    assert (again.weights[name].min(), again.weights[name].max()) == (-8, 7)
    table = again.quant.query("name == @name")
    assert (table.bits.unique(), table.qmin.unique(), table.qmax.unique()) == ([4], [-8], [7])
