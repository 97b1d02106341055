"""Damage real models and see that nothing but ModelFormatError comes of it: no other error, no hang, no memory.

    python tests/benchmarks/fuzz_reader.py [count] [seed]

Ten files are damaged ``count`` times in all (200,000 by default): bits flipped, ends cut off, pieces moved, ranges
zeroed, numbers replaced. Each is opened, all its tables are made and all its weights looked at. The files are those
of ``../shared/models``; where that folder is absent, the samples of the package.
"""

import random
import sys
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np

import mlinspect as mi
from mlinspect import samples
from mlinspect.errors import ModelFormatError

ROOT = Path(__file__).parents[2]
NAMES = (
    "ssd_mobilenet_v3_small_coco_2019_08_14.armnn", "face_landmark.armnn", "hand_recrop_standin.armnn", "detect.ms",
    "mobilefacenet0924.ms", "ml_face_isface_quant.ms", "mix_lenet_tod.ms", "ppocr_cls_wq4.ms", "face_landmark_wq5.ms",
    "parallel.ms",
)  # fmt: skip
TABLES = ("layers", "tensors", "quant", "edges", "inputs", "outputs", "attrs")
LIMIT_SECONDS = 1.0
LIMIT_FACTOR = 4  # times the file's size ...
LIMIT_BYTES = 8 << 20  # ... and what schemas, tables and unpacked weights of an undamaged small model take


def files():
    """Name -> bytes."""
    folder = ROOT.parent / "shared" / "models"
    found = {name: (folder / name).read_bytes() for name in NAMES if (folder / name).is_file()}
    return found or samples_only()


def samples_only():
    """Name -> bytes of the package's own models."""
    folder = samples.path("digits_cnn.ms").parent
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".ms", ".armnn")}


def structure(data):
    """Ranges of a file that hold no weights: where damage matters most."""
    tensors = mi.open(data).tensors
    stored = tensors[tensors.file_offset.notna() & (tensors.nbytes > 0)].sort_values("file_offset")
    ranges, at = [], 0
    for start, size in zip(stored.file_offset, stored.nbytes, strict=True):
        if start > at:
            ranges.append((at, int(start)))
        at = max(at, int(start + size))
    return [*ranges, (at, len(data))] if at < len(data) else ranges


def somewhere(rng, data, ranges):
    """A position, four times out of five outside the weights."""
    if rng.random() < 0.2:
        return rng.randrange(len(data))
    start, end = rng.choice(ranges)
    return rng.randrange(start, end)


def damage(rng, data, ranges):
    """A damaged copy, and what was done."""
    data = bytearray(data)
    what = rng.choice(("flip", "flip", "number", "number", "cut", "splice", "zero"))
    at = somewhere(rng, data, ranges)
    if what == "flip":
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = somewhere(rng, data, ranges)
            data[at] ^= 1 << rng.randrange(8)
    elif what == "number":
        for _ in range(rng.choice((1, 1, 4))):
            at = somewhere(rng, data, ranges) & ~3
            limits = (0, 1, 2, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(data), len(data) // 4)
            value = rng.choice((rng.choice(limits), rng.randrange(256), rng.randrange(len(data)), rng.getrandbits(32)))
            data[at : at + 4] = value.to_bytes(4, "little")
    elif what == "cut":
        del data[rng.choice((at, rng.randrange(len(data)))) :]
    elif what == "splice":
        length = min(rng.choice((4, 16, 64, 1024)), len(data) // 2)
        source = rng.randrange(len(data) - length)
        piece = data[source : source + length]
        data[at : at + rng.choice((0, 4, length))] = piece
    else:
        length = rng.choice((1, 4, 64, 4096, len(data) // 4))
        data[at : at + length] = bytes(len(data[at : at + length]))
    return bytes(data), what


def look(data):
    """Open, make all tables, look at all weights; True if it opens, False if it is refused as it should be."""
    try:
        model = mi.open(data)
    except ModelFormatError:
        return False
    for table in TABLES:
        getattr(model, table)
    for number in model.weights:
        try:
            weights = model.weights[number]
        except ModelFormatError:
            continue
        if weights.nbytes <= LIMIT_FACTOR * len(data):
            np.count_nonzero(weights)
    return True


def peak_bytes(data):
    """Most memory that Python held while looking."""
    tracemalloc.start()
    try:
        look(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def run(count, seed, originals, memory_every=20, keep=None):
    """Damage and look ``count`` times; a Counter of what came out. Raises on the first thing that should not be."""
    rng = random.Random(seed)
    ranges = {name: structure(data) for name, data in originals.items()}
    found = Counter()
    slowest, largest = 0.0, 0.0
    for i in range(count):
        name = rng.choice(list(originals))
        data, what = damage(rng, originals[name], ranges[name])
        try:
            start = time.process_time()
            opened = look(data)
            seconds = time.process_time() - start
            slowest = max(slowest, seconds)
            assert seconds < LIMIT_SECONDS, f"took {seconds:.2f} s"
            if i % memory_every == 0:
                peak = peak_bytes(data)
                largest = max(largest, peak / max(len(data), 1 << 20))
                assert peak <= LIMIT_FACTOR * len(data) + LIMIT_BYTES, f"took {peak} bytes for {len(data)}"
        except BaseException:
            print(f"case {i} of seed {seed}: {what} of {name}", file=sys.stderr)
            if keep is not None:
                Path(keep).write_bytes(data)
            raise
        found[what, "opened" if opened else "refused"] += 1
    found["slowest ms"] = round(1000 * slowest)
    found["most bytes per byte of file (at least 1 MB)"] = round(largest, 1)
    return found


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for key, value in sorted(run(count, seed, files(), keep="damaged.bin").items(), key=str):
        print(value, *([key] if isinstance(key, str) else key))
