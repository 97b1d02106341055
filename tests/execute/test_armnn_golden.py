"""Every Arm NN file of the vendor-made vectors, run and compared with the real reference backend's outputs."""

from __future__ import annotations

import io
import json
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import mlinspect as mi

DATA = Path(__file__).parents[1] / "data"
# Arm NN 22.11 fuses batch normalisation into the convolution before it, which moves these two networks' results
FUSED = {"net_cnn_f16": 2e-3, "net_optimizer_bait_f32": 2e-3}


def cases(archive: str) -> list[dict]:
    with zipfile.ZipFile(DATA / f"{archive}.zip") as file:
        found = json.loads(file.read("manifest.json"))["cases"]
    if archive == "armnn-20.08":
        found = [case for case in found if case.get("in_2211") == "same"]
    return found


def by_layer() -> list[tuple[str, str, list[dict]]]:
    groups: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for archive in ("armnn-22.11", "armnn-20.08", "armnn-legacy"):
        for case in cases(archive):
            groups[archive, case["layer"]].append(case)
    return [(archive, layer, found) for (archive, layer), found in sorted(groups.items())]


# this file's scales were rounded to six decimals when it was rewritten, its outputs are those of the exact ones
ROUNDED_SCALES = {"core26style_net_cnn_u8"}


def difference(got: np.ndarray, want: np.ndarray, loose: float | None = None) -> str:
    """What is wrong with a result, or an empty string."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if got.dtype.kind == "f" and (got.dtype == np.float32 or loose):
        a, b = got.astype(np.float64), want.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.abs(b[np.isfinite(b)])
        top = finite.max() if finite.size else 0.0
        with np.errstate(invalid="ignore"):
            scale = top if loose else np.maximum(np.abs(b), max(0.01, top / 10))
            error = np.where(same, 0, np.abs(a - b) / scale)
        worst = float(np.nan_to_num(error, nan=np.inf, posinf=np.inf).max(initial=0))
        return f"relative error {worst:.2e}" if worst > (loose or 1e-5) else ""
    if got.dtype == np.float16:  # bit for bit, signs of zeros and NaN included
        got, want = (np.ascontiguousarray(array).view(np.uint16) for array in (got, want))
    if loose is not None and got.dtype.kind in "iu" and np.abs(got.astype(int) - want).max() <= loose:
        return ""
    wrong = int((got != want).sum())
    return f"{wrong} of {got.size} differ" if wrong else ""


def tolerance(case: dict) -> float | None:
    return 1.0 if case["name"] in ROUNDED_SCALES else FUSED.get(case["name"])


def check(file: zipfile.ZipFile, case: dict) -> list[str]:
    model = mi.open(file.read(case["file"]))
    data = np.load(io.BytesIO(file.read(case["npz"])))
    ports = model.network.graphs[0].inputs
    trace = model.trace([data[f"in_{port.binding_id}"] for port in ports])
    faults, compared = [], 0
    unwritten = set(case.get("unwritten_outputs", ()))
    for port, (name, got) in zip(model.network.graphs[0].outputs, trace.outputs.items(), strict=True):
        key = f"out_{port.binding_id}"
        if port.binding_id in unwritten or key not in data:
            continue
        compared += 1
        if fault := difference(got, data[key], tolerance(case)):
            faults.append(f"{case['name']} output {name}: {fault}")
    for item in case.get("intermediates", ()):
        layer = model.network.layers.get(item.get("index"))
        if not item.get("in_file") or layer is None or item["slot"] >= len(layer.outputs) or item["key"] not in data:
            continue
        tensor = layer.outputs[item["slot"]]
        if tensor in trace and (fault := difference(trace[tensor], data[item["key"]], tolerance(case))):
            faults.append(f"{case['name']} layer {layer.name}: {fault}")
    return faults if compared else [*faults, f"{case['name']}: no output was compared"]


@pytest.mark.parametrize(
    ("archive", "layer", "group"), by_layer(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_same_as_the_reference_backend(archive: str, layer: str, group: list[dict]) -> None:
    with zipfile.ZipFile(DATA / f"{archive}.zip") as file:
        faults = [fault for case in group for fault in check(file, case)]
    assert not faults, "\n".join(faults)
