"""Saving a model of a gigabyte: memory beyond the mapped file, and time.

    python tests/benchmarks/bench_save.py [FOLDER] [MEGABYTES]

Writes the model into FOLDER (a temporary one by default), saves it in a fresh process in each way, and prints the most
anonymous memory (what is neither the mapped file nor shared) that saving took. Fails above 100 MB.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

CHILD = """
import sys, threading, time
import mlinspect as mi
from mlinspect import save

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

model = mi.open(sys.argv[1])
before, most, done = anonymous(), [0], threading.Event()

def watch():
    while not done.is_set():
        most[0] = max(most[0], anonymous())
        time.sleep(0.002)

thread = threading.Thread(target=watch)
thread.start()
start = time.perf_counter()
save.save(model.network, sys.argv[2], **eval(sys.argv[3]))
seconds = time.perf_counter() - start
done.set()
thread.join()
print(max(most[0], anonymous()) - before, seconds)
"""


def large_model(path, megabytes):
    """A chain of matrix products with random weights, 64 MB each."""
    from mlinspect import build, save

    rng = np.random.default_rng(0)
    builder = build.mslite().input("x", (1, 4096))
    for i in range(max(megabytes // 64, 1)):
        weights = rng.standard_normal((4096, 4096), np.float32)
        builder.layer("MatMulFusion", f"mm{i}", weights)
    save.save(builder.output().model().network, path)


def main(folder, megabytes):
    """Print a row for each way to save."""
    source = folder / "large.ms"
    if not source.exists():
        large_model(source, megabytes)
    worst = 0
    for options in ({}, {"weights": "external"}, {"release": "unchanged"}):
        arguments = [str(source), str(folder / "saved.ms"), repr(options)]
        done = subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, check=True)
        memory, seconds = done.stdout.split()
        worst = max(worst, int(memory))
        name = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "inline"
        size = source.stat().st_size / 1e6
        print(f"{size:6.0f} MB, {name:22} {int(memory) / 1e3:6.1f} MB more, {float(seconds):5.2f} s")
    assert worst < 100_000, "saving takes more than 100 MB beyond the mapped file"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary), int(sys.argv[2]) if len(sys.argv) > 2 else 1024)
