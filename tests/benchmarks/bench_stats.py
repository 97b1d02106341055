"""``stats`` on constants of 500 MB in a mapped file: memory beyond the map, and time against numpy's min and max.

Run: ``python tests/benchmarks/bench_stats.py [part of a case's name ...]``. Linux only (memory is read from /proc).
Exits with 1 where the memory reaches 64 MB (but for figures of many channels, which the table itself takes), or
float32 by tensor is read at less than half the speed of numpy's min and max.
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
from mlinspect import ir
from mlinspect.analysis.stats import stats
from mlinspect.flatbuffer import encode
from mlinspect.formats.records import layout_schema

MEGABYTES = 500
CASES = {  # name -> dtype, its number in the file, shape, bits where quantised per channel
    "float32, one row": ("float32", 43, (MEGABYTES * 250_000,), None),
    "float32, 500 channels": ("float32", 43, (500, MEGABYTES * 500), None),
    "float32, channels last": ("float32", 43, (MEGABYTES * 500, 500), None),
    "float16, 500 channels": ("float16", 42, (500, MEGABYTES * 1000), None),
    "int8, 500 channels": ("int8", 32, (500, MEGABYTES * 2000), 8),
    "int8, channels of 4608": ("int8", 32, (MEGABYTES * 1_000_000 // 4608, 4608), 8),
    "int8, one scale": ("int8", 32, (MEGABYTES * 250, 4000), 0),
    "4 bit packed, channels of 4608": ("int8", 32, (MEGABYTES * 1_000_000 // 4608, 4608), 4),
}


def write(path: Path, dtype: str, number: int, shape: tuple[int, ...], bits: int | None) -> None:
    """A model whose one layer multiplies by one large constant; ``bits=0``: 8 bits, quantised per tensor."""
    block = np.random.default_rng(0).normal(0, 20, 1_000_000)
    block = (block / 1000).astype(dtype) if bits is None else np.clip(np.round(block), -128, 127).astype(dtype)
    data = np.resize(block.view(np.uint8), int(np.prod(shape)) * (bits or 8 * block.itemsize) // 8)
    param = {"scale": 0.01, "zeroPoint": 0, "numBits": bits or 8, "inited": True}
    params = [] if bits is None else [param] * (shape[0] if bits else 1)
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


def measure(path: Path, by: str) -> tuple[float, float, float]:
    """Seconds of stats, seconds of numpy's min and max (of what is in the file), peak of memory in bytes."""
    model = mi.open(path)
    (tensor,) = (tensor for tensor in model.network.tensors.values() if tensor.data is not None)
    array = tensor.data.raw.view(np.int8) if isinstance(tensor.data, ir.PackedData) else tensor.data
    before, peak = anonymous(), Peak()
    peak.start()
    stats(model, by)
    peak.stop.set()
    peak.join()
    times: dict[str, list[float]] = {"stats": [], "numpy": []}
    until = time.perf_counter() + 5
    while len(times["stats"]) < 3 or time.perf_counter() < until:
        for name, call in (("numpy", lambda: (array.min(), array.max())), ("stats", lambda: stats(model, by))):
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return min(times["stats"]), min(times["numpy"]), peak.most - before


def main(wanted: list[str]) -> int:
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.ms"
        for name, case in CASES.items():
            if wanted and not any(part in name for part in wanted):
                continue
            if pid := os.fork():  # the writer's memory goes with the writer
                os.waitpid(pid, 0)
            else:
                write(path, *case)
                os._exit(0)
            for by in ("tensor", "channel"):
                ours, plain, memory = measure(path, by)
                print(
                    f"{name}, by {by}: stats {ours:.2f} s ({path.stat().st_size / 1e9 / ours:.1f} GB/s), "
                    f"numpy min and max {plain:.2f} s, speed {plain / ours:.0%} of it; "
                    f"{memory / 1e6:.1f} MB beyond the map",
                    flush=True,
                )
                many = by == "channel" and len(case[2]) > 1 and case[2][0] > 1000
                failed |= memory >= 64e6 and not many
                failed |= case[0] == "float32" and by == "tensor" and ours > 2 * plain
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
