"""Real MindSpore Lite models, where they lie beside the checkout, against what the real runtime (and a phone) gave."""

import io
import json
import zipfile
from collections import defaultdict

import numpy as np
import pytest

import mlinspect as mi
from mlinspect.phases import phases

NAMES = [
    "conv_train_model",
    "face_landmark_fp32",
    "face_landmark_int8",
    "lenet_tod_infer",
    "lenet_train",
    "mix_lenet_tod",
    "ml_face_isface",
    "ml_face_isface_quant",
    "ml_headpose_pb2tflite",
    "mobilefacenet0924",
    "parallel",
    "ppocr_cls_fp16",
    "ppocr_cls_fp32",
    "ppocr_cls_int8",
    "ppocr_cls_wq4",
    "ppocr_cls_wq8",
    "xiaoyi_train_codegen",
]
# of Rsqrt, whose result is the processor's own 12-bit estimate; what comes after it starts from the reference's
ESTIMATE = 2.5e-4


def error(got, want, top):
    """Largest difference relative to the tensor's largest magnitude; integers must be the same."""
    assert got.dtype == want.dtype or got.dtype.kind == want.dtype.kind == "f"
    if got.dtype.kind != "f":
        return 0.0 if (got == want).all() else np.inf
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    return float(np.nanmax(np.abs(got.astype(np.float64) - want), initial=0)) / max(top, 1e-30)


def largest(output, want):
    """The tensor's largest magnitude; the reference holds the first numbers only of some."""
    if "absmax" in output:
        return output["absmax"]
    return float(np.nanmax(np.abs(want), initial=0)) if want.dtype.kind == "f" else 1.0


def feeds_of(model, meta, data):
    names = meta.get("input_names") or [port["name"] for port in meta.get("inputs", ())]
    known = [port.name for port in model.network.graphs[0].inputs]
    count = sum(name.startswith("in_") for name in data.files)
    return {names[i] if i < len(names) and names[i] in known else i: data[f"in_{i}"] for i in range(count)}


def computed(model, feeds, wanted, estimates):
    """Every tensor by id, and the outputs in order; training files are asked for what the reference was cut at."""
    if wanted is None:
        session = model.session(feeds)
        for layer in [layer for layer in model.network.layers.values() if layer.op == "Rsqrt"]:
            session.run_to(layer.index)
            (tensor,) = layer.outputs
            reference = estimates[model.network.tensors[tensor].name]
            assert error(session.trace[tensor], reference, float(np.nanmax(reference))) <= ESTIMATE
            session.patch(tensor, reference)
        outputs = list(session.finish().values())
        return dict(session.trace.items()), outputs
    outputs = list(model.run(feeds, outputs=[wanted]).values())
    forward = [i for i, phase in phases(model.network).items() if phase == "forward"]
    inner = [tensor for i in forward for tensor in model.network.layers[i].outputs]
    return dict(zip(inner, model.run(feeds, outputs=inner).values(), strict=True)), outputs


@pytest.mark.parametrize("name", NAMES)
def test_node_by_node(models, name):
    model = mi.open(models / f"{name}.ms")
    with np.load(models / f"{name}.npz") as data:
        stored = data["meta_json" if "meta_json" in data else "meta"]
        meta = json.loads(bytes(stored) if stored.dtype == np.uint8 else str(stored))
        estimates = {
            node["outputs"][0]["name"]: data[f"node_{i}_0"]
            for i, node in enumerate(meta["nodes"])
            if node["type"] == "Rsqrt"
        }
        values, outputs = computed(model, feeds_of(model, meta, data), meta.get("pruned_to"), estimates)
        tolerance = 1e-4
        for i, got in enumerate(outputs):
            assert error(got, data[f"out_{i}"], largest({}, data[f"out_{i}"])) <= tolerance, f"output {i}"
        ids = defaultdict(list)
        for tensor in values:
            ids[model.network.tensors[tensor].name].append(tensor)
        compared, stored = 0, 0
        for i, node in enumerate(meta["nodes"]):
            for j, output in enumerate(node.get("outputs", [node])):
                key = output.get("key", f"node_{i}_{j}")
                if key not in data:
                    continue
                stored += 1
                label = (output.get("tensor") or output["name"]).removesuffix("_duplicate")
                found = [int(label[1:])] if "schema" in meta and label[1:].isdigit() else ids[label]
                if len(found) != 1 or found[0] not in values:
                    continue
                got, want = values[found[0]], data[key]
                got = got.reshape(-1)[:96] if key.endswith("head") else got
                got = got[:1] if output.get("first_batch_only") else got
                assert error(got, want, largest(output, want)) <= tolerance, node["name"]
                compared += 1
        assert compared >= 0.8 * stored


def test_the_phone_gives_the_same(models):
    """A file of 2020 without an identifier, against the output of a device."""
    with np.load(models / "mobilefacenet0924.device.npz") as data:
        (got,) = mi.open(models / "mobilefacenet0924.ms").run(data["in_0"].reshape(1, 112, 112, 3)).values()
        want = data["out_0"].reshape(got.shape)
        assert error(got, want, float(np.abs(want).max())) <= 1e-4


def test_detector_of_2020_runs_in_int8(models):
    boxes, classes, scores, count = mi.open(models / "detect.ms").run(np.full((1, 300, 300, 3), 128, np.uint8)).values()
    assert boxes.shape == (1, 10, 4)
    assert (scores[0, :-1] >= scores[0, 1:]).all()
    assert 0 <= count[0] <= 10
    assert (classes == classes.round()).all()


def test_float_mode_of_the_detector_shows_the_price_of_int8(models):
    """Its ReLU6 are left to the outputs' ranges, and its uint8 input has the zero point of int8."""
    model = mi.open(models / "detect.ms")
    image = np.random.default_rng(0).integers(0, 255, (1, 300, 300, 3)).astype(np.uint8)
    stored, real = model.run(image), model.run(image, mode="float")
    for got, want in zip(stored.values(), real.values(), strict=True):
        assert np.abs(got[..., :1] - want[..., :1]).max() < 0.02


def test_converted_tflite_files(models):
    faults = []
    with zipfile.ZipFile(models / "mslite-converted-tflite.zip") as file:
        cases = json.loads(file.read("manifest.json"))["cases"]
        for case in cases:
            model = mi.open(file.read(f"{case['model']}.ms"))
            with np.load(io.BytesIO(file.read(f"{case['model']}.npz"))) as data:
                outputs = model.run([data[f"in_{i}"] for i in range(len(model.inputs))])
                for i, got in enumerate(outputs.values()):
                    want = data[f"out_{i}"]
                    if got.shape != want.shape or error(got, want, largest({}, want)) > 1e-5:
                        faults.append(case["model"])
    assert len(cases) > 40
    assert not faults
