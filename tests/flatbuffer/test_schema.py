"""The schema parser: what is in the shipped schemas, the grammar, and what it refuses."""

import random
from pathlib import Path

import pytest

from mlinspect.errors import SchemaError
from mlinspect.flatbuffer import load_schema, parse_schema

SCHEMAS = Path(__file__).parents[2] / "schemas"
FILES = sorted(SCHEMAS.glob("*/*.fbs"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_schemas_parse(path):
    schema = load_schema(path)
    assert schema.root == ("SerializedGraph" if path.parent.name == "armnn" else "MetaGraph")
    assert schema.name == path.stem
    union = schema.union("Layer" if path.parent.name == "armnn" else "PrimitiveType")
    assert sorted(union.members) == list(range(1, len(union.members) + 1))


@pytest.mark.parametrize(
    ("layout", "count", "tag", "member"),
    [
        ("armnn/armnn_2019_02_11_seed", 3, 3, "OutputLayer"),
        ("armnn/dev_2019_02_18_pre_pooling", 5, 5, "SoftmaxLayer"),
        ("armnn/dev_2019_02_19_pooling", 6, 5, "Pooling2dLayer"),
        ("armnn/dev_2019_02_19_reshape", 7, 7, "SoftmaxLayer"),
        ("armnn/dev_2019_02_19_conv2d", 8, 2, "Convolution2dLayer"),
        ("armnn/dev_2019_02_20_depthwise", 9, 4, "InputLayer"),
        ("armnn/dev_2019_02_20_activation", 10, 10, "SoftmaxLayer"),
        ("armnn/dev_2019_02_20_permute", 11, 8, "PermuteLayer"),
        ("armnn/dev_2019_02_21_fullyconnected", 12, 6, "InputLayer"),
        ("armnn/armnn_19_02", 14, 7, "InputLayer"),
        ("armnn/dev_2019_03_01_pre_batchnorm", 23, 8, "InputLayer"),
        ("armnn/armnn_19_05", 39, 36, "QuantizeLayer"),
        ("armnn/dev_2019_07_29_pre_quantized_lstm", 45, 40, "ConcatLayer"),
        ("armnn/armnn_superset", 73, 41, "ConcatLayer"),
        ("mslite/ms_v0_r0_7", 146, 4, "Conv2D"),
        ("mslite/ms_v0_r1_0", 157, 10, "DepthwiseConv2D"),
        ("mslite/ms_v0_compat", 204, 46, "Nhwc2Nchw"),
        ("mslite/msl1_r1_1", 204, 4, "Conv2D"),
        ("mslite/msl2_r1_1_1", 168, 18, "BatchNorm"),
        ("mslite/msl2_r1_2", 189, 189, "GenOP"),
        ("mslite/msl2_r1_3", 203, 189, "LogSoftmax"),
        ("mslite/msl2_2021_11_seed", 200, 94, "Merge"),
        ("mslite/msl2_newest", 221, 94, "SwitchLayer"),
    ],
)
def test_unions_as_released(layout, count, tag, member):
    schema = load_schema(SCHEMAS / f"{layout}.fbs")
    members = schema.union("Layer" if layout.startswith("armnn") else "PrimitiveType").members
    assert (len(members), members[tag]) == (count, member)


@pytest.mark.parametrize(
    ("layout", "table", "field", "slot", "default"),
    [
        ("armnn/armnn_superset", "TensorInfo", "quantizationScale", 2, 1.0),
        ("armnn/armnn_superset", "TensorInfo", "dimensionality", 6, 1),
        ("armnn/armnn_superset", "Convolution2dDescriptor", "biasEnabled", 8, False),
        ("armnn/dev_2019_05_10_pre_dilation", "Convolution2dDescriptor", "biasEnabled", 6, False),
        ("armnn/armnn_superset", "Convolution2dDescriptor", "dataLayout", 9, 1),
        ("armnn/armnn_superset", "FullyConnectedDescriptor", "constantWeights", 2, True),
        ("armnn/armnn_superset", "SoftmaxDescriptor", "axis", 1, -1),
        ("armnn/dev_2021_02_03_reduce_old", "ReduceDescriptor", "axis", 3, None),
        ("mslite/msl2_newest", "QuantParam", "scale", 0, 1.0),
        ("mslite/msl2_r1_3", "QuantParam", "scale", 0, 0.0),
        ("mslite/msl2_newest", "CNode", "deviceType", 6, -1),
        ("mslite/ms_v0_r0_7", "MetaGraph", "nodes", 5, None),
        ("mslite/ms_v0_r1_0", "MetaGraph", "nodes", 6, None),
    ],
)
def test_slots_and_defaults(layout, table, field, slot, default):
    item = load_schema(SCHEMAS / f"{layout}.fbs").tables[table][field]
    assert (item.slot, item.default, type(item.default)) == (slot, default, type(default))


GRAMMAR = """
// a comment
include "other.fbs";
namespace a.b; attribute "priority";
enum Color : byte { Red = 1, Green, Blue = -0x2, }
enum Flag : ubyte (bit_flags) { A, B, C = 5 }
union Any { Point, text: string, Point2: a.b.Point = 7 }
struct In { a: byte; b: double; }
/* a block
   of comment */
table Point (priority: 1) {
  x: int = -3; y: float = .5e1; /// doc
  color: Color = Green; flag: Flag = 2; any: Any; s: In;
  old: bool = true (deprecated); names: [string]; inf: float = inf; maybe: int = null;
}
rpc_service S { Go(Point): Point; }
root_type a.b.Point;
file_identifier "ABCD"; file_extension "abc";
"""


def test_grammar():
    schema = parse_schema(GRAMMAR, include=lambda name: f"table From_{name.split('.')[0]} {{ i: long; }}")
    assert (schema.root, schema.identifier, schema.extension) == ("Point", "ABCD", "abc")
    assert schema.tables["From_other"]["i"].type == "long"
    assert schema.enums["Color"].values == {"Red": 1, "Green": 2, "Blue": -2}
    assert schema.enums["Color"].names[2] == "Green"
    assert schema.enums["Color"].names[9] == "Unknown(9)"
    assert schema.enums["Flag"].values == {"A": 1, "B": 2, "C": 32}
    assert schema.union("Any").members == {1: "Point", 2: "string", 7: "Point"}
    point = schema.tables["Point"]
    # a union takes two slots, a deprecated field keeps its own
    assert {item.name: item.slot for item in point.fields} == {
        "x": 0, "y": 1, "color": 2, "flag": 3, "any": 5, "s": 6, "old": 7, "names": 8, "inf": 9, "maybe": 10,
    }  # fmt: skip
    defaults = {item.name: item.default for item in point.fields}
    assert defaults == {
        "x": -3, "y": 5.0, "color": 2, "flag": 2, "any": None, "s": None, "old": True, "names": None,
        "inf": float("inf"), "maybe": None,
    }  # fmt: skip
    assert point["old"].deprecated
    assert schema.tables["In"].is_struct


def test_explicit_ids_win_over_order():
    table = parse_schema("table T { b: int (id: 1); a: int (id: 0); } root_type T;").tables["T"]
    assert [(item.name, item.slot) for item in table.fields] == [("b", 1), ("a", 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "root_type '' is not a table"),
        ("table T { x: int; }", "root_type '' is not a table"),
        ("table T { x: int; } root_type U;", "'U' is not a table"),
        ("struct S { x: int; } root_type S;", "'S' is not a table"),
        ("table T { x: int }", r"s:1: expected ';'"),
        ("table T {\n x: nothing; } root_type T;", "T.x has unknown type 'nothing'"),
        ("table T { x: [int:3]; } root_type T;", "fixed-length array 'x'"),
        ("table T { x: int = red; } root_type T;", "default 'red' is not of type int"),
        ("table T { x: byte = 300; } root_type T;", "default '300' is not of type byte"),
        ("table T { x: int (id: one); } root_type T;", "id 'one' is not a number"),
        ("table T { x: int (id: 0); y: int; } root_type T;", "either all fields have an id or none"),
        ("table T { x: int (id: 0); y: int (id: 0); } root_type T;", "id 0 is taken"),
        ("table T { x: int (id: 5000); } root_type T;", "id 5000 is taken or out of range"),
        ("table T { u: U (id: 0); } union U { T } root_type T;", "id 0 is taken or out of range"),
        ("table T { x: int; x: int; } root_type T;", "two fields of one name"),
        ("union U { V } table T { u: U; } root_type T;", "union U has 'V', which is not a table"),
        ("union U { T } table T { u: [U]; } root_type T;", "vector of unions"),
        ("struct S { s: S; } table T { s: S; } root_type T;", "structs declared before it"),
        ("struct S { s: [int]; } table T { s: S; } root_type T;", "a struct holds numbers"),
        ("struct S { } table T { s: S; } root_type T;", "struct S is empty"),
        ("enum E : string { A } table T { e: E; } root_type T;", "cannot be based on 'string'"),
        ("enum E : int { A = x } table T { e: E; } root_type T;", "expected a whole number"),
        ("enum E : int { A B } table T { e: E; } root_type T;", "expected ','"),
        ("union U { T = 300 } table T { u: U; } root_type T;", "U.T cannot be 300"),
        ('file_identifier "ABC"; table T { x: int; } root_type T;', "must have 4 bytes"),
        ('include "x.fbs"; table T { x: int; } root_type T;', "cannot find the included file 'x.fbs'"),
        ("table T { x: int; } root_type T; ?", "cannot read '?'"),
        ("table T { x: int; } root_type T; class", "unknown declaration 'class'"),
    ],
)
def test_refuses(text, message):
    with pytest.raises(SchemaError, match=message.replace("(", r"\(").replace("?", r"\?").replace("[", r"\[")):
        parse_schema(text, "s")


def test_damaged_text_gives_schema_errors_only():
    rng = random.Random(1)
    pieces = ["{", "}", ";", ":", "(", ")", "=", "[", "]", "id", "table", "union", "7", '"', "A", " "]
    refused = 0
    for _ in range(400):
        text = list(GRAMMAR.replace('include "other.fbs";', ""))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 5)] = rng.choice(pieces)
        try:
            parse_schema("".join(text))
        except SchemaError:
            refused += 1
    assert 200 < refused < 400


def test_load_finds_includes_and_keeps_what_it_parsed(tmp_path):
    (tmp_path / "ops.fbs").write_text("table A { x: int; }")
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "model.fbs"
    path.write_text('include "ops.fbs"; table T { a: A; } root_type T;')
    schema = load_schema(path)
    assert schema.tables["A"]["x"].slot == 0
    assert load_schema(path) is schema
    with pytest.raises(SchemaError, match=r"cannot read schema none\.fbs"):
        load_schema(tmp_path / "none.fbs")
    path.write_text('include "gone.fbs"; table T { x: int; } root_type T;')
    with pytest.raises(SchemaError, match=r"cannot find the included file 'gone.fbs'"):
        load_schema(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="cannot read schema"):
        load_schema(path)
