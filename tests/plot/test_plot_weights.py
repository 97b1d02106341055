"""The weight histogram counts every level of the quantisation grid."""

import matplotlib as mpl
import numpy as np
import pytest

from mlinspect import ir
from mlinspect.plot.weights import weights

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def constant(values, dtype, quantization=None, name="w"):
    data = np.array(values, dtype)
    return ir.Tensor(
        0, name, 0, "constant", dtype, dtype, data.shape, data=data, quantization=quantization,
        quantized=quantization is not None,
    )  # fmt: skip


def grid(bits, channels=1, zero_point=0):
    axis = 0 if channels > 1 else None
    return ir.Quantization(np.full(channels, 0.5), np.full(channels, zero_point), axis, bits)


@pytest.mark.parametrize(
    ("values", "dtype", "q", "low", "heights"),
    [
        ([-2, -2, 1], "int8", grid(3), -4, [0, 0, 2, 0, 0, 1, 0, 0]),
        ([0, 3, 3], "uint8", grid(2, zero_point=1), 0, [1, 0, 0, 2]),
        ([[-1, 1], [1, 1]], "int8", grid(2, channels=2), -2, [0, 1, 0, 3]),
        ([-5, 1], "int8", grid(2), -5, [1, 0, 0, 0, 0, 0, 1]),
    ],
)
def test_one_bar_a_level(ax, values, dtype, q, low, heights):
    assert weights(constant(values, dtype, q), ax) is ax
    bars = ax.containers[0].patches
    assert [bar.get_height() for bar in bars] == heights
    assert bars[0].get_x() + bars[0].get_width() / 2 == low
    used = np.flatnonzero(heights)
    unused = len(heights) - 1 - used[-1] + used[0]
    shades = [p.get_width() for p in ax.patches if p not in bars]
    assert sum(shades) == unused


@pytest.mark.parametrize("tensor", [constant([0.5, np.nan, 2], "float32"), constant([1, 2, 10**9], "int32", grid(32))])
def test_values_without_a_drawable_grid_get_a_histogram(ax, tensor):
    weights(tensor, ax)
    assert sum(bar.get_height() for bar in ax.patches) == np.isfinite(tensor.data).sum()


def test_names_are_taken_literally(ax):
    weights(constant([1.0], "float32", name="$\\frac{$"), ax)
    ax.figure.canvas.draw()
    assert ax.get_title(loc="left").startswith("\\$")


def test_a_new_figure_by_default():
    axes = weights(constant([1, 2], "int8", grid(8)))
    assert axes.get_ylabel() == "weights"
    plt.close(axes.figure)


@pytest.mark.parametrize("tensor", [constant([], "float32"), ir.Tensor(0, "x", 0, "activation", "int8", "Int8", (1,))])
def test_only_constants_have_weights(tensor):
    with pytest.raises(ValueError, match="is not a constant of numbers"):
        weights(tensor)
