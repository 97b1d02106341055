"""Every file of the vendor-made vectors and of the real models: opened, saved, opened again."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import build, ir, save, upgrade
from mlinspect.errors import ModelFormatError, UnsupportedError
from mlinspect.formats import records

ARCHIVES = (
    "armnn-22.11.zip",
    "armnn-20.08.zip",
    "armnn-legacy.zip",
    "armnn-nets.zip",
    "mslite-ops.zip",
    "mslite-converted.zip",
    "mslite-nets.zip",
)
MOVED = ("file_offset", "meta")  # fields that may change by saving; meta is compared where tables show it


def flat(value):
    """Data classes, arrays and packed constants as plain values that compare by content."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, ir.PackedData):
        return flat(value.raw)
    if isinstance(value, Mapping):
        return tuple(sorted((key, flat(item)) for key, item in value.items()))
    if isinstance(value, tuple | list):
        return tuple(map(flat, value))
    if is_dataclass(value):
        return tuple(flat(getattr(value, item.name)) for item in fields(value) if item.name not in MOVED)
    return value


def by_id(network):
    """All that tables show, keyed by ids."""
    graphs = [(g.name, g.inputs, g.outputs, sorted(layer.index for layer in g.layers)) for g in network.graphs]
    return flat((network.version, sorted(network.layers.items()), sorted(network.tensors.items()), graphs))


def by_name(network):
    """The same, keyed by names: ids of tensors follow the order of the file, which an upgrade may change."""
    names = {i: tensor.name for i, tensor in network.tensors.items()}
    layers = sorted(
        str(flat(replace(layer, inputs=[names[i] for i in layer.inputs], outputs=[names[i] for i in layer.outputs])))
        for layer in network.layers.values()
    )
    tensors = sorted(str(flat(replace(tensor, index=0))) for tensor in network.tensors.values())
    main = network.graphs[0]
    ports = [(port.name, names[port.tensor], port.binding_id) for port in (*main.inputs, *main.outputs)]
    return layers, tensors, ports


def reopened(network, release="newest"):
    """What is read from the file that is saved; saving that again gives the same bytes."""
    data = save.to_bytes(network, release)
    again = mi.open(data).network
    assert save.to_bytes(again, release) == data
    return again


@pytest.mark.parametrize("archive", ARCHIVES)
def test_open_save_open(golden, archive):
    found = golden(archive)
    assert found.names
    for name in found.names:
        network = mi.open(found.model(name)).network
        newest = upgrade.newest(network)
        again = reopened(network)
        same_ids = newest is network or network.format == "mslite"
        assert (by_id if same_ids else by_name)(newest) == (by_id if same_ids else by_name)(again), name
        assert again.layout == newest.layout


@pytest.mark.parametrize("archive", ARCHIVES)
def test_open_save_open_in_the_files_own_layout(golden, archive):
    found = golden(archive)
    for name in found.names[::5]:
        network = mi.open(found.model(name)).network
        assert by_id(network) == by_id(reopened(network, "unchanged")), name


def test_real_models(models):
    count = 0
    for path in sorted([*models.glob("*.ms"), *models.glob("*.armnn")]):
        try:
            network = mi.open(path).network
        except ModelFormatError as error:
            assert "Git LFS" in str(error)
            continue
        count += 1
        newest, again = upgrade.newest(network), reopened(network)
        assert by_name(newest) == by_name(again), path.name
        assert again.layout in ("armnn_superset", "msl2_newest")
        assert by_name(network) == by_name(reopened(network, "unchanged")), path.name
    assert count > 20


def same_outputs(one, other):
    """Whether two runs gave the same bits, by position."""
    pairs = zip(one.values(), other.values(), strict=True)
    return len(one) == len(other) and all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.parametrize("archive", ["armnn-20.08.zip", "armnn-legacy.zip", "armnn-nets.zip"])
def test_upgraded_networks_compute_the_same(golden, archive):
    found = golden(archive)
    compared = 0
    for case in found.manifest["cases"]:
        if "npz" not in case:
            continue
        model = mi.open(found.model(case["file"]))
        arrays = found.arrays(case["npz"])
        inputs = [arrays[f"in_{port.binding_id}"] for port in model.network.graphs[0].inputs]
        again = mi.open(save.to_bytes(model.network))
        assert same_outputs(model.run(inputs), again.run(inputs)), case["name"]
        compared += 1
    assert compared >= len(found.manifest["cases"]) - 5


def zeros_and_ramps(model):
    """Inputs of any model: numbers that differ and stay small."""
    found = []
    for port in model.network.graphs[0].inputs:
        tensor = model.network.tensors[port.tensor]
        dtype = "float32" if tensor.dtype == "float16" else tensor.dtype
        size = int(np.prod(tensor.shape))
        ramp = np.arange(size) % 17 / 16 if "float" in dtype else np.arange(size) % 3
        found.append(ramp.astype(dtype).reshape(tensor.shape))
    return found


@pytest.mark.parametrize("name", ["mobilefacenet0924.ms", "detect.ms", "parallel.ms"])
def test_upgraded_real_models_compute_the_same(models, name):
    model = mi.open(models / name)
    again = mi.open(save.to_bytes(model.network))
    assert model.layout != again.layout == "msl2_newest"
    inputs = zeros_and_ramps(model)
    assert same_outputs(model.run(inputs), again.run(inputs))


@pytest.mark.parametrize("name", mi.samples.names())
def test_tables_of_the_samples(name):
    model = mi.open(mi.samples.path(name))
    again = mi.Model(reopened(model.network, "unchanged"))
    for table in ("layers", "tensors", "quant", "edges", "attrs", "inputs", "outputs"):
        one, other = (getattr(m, table).drop(columns="file_offset", errors="ignore") for m in (model, again))
        pd.testing.assert_frame_equal(one, other)
    for tensor in model.weights:
        np.testing.assert_array_equal(model.weights[tensor], again.weights[tensor])
        np.testing.assert_array_equal(model.dequantized[tensor], again.dequantized[tensor])


def test_what_2008_cannot_load_is_refused(golden):
    found = golden("armnn-22.11.zip")
    refused = {}
    for name in found.names[::3]:
        network = mi.open(found.model(name)).network
        try:
            data = save.to_bytes(network, "20.08")
        except UnsupportedError as error:
            refused[name] = str(error)
            continue
        old = mi.open(data).network
        assert old.meta["featureVersions"] == {
            "bindingIdsScheme": 1,
            "weightsLayoutScheme": 0,
            "constantTensorsAsInputs": 0,
        }
        schema = records.layout_schema("armnn", "armnn_superset")
        tags = {layer: tag for tag, layer in schema.enums["Layer"].members.items()}
        assert all(tags[f"{layer.op}Layer"] <= 59 for layer in old.layers.values())
        # and back again: the newest form of what was written is what was read
        assert by_name(upgrade.newest(old))[2] == by_name(network)[2]
        assert sorted(layer.op for layer in upgrade.newest(old).layers.values() if layer.op != "Constant") == sorted(
            layer.op for layer in network.layers.values() if layer.op != "Constant"
        )
    assert 40 < len(refused) < 140
    assert all("Arm NN 20.08" in reason for reason in refused.values())


def test_depthwise_weights_go_there_and_back():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(1, 3, 2, 6)).astype(np.float32)  # 2 channels, multiplier 3
    model = (
        build.armnn()
        .input("x", (1, 5, 5, 2))
        .layer("DepthwiseConvolution2d", "dw", weights=weights, strideX=1, strideY=1, dataLayout="NHWC")
        .output("y")
        .model()
    )
    old = mi.open(save.to_bytes(model.network, "20.08"))
    (stored,) = (old.weights[i] for i in old.weights)
    assert stored.shape == (3, 2, 3, 2)
    # out[0, h, w, i * M + m] = in[m, i, h, w]
    for m, i, h, w in np.ndindex(stored.shape):
        assert stored[m, i, h, w] == weights[0, h, w, i * 3 + m]
    x = rng.normal(size=(1, 5, 5, 2)).astype(np.float32)
    np.testing.assert_array_equal(old.run(x)["y"], model.run(x)["y"])
    assert save.to_bytes(upgrade.newest(old.network)) == save.to_bytes(mi.open(save.to_bytes(old.network)).network)
