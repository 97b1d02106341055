"""``stats`` on constants of 500 MB in a mapped file: memory beyond the map, and time against numpy's min and max.

Run: ``python tests/benchmarks/bench_stats.py``. Linux only (memory is read from /proc). Exits with 1 where the memory
reaches 64 MB, or float32 is read at less than half the speed of numpy's min and max.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import mlinspect as mi
from mlinspect.analysis.stats import stats
from mlinspect.flatbuffer import encode
from mlinspect.formats.records import layout_schema

MEGABYTES = 500
CASES = {  # name -> dtype, its number in the file, shape, quantised per channel
    "float32, one row": ("float32", 43, (MEGABYTES * 250_000,), False),
    "float32, 500 channels": ("float32", 43, (500, MEGABYTES * 500), False),
    "float32, channels last": ("float32", 43, (MEGABYTES * 500, 500), False),
    "float16, 500 channels": ("float16", 42, (500, MEGABYTES * 1000), False),
    "int8, 500 channels": ("int8", 32, (500, MEGABYTES * 2000), True),
}


def write(path: Path, dtype: str, number: int, shape: tuple[int, ...], quantised: bool) -> None:
    """A model whose one layer multiplies by one large constant."""
    block = np.random.default_rng(0).normal(0, 20, 1_000_000)
    block = np.clip(np.round(block), -128, 127).astype(dtype) if quantised else (block / 1000).astype(dtype)
    data = np.resize(block, int(np.prod(shape))).view(np.uint8)
    params = [{"scale": 0.01, "zeroPoint": 0, "numBits": 8, "inited": True}] * shape[0] if quantised else []
    shape = shape if len(shape) > 1 else (1, *shape)
    weights = {"nodeType": 0, "dataType": number, "dims": list(shape), "format": 1, "data": data, "quantParams": params}
    flow = {"nodeType": 2, "dataType": 43, "dims": [1, 1], "format": 1}
    last = shape[0] == MEGABYTES * 500
    primitive = {"value_type": "MatMulFusion", "value": {"transpose_b": not last}}
    node = {"name": "fc", "inputIndex": [0, 1], "outputIndex": [2], "primitive": primitive}
    root = {"name": "large", "version": "MindSpore Lite 2.0.0", "inputIndex": [0], "outputIndex": [2]}
    root |= {"nodes": [node], "allTensors": [flow, weights, flow]}
    path.write_bytes(encode(layout_schema("mslite", "msl2_newest"), root))


def anonymous() -> int:
    """Resident bytes that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


class Peak(threading.Thread):
    """The most anonymous memory while it runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.stop = anonymous(), threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.002):
            self.most = max(self.most, anonymous())


def measure(path: Path) -> tuple[float, float, float]:
    """Seconds of stats, seconds of numpy's min and max, peak of memory in bytes."""
    model = mi.open(path)
    (array,) = model.weights.values()
    before, peak = anonymous(), Peak()
    peak.start()
    stats(model)
    peak.stop.set()
    peak.join()
    times: dict[str, list[float]] = {"stats": [], "numpy": []}
    until = time.perf_counter() + 5
    while len(times["stats"]) < 3 or time.perf_counter() < until:
        for name, call in (("numpy", lambda: (array.min(), array.max())), ("stats", lambda: stats(model))):
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return min(times["stats"]), min(times["numpy"]), peak.most - before


def main() -> int:
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.ms"
        for name, case in CASES.items():
            if pid := os.fork():  # the writer's memory goes with the writer
                os.waitpid(pid, 0)
            else:
                write(path, *case)
                os._exit(0)
            ours, plain, memory = measure(path)
            print(
                f"{name}: stats {ours:.2f} s ({MEGABYTES / 1000 / ours:.1f} GB/s), numpy min and max {plain:.2f} s, "
                f"speed {plain / ours:.0%} of it; {memory / 1e6:.1f} MB beyond the map",
                flush=True,
            )
            failed |= memory >= 64e6 or (case[0] == "float32" and ours > 2 * plain)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
