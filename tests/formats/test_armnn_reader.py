"""Arm NN files: the real SSD model, vendor-made ones against their manifests, and the traps of the format."""

import numpy as np
import pytest

from mlinspect import formats
from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import encode
from mlinspect.formats import armnn
from mlinspect.formats.armnn_tensors import DTYPES
from mlinspect.formats.records import layout_schema

ZIPS = ["armnn-22.11.zip", "armnn-20.08.zip", "armnn-legacy.zip", "armnn-nets.zip"]
SUPERSET = layout_schema("armnn", "armnn_superset")


def as_buffer(data):
    return np.frombuffer(data, np.uint8)


def read(data, **how):
    return formats.read(as_buffer(data), **how)


# ---- files of others -------------------------------------------------------------------------------------------------


def test_ssd(models):
    data = (models / "ssd_mobilenet_v3_small_coco_2019_08_14.armnn").read_bytes()
    network = read(data)
    ops = [layer.op for layer in network.layers.values()]
    assert {op: ops.count(op) for op in set(ops)} == {
        "Convolution2d": 55, "BatchNormalization": 52, "Constant": 78, "Reshape": 85, "Addition": 57, "Activation": 59,
        "Multiplication": 54, "DepthwiseConvolution2d": 21, "Pooling2d": 9, "Concat": 1, "Input": 1, "Output": 1,
    }  # fmt: skip
    assert len(ops) == 473
    assert network.layout == "armnn_superset"
    constants = [t for t in network.tensors.values() if t.data is not None]
    assert (len(constants), sum(t.nbytes for t in constants)) == (362, 3663720)
    assert {t.dtype for t in network.tensors.values()} == {"float32"}
    assert not any(t.quantized for t in network.tensors.values())
    for tensor in constants:
        assert data[tensor.file_offset : tensor.file_offset + tensor.nbytes] == tensor.array.tobytes()
    graph = network.graphs[0]
    # inputIds and outputIds hold layer indices: there are no featureVersions
    ports = [(port.name, port.binding_id) for port in graph.inputs + graph.outputs]
    assert ports == [("normalized_input_image_tensor", 0), ("raw_outputs/box_encodings", 0)]
    assert [network.layers[i].op for i in (0, 472)] == ["Input", "Output"]
    assert any("not their position" in note for note in network.notes)
    # layers come in an order in which they can run, though the file's is another
    made = set()
    for layer in graph.layers:
        runs_on = [t for t in layer.inputs if network.tensors[t].data is None]
        assert made.issuperset(runs_on)
        made.update(layer.outputs)
    depthwise = [layer for layer in graph.layers if layer.op == "DepthwiseConvolution2d"]
    assert {network.tensors[layer.inputs[1]].layout for layer in depthwise} == {"MIHW"}
    assert {network.tensors[layer.inputs[1]].shape[0] for layer in depthwise} >= {1}
    assert {network.tensors[layer.inputs[1]].layout for layer in graph.layers if layer.op == "Convolution2d"} == {
        "OHWI"
    }


@pytest.mark.parametrize(("name", "stand_ins"), [("face_landmark.armnn", 23), ("hand_recrop_standin.armnn", 13)])
def test_stand_ins_are_told(name, stand_ins, models):
    network = read((models / name).read_bytes())
    assert sum(layer.op == "StandIn" for layer in network.layers.values()) == stand_ins
    assert any(note.startswith(f"{stand_ins} StandIn") for note in network.notes)
    for layer in network.layers.values():
        if layer.op == "StandIn":
            assert layer.kind == "stand_in"
            assert (len(layer.inputs), len(layer.outputs)) == (layer.attrs["numInputs"], layer.attrs["numOutputs"])


@pytest.mark.parametrize("name", ZIPS)
def test_vendor_made_files(name, golden):
    """Every file opens; its inputs and outputs have the manifest's order, names, types, shapes and quantisation."""
    zipped = golden(name)
    wanted = {case["file"]: case for case in zipped.manifest["cases"]}
    checked = 0
    rounded = 5e-7 if name == "armnn-legacy.zip" else 0  # the tool that rewrote those keeps 6 decimals
    for file in zipped.names:
        network = read(zipped.model(file))
        assert network.layout == "armnn_superset"
        assert not any("fit" in note or "has no data" in note or "numbers" in note for note in network.notes), file
        for tensor in network.tensors.values():
            if tensor.data is not None:
                assert tensor.array.shape == tensor.shape, (file, tensor.name)
                assert tensor.array.dtype == ("uint16" if tensor.dtype == "bfloat16" else tensor.dtype)
        case = wanted.get(file)
        if case is None:
            assert file.startswith("parse_only/")
            continue
        checked += 1
        if "feature_versions" in case:
            assert network.meta.get("featureVersions") == case["feature_versions"]
        for ports, ends in ((network.graphs[0].inputs, case["inputs"]), (network.graphs[0].outputs, case["outputs"])):
            for port, end in zip(ports, ends, strict=True):
                tensor = network.tensors[port.tensor]
                assert (port.name, port.binding_id) == (end["name"], end["binding_id"]), file
                assert (tensor.dtype, list(tensor.shape)) == (DTYPES[end["dtype"]][0], end["shape"]), file
                if tensor.quantized and "scale" in end:
                    assert tensor.quantization.scale.tolist() == pytest.approx([end["scale"]], rel=1e-6, abs=rounded)
                    assert tensor.quantization.zero_point.tolist() == [end["offset"]]
    assert checked == len(wanted.keys() & set(zipped.names)) > 0


@pytest.mark.parametrize("name", ["armnn-22.11.zip", "armnn-20.08.zip"])
def test_outputs_have_the_runtimes_type_and_shape(name, golden):
    zipped = golden(name)
    for case in zipped.manifest["cases"][::7]:
        network = read(zipped.model(case["file"]))
        arrays = zipped.arrays(case["npz"])
        for end, ports in (("in", network.graphs[0].inputs), ("out", network.graphs[0].outputs)):
            for port in ports:
                array, tensor = arrays.get(f"{end}_{port.binding_id}"), network.tensors[port.tensor]
                if array is not None:
                    assert (array.dtype.name, array.shape) == (tensor.dtype, tensor.shape), case["file"]


def test_weights_lie_where_each_layer_says(golden):
    """21.08 and later name one scheme in their flags, whichever layers follow it."""
    zipped = golden("armnn-22.11.zip")
    for start, members in (
        ("conv2d", ()),
        ("fullyconnected", ()),
        ("transposeconv", ("weights",)),
        ("batchnorm", None),
    ):
        files = [file for file in zipped.names if file.startswith(start)]
        for file in files[:5]:
            for layer in read(zipped.model(file)).layers.values():
                if layer.op.lower().startswith(start.replace("conv2d", "convolution2d")):
                    held = layer.members
                    assert members is None or held[: len(members)] == members
    zipped = golden("armnn-20.08.zip")
    found = 0
    for file in zipped.names:
        for layer in read(zipped.model(file)).layers.values():
            if layer.op in ("Convolution2d", "DepthwiseConvolution2d", "FullyConnected"):
                assert layer.members in (("weights",), ("weights", "bias"))
                found += 1
    assert found > 100


# ---- hand-made files -------------------------------------------------------------------------------------------------

FLOAT = {"dimensions": [1, 4], "dataType": "Float32", "quantizationScale": 0.0}


def const(values, kind="IntData", info=None):
    values = np.asarray(values)
    info = info or FLOAT | {"dimensions": list(values.shape)}
    return {"info": info, "data_type": kind, "data": {"data": values.ravel()}}


def layer(op, index, sources=(), info=FLOAT, binding=None, outputs=1, **fields):
    """A layer record in its union; ``sources`` are (layer index, output slot)."""
    base = {
        "index": index,
        "layerName": op.lower(),
        "layerType": op,
        "inputSlots": [
            {"index": i, "connection": {"sourceLayerIndex": source, "outputSlotIndex": slot}}
            for i, (source, slot) in enumerate(sources)
        ],
        "outputSlots": [{"index": i, "tensorInfo": info} for i in range(outputs)],
    }
    if binding is not None:
        base = {"base": base, "layerBindingId": binding}
    return {"layer_type": f"{op}Layer", "layer": {"base": base, **fields}}


def hand_made(*middle, schema=SUPERSET, info=FLOAT, **root):
    layers = [
        layer("Input", 0, info=info, binding=5),
        *middle,
        layer("Output", 99, [(middle[-1]["layer"]["base"]["index"], 0)] if middle else [(0, 0)], binding=6, outputs=0),
    ]
    return encode(schema, {"layers": layers, "inputIds": [0], "outputIds": [99], **root}, identifier=False)


def named(network, name):
    return next(layer for layer in network.layers.values() if layer.name == name)


def test_an_input_and_an_output():
    network = read(hand_made())
    assert [(t.role, t.name) for t in network.tensors.values()] == [("input", "input")]
    assert [(p.name, p.binding_id) for p in network.graphs[0].inputs + network.graphs[0].outputs] == [
        ("input", 5),
        ("output", 6),
    ]
    assert network.layers[0].attrs == {"layerBindingId": 5}


def test_layers_that_come_too_early_and_have_any_index():
    network = read(hand_made(layer("Floor", 70, [(30, 0)]), layer("Floor", 30, [(0, 0)]), layer("Rsqrt", 8, [(70, 0)])))
    assert [layer.index for layer in network.graphs[0].layers] == [0, 30, 70, 8, 99]
    assert network.tensors[network.graphs[0].outputs[0].tensor].name == "rsqrt"
    assert network.tensors[network.graphs[0].outputs[0].tensor].role == "output"


def test_indices_that_repeat():
    network = read(hand_made(layer("Floor", 0, [(0, 0)])))
    assert sorted(network.layers) == [0, 1, 2]
    assert any("indices repeat" in note for note in network.notes)


def test_slots_in_any_order():
    adding = layer("Addition", 2, [(1, 0), (0, 0)])
    adding["layer"]["base"]["inputSlots"][0]["index"] = 1
    adding["layer"]["base"]["inputSlots"][1]["index"] = 0
    splitter = layer("Splitter", 1, [(0, 0)], outputs=2)
    splitter["layer"]["base"]["outputSlots"].reverse()
    network = read(hand_made(splitter, adding))
    # tensors: input 0, splitter's first-stored slot (its number 1) 1, then its slot 0
    assert named(network, "addition").inputs == (0, 2)
    assert named(network, "splitter").outputs == (1, 2)


@pytest.mark.parametrize(
    ("change", "message", "path"),
    [
        ({"connection": None}, "the connection is missing", "layers[1].layer.base.inputSlots[0].connection"),
        (
            {"connection": {"sourceLayerIndex": 7, "outputSlotIndex": 2}},
            "leads to layer 7, output 2, which is not there",
            "layers[1].layer.base.inputSlots[0].connection",
        ),
    ],
)
def test_connections_that_lead_nowhere(change, message, path):
    floor = layer("Floor", 1, [(0, 0)])
    floor["layer"]["base"]["inputSlots"][0] |= change
    with pytest.raises(ModelFormatError, match=message) as caught:
        read(hand_made(floor))
    assert caught.value.path == path


def test_layers_without_content():
    with pytest.raises(ModelFormatError, match="a layer without content") as caught:
        read(hand_made({}, layer("Floor", 1, [(0, 0)])))
    assert caught.value.path == "layers[1].layer"
    with pytest.raises(ModelFormatError, match="a layer without LayerBase"):
        read(hand_made({"layer_type": "FloorLayer", "layer": {}}, layer("Floor", 1, [(0, 0)])))


def test_a_circle_is_told():
    network = read(hand_made(layer("Floor", 1, [(2, 0)]), layer("Rsqrt", 2, [(1, 0)])))
    assert [layer.index for layer in network.graphs[0].layers] == [0, 1, 2, 99]
    assert any("circle" in note for note in network.notes)


@pytest.mark.parametrize(("scheme", "names"), [(None, ["b", "a"]), (0, ["b", "a"]), (1, ["a", "b"])])
def test_ids_are_indices_or_binding_ids(scheme, names):
    inputs = [layer("Input", 3, binding=8), layer("Input", 8, binding=3)]
    inputs[0]["layer"]["base"]["base"]["layerName"], inputs[1]["layer"]["base"]["base"]["layerName"] = "a", "b"
    adding = layer("Addition", 4, [(3, 0), (8, 0)])
    root = {"layers": [*inputs, adding, layer("Output", 9, [(4, 0)], binding=0, outputs=0)], "inputIds": [8, 3]}
    if scheme is not None:
        root["featureVersions"] = {"bindingIdsScheme": scheme}
    root["outputIds"] = [0 if scheme else 9]
    network = read(encode(SUPERSET, root, identifier=False))
    assert [port.name for port in network.graphs[0].inputs] == names
    assert network.notes == ("layers are numbered by their own index, which is not their position in the file",)


def test_ids_that_do_not_fit():
    network = read(hand_made(inputIds=[7, 8, 9]))
    assert [port.name for port in network.graphs[0].inputs] == ["input"]
    assert any(note.startswith("inputIds does not name the file's 1 Input layers") for note in network.notes)


@pytest.mark.parametrize("scheme", [0, 1])
def test_depthwise_weights(scheme):
    weights = const(np.zeros((1, 2, 3, 3) if scheme == 0 else (1, 3, 3, 2), np.int32))
    conv = layer("DepthwiseConvolution2d", 1, [(0, 0)], weights=weights, biases=const(np.zeros(2, np.int32)))
    network = read(hand_made(conv, featureVersions={"weightsLayoutScheme": scheme}))
    held = named(network, "depthwiseconvolution2d")
    assert held.members == ("weights", "bias")
    assert network.tensors[held.inputs[1]].layout == ("1HWO" if scheme else "MIHW")
    assert [network.tensors[i].name for i in held.inputs[1:]] == [
        "depthwiseconvolution2d/weights",
        "depthwiseconvolution2d/bias",
    ]


def test_weights_behind_input_slots():
    weights = layer(
        "Constant", 1, info=FLOAT | {"dimensions": [8, 3, 3, 4]}, input=const(np.zeros((8, 3, 3, 4), np.int32))
    )
    conv = layer("Convolution2d", 2, [(0, 0), (1, 0)], descriptor={"dataLayout": "NHWC"})
    network = read(hand_made(weights, conv, featureVersions={"constantTensorsAsInputs": 1}))
    held = named(network, "convolution2d")
    assert (held.members, network.tensors[held.inputs[1]].layout) == ((), "OHWI")
    assert network.tensors[held.inputs[1]].role == "constant"


def test_per_axis_scales():
    info = {
        "dimensions": [2, 1, 1, 2], "dataType": "QSymmS8", "quantizationScale": 0.5, "quantizationScales": [0.5, 0.25],
        "quantizationDim": 0,
    }  # fmt: skip
    weights = const(np.zeros((2, 1, 1, 2), np.int8), "ByteData", info)
    conv = layer("Convolution2d", 1, [(0, 0)], descriptor={"dataLayout": "NHWC"}, weights=weights)
    network = read(hand_made(conv))
    tensor = network.tensors[2]
    assert not any("scales" in note for note in network.notes)
    assert (tensor.quantization.scale.tolist(), tensor.quantization.axis) == ([0.5, 0.25], 0)
    assert (tensor.dtype, tensor.quantization.symmetric, tensor.quantization.per_channel) == ("int8", True, True)


def test_scales_that_fit_no_axis_are_told():
    info = {"dimensions": [2, 3], "dataType": "QSymmS8", "quantizationScales": [0.5, 0.25], "quantizationDim": 1}
    network = read(hand_made(layer("Floor", 1, [(0, 0)], info=info)))
    assert network.tensors[1].quantization.axis == 1
    assert network.notes[-1] == "tensor floor: 2 scales fit no axis of shape (2, 3)"


def test_per_axis_scales_of_depthwise_weights_go_by_output_channel():
    info = {
        "dimensions": [1, 2, 1, 1], "dataType": "QSymmS8", "quantizationScales": [0.5, 0.25], "quantizationDim": 0,
    }  # fmt: skip
    conv = layer(
        "DepthwiseConvolution2d", 1, [(0, 0)], weights=const(np.zeros((1, 2, 1, 1), np.int8), "ByteData", info)
    )
    assert read(hand_made(conv)).tensors[2].quantization.axis == 1


@pytest.mark.parametrize(
    ("stored", "dtype", "quantized"),
    [
        ({"dataType": "Float32", "quantizationScale": 0.0}, "float32", False),
        ({"dataType": "Float32", "quantizationScale": 0.5}, "float32", False),
        ({"dataType": "QuantisedAsymm8", "quantizationScale": 0.5, "quantizationOffset": 3}, "uint8", True),
        ({"dataType": "QAsymmU8", "quantizationScale": 0.5, "quantizationOffset": 3}, "uint8", True),
        ({"dataType": "QAsymmS8"}, "int8", True),
        ({"dataType": "QuantisedSymm16", "quantizationScale": 0.5}, "int16", True),
        ({"dataType": "QSymmS16", "quantizationScale": 0.5}, "int16", True),
        ({"dataType": "Signed32", "quantizationScale": 0.0}, "int32", False),
        ({"dataType": "Signed32"}, "int32", False),
        ({"dataType": "Signed32", "quantizationScale": 0.25}, "int32", True),
        ({"dataType": "Boolean"}, "bool", False),
        ({"dataType": "Signed64"}, "int64", False),
        ({}, "float16", False),
        ({"dataType": "Unknown(11)"}, "unknown(11)", False),
    ],
)
def test_types(stored, dtype, quantized):
    tensor = read(hand_made(info={"dimensions": [2], **stored})).tensors[0]
    assert (tensor.dtype, tensor.quantized, tensor.quantization is not None) == (dtype, quantized, quantized)
    if quantized:
        wanted = [stored.get("quantizationScale", 1.0)], [stored.get("quantizationOffset", 0)]
        assert (tensor.quantization.scale.tolist(), tensor.quantization.zero_point.tolist()) == wanted
        assert tensor.quantization.bits == 8 * np.dtype(dtype).itemsize


@pytest.mark.parametrize(
    ("stored", "shape"),
    [
        ({"dimensions": [2, 3]}, (2, 3)),
        ({}, ()),
        ({"dimensions": [2, 0], "dimensionSpecificity": [True, False]}, (2, -1)),
        ({"dimensions": [2, 3], "dimensionSpecificity": [True, True]}, (2, 3)),
        ({"dimensions": [2, 3], "dimensionSpecificity": [False]}, (2, 3)),
        ({"dimensions": [2, 3], "dimensionality": 0}, None),
        ({"dimensions": [1], "dimensionality": 2}, (1,)),
    ],
)
def test_shapes(stored, shape):
    assert read(hand_made(info={"dataType": "Float32", **stored})).tensors[0].shape == shape


@pytest.mark.parametrize(
    ("info", "payload", "kind", "values"),
    [
        ({"dataType": "Float32"}, np.array([1.5, 2], np.float32).view(np.int32), "IntData", [1.5, 2.0]),
        ({"dataType": "Signed32"}, np.array([1, -2], np.int32), "IntData", [1, -2]),
        ({"dataType": "Float16"}, np.array([1.5, 2], np.float16).view(np.int16), "ShortData", [1.5, 2.0]),
        ({"dataType": "QAsymmU8"}, np.array([-1, 2], np.int8), "ByteData", [255, 2]),
        ({"dataType": "Boolean"}, np.array([1, 0], np.int8), "ByteData", [True, False]),
        ({"dataType": "Signed64"}, np.array([1, -2], np.int64), "LongData", [1, -2]),
        ({"dataType": "Signed64"}, np.array([1, -2], np.int64), 0, [1, -2]),  # before 21.05
        ({"dataType": "QAsymmS8"}, np.array([1, -2], np.int8), 0, [1, -2]),  # 20.08
        ({"dataType": "Unknown(11)"}, np.array([1, -2], np.int32), "IntData", [1, -2]),
        ({"dataType": "Unknown(11)"}, np.array([1, -2], np.int8), 0, [1, -2]),
    ],
)
def test_payloads(info, payload, kind, values):
    """The union tag 0 is NONE: the numbers lie there all the same, and their type tells how to read them."""
    holder = {1: "ByteData", 2: "ShortData", 4: "IntData", 8: "LongData"}[payload.itemsize]
    info = {"dimensions": [2], **info}
    data = bytearray(hand_made(layer("Constant", 1, info=info, input=const(payload, kind or holder, info))))
    if kind == 0:
        untag(data)
    tensor = read(bytes(data)).tensors[1]
    assert tensor.array.tolist() == values
    assert tensor.role == "constant"


def untag(data):
    """Set the tag of the one ConstTensor's payload to NONE."""
    buffer = as_buffer(bytes(data))
    record = armnn.find_reading(buffer).root["layers"][1]["layer"]["input"]
    vtable = record.offset - int(buffer[record.offset : record.offset + 4].view("<i4")[0])
    slot = int(buffer[vtable + 6 : vtable + 8].view("<u2")[0])
    assert data[record.offset + slot] == record["data_type"]
    data[record.offset + slot] = 0


def test_bfloat16():
    info = {"dimensions": [2]}
    data = bytearray(
        hand_made(layer("Constant", 1, info=info, input=const(np.array([16256, 0], np.int16), "ShortData", info)))
    )
    untag(data)
    tensor = read(bytes(data)).tensors[1]
    assert (tensor.dtype, tensor.vendor_dtype, tensor.array.tolist()) == ("bfloat16", "BFloat16", [16256, 0])


def test_constants_that_do_not_fill_their_shape():
    wrong = const(np.zeros(3, np.int32), info=FLOAT)
    network = read(hand_made(layer("Constant", 1, input=wrong)))
    assert network.tensors[1].array.shape == (3,)
    assert network.notes[-1] == "constant constant has 3 numbers for shape (1, 4)"
    wrong = const(np.zeros(3, np.int8), "ByteData", FLOAT)
    network = read(hand_made(layer("Constant", 1, input=wrong)))
    assert network.notes[-1] == "constant constant: Float32 numbers are stored as ByteData"
    network = read(hand_made(layer("Constant", 1, input={"info": FLOAT})))
    assert (network.tensors[1].array, network.tensors[1].role) == (None, "constant")
    assert network.notes[-1] == "constant constant has no data"


def test_optional_constants_that_are_not_there():
    """How 22.11 stores an LSTM's missing projection bias: a tensor without dimensions and without numbers."""
    params = {name.name: const(np.zeros(4, np.int32)) for name in SUPERSET.tables["LstmInputParams"].fields}
    params["projectionBias"] = {"info": {"dimensionality": 33}, "data_type": "ByteData", "data": {"data": []}}
    params["projectionWeights"] = {"info": {}}
    lstm = layer("Lstm", 1, [(0, 0)], inputParams=params)
    held = named(read(hand_made(lstm)), "lstm")
    assert held.members == tuple(name for name in params if not name.startswith("projection"))
    assert len(held.inputs) == 1 + len(held.members)


def test_too_many_dimensions():
    with pytest.raises(ModelFormatError, match="a shape of 65 dimensions"):
        read(hand_made(info={"dimensions": [1] * 65, "dataType": "Float32"}))


def test_deprecated_layers_have_the_kind_of_their_successors():
    ops = ["Equal", "Greater", "Abs", "Rsqrt", "ResizeBilinear", "Merger"]
    network = read(hand_made(*(layer(op, 1 + i, [(i, 0)]) for i, op in enumerate(ops))))
    kinds = {layer.op: layer.kind for layer in network.layers.values()}
    assert [kinds[op] for op in ops] == ["equal", "greater", "abs", "rsqrt", "resize", "concat"]


def test_inputs_taken_under_another_shape():
    floor = layer("Floor", 1, [(0, 0)])
    floor["layer"]["base"]["inputSlots"][0] |= {
        "isOverridden": True,
        "overriddenTensorInfo": FLOAT | {"dimensions": [2, 2]},
    }
    network = read(hand_made(floor))
    assert named(network, "floor").meta["overriddenTensorInfo"][0]["dimensions"] == (2, 2)
    assert network.layers[0].meta == {}
    assert network.notes[-1] == "layer floor reads inputs under another type or shape than they have"


def test_a_broken_layer_does_not_make_the_file_older():
    """19.05, which does not know Stack, would make sense of all else."""
    stack = layer("Stack", 2, [(1, 0)], descriptor={"axis": 1, "numInputs": 1, "inputShape": [77, 78, 79]})
    data = bytearray(hand_made(layer("Floor", 1, [(0, 0)]), stack))
    at = data.index(np.array([3, 77, 78, 79], np.uint32).tobytes())
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(ModelFormatError, match="2147483647 x 4 bytes does not fit") as caught:
        read(bytes(data))
    assert caught.value.path == "layers[2].layer.descriptor.inputShape"
