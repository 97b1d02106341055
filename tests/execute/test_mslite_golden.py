"""MindSpore Lite files of the vendor-made vectors, run and compared with what the real runtime gave."""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import mlinspect as mi

DATA = Path(__file__).parents[1] / "data"
# the processor's own 12-bit estimate, which differs from one to the next
RELATIVE = {"un_rsqrt": 2.5e-4}


def cases(archive: str) -> list[dict]:
    with zipfile.ZipFile(DATA / f"{archive}.zip") as file:
        return json.loads(file.read("manifest.json"))["cases"]


def by_operator() -> list[tuple[str, str]]:
    return sorted({(case["group"], case["op"]) for case in cases("mslite-ops")})


def difference(got: np.ndarray, want: np.ndarray, atol: float, rtol: float = 0) -> str:
    """What is wrong with a result, or an empty string."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if got.dtype.kind != "f":
        return f"{(got != want).sum()} of {got.size} differ" if (got != want).any() else ""
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    error = np.where(same, 0, np.abs(got.astype(np.float64) - want) - rtol * np.abs(want))
    worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0))
    return f"error {worst:.2e}, allowed {atol:.1e}" if worst > atol else ""


def check_case(golden, case: dict) -> list[str]:
    name = case["case"]
    data = golden.arrays(f"{name}.npz")
    outputs = mi.open(golden.model(f"{name}.ms")).run([data[f"in_{i}"] for i in range(len(case["inputs"]))])
    assert len(outputs) == len(case["outputs"])
    found = {
        key: difference(got, data[f"out_{i}"], case["suggested_atol"] or 0, RELATIVE.get(name, 0))
        for i, (key, got) in enumerate(outputs.items())
    }
    return [f"{name} {key}: {fault}" for key, fault in found.items() if fault]


@pytest.mark.parametrize(("group", "operator"), by_operator())
def test_operator_as_the_runtime(golden, group: str, operator: str) -> None:
    archive = golden("mslite-ops.zip")
    mine = [case for case in archive.manifest["cases"] if (case["group"], case["op"]) == (group, operator)]
    faults = [fault for case in mine for fault in check_case(archive, case)]
    assert not faults, "\n".join(faults)


def check_nodes(trace: mi.Trace, data: dict, nodes: list[dict], tolerance: float) -> tuple[list[str], int]:
    """Faults among the nodes' outputs, by tensor name, and how many were compared (the runtime adds nodes)."""
    ids: dict[str, list[int]] = defaultdict(list)
    for tensor in trace:
        ids[trace.network.tensors[tensor].name].append(tensor)
    faults, compared = [], 0
    for i, node in enumerate(nodes):
        for j, output in enumerate(node["outputs"]):
            name = (output.get("tensor") or output.get("name")).removesuffix("_duplicate")
            want = data.get(output.get("key") or f"node_{i}_{j}")
            if len(ids[name]) != 1 or want is None:
                continue
            compared += 1
            top = float(np.abs(want[np.isfinite(want)]).max(initial=0)) if want.dtype.kind == "f" else 0
            if fault := difference(trace[ids[name][0]], want, tolerance * top):
                faults.append(f"{node['name']} ({node['type']}): {fault}")
    return faults, compared


@pytest.mark.parametrize("name", [case["case"] for case in cases("mslite-converted")])
def test_converted_model_node_by_node(golden, name: str) -> None:
    archive = golden("mslite-converted.zip")
    data = archive.arrays(f"{name}.npz")
    model = mi.open(archive.model(f"{name}.ms"))
    trace = model.trace([data[f"in_{i}"] for i in range(len(model.inputs))])
    nodes = json.loads(bytes(data["meta_json"]))["nodes"]
    faults, compared = check_nodes(trace, data, nodes, 1e-5)
    for i, got in enumerate(trace.outputs.values()):
        top = float(np.abs(data[f"out_{i}"]).max())
        faults += [fault for fault in [difference(got, data[f"out_{i}"], 1e-5 * top)] if fault]
    assert not faults, "\n".join(faults)
    assert compared >= 0.8 * len(nodes)


@pytest.mark.parametrize("case", cases("mslite-nets"), ids=lambda case: case["case"])
def test_network_node_by_node(golden, case: dict) -> None:
    archive = golden("mslite-nets.zip")
    data = archive.arrays(f"{case['case']}.npz")
    trace = mi.open(archive.model(f"{case['case']}.ms")).trace(data["in_0"])
    faults, compared = check_nodes(trace, data, case["nodes"], 1e-5)
    assert not faults, "\n".join(faults)
    assert compared >= 0.8 * len(case["nodes"])


@pytest.mark.parametrize(
    ("name", "accuracy"),
    [
        ("digits_cnn", 95.83),
        ("digits_cnn_fp16", 95.83),
        ("digits_cnn_int8", 95.83),
        ("digits_cnn_wq8", 95.83),
        ("digits_cnn_wq4", 94.72),
    ],
)
def test_digits_as_the_runtime(name: str, accuracy: float) -> None:
    digits, want = mi.samples.digits(), mi.samples.expected()[f"{name}.ms"]
    model = mi.open(mi.samples.path(f"{name}.ms"))
    wanted = model.inputs["shape"].iloc[0]
    images = digits.images.astype(np.float32).reshape(-1, *wanted[1:]) / 16
    (output,) = zip(*[model.run(image[None]).values() for image in images], strict=True)
    scores = np.concatenate(output)
    np.testing.assert_allclose(scores, want.reshape(scores.shape), atol=1e-5)
    assert round(100 * (scores.reshape(len(images), -1).argmax(1) == digits.labels).mean(), 2) == accuracy
