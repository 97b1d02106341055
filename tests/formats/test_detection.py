"""Files of every layout that there has been, made by the encoder, are told apart and read back as they were written."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from mlinspect import formats
from mlinspect.errors import ModelFormatError, SchemaError
from mlinspect.flatbuffer import encode, load_schema, parse_schema
from mlinspect.flatbuffer.schema import SCALARS
from mlinspect.formats import armnn, mslite
from mlinspect.formats.records import layout_schema

ROOT = Path(__file__).parents[2]
FOUNDING = ROOT.parent / "shared" / "founding"


def as_buffer(data):
    return np.frombuffer(data, np.uint8)


# ---- Arm NN ----------------------------------------------------------------------------------------------------------


def const_tensor(filler):
    info = filler.table("TensorInfo", dimensions=np.array([2, 3], np.uint32), dataType="Float32")
    for name in ("dimensionSpecificity", "dimensionality", "quantizationScales"):
        info.pop(name, None)
    payload = {"data": filler.rng.integers(0, 1000, 6).astype(np.int32)}
    return {"info": info, "data_type": 3, "data": payload}


def armnn_layer(filler, member, index, source=0):
    """A layer of one type, all its fields set."""
    kind = member.removesuffix("Layer")
    base = filler.table(
        "LayerBase",
        index=index,
        layerName=f"{kind} {index}",
        layerType=kind,
        inputSlots=[{"index": 0, "connection": {"sourceLayerIndex": source, "outputSlotIndex": 0}}],
        outputSlots=[{"index": 0, "tensorInfo": const_tensor(filler)["info"]}],
    )
    given = {"base": base}
    if kind in ("Input", "Output"):
        base["inputSlots" if kind == "Input" else "outputSlots"] = []
        given["base"] = {"base": base, "layerBindingId": index + 100}
    for item in filler.schema.tables[member].fields:
        if item.type == "ConstTensor":
            given[item.name] = const_tensor(filler)
        elif item.name == "inputParams":
            names = [field.name for field in filler.schema.tables[item.type].fields]
            given[item.name] = {name: const_tensor(filler) for name in names}
    return filler.table(member, **given)


def armnn_root(filler, members=None):
    """A graph with one layer of each type; indices are not positions."""
    union = filler.schema.union("Layer").members
    tags = [tag for tag in union if members is None or union[tag] in members]
    source = 7 + 3 * [union[tag] for tag in tags].index("InputLayer")
    layers = [
        {"layer_type": tag, "layer": armnn_layer(filler, union[tag], 7 + 3 * i, source)} for i, tag in enumerate(tags)
    ]
    return filler.table("SerializedGraph", layers=layers)


@pytest.mark.parametrize("identifier", [False, True], ids=["unmarked", "ARMN"])
@pytest.mark.parametrize("layout", armnn.LAYOUTS)
def test_armnn_layouts(layout, identifier, filler, same):
    schema = layout_schema("armnn", layout)
    wanted = armnn_root(filler(schema))
    buffer = as_buffer(encode(schema, wanted, identifier))
    reading = armnn.find_reading(buffer)
    assert (reading.layout, reading.doubts) == (layout, 0)
    assert same(wanted, reading.root)
    network = formats.read(buffer)
    assert network.layout == layout
    members = schema.union("Layer").members
    assert [layer.op for layer in sorted(network.layers.values(), key=lambda layer: layer.index)] == [
        members[tag].removesuffix("Layer") for tag in sorted(members)
    ]


@pytest.mark.parametrize("layout", armnn.LAYOUTS)
def test_each_armnn_layer_alone(layout, filler):
    """With no other layer than Input and Output beside it, a layer comes out under its own name."""
    schema = layout_schema("armnn", layout)
    for member in schema.union("Layer").members.values():
        wanted = armnn_root(filler(schema), {"InputLayer", "OutputLayer", member})
        network = formats.read(as_buffer(encode(schema, wanted, identifier=False)))
        ops = {layer.op for layer in network.layers.values()}
        assert ops == {"Input", "Output", member.removesuffix("Layer")}
        assert not any("fit" in note for note in network.notes)


CONVOLUTIONS = list(
    itertools.product(
        ["Convolution2d", "DepthwiseConvolution2d"],
        [False, True],
        ["NCHW", "NHWC"],
        [None, (1, 1), (2, 1), (1, 2), (3, 3), (256, 257)],
    )
)


@pytest.mark.parametrize(("kind", "bias", "data_layout", "dilation"), CONVOLUTIONS)
def test_convolutions_before_and_after_dilation(kind, bias, data_layout, dilation):
    """None: from before there was dilation."""
    schema = layout_schema("armnn", "dev_2019_05_10_pre_dilation" if dilation is None else "armnn_superset")
    attrs = {"padLeft": 1, "strideX": 2, "strideY": 3, "biasEnabled": bias, "dataLayout": data_layout}
    if dilation is not None:
        attrs |= {"dilationX": dilation[0], "dilationY": dilation[1]}
    info = {"dimensions": [1, 4, 4, 2], "dataType": "Float32", "quantizationScale": 0.0}
    layers = []
    for i, (op, more) in enumerate([("Input", {}), (kind, {"descriptor": attrs}), ("Output", {})]):
        base = {"index": i, "layerName": op, "layerType": op}
        base["inputSlots"] = [{"connection": {"sourceLayerIndex": i - 1, "outputSlotIndex": 0}}] if i else []
        base["outputSlots"] = [{"tensorInfo": info}] if op != "Output" else []
        layer = {"base": {"base": base} if op in ("Input", "Output") else base, **more}
        layers.append({"layer_type": f"{op}Layer", "layer": layer})
    network = formats.read(as_buffer(encode(schema, {"layers": layers}, identifier=False)))
    (conv,) = (layer for layer in network.layers.values() if layer.op == kind)
    known = {name: value for name, value in conv.attrs.items() if name in attrs}
    assert known == attrs
    if dilation is None:
        assert {conv.attrs.get("dilationX", 1), conv.attrs.get("dilationY", 1)} == {1}


def test_transpose_convolution_with_the_writers_wrong_type(filler):
    schema = layout_schema("armnn", "armnn_superset")
    wanted = armnn_root(filler(schema), {"InputLayer", "TransposeConvolution2dLayer", "OutputLayer"})
    for holder in wanted["layers"]:
        if holder["layer"]["base"].get("layerType") == "TransposeConvolution2d":
            holder["layer"]["base"]["layerType"] = "Convolution2d"
    network = formats.read(as_buffer(encode(schema, wanted, identifier=False)))
    assert {layer.op for layer in network.layers.values()} == {"Input", "Output", "TransposeConvolution2d"}
    assert network.layout == "armnn_superset"
    assert not any("fit" in note for note in network.notes)


FUTURE = """
union Layer { %s, FutureLayer }
table FutureDescriptor { power: int; }
table FutureLayer { base: LayerBase; descriptor: FutureDescriptor; }
enum LayerType : uint { %s, Future }
"""


@pytest.mark.parametrize("among", [1, 5])
def test_layers_of_releases_to_come(among, filler):
    """They appear as Unknown, with name and connections."""
    text = (ROOT / "schemas" / "armnn" / "armnn_superset.fbs").read_text()
    newest = layout_schema("armnn", "armnn_superset")
    members = list(newest.union("Layer").members.values())
    types = [f"{name} = {value}" for name, value in newest.enums["LayerType"].values.items()]
    text = re.sub(r"union Layer \{.*?\}|enum LayerType .*?\}", "", text, flags=re.DOTALL)
    schema = parse_schema(text + FUTURE % (", ".join(members), ", ".join(types)))
    made = filler(schema)
    wanted = armnn_root(made, {"InputLayer", "OutputLayer"})
    wanted["layers"] += [
        {"layer_type": "FutureLayer", "layer": armnn_layer(made, "FutureLayer", 50 + i, 7)} for i in range(among)
    ]
    network = formats.read(as_buffer(encode(schema, wanted, identifier=False)))
    assert network.layout == "armnn_superset"
    layer = network.layers[50]
    assert (layer.op, layer.kind, layer.name) == (f"Unknown({len(members) + 1})", "unknown", "Future 50")
    assert (len(layer.inputs), len(layer.outputs)) == (1, 1)
    assert any("does not know" in note for note in network.notes)


# ---- MindSpore Lite --------------------------------------------------------------------------------------------------

VERSIONS = {
    "msl2_newest": "MindSpore Lite 2.6.0",
    "msl2_r1_3": "MindSpore Lite 1.3.0",
    "msl2_r1_2": "MindSpore Lite 1.2.0",
    "msl2_r1_1_1": "MindSpore Lite 1.1.0",
    "msl1_r1_1": "MindSpore Lite 1.1.0",
    "ms_v0_r1_0": "MindSpore Lite 1.0.0",
    "ms_v0_compat": "MindSpore Lite 5.0.4.300",
}


def mslite_root(filler, version, tags=None):
    """A graph with one node of each primitive."""
    union = filler.schema.union("PrimitiveType").members
    tags = sorted(union) if tags is None else tags
    nodes = []
    for tag in tags:
        primitive = {"value_type": tag, "value": filler.table(union[tag])}
        ends = {"inputIndex": np.array([0], np.uint32), "outputIndex": np.array([1], np.uint32)}
        nodes.append(filler.table("CNode", name=f"{union[tag]} {tag}", primitive=primitive, **ends))
    tensors = [
        filler.table("Tensor", dims=np.array([2, 3], np.int32), dataType=43, data=np.zeros(24 * i, np.uint8))
        for i in range(2)
    ]
    everything = {"nodes": nodes, "allTensors": tensors}
    everything |= {"inputIndex": np.array([0], np.uint32), "outputIndex": np.array([1], np.uint32)}
    if "subGraph" in {item.name for item in filler.schema.tables["MetaGraph"].fields}:
        ends = {"inputIndices": np.array([0], np.uint32), "outputIndices": np.array([1], np.uint32)}
        every = {"nodeIndices": np.arange(len(nodes), dtype=np.uint32), "tensorIndices": np.arange(2, dtype=np.uint32)}
        everything["subGraph"] = [{"name": "main", **ends, **every}]
    if version is not None:
        everything["version"] = version
    root = filler.table("MetaGraph", **everything)
    return root if version else {name: value for name, value in root.items() if name != "version"}


@pytest.mark.parametrize("layout", mslite.LAYOUTS)
def test_mslite_layouts(layout, filler, same):
    schema = layout_schema("mslite", layout)
    wanted = mslite_root(filler(schema), VERSIONS.get(layout, "MindSpore Lite 1.6.0"))
    buffer = as_buffer(encode(schema, wanted))
    reading = mslite.find_reading(buffer)
    # the seed's operators are read by the newest layout, under two new names
    assert reading.layout == layout.replace("msl2_2021_11_seed", "msl2_newest")
    assert reading.doubts == 0
    read_by = reading.decoder.schema.union("PrimitiveType").members
    union = schema.union("PrimitiveType").members
    renamed = {tag: (union[tag], read_by[tag]) for tag in union if union[tag] != read_by[tag]}
    enums = {}
    if layout == "msl2_2021_11_seed":
        enums = {"UNKNOWN": "FAST_GELU"}  # the activation of number 20
        assert renamed == {89: ("MatMul", "MatMulFusion"), 94: ("Merge", "SwitchLayer")}
        for tensor in wanted["allTensors"]:
            tensor["weightQuantCompressType"] = tensor.pop("weightQunatCompressType")
    else:
        assert renamed == {}
    assert same(wanted, reading.root, enums)
    network = formats.read(buffer)
    names = [read_by[tag].replace("MatMul", "MatMulFusion") if "msl2_r1" in layout else read_by[tag] for tag in union]
    names = [name.replace("FusionFusion", "Fusion") for name in names]
    assert [network.layers[i].op for i in range(len(union))] == names
    assert not any("fit" in note for note in network.notes)


@pytest.mark.parametrize("layout", [layout for layout in mslite.LAYOUTS if layout != "msl2_2021_11_seed"])
def test_mslite_layouts_without_version(layout, filler, same):
    schema = layout_schema("mslite", layout)
    wanted = mslite_root(filler(schema), "")
    reading = mslite.find_reading(as_buffer(encode(schema, wanted)))
    assert (reading.layout, reading.doubts) == (layout, 0)
    assert same(wanted, reading.root)


@pytest.mark.parametrize("layout", ["msl2_newest", "msl2_r1_3", "msl2_r1_2", "msl2_r1_1_1"])
@pytest.mark.parametrize("version", ["MindSpore Lite 1.0.0", "MindSpore Lite 1.2.0", "MindSpore Lite 9.9.9", "x", "\0"])
def test_versions_that_lie(layout, version, filler):
    schema = layout_schema("mslite", layout)
    network = formats.read(as_buffer(encode(schema, mslite_root(filler(schema), version))))
    assert network.layout == layout


def test_gen_op_without_version(filler):
    """1.2.1's obfuscated models have it at the number that 1.3 gave to LogSoftmax."""
    schema = layout_schema("mslite", "msl2_r1_2")
    network = formats.read(as_buffer(encode(schema, mslite_root(filler(schema), "", [189]))))
    assert (network.layout, network.layers[0].op) == ("msl2_r1_2", "GenOP")


@pytest.mark.parametrize(("version", "op"), [("1.5.0", "Merge"), ("1.8.1", "SwitchLayer"), ("1.3.0", "Merge")])
def test_merge_became_switch_layer(version, op, filler):
    schema = layout_schema("mslite", "msl2_r1_3" if version == "1.3.0" else "msl2_newest")
    network = formats.read(as_buffer(encode(schema, mslite_root(filler(schema), f"MindSpore Lite {version}", [94]))))
    assert network.layers[0].op == op


def test_primitives_of_releases_to_come(filler):
    text = (ROOT / "schemas" / "mslite" / "msl2_newest.fbs").read_text()
    newest = layout_schema("mslite", "msl2_newest").union("PrimitiveType").members
    text = re.sub(r"union PrimitiveType \{.*?\}", "", text, flags=re.DOTALL)
    schema = parse_schema(f"{text} union PrimitiveType {{ {', '.join(newest.values())}, New }} table New {{ x: int; }}")
    wanted = mslite_root(filler(schema), "MindSpore Lite 3.0.0", [5, len(newest) + 1])
    network = formats.read(as_buffer(encode(schema, wanted)))
    assert network.layout == "msl2_newest"
    assert (network.layers[0].op, network.layers[1].op) == (newest[5], f"Unknown({len(newest) + 1})")
    assert network.layers[1].kind == "unknown"
    assert any("does not know" in note for note in network.notes)


# ---- schemas of one's own --------------------------------------------------------------------------------------------


def test_a_fork_is_read_by_its_own_schema(filler):
    text = (ROOT / "schemas" / "mslite" / "msl2_newest.fbs").read_text()
    fork = parse_schema(text.replace("table Abs {", "table Abs { secret: int (id: 0);"), "fork")
    wanted = mslite_root(filler(fork), "MindSpore Lite 2.0.0", [1])
    wanted["nodes"][0]["primitive"]["value"]["secret"] = 77
    buffer = as_buffer(encode(fork, wanted))
    assert formats.read(buffer, schema=fork).layers[0].attrs == {"secret": 77}
    network = formats.read(buffer)
    assert network.layers[0].op == "Abs"
    assert any("do not fit" in note for note in network.notes)


def test_schemas_of_other_formats_are_refused():
    schema = parse_schema("table T { x: int; } root_type T;", "mine")
    with pytest.raises(SchemaError, match="schema mine: its root T has neither layers nor nodes"):
        formats.read(as_buffer(encode(schema, {"x": 1})), schema=schema)
    schema = parse_schema("table T { layers: [int]; } root_type T;", "mine")
    with pytest.raises(SchemaError, match="schema mine lacks what a model needs"):
        formats.read(as_buffer(encode(schema, {"layers": [1, 2]})), schema=schema)
    schema = parse_schema("table N { x: int; } table T { nodes: [N]; } root_type T;", "mine")
    with pytest.raises(SchemaError, match="schema mine lacks what a model needs"):
        formats.read(as_buffer(encode(schema, {"nodes": [{"x": 1}]})), schema=schema)


@pytest.fixture
def founding(tmp_path):
    """The two documents that the project started from, as files, without the page around them."""
    if not FOUNDING.is_dir():
        pytest.skip("no founding documents beside the checkout")
    texts = [path.read_text("utf-8") for path in sorted(FOUNDING.glob("*.txt"))]
    for name, text in zip(("armnn", "model"), texts, strict=True):
        begin = min(at for mark in ("/**", "//\n") if (at := text.find(mark)) >= 0)
        (tmp_path / f"{name}.fbs").write_text(text[begin:])
    # what the second one includes: the operators of its time
    seed = (ROOT / "schemas" / "mslite" / "msl2_2021_11_seed.fbs").read_text()
    declared = set(re.findall(r"^(?:enum|table) (\w+)", texts[1], re.MULTILINE))
    blocks = re.findall(r"^(?:enum|union|table) \w+[^{]*\{.*?^\}", seed, re.MULTILINE | re.DOTALL)
    ops = [block for block in blocks if block.split()[1] not in declared]
    (tmp_path / "ops.fbs").write_text("\n".join(ops))
    return tmp_path


def test_founding_documents_are_the_shipped_schemas(founding):
    for name, shipped in (("armnn", "armnn/armnn_2019_02_11_seed"), ("model", "mslite/msl2_2021_11_seed")):
        document, ours = load_schema(founding / f"{name}.fbs"), load_schema(ROOT / "schemas" / f"{shipped}.fbs")
        assert (document.root, document.identifier) == (ours.root, ours.identifier)
        assert document.enums == ours.enums
        assert document.tables.keys() == ours.tables.keys()
        for table, wanted in ours.tables.items():
            fields = [
                {item.name: (SCALARS.get(item.type, item.type), item.vector, item.default, item.slot) for item in one}
                for one in (document.tables[table].fields, wanted.fields)
            ]
            assert fields[0] == fields[1]


def test_founding_documents_serve_files(founding, filler, same):
    schema = load_schema(founding / "armnn.fbs")
    wanted = armnn_root(filler(schema))
    buffer = as_buffer(encode(schema, wanted))
    assert same(wanted, armnn.find_reading(buffer, schema).root)
    assert {layer.op for layer in formats.read(buffer, schema=schema).layers.values()} == {
        "Addition",
        "Input",
        "Output",
    }
    assert formats.read(buffer).layout == "armnn_2019_02_11_seed"

    schema = load_schema(founding / "model.fbs")
    wanted = mslite_root(filler(schema), "MindSpore Lite 1.6.0")
    buffer = as_buffer(encode(schema, wanted))
    assert same(wanted, mslite.find_reading(buffer, schema).root)
    union = schema.union("PrimitiveType").members
    assert [layer.op for layer in formats.read(buffer, schema=schema).layers.values()] == [
        union[tag] for tag in sorted(union)
    ]


def test_a_wrong_schema_is_a_format_error(filler):
    schema = layout_schema("mslite", "msl2_newest")
    buffer = as_buffer(encode(schema, mslite_root(filler(schema), "MindSpore Lite 2.0.0")))
    with pytest.raises(ModelFormatError, match="cut off or damaged"):
        formats.read(buffer, schema=layout_schema("mslite", "ms_v0_r0_7"))
