"""Whole Arm NN networks: every intermediate against the reference backend's."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import mlinspect as mi

DATA = Path(__file__).parents[1] / "data"
MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
NETWORKS = ("ds_cnn_f32", "ds_cnn_int8", "mobilenet_v1_f32", "mobilenet_v1_int8")


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference as a share of the tensor's largest magnitude."""
    return float(np.abs(got - want).max() / max(float(np.abs(want).max()), 1e-30))


@pytest.fixture(scope="module")
def archive():
    with zipfile.ZipFile(DATA / "armnn-nets.zip") as file:
        yield file


@pytest.mark.parametrize("name", NETWORKS)
def test_every_intermediate(archive: zipfile.ZipFile, name: str) -> None:
    case = next(c for c in json.loads(archive.read("manifest.json"))["cases"] if c["name"] == name)
    model = mi.open(archive.read(case["file"]))
    data = np.load(io.BytesIO(archive.read(case["npz"])))
    trace = model.trace([data[f"in_{port.binding_id}"] for port in model.network.graphs[0].inputs])
    compared = 0
    for port in model.network.graphs[0].outputs:
        compared += 1
        check(trace[port.tensor], data[f"out_{port.binding_id}"], f"output {port.name}")
    for item in case["intermediates"]:
        layer = model.network.layers.get(item["index"])
        if item["in_file"] and layer is not None and item["key"] in data:
            compared += 1
            check(trace[layer.outputs[item["slot"]]], data[item["key"]], f"layer {layer.name}")
    assert compared > 15


def check(got: np.ndarray, want: np.ndarray, what: str) -> None:
    assert got.dtype == want.dtype, what
    if want.dtype == np.float32:
        assert relative_error(got, want) < 1e-5, what
    else:
        np.testing.assert_array_equal(got, want, what)


@pytest.mark.skipif(not MODELS.is_dir(), reason="the real models are not here")
def test_ssd_mobilenet_v3_intermediates() -> None:
    model = mi.open(MODELS / "ssd_mobilenet_v3_small_coco_2019_08_14.armnn")
    io_arrays = np.load(MODELS / "ssd_mobilenet_v3.x1000_io.npz")
    wanted = np.load(MODELS / "ssd_mobilenet_v3.x1000_intermediates.npz")
    trace = model.trace(io_arrays["in_0"])
    (out,) = trace.outputs.values()
    assert relative_error(out, io_arrays["out_0"]) < 1e-5
    compared = 0
    for key in wanted.files:
        index, slot = map(int, key[1:].split("_"))
        tensor = model.network.layers[index].outputs[slot]
        if tensor in trace:
            compared += 1
            assert relative_error(trace[tensor], wanted[key]) < 1e-5, key
    assert compared > 200


@pytest.mark.skipif(not MODELS.is_dir(), reason="the real models are not here")
def test_face_landmark_runs_with_a_users_prelu(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mi.open(MODELS / "face_landmark.armnn")
    data = np.load(MODELS / "face_landmark.armnn.npz")
    with pytest.raises(mi.UnsupportedError, match=r"StandIn.*register_op"):
        model.run(data["input"])
    from mlinspect.execute import registry

    monkeypatch.setitem(registry.OPS, "armnn", dict(registry.operators("armnn")))

    @mi.register_op("armnn", "StandIn")
    def prelu(call, x, slope):
        return np.where(x < 0, x * slope, x)

    got = model.run(data["input"])
    assert set(got) == {"conv2d_20", "conv2d_30"}
    for name, array in got.items():
        assert relative_error(array, data[f"out:{name}"]) < 1e-5


def test_digit_models_answer_as_the_vendor() -> None:
    digits, expected = mi.samples.digits(), mi.samples.expected()
    images = digits.images[..., None].astype(np.float32) / 16
    for name, dtype, accuracy in (("digits_cnn.armnn", np.float32, 0.9583), ("digits_cnn_u8.armnn", np.uint8, 0.9528)):
        model = mi.open(mi.samples.path(name))
        got = np.concatenate([next(iter(model.run(images[i : i + 1], quantize=True).values())) for i in range(360)])
        assert got.dtype == dtype
        if dtype == np.uint8:
            np.testing.assert_array_equal(got, expected[name])
        else:
            np.testing.assert_allclose(got, expected[name], rtol=0, atol=1e-6)
        assert (got.argmax(1) == digits.labels).mean() == pytest.approx(accuracy, abs=5e-5)


@pytest.mark.parametrize("name", ["ds_cnn_f32", "ds_cnn_int8"])
def test_run_and_trace_give_the_same_bits_also_from_threads(archive: zipfile.ZipFile, name: str) -> None:
    model = mi.open(archive.read(f"{name}.armnn"))
    rng = np.random.default_rng(0)
    tensor = model.network.tensors[model.network.graphs[0].inputs[0].tensor]
    inputs = [rng.uniform(-1, 1, tensor.shape).astype(np.float32) for _ in range(4)]
    alone = [model.trace(x, quantize=True).outputs for x in inputs]
    together: list[dict[str, np.ndarray]] = [{} for _ in inputs]

    def work(i: int) -> None:
        together[i] = model.run(inputs[i], quantize=True)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(alone, together, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])


def test_float_mode_shows_the_price_of_quantisation() -> None:
    model = mi.open(mi.samples.path("digits_cnn_u8.armnn"))
    image = mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16
    (vendor,) = model.run(image, quantize=True, dequantize=True).values()
    (real,) = model.run(image, mode="float").values()
    assert real.dtype == np.float32
    assert 0 < np.abs(real - vendor).max() < 0.1
