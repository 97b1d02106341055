"""MindSpore Lite files of the vendor-made vectors, run and compared with what the real runtime gave."""

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


def cases(archive: str) -> list[dict]:
    with zipfile.ZipFile(DATA / f"{archive}.zip") as file:
        return json.loads(file.read("manifest.json"))["cases"]


def by_operator() -> list[tuple[str, str, list[dict]]]:
    groups: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for case in cases("mslite-ops"):
        groups[case["group"], case["op"]].append(case)
    return [(group, operator, found) for (group, operator), found in sorted(groups.items())]


def difference(got: np.ndarray, want: np.ndarray, atol: float) -> str:
    """What is wrong with a result, or an empty string."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if got.dtype.kind != "f":
        return f"{(got != want).sum()} of {got.size} differ" if (got != want).any() else ""
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    error = np.where(same, 0, np.abs(got.astype(np.float64) - want))
    worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0))
    return f"error {worst:.2e}, allowed {atol:.1e}" if worst > atol else ""


def check(file: zipfile.ZipFile, case: dict) -> list[str]:
    model = mi.open(file.read(f"{case['case']}.ms"))
    data = np.load(io.BytesIO(file.read(f"{case['case']}.npz")))
    inputs = [data[f"in_{i}"] for i in range(len(case["inputs"]))]
    outputs = model.run(inputs)
    assert len(outputs) == len(case["outputs"])
    found = [
        (name, difference(got, data[f"out_{i}"], case["suggested_atol"] or 0)) for i, (name, got) in enumerate(outputs.items())
    ]
    return [f"{case['case']} {name}: {fault}" for name, fault in found if fault]


@pytest.mark.parametrize(
    ("group", "operator", "found"), by_operator(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_operator_as_the_runtime(group: str, operator: str, found: list[dict]) -> None:
    with zipfile.ZipFile(DATA / "mslite-ops.zip") as file:
        faults = [fault for case in found for fault in check(file, case)]
    assert not faults, "\n".join(faults)
