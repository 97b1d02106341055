"""Pictures decode to the colours that were asked for, and large arrays become small ones."""

import io

import numpy as np
import pytest

from mlinspect.widgets import pixels
from mlinspect.widgets.pixels import HIGH, INF, LOW, NAN


def decode(data):
    from PIL import Image  # comes with matplotlib

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))


def test_a_png_holds_its_colours():
    codes = np.array([[0, 249, 250 + NAN], [pixels.CLEAR, 250 + LOW, 250 + INF]], np.uint8)
    colours = pixels.palette(True)
    shown = decode(pixels.png(codes, colours))
    assert shown.shape == (2, 3, 4)
    assert (shown[..., :3] == colours[codes]).all()
    assert shown[1, 0, 3] == 0 and (shown[..., 3] == 0).sum() == 1


def test_marks_are_told_from_all_values():
    for signed in (True, False):
        colours = pixels.palette(signed).astype(int)
        for mark in (LOW, HIGH, INF, NAN):
            distance = np.abs(colours[:250] - colours[250 + mark]).sum(1).min()
            assert distance > 70


def test_codes_are_linear_and_marks_win():
    values = np.array([[-1, 0, 1, 9, np.nan, np.inf]], np.float32)
    assert pixels.colour_codes(values, None, -1, 1).tolist() == [[0, 124, 249, 249, 254, 253]]
    marks = np.array([[LOW, 0, HIGH, 0, 0, 0]], np.uint8)
    assert pixels.colour_codes(values, marks, -1, 1)[0, [0, 2]].tolist() == [251, 252]
    assert pixels.colour_codes(np.zeros((1, 1)), None, 0, 0).tolist() == [[0]]


@pytest.mark.parametrize("shape", [(7, 5), (640, 3), (161, 400)])
def test_shrink_averages_blocks_and_keeps_marks(shape):
    rng = np.random.default_rng(0)
    values = rng.normal(size=shape)
    marks = np.zeros(shape, np.uint8)
    marks[shape[0] // 2, shape[1] // 2] = NAN
    small, small_marks = pixels.shrink(values, marks)
    assert small.shape == tuple(min(n, pixels.LIMIT) for n in shape) == small_marks.shape
    assert small_marks.max() == NAN and (small_marks == NAN).sum() == 1
    edges = [[*np.linspace(0, n, min(n, pixels.LIMIT), endpoint=False).astype(int), n] for n in shape]
    i, j = small.shape[0] - 1, small.shape[1] // 2
    block = values[edges[0][i] : edges[0][i + 1], edges[1][j] : edges[1][j + 1]]
    assert small[i, j] == pytest.approx(block.mean())


def test_shrink_leaves_out_what_is_not_finite():
    values = np.array([[1.0, np.nan, np.inf, 3.0], [np.nan] * 4])
    assert pixels.shrink(values[:1], None, 1)[0].tolist() == [[2.0]]
    assert np.isnan(pixels.shrink(values[1:], None, 1)[0]).all()


def test_tiles_stand_in_reading_order():
    maps = np.arange(3, dtype=np.uint8)[:, None, None].repeat(2, 1).repeat(1, 2)
    c = pixels.CLEAR
    assert pixels.tile(maps, 2).tolist() == [[0, c, 1], [0, c, 1], [c, c, c], [2, c, c], [2, c, c]]
