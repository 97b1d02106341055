"""Convolutions and products as a share of this machine's float32 GEMM rate, and what bit-exactness costs.

Run: ``python tests/benchmarks/bench_kernels_conv.py [filter]``, where the filter is a part of a kernel's name.
Kernel and GEMM take turns, and the best time of each counts, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from mlinspect.kernels.conv import conv2d, conv2d_approximate, conv3d
from mlinspect.kernels.conv_transpose import conv2d_transpose
from mlinspect.kernels.depthwise import depthwise_conv2d
from mlinspect.kernels.matmul import matmul
from mlinspect.kernels.quantize import quantize
from mlinspect.kernels.summation import settle

SECONDS = 0.7  # of measuring a line
RNG = np.random.default_rng(0)


def best_seconds(*functions: Callable[[], object]) -> list[float]:
    """The shortest time of each, measured in turn."""
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times[0]) < 5:
        for taken, function in zip(times, functions, strict=True):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def whole(*shape: int) -> np.ndarray:
    """Numbers of an int8 tensor less its zero point."""
    return RNG.integers(-117, 139, shape).astype(np.int16)


def same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2


def image(make: Callable, size: int, channels: int, filters: int, kernel: int, stride: int) -> tuple[tuple, dict]:
    """Operands of a convolution with SAME padding."""
    pads = same(size, kernel, stride)
    operands = make(1, size, size, channels), make(filters, kernel, kernel, channels)
    return operands, {"stride": (stride, stride), "padding": (pads, pads)}


IMAGES = (  # size, input channels, filters, kernel, stride
    (56, 64, 64, 3, 1),
    (28, 128, 128, 3, 1),
    (14, 256, 256, 3, 1),
    (224, 3, 32, 3, 2),
    (320, 3, 16, 3, 2),
    (112, 32, 64, 1, 1),
    (28, 256, 256, 1, 1),
    (10, 96, 576, 1, 1),
    (7, 1024, 1024, 1, 1),
)
DEPTHWISE = (  # size, channels, kernel, stride: of MobileNets
    (160, 16, 3, 1),
    (160, 16, 3, 2),
    (80, 72, 3, 2),
    (40, 88, 3, 1),
    (40, 96, 5, 2),
    (20, 240, 5, 1),
    (10, 576, 5, 1),
    (10, 960, 3, 1),
    (112, 32, 3, 1),
    (14, 512, 3, 1),
)


def cases() -> Iterator[tuple[str, Callable[[], object], int]]:
    """Name, kernel call, and its multiplications."""
    for make, kind in ((real, "float32"), (whole, "integers")):
        for size, channels, filters, kernel, stride in IMAGES:
            operands, how = image(make, size, channels, filters, kernel, stride)
            name = f"conv2d {kind} {size}x{size}x{channels} -> {filters}, {kernel}x{kernel} / {stride}"
            macs = (-(-size // stride)) ** 2 * filters * channels * kernel**2
            yield name, partial(conv2d, *operands, **how), macs
        for size, channels, kernel, stride in DEPTHWISE:
            pads = same(size, kernel, stride)
            call = partial(
                depthwise_conv2d,
                make(1, size, size, channels),
                make(kernel, kernel, channels),
                stride=(stride, stride),
                padding=(pads, pads),
            )
            name = f"depthwise {kind} {size}x{size}x{channels}, {kernel}x{kernel} / {stride}"
            yield name, call, (-(-size // stride)) ** 2 * channels * kernel**2
    grouped = partial(conv2d, real(1, 28, 28, 128), real(128, 3, 3, 16), padding=((1, 1), (1, 1)), groups=8)
    yield "conv2d float32 28x28x128 -> 128, 3x3, 8 groups", grouped, 28 * 28 * 128 * 16 * 9
    up = partial(conv2d_transpose, real(1, 28, 28, 64), real(64, 3, 3, 64), stride=(2, 2))
    yield "conv2d_transpose float32 28x28x64 -> 64, 3x3 / 2", up, 28 * 28 * 64 * 64 * 9
    volume = partial(conv3d, real(1, 8, 28, 28, 32), real(3, 3, 3, 32, 32), padding=((1, 1),) * 3)
    yield "conv3d float32 8x28x28x32 -> 32, 3x3x3", volume, 8 * 28 * 28 * 32 * 32 * 27
    for rows in (1, 64):
        dense = partial(matmul, real(rows, 1024), real(1000, 1024).T, real(1000))
        yield f"matmul float32 {rows} x 1024 -> 1000", dense, rows * 1024 * 1000
    yield (
        "matmul float32 8 batches of 196 x 64 x 196",
        partial(matmul, real(8, 196, 64), real(8, 64, 196)),
        8 * 196**2 * 64,
    )


def shares(wanted: str) -> None:
    a, b, out = real(1024, 1024), real(1024, 1024), np.empty((1024, 1024), np.float32)
    for name, call, macs in cases():
        if wanted in name:
            ours, gemm = best_seconds(call, partial(np.matmul, a, b, out=out))
            share = macs / ours / (1024**3 / gemm)
            print(f"{name:58s} {ours * 1e3:8.3f} ms {2 * macs / ours / 1e9:7.1f} GFLOP/s {share:7.1%} of GEMM")


def settling(wanted: str) -> None:
    """An int8 layer: convolution and quantiser in BLAS order, against bit for bit as the vendor sums."""
    print("\nint8 layers, bias included: plain, and settled bit for bit")
    for size, channels, filters, kernel, stride in IMAGES:
        name = f"settle {size}x{size}x{channels} -> {filters}, {kernel}x{kernel} / {stride}"
        if wanted not in name:
            continue
        (x, weights), how = image(whole, size, channels, filters, kernel, stride)
        x, weights, bias = x * np.float32(0.0473), weights * np.float32(0.0029), real(filters)
        sums = conv2d_approximate(x, weights, bias, **how)
        scale = np.float32(np.abs(sums.value).max() / 140)
        asked = []
        settle(
            sums._replace(at=lambda i, at=sums.at, n=asked: (n.append(len(i)), at(i))[1]), dtype=np.int8, scale=scale
        )

        def plain(x=x, weights=weights, bias=bias, how=how, scale=scale) -> np.ndarray:
            return quantize(conv2d(x, weights, bias, **how), scale, 0, np.int8)

        def exact(x=x, weights=weights, bias=bias, how=how, scale=scale) -> np.ndarray:
            return settle(conv2d_approximate(x, weights, bias, **how), dtype=np.int8, scale=scale)

        loose, settled = (seconds * 1e3 for seconds in best_seconds(plain, exact))
        share = sum(asked) / sums.value.size
        print(f"{name:58s} {loose:8.3f} ms, {settled:8.3f} ms: {settled / loose - 1:+.0%}, {share:.3%} repaired")


if __name__ == "__main__":
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    shares(part)
    settling(part)
