"""What the schema does not know survives a save: operators of the future, and new fields of known ones."""

from dataclasses import replace

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, edit, save
from mlinspect.errors import SchemaError, UnsupportedError
from mlinspect.flatbuffer import Decoder, encode, parse_schema
from mlinspect.formats import write_armnn, write_mslite
from mlinspect.formats.records import plain, schema_folder


def future_schema(model_format, layout, change):
    """A vendor's fork: the newest schema with operators and fields that ours does not have."""
    text = change((schema_folder() / model_format / f"{layout}.fbs").read_text("utf-8"))
    return parse_schema(text, "future")


@pytest.fixture(scope="module")
def armnn_future():
    def change(text):
        text = text.replace("  ScatterNdLayer\n}", "  ScatterNdLayer,\n  WarpLayer\n}")
        text = text.replace("  ScatterNd = 72", "  ScatterNd = 72,\n  Warp = 73")
        text = text.replace("  b: float (id: 2);", "  b: float (id: 2);\n  note: string (id: 3);")
        return text + (
            "table Grid { points: [float]; name: string; }\n"
            "table WarpDescriptor { strength: double; grids: [Grid]; }\n"
            "table WarpLayer { base: LayerBase; descriptor: WarpDescriptor; }\n"
        )

    return future_schema("armnn", "armnn_superset", change)


GRIDS = [
    {"points": np.arange(600, dtype=np.float32), "name": "fine"},
    {"points": np.ones(3, np.float32), "name": "coarse"},
]


@pytest.fixture(scope="module")
def armnn_file(armnn_future):
    """Input -> Activation with a new field -> Warp, of an unknown type -> Output."""
    model = (
        build.armnn()
        .input("x", (1, 4))
        .layer("Activation", "act", activationFunction="ReLu")
        .layer("Activation", "stand", activationFunction="TanH", a=1.0, b=1.0)
        .output("y")
        .model()
    )
    _, root, _ = write_armnn.write(model.network)
    act, warp = root["layers"][1]["layer"], root["layers"][2]
    act["descriptor"]["note"] = "kept"
    warp["layer_type"] = "WarpLayer"
    warp["layer"]["base"]["layerType"] = "Warp"
    warp["layer"]["base"]["layerName"] = "warp"
    warp["layer"]["descriptor"] = {"strength": 0.25, "grids": GRIDS}
    return encode(armnn_future, root, False)


def read_with(schema, data):
    return Decoder(np.frombuffer(data, np.uint8), schema).root()


def test_armnn_keeps_operators_and_fields(armnn_future, armnn_file, same):
    model = mi.open(armnn_file)
    assert "Unknown(74)" in set(model.layers.op)
    data = save.to_bytes(model.network)
    assert data != armnn_file
    assert save.to_bytes(mi.open(data).network) == data
    layers = read_with(armnn_future, data)["layers"]
    assert layers[1]["layer"]["descriptor"]["note"] == "kept"
    assert layers[1]["layer"]["descriptor"]["activationFunction"] == "ReLu"
    warp = layers[2]["layer"]
    assert warp["base"]["layerName"] == "warp"
    assert warp["descriptor"]["strength"] == 0.25
    assert same(GRIDS, warp["descriptor"]["grids"])
    assert plain(read_with(armnn_future, armnn_file)["layers"][2]["layer"]["base"]) == plain(warp["base"])


def test_what_is_not_known_cannot_change(armnn_file):
    network = mi.open(armnn_file).network
    warp = next(layer for layer in network.layers.values() if layer.op == "Unknown(74)")
    renamed = replace(network, graphs=(edit.rename(network, layers={"warp": "bend"}).graphs[0],))
    with pytest.raises(UnsupportedError, match="neither it nor what it is connected to"):
        save.to_bytes(renamed)
    with pytest.raises(mi.InputError, match="a type that the schema does not know"):
        edit.with_attrs(network, warp.index, strength=1.0)
    changed = edit.with_attrs(network, "act", a=2.0)
    with pytest.raises(UnsupportedError, match="fields that the schema does not know"):
        save.to_bytes(changed)
    tensor = network.tensors[warp.outputs[0]]
    other = replace(network, tensors={**network.tensors, tensor.index: replace(tensor, shape=(1, 5))})
    with pytest.raises(UnsupportedError, match="neither it nor what it is connected to"):
        save.to_bytes(other)


def test_old_weights_layout_keeps_them_only_unchanged(armnn_future, armnn_file):
    """Connections to Constant layers would have to be made, so the newest layout is refused."""
    root = dict(read_with(armnn_future, armnn_file))
    root["featureVersions"] = {"bindingIdsScheme": 1}
    old = mi.open(encode(armnn_future, root, False)).network
    with pytest.raises(UnsupportedError, match="release='unchanged'"):
        save.to_bytes(old)
    data = save.to_bytes(old, "unchanged")
    assert read_with(armnn_future, data)["layers"][2]["layer"]["descriptor"]["strength"] == 0.25


@pytest.fixture(scope="module")
def mslite_future():
    def change(text):
        text = text.replace("  FillV2\n}", "  FillV2,\n  Warp\n}")
        text = text.replace(
            "  approximate: bool = false (id: 4);", "  approximate: bool = false (id: 4);\n  n: [long] (id: 5);"
        )
        return text + "table Warp { strength: double; name: string; }\n"

    return future_schema("mslite", "msl2_newest", change)


def test_mslite_keeps_operators_and_fields(mslite_future):
    model = (
        build.mslite()
        .input("x", (1, 4))
        .layer("Activation", "act", activation_type="RELU")
        .layer("Abs", "abs")
        .output("y")
        .model()
    )
    _, root, _ = write_mslite.write(model.network)
    root["nodes"][0]["primitive"]["value"]["n"] = [7, 8]
    root["nodes"][1]["primitive"] = {"value_type": "Warp", "value": {"strength": 0.5, "name": "bent"}}
    network = mi.open(encode(mslite_future, root)).network
    assert [layer.op for layer in network.layers.values()] == ["Activation", "Unknown(222)"]
    # other parts may change freely: a primitive holds no connections
    changed = edit.rename(network, layers={1: "warp"}, tensors={"y": "z"})
    data = save.to_bytes(changed)
    assert save.to_bytes(mi.open(data).network) == data
    found = read_with(mslite_future, data)
    assert found["nodes"][0]["primitive"]["value"]["n"].tolist() == [7, 8]
    assert found["nodes"][1]["primitive"]["value"] == {"strength": 0.5, "name": "bent"}
    assert found["nodes"][1]["name"] == "warp"
    assert [tensor["name"] for tensor in found["allTensors"]] == ["x", "act", "z"]


def test_a_forks_own_schema_writes_all(mslite_future):
    model = build.mslite().input("x", (1, 4)).layer("Abs", "abs").output("y").model()
    _, root, _ = write_mslite.write(model.network)
    root["nodes"][0]["primitive"] = {"value_type": "Warp", "value": {"strength": 0.5, "name": "bent"}}
    network = mi.open(encode(mslite_future, root), schema=mslite_future).network
    changed = edit.with_attrs(network, "abs", strength=0.75)
    data = save.to_bytes(changed, schema=mslite_future)
    found = read_with(mslite_future, data)["nodes"][0]["primitive"]["value"]
    assert found == {"strength": 0.75, "name": "bent"}
    with pytest.raises(SchemaError, match="has no 'strengt'"):
        edit.with_attrs(network, "abs", strengt=0.75)
