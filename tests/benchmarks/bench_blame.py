"""1,000 inputs through ``blame`` on the digit models, with two processes; the aim is under 60 seconds.

Run: ``python tests/benchmarks/bench_blame.py [inputs]``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import mlinspect as mi
from mlinspect.analysis.blame import blame

PAIRS = (
    ("digits_cnn_u8.armnn", "digits_cnn.armnn"),
    ("digits_cnn_int8.ms", "digits_cnn.ms"),
    ("digits_cnn_wq4.ms", "digits_cnn.ms"),
)


def main(count: int) -> None:
    images = np.resize(mi.samples.digits().images, (count, 8, 8)).astype(np.float32)[..., None] / 16
    with ProcessPoolExecutor(2) as executor:
        for name, reference in PAIRS:
            models = [mi.open(mi.samples.path(one)) for one in (name, reference)]
            start = time.perf_counter()
            table = blame(*models, images, executor=executor, progress=False)
            seconds = time.perf_counter() - start
            worst = table.loc[table.share.idxmax(), "name"]
            print(f"{name}: {count} inputs in {seconds:.1f} s, largest share of the error: {worst}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
