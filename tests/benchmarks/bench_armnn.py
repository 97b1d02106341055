"""Whole Arm NN networks in numpy against Arm NN's own reference backend, and int8 against float.

Run: ``python tests/benchmarks/bench_armnn.py``. The comparison with CpuRef needs Arm NN's libraries
(``apt-get install libarmnn-dev libarmnn-cpuref-backend22 g++``) and the SSD model of ``../shared/models``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import subprocess
import tempfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np

import mlinspect as mi

HERE = Path(__file__).resolve().parent
MODELS = HERE.parents[2] / "shared" / "models"
NETS = HERE.parent / "data" / "armnn-nets.zip"


def median_seconds(function, repeats: int = 15) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]


def cpuref_seconds(path: Path, model: mi.Model, runs: int = 3) -> float | None:
    """Median seconds of the real reference backend, or None where it cannot be built."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "cpuref_time"
        build = ["g++", "-O2", "-std=c++14", str(HERE / "cpuref_time.cpp"), "-o", str(program)]
        try:
            subprocess.run([*build, "-larmnnSerializer", "-larmnn"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        command = [str(program), str(path), model.inputs.name[0], *model.outputs.name, str(runs)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def random_inputs(model: mi.Model) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, shape).astype(np.float32) for shape in model.inputs["shape"]]


def largest_live_set(model: mi.Model) -> int:
    """Bytes of the activations that have to be there at once, at worst."""
    layers = list(model.network.layers.values())
    last = {tensor: i for i, layer in enumerate(layers) for tensor in layer.inputs}
    sizes = {t.index: int(np.prod(t.shape)) * 4 for t in model.network.tensors.values() if t.data is None}
    live: set[int] = set()
    worst = 0
    for i, layer in enumerate(layers):
        live |= {tensor for tensor in (*layer.inputs, *layer.outputs) if tensor in sizes}
        worst = max(worst, sum(sizes[tensor] for tensor in live))
        live = {tensor for tensor in live if last.get(tensor, -1) > i}
    return worst


def ssd() -> None:
    path = MODELS / "ssd_mobilenet_v3_small_coco_2019_08_14.armnn"
    if not path.exists():
        print("SSD MobileNet V3: the model is not here")
        return
    model = mi.open(path)
    inputs = random_inputs(model)
    ours = median_seconds(lambda: model.run(inputs))
    theirs = cpuref_seconds(path, model)
    ratio = f"CpuRef {theirs * 1e3:.0f} ms, {theirs / ours:.0f} x faster" if theirs else "CpuRef is not installed"
    print(f"SSD MobileNet V3 float32: {ours * 1e3:.1f} ms; {ratio}")
    tracemalloc.start()
    model.run(inputs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    live = largest_live_set(model)
    print(f"  peak memory of run {peak / 1e6:.1f} MB, largest live set {live / 1e6:.1f} MB: {peak / live:.2f} x")


def twins() -> None:
    with zipfile.ZipFile(NETS) as file:
        for name in ("ds_cnn", "mobilenet_v1"):
            seconds = {}
            for kind in ("f32", "int8"):
                model = mi.open(file.read(f"{name}_{kind}.armnn"))
                inputs = random_inputs(model)
                seconds[kind] = median_seconds(lambda model=model, inputs=inputs: model.run(inputs, quantize=True))
            ratio = seconds["int8"] / seconds["f32"]
            print(f"{name}: float32 {seconds['f32'] * 1e3:.1f} ms, int8 {seconds['int8'] * 1e3:.1f} ms, {ratio:.2f} x")


if __name__ == "__main__":
    ssd()
    twins()
