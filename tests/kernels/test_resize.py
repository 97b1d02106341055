import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.resize import crop_and_resize, resize, source_coordinates

few = settings(derandomize=True, deadline=None, max_examples=60)
F = np.float32
TRANSFORMS = ["asymmetric", "align_corners", "half_pixel"]


@st.composite
def images(draw):
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(st.integers(1, 3)))
    x = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(size=shape).astype(np.float32)
    return x, (draw(st.integers(1, 9)), draw(st.integers(1, 9)))


def armnn_place(i, n_in, n_out, transform):
    ends = transform == "align_corners" and n_out > 1
    scale = F(n_in - 1) / F(n_out - 1) if ends else F(n_in) / F(n_out)
    if transform == "half_pixel":
        return (F(i) + F(0.5)) * scale - F(0.5)
    if transform == "tf_half_pixel_for_nn":
        return (F(i) + F(0.5)) * scale
    return F(i) * scale


def mslite_place(i, n_in, n_out, transform):
    if transform == "align_corners":
        return F(i) / (F(n_out - 1) / F(n_in - 1)) if n_in > 1 and n_out > 1 else F(0)
    scale = F(n_out) / F(n_in)
    return max(F(0), F(i + 0.5) / scale - F(0.5)) if transform == "half_pixel" else F(i) / scale


@given(n_in=st.integers(1, 300), n_out=st.integers(2, 300), transform=st.sampled_from(TRANSFORMS))
@few
def test_coordinates_to_the_bit(n_in, n_out, transform):
    for place, by_division in ((armnn_place, False), (mslite_place, True)):
        want = [place(i, n_in, n_out, transform) for i in range(n_out)]
        assert source_coordinates(n_in, n_out, transform, by_division=by_division).tolist() == want


def test_the_two_roundings_differ():
    x = np.float32([3, 4]).reshape(1, 1, 2, 1)
    cells = [resize(x, (1, 82), "nearest", by_division=way)[0, 0, 41, 0] for way in (False, True)]
    assert cells == [3, 4]  # 41 * (2 / 82) is a little less than 1


@given(image=images(), transform=st.sampled_from(TRANSFORMS))
@few
def test_linear_follows_armnn_to_the_bit(image, transform):
    x, size = image
    height, width = x.shape[1:3]

    def ends(i, n_in, n_out):
        place = armnn_place(i, n_in, n_out, transform)
        low = max(math.floor(place), 0)
        high = math.ceil(place) if transform == "half_pixel" else low + 1
        return low, min(high, n_in - 1), place - F(math.floor(place))

    def lerp(a, b, w):
        return w * b + (F(1) - w) * a

    got = resize(x, size, "linear", transform)
    for i, j in itertools.product(*map(range, size)):
        y0, y1, v = ends(i, height, size[0])
        x0, x1, u = ends(j, width, size[1])
        want = lerp(lerp(x[:, y0, x0], x[:, y0, x1], u), lerp(x[:, y1, x0], x[:, y1, x1], u), v)
        assert np.array_equal(got[:, i, j], want)


@pytest.mark.parametrize("by_division", [False, True])
@given(image=images(), transform=st.sampled_from([*TRANSFORMS, "tf_half_pixel_for_nn"]))
@few
def test_nearest(by_division, image, transform):
    x, size = image
    if by_division and transform == "tf_half_pixel_for_nn":
        return
    place = mslite_place if by_division else armnn_place

    def cell(i, n_in, n_out):
        where = float(place(i, n_in, n_out, transform))
        return min(max(math.floor(where + 0.5 if transform == "align_corners" else where), 0), n_in - 1)

    got = resize(x, size, "nearest", transform, by_division=by_division)
    for i, j in itertools.product(*map(range, size)):
        assert np.array_equal(got[:, i, j], x[:, cell(i, x.shape[1], size[0]), cell(j, x.shape[2], size[1])])


def test_nearest_copies_any_dtype():
    x = np.int8([[-128, 127]]).reshape(1, 1, 2, 1)
    got = resize(x, (2, 4), "nearest")
    assert got.dtype == np.int8
    assert got[0, 1, :, 0].tolist() == [-128, -128, 127, 127]


@given(image=images(), transform=st.sampled_from(TRANSFORMS), a=st.sampled_from([-0.5, -0.75]))
@few
def test_cubic_is_the_sum_over_sixteen_cells(image, transform, a):
    x, size = image
    size = tuple(max(2, n) for n in size) if transform == "align_corners" else size

    def weight(d):
        d = abs(d)
        if d <= 1:
            return (a + 2) * d**3 - (a + 3) * d**2 + 1
        return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0

    def taps(i, n_in, n_out):
        place = float(mslite_place(i, n_in, n_out, transform))
        cells = range(math.floor(place) - 1, math.floor(place) + 3)
        return [(min(max(cell, 0), n_in - 1), weight(place - cell)) for cell in cells]

    got = resize(x, size, "cubic", transform, by_division=True, cubic_coeff=a)
    for i, j in itertools.product(*map(range, size)):
        want = sum(
            wy * wx * x[:, cy, cx].astype(np.float64)
            for cy, wy in taps(i, x.shape[1], size[0])
            for cx, wx in taps(j, x.shape[2], size[1])
        )
        np.testing.assert_allclose(got[:, i, j], want, rtol=1e-5, atol=1e-5)


def test_cubic_as_mindspore_lite_computed():
    x = np.float32([1, -2, 4, 0.5, 3]).reshape(1, 1, 5, 1)
    got = resize(x, (1, 7), "cubic", "half_pixel", by_division=True).ravel()
    want = [
        1.0,
        -1.3702623844146729,
        -0.59183669090271,
        4.0,
        1.4125372171401978,
        1.1822147369384766,
        3.1967923641204834,
    ]
    np.testing.assert_allclose(got, want, rtol=3e-7)
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5, 1)
    got = resize(x, (1, 3), "cubic", "asymmetric", by_division=True, cubic_coeff=-0.5).ravel()
    np.testing.assert_allclose(got, [1.0, 2.6666669845581055, 4.370370864868164], rtol=3e-7)


def test_aligned_corners_of_a_single_cell():
    x = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1) + 1
    for method in ("linear", "nearest"):
        assert resize(x, (1, 1), method, "align_corners").ravel().tolist() == [1]
    # MindSpore Lite divides 0 by 0
    assert np.isnan(resize(x, (1, 1), "linear", "align_corners", by_division=True)).all()
    assert resize(x, (1, 1), "nearest", "align_corners", by_division=True).ravel().tolist() == [1]


def test_a_neighbour_of_weight_zero_is_read_unless_armnn_rounds_up_to_the_cell_itself():
    x = np.float32([1, np.inf, 2]).reshape(1, 1, 3, 1)
    for transform, by_division, spoiled in (
        ("half_pixel", False, False),
        ("half_pixel", True, True),
        ("asymmetric", False, True),
    ):
        with np.errstate(invalid="ignore"):
            got = resize(x, (1, 3), "linear", transform, by_division=by_division)
        assert np.isnan(got[0, 0, 0, 0]) == spoiled


def test_same_size_is_the_same_image():
    x = np.random.default_rng(0).normal(size=(1, 5, 4, 2)).astype(np.float32)
    for method, transform in itertools.product(["nearest", "linear", "cubic"], TRANSFORMS):
        assert np.array_equal(resize(x, (5, 4), method, transform), x)


@given(
    seed=st.integers(0, 2**32 - 1),
    image=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
@few
def test_crop_and_resize_reads_between_cells(seed, image, size):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, *image, 2)).astype(np.float32)
    boxes = rng.integers(-2, 7, (3, 4)).astype(np.float32) / 4
    images = rng.integers(0, 2, 3)
    got = crop_and_resize(x, boxes, images, size, 7)

    def place(start, end, i, n_in, n_out):
        share = start + i * (end - start) / (n_out - 1) if n_out > 1 else (start + end) / 2
        return float(share) * (n_in - 1)

    for b, i, j in itertools.product(range(3), *map(range, size)):
        y = place(boxes[b, 0], boxes[b, 2], i, image[0], size[0])
        z = place(boxes[b, 1], boxes[b, 3], j, image[1], size[1])
        edges = (abs(y), abs(y - image[0] + 1), abs(z), abs(z - image[1] + 1))
        if any(0 < edge < 1e-5 for edge in edges):
            continue  # rounding decides what is outside
        if not (0 <= y <= image[0] - 1 and 0 <= z <= image[1] - 1):
            assert got[b, i, j].tolist() == [7, 7]
            continue
        y0, z0 = math.floor(y), math.floor(z)
        y1, z1 = min(y0 + 1, image[0] - 1), min(z0 + 1, image[1] - 1)
        top, bottom = (x[images[b], row, z0] * (1 - z + z0) + x[images[b], row, z1] * (z - z0) for row in (y0, y1))
        np.testing.assert_allclose(got[b, i, j], top * (1 - y + y0) + bottom * (y - y0), rtol=1e-5, atol=5e-6)


def test_unknown_method_is_refused():
    with pytest.raises(UnsupportedError, match="lanczos"):
        resize(np.zeros((1, 2, 2, 1), np.float32), (4, 4), "lanczos")
