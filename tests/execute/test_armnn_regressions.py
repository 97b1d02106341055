"""Files made at random, run by the real reference backend (22.11): layouts, odd geometry, unlike quantisations, values
that are no numbers. Those with a number below 5000 once came out wrong here.
"""

from __future__ import annotations

import io
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import mlinspect as mi

FILE = Path(__file__).parents[1] / "data" / "armnn-fuzz-22.11.zip"


def by_kind() -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    with zipfile.ZipFile(FILE) as file:
        for name in file.namelist():
            if name.endswith(".armnn"):
                groups[name.split("_")[0]].append(name.removesuffix(".armnn"))
    return groups


def difference(got: np.ndarray, want: np.ndarray) -> str:
    """What is wrong with a result, or an empty string."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if got.dtype == np.float32:
        size, real = np.abs(want, dtype=float), np.isfinite(want)
        unit = np.maximum(size, max(0.01, size[real].max(initial=0) / 10))
        with np.errstate(invalid="ignore"):
            close = real & (np.abs(np.subtract(got, want, dtype=float)) <= 1e-5 * unit)
        wrong = ~(close | (got == want) | (np.isnan(got) & np.isnan(want)))
    elif got.dtype == np.float16:  # signs of zeros count
        wrong = (got.view(np.uint16) != want.view(np.uint16)) & ~(np.isnan(got) & np.isnan(want))
    else:
        wrong = got != want
    return f"{int(wrong.sum())} of {wrong.size} differ" if wrong.any() else ""


@pytest.mark.parametrize("names", by_kind().values(), ids=by_kind())
def test_same_as_the_reference_backend(names: list[str]) -> None:
    faults = []
    with zipfile.ZipFile(FILE) as file:
        for name in names:
            data = np.load(io.BytesIO(file.read(f"{name}.npz")))
            model = mi.open(file.read(f"{name}.armnn"))
            results = model.run([data[f"in_{i}"] for i in range(len(model.inputs))])
            assert len(results) == sum(key.startswith("out_") for key in data)
            for i, got in enumerate(results.values()):
                if fault := difference(got, data[f"out_{i}"]):
                    faults.append(f"{name} output {i}: {fault}")
    assert not faults, "\n".join(faults)
