"""MindSpore Lite files: real ones against their statistics, vendor-made ones against their manifests, and the traps."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from mlinspect import formats
from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import encode
from mlinspect.formats.records import layout_schema
from mlinspect.formats.typeids import type_names, version_number
from mlinspect.ir import PackedData

STATISTICS = json.loads((Path(__file__).parents[1] / "data" / "mslite-real-files.json").read_text())
# quantParams less the empty ones that converters put everywhere up to 1.5
FILLED_PARAMS = {
    "conv_train_model.ms": 0,
    "mix_lenet_tod.ms": 0,
    "parallel.ms": 0,
    "tinynet.om.ms": 0,
    "detect.ms": 160,
}
ZIPS = ["mslite-ops.zip", "mslite-nets.zip", "mslite-converted.zip"]


def as_buffer(data):
    return np.frombuffer(data, np.uint8)


def read(data, **how):
    return formats.read(as_buffer(data), **how)


# ---- files of others -------------------------------------------------------------------------------------------------


def counted(values):
    values = list(values)
    return {value: values.count(value) for value in set(values)}


@pytest.mark.parametrize("name", STATISTICS)
def test_real_files(name, models):
    """Counts, histograms, types and bytes of constants, as another reader of these files found them."""
    data = (models / name).read_bytes()
    wanted = STATISTICS[name]
    assert hashlib.md5(data).hexdigest() == wanted["md5"]
    network = read(data)
    layers, tensors = network.layers.values(), network.tensors.values()
    assert network.version == wanted["version"]
    assert (len(layers), len(tensors), len(network.graphs)) == (
        wanted["nodes"],
        wanted["tensors"],
        max(wanted["subgraphs"], 1),
    )
    assert (len(network.graphs[0].inputs), len(network.graphs[0].outputs)) == (wanted["in"], wanted["out"])
    assert counted(layer.op for layer in layers) == wanted["ops"]
    types = [type_names(int(number), version_number(network.version)) for number in wanted["dtypes"]]
    assert counted((t.dtype, t.vendor_dtype) for t in tensors) == dict(
        zip(types, wanted["dtypes"].values(), strict=True)
    )
    assert counted(t.layout for t in tensors) == {
        layout.removesuffix("(default)"): count for layout, count in wanted["formats"].items()
    }
    assert counted(layer.meta["quantType"] for layer in layers) == {
        kind.removesuffix("(default)"): count for kind, count in wanted["quantType"].items()
    }
    constants = [t for t in tensors if t.data is not None]
    assert (len(constants), sum(t.nbytes for t in constants)) == (wanted["consts"], wanted["weight_bytes"])
    for tensor in constants:
        assert tensor.array.shape == tensor.shape
        assert tensor.array.nbytes == tensor.nbytes
        assert data[tensor.file_offset : tensor.file_offset + tensor.nbytes] == tensor.array.tobytes()
    params = sum(len(t.quantization.scale) for t in tensors if t.quantization is not None)
    assert params == FILLED_PARAMS.get(name, wanted["quantParams"])
    assert not any("fit" in note for note in network.notes)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("detect.ms", "ms_v0_compat"),
        ("mobilefacenet0924.ms", "ms_v0_r1_0"),
        ("lenet_train.ms", "msl2_r1_2"),
        ("parallel.ms", "msl2_r1_3"),
        ("lenet_tod_infer.ms", "msl2_newest"),
    ],
)
def test_layouts_of_real_files(name, layout, models):
    assert read((models / name).read_bytes()).layout == layout


def test_all_real_files_open(models):
    opened = 0
    for path in sorted(models.glob("*.ms")):
        if path.name == "ml_Hand_deploy.ms":
            with pytest.raises(ModelFormatError, match="Git LFS pointer"):
                read(path.read_bytes())
            continue
        network = read(path.read_bytes())
        assert network.layers
        assert all(t.array is not None for t in network.tensors.values() if t.data is not None)
        opened += 1
    assert opened >= 19


def test_an_opaque_model_inside_says_so(models):
    network = read((models / "tinynet.om.ms").read_bytes())
    (layer,) = network.layers.values()
    assert (layer.op, layer.kind, layer.attrs["type"]) == ("Custom", "custom", "ThirdPartyModel")
    assert any("opaque" in note for note in network.notes)


def test_per_channel_weights(models):
    """5 int8 tensors, 482 parameters, channels along axis 0."""
    network = read((models / "ml_face_isface_quant.ms").read_bytes())
    weights = [t for t in network.tensors.values() if t.quantized]
    assert [t.dtype for t in weights] == ["int8"] * 5
    assert [t.quantization.axis for t in weights] == [0] * 5
    assert [len(t.quantization.scale) for t in weights] == [t.shape[0] for t in weights]
    assert sum(t.shape[0] for t in weights) == 482


@pytest.mark.parametrize("name", ZIPS)
def test_vendor_made_files_open(name, golden):
    zipped = golden(name)
    wanted = {case["case"]: case for case in zipped.manifest["cases"]}
    for file in zipped.names:
        network = read(zipped.model(file))
        case = wanted[file.removesuffix(".ms")]
        assert network.layers
        assert not any("fit" in note for note in network.notes), file
        for tensor in network.tensors.values():
            if tensor.data is not None and not isinstance(tensor.data, PackedData):
                assert tensor.array.shape == tensor.shape, file
        if name != "mslite-ops.zip":
            continue
        assert network.version == case["version"]
        assert network.layers[0].op == case["op"] or len(network.layers) > 1
        for port, wanted_in in zip(network.graphs[0].inputs, case["inputs"], strict=True):
            tensor = network.tensors[port.tensor]
            assert (tensor.dtype, list(tensor.shape)) == (wanted_in["declared_dtype"], wanted_in["declared_dims"])
        for port, wanted_out in zip(network.graphs[0].outputs, case["outputs"], strict=True):
            assert network.tensors[port.tensor].name == wanted_out["name"]


@pytest.mark.parametrize("name", ["mslite-nets.zip", "mslite-converted.zip"])
def test_whole_networks_have_the_runtimes_shapes(name, golden):
    zipped = golden(name)
    for file in zipped.names:
        network = read(zipped.model(file))
        arrays = zipped.arrays(file.replace(".ms", ".npz"))
        for end, ports in (("in", network.graphs[0].inputs), ("out", network.graphs[0].outputs)):
            for i, port in enumerate(ports):
                array, tensor = arrays[f"{end}_{i}"], network.tensors[port.tensor]
                assert (array.dtype.name, array.shape) == (tensor.dtype, tensor.shape), (file, end, i)


# ---- hand-made files -------------------------------------------------------------------------------------------------

NEWEST = layout_schema("mslite", "msl2_newest")


def hand_made(tensor, nodes=None, version="MindSpore Lite 2.0.0", schema=NEWEST, **root):
    """A file with an input, a tensor, and an output; one Abs takes both unless there are other nodes."""
    tensors = [{"dataType": 43, "dims": [1, 2], "name": "x"}, tensor, {"dataType": 43, "dims": [1, 2], "name": "y"}]
    nodes = nodes or [
        {
            "name": "abs",
            "primitive": {"value_type": "Abs", "value": {}},
            "inputIndex": [0, 1],
            "outputIndex": [2],
        }
    ]
    found = {"version": version, "nodes": nodes, "allTensors": tensors, "inputIndex": [0], "outputIndex": [2], **root}
    return encode(schema, found)


def only(network, number=1):
    return network.tensors[number]


def test_roles_and_names():
    network = read(hand_made({"dataType": 43, "dims": [2], "data": np.ones(2, np.float32).view(np.uint8)}))
    assert [t.role for t in network.tensors.values()] == ["input", "constant", "output"]
    assert [t.name for t in network.tensors.values()] == ["x", "abs/input_1", "y"]
    assert [port.name for port in network.graphs[0].inputs + network.graphs[0].outputs] == ["x", "y"]
    assert only(network).array.tolist() == [1.0, 1.0]


def test_no_subgraph_means_the_whole_file():
    network = read(hand_made({"dataType": 43, "dims": [2]}, name="whole"))
    (graph,) = network.graphs
    assert (graph.name, [layer.index for layer in graph.layers]) == ("whole", [0])


def test_several_subgraphs():
    def node(name, given, made):
        return {"name": name, "primitive": {"value_type": "Abs"}, "inputIndex": [given], "outputIndex": [made]}

    nodes = [node("late", 1, 2), node("first", 0, 1), node("inner", 0, 1)]
    nodes.append({"name": "stray", "primitive": {"value_type": "Abs"}, "inputIndex": [2]})
    parts = [
        {"name": "main", "inputIndices": [0], "outputIndices": [2], "nodeIndices": [0, 1], "tensorIndices": [0, 2]},
        {"name": "body", "inputIndices": [0], "outputIndices": [1], "nodeIndices": [2], "tensorIndices": [1]},
    ]
    network = read(hand_made({"dataType": 43, "dims": [2]}, nodes, subGraph=parts))
    main, body = network.graphs
    assert [layer.name for layer in main.layers] == ["first", "late", "stray"]
    assert [layer.name for layer in body.layers] == ["inner"]
    assert [port.tensor for port in body.outputs] == [1]
    assert [t.graph for t in network.tensors.values()] == [0, 1, 0]
    assert any("belong to no subgraph" in note for note in network.notes)


def test_a_circle_is_told():
    nodes = [
        {"name": "a", "primitive": {"value_type": "Abs"}, "inputIndex": [1], "outputIndex": [2]},
        {"name": "b", "primitive": {"value_type": "Abs"}, "inputIndex": [2], "outputIndex": [1]},
    ]
    network = read(hand_made({"dataType": 43, "dims": [2]}, nodes))
    assert [layer.name for layer in network.graphs[0].layers] == ["a", "b"]
    assert any("circle" in note for note in network.notes)


def test_a_node_without_primitive():
    network = read(hand_made({"dataType": 43}, [{"name": "n", "inputIndex": [0], "outputIndex": [2]}]))
    assert (network.layers[0].op, network.layers[0].kind) == ("Unknown(0)", "unknown")


PARAM = {"scale": 0.5, "zeroPoint": 3, "inited": True, "varCorr": 2.0, "meanCorr": 0.25, "narrowRange": False}


@pytest.mark.parametrize(
    ("params", "dtype", "version", "scale", "quantized"),
    [
        ([PARAM], 32, "MindSpore Lite 2.0.0", [0.5], True),
        ([PARAM | {"inited": False}], 32, "MindSpore Lite 2.0.0", [0.5], True),  # the flag lies
        ([PARAM], 43, "MindSpore Lite 2.0.0", [0.5], False),  # parameters of a float tensor
        ([{}], 32, "MindSpore Lite 2.0.0", None, False),  # empty records
        ([{}], 43, "MindSpore Lite 1.2.0", None, False),
        ([{"dstDtype": 34}], 43, "MindSpore Lite 1.2.0", None, False),
        ([{"zeroPoint": 1}], 32, "MindSpore Lite 1.5.0", [0.0], True),  # scale had no default of 1 yet
        ([{"zeroPoint": 1}], 32, "MindSpore Lite 1.6.0", [1.0], True),
    ],
)
def test_quantisation(params, dtype, version, scale, quantized):
    data = np.zeros(8 if dtype == 43 else 2, np.uint8)
    layout = "msl2_r1_2" if "1.2" in version else "msl2_newest"
    tensor = {"dataType": dtype, "dims": [2], "data": data, "quantParams": params}
    found = only(read(hand_made(tensor, version=version, schema=layout_schema("mslite", layout))))
    assert found.quantized is quantized
    if scale is None:
        assert found.quantization is None
        return
    q = found.quantization
    assert (q.scale.tolist(), q.axis, q.bits) == (scale, None, 8)
    if params == [PARAM]:
        assert q.zero_point.tolist() == [3]
        assert {name: q.extra[name].tolist() for name in ("var_corr", "mean_corr", "narrow_range", "inited")} == {
            "var_corr": [2.0], "mean_corr": [0.25], "narrow_range": [False], "inited": [True],
        }  # fmt: skip
        assert q.extra["dst_dtype"].tolist() == [32]


@pytest.mark.parametrize(
    ("dims", "count", "axis", "told"),
    [
        ([2, 3], 2, 0, False),
        ([2, 3], 3, 1, False),
        ([3, 3], 3, 0, False),
        ([2, 3], 5, 0, True),
        ([4, 3, 3], 3, 0, True),
    ],
)
def test_channels_lie_along_an_axis_of_their_number(dims, count, axis, told):
    tensor = {"dataType": 32, "dims": dims, "data": np.zeros(np.prod(dims), np.uint8), "name": "w"}
    network = read(hand_made(tensor | {"quantParams": [{"scale": 0.5 + i} for i in range(count)]}))
    assert only(network).quantization.axis == axis
    assert any("scales fit no axis" in note for note in network.notes) is told


def test_two_names_for_bfloat16():
    """45 by the library, 46 by the public header of the same release."""
    assert type_names(46, (2, 2, 0)) == ("float64", "Double")
    assert type_names(46, (2, 2, 0), 2) == ("bfloat16", "BFloat16")
    assert type_names(46, (2, 0, 0), 2) == ("complex64", "Complex")
    tensor = {"dataType": 46, "dims": [2], "data": np.array([16256, 16384], np.uint16).view(np.uint8)}
    found = only(read(hand_made(tensor, version="MindSpore Lite 2.3.0")))
    assert (found.dtype, found.array.tolist()) == ("bfloat16", [16256, 16384])


def test_constants_that_do_not_fill_their_shape():
    network = read(hand_made({"dataType": 43, "dims": [2, 2], "data": np.arange(12, dtype=np.uint8), "name": "w"}))
    assert only(network).array.shape == (3,)
    assert network.notes == ("constant w has 3 numbers for shape (2, 2)",)
    network = read(hand_made({"dataType": 43, "dims": [2], "data": np.arange(7, dtype=np.uint8), "name": "w"}))
    assert only(network).array.dtype == np.uint8
    assert network.notes == ("constant w: 7 bytes do not make whole float32 numbers",)


@pytest.mark.parametrize(
    "dims", [[-1, 2], [0, 2**31 - 1, 2**31 - 1, 2**31 - 1], [2**31 - 1] * 4, [1] * 64, [], [-(2**31)] * 2]
)
def test_odd_shapes(dims):
    network = read(hand_made({"dataType": 32, "dims": dims, "data": np.ones(1, np.uint8), "name": "w"}))
    assert only(network).shape == tuple(dims)
    assert only(network).array.size == 1


def test_too_many_dimensions():
    with pytest.raises(ModelFormatError, match="a shape of 65 dimensions"):
        read(hand_made({"dataType": 32, "dims": [1] * 65}))


def test_no_constant_without_data():
    for tensor in ({"dims": [3]}, {"dims": [3], "data": []}, {"dims": [-1], "data": []}):
        assert only(read(hand_made({"dataType": 43, **tensor}))).data is None
    assert only(read(hand_made({"dataType": 43, "dims": [0, 4], "data": []}))).array.shape == (0, 4)


def test_indices_out_of_range():
    node = {"name": "a", "primitive": {"value_type": "Abs"}, "inputIndex": [0, 9], "outputIndex": [2]}
    with pytest.raises(ModelFormatError, match="there is no position 9 in a list of 3") as caught:
        read(hand_made({"dataType": 43}, [node]))
    assert caught.value.path == "nodes[0].inputIndex"
    part = {"inputIndices": [0], "outputIndices": [2], "nodeIndices": [1], "tensorIndices": [0]}
    with pytest.raises(ModelFormatError, match="there is no position 1 in a list of 1") as caught:
        read(hand_made({"dataType": 43}, subGraph=[part]))
    assert caught.value.path == "subGraph[0].nodeIndices"


def test_more_tensors_than_a_node_can_have():
    node = {"primitive": {"value_type": "Abs"}, "inputIndex": np.zeros((1 << 16) + 1, np.uint32), "outputIndex": [2]}
    with pytest.raises(ModelFormatError, match="65537 tensors at one node"):
        read(hand_made({"dataType": 43}, [node]))
    node["inputIndex"] = node["inputIndex"][1:]
    assert len(read(hand_made({"dataType": 43}, [node])).layers[0].inputs) == 1 << 16


def test_depthwise_is_a_kind_of_its_own():
    def kind(group, weights, data):
        node = {
            "primitive": {"value_type": "Conv2DFusion", "value": {"group": group}},
            "inputIndex": [0, 1],
            "outputIndex": [2],
        }
        tensors = [{"dataType": 43, "dims": data}, {"dataType": 43, "dims": weights}, {"dataType": 43}]
        root = {"nodes": [node], "allTensors": tensors, "inputIndex": [0], "outputIndex": [2]}
        return read(encode(NEWEST, root)).layers[0].kind

    assert kind(8, [8, 3, 3, 1], [1, 9, 9, 8]) == "depthwise_conv2d"
    assert kind(8, [16, 3, 3, 1], [1, 9, 9, 8]) == "depthwise_conv2d"
    assert kind(4, [8, 3, 3, 2], [1, 9, 9, 8]) == "conv2d"
    assert kind(1, [8, 3, 3, 1], [1, 9, 9, 1]) == "conv2d"


@pytest.mark.parametrize(
    ("attrs", "kind"),
    [
        ({"src_t": 43, "dst_t": 32}, "quantize"),
        ({"src_t": 32, "dst_t": 43}, "dequantize"),
        ({"src_t": 37, "dst_t": 32}, "requantize"),
    ],
)
def test_kinds_of_casts(attrs, kind):
    node = {"primitive": {"value_type": "QuantDTypeCast", "value": attrs}, "inputIndex": [0], "outputIndex": [2]}
    assert read(hand_made({"dataType": 43}, [node])).layers[0].kind == kind


# ---- external data ---------------------------------------------------------------------------------------------------


def external(location, offset=0, length=-1, dims=(4,)):
    tensor = {
        "dataType": 43, "dims": list(dims), "name": "w",
        "externalData": [{"location": location, "offset": offset, "length": length}],
    }  # fmt: skip
    return hand_made(tensor)


def test_external_data_beside_the_model(tmp_path):
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "w.bin").write_bytes(values.tobytes())
    for location in ("w.bin", "./w.bin", "inner/w.bin", "inner/../w.bin"):
        tensor = only(read(external(location, 4, 16), folder=tmp_path))
        assert (tensor.compression, tensor.role, tensor.nbytes, tensor.file_offset) == (
            "external",
            "constant",
            16,
            None,
        )
        assert tensor.array.tolist() == [1.0, 2.0, 3.0, 4.0]
        assert not tensor.array.flags.writeable
    assert only(read(external("w.bin", 8), folder=tmp_path)).array.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert only(read(external("w.bin", 0, 0, (0,)), folder=tmp_path)).array.shape == (0,)


def test_external_data_elsewhere_is_refused(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "round.bin").symlink_to(folder / "round.bin")
    places = ["../secret.bin", str(tmp_path / "secret.bin"), "link.bin", "round.bin", ".", "", "gone.bin", "a\0b"]
    for location in [*places, "x" * 5000]:
        tensor = only(read(external(location), folder=folder))
        with pytest.raises(ModelFormatError, match="which is not beside the model"):
            _ = tensor.array
    tensor = only(read(external("secret.bin")))
    with pytest.raises(ModelFormatError, match="open the model by its path"):
        _ = tensor.array


@pytest.mark.parametrize(("offset", "length"), [(0, 17), (16, 1), (-1, 4), (2**62, 4), (17, -1), (4, 2**62)])
def test_external_data_out_of_range(offset, length, tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    tensor = only(read(external("w.bin", offset, length), folder=tmp_path))
    with pytest.raises(ModelFormatError, match=r"'w\.bin' has 16 bytes"):
        _ = tensor.array


def test_inline_data_wins_over_external(tmp_path):
    tensor = {"dataType": 32, "dims": [2], "data": [1, 2], "externalData": [{"location": "gone.bin"}]}
    found = only(read(hand_made(tensor), folder=tmp_path))
    assert (found.compression, found.array.tolist()) == ("none", [1, 2])


def test_a_broken_node_does_not_make_the_file_older():
    """1.1.1, which does not know Custom, would make sense of all else."""
    custom = {"type": "mine", "attr": [{"name": "a", "data": [77, 78, 79]}]}
    node = {"primitive": {"value_type": "Custom", "value": custom}, "inputIndex": [0], "outputIndex": [2]}
    data = bytearray(hand_made({"dataType": 43}, [node]))
    at = data.index(b"\3\0\0\0MNO")
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(ModelFormatError, match="2147483647 x 1 bytes does not fit") as caught:
        read(bytes(data))
    assert caught.value.path == "nodes[0].primitive.value.attr[0].data"
