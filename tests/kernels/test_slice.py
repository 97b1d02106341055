import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.slice import box, crop, strided_slice

few = settings(derandomize=True, deadline=None, max_examples=200)


def numbered(shape):
    return np.arange(1, np.prod(shape) + 1, dtype=np.int16).reshape(shape)


def armnn_places(n, begin, end, stride, begin_mask, end_mask, shrink):
    """The indices that Arm NN's loop visits (GetStartForAxis, GetStopForAxis, StridedSlice.cpp)."""
    start = (0 if stride > 0 else n - 1) if begin_mask else begin + n if begin < 0 else begin
    start = min(max(start, 0), n - 1)
    if shrink:
        stop = start + 1 if stride > 0 else start - 1
    else:
        stop = (n if stride > 0 else -1) if end_mask else end + n if end < 0 else end
        stop = min(max(stop, 0), n) if stride > 0 else min(max(stop, -1), n - 1)
    places, i = [], start
    while i < stop if stride > 0 else i > stop:
        places.append(i)
        i += stride
    return places


@given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=1, max_size=4))
@few
def test_strided_slice_of_armnn(data, shape):
    begin = [data.draw(st.integers(-n - 2, n + 2)) for n in shape]
    end = [data.draw(st.integers(-n - 2, n + 2)) for n in shape]
    stride = [data.draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape]
    masks = [data.draw(st.integers(0, 15)) for _ in range(3)]
    x = numbered(shape)
    got = strided_slice(x, begin, end, stride, *masks, clamp_begin=True)
    for d, n in reversed(list(enumerate(shape))):
        places = armnn_places(n, begin[d], end[d], stride[d], *(m >> d & 1 for m in masks))
        x = np.take(x, places, d)
        if masks[2] >> d & 1:
            x = np.squeeze(x, d)
    assert np.array_equal(got, x)


@given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=1, max_size=4))
@few
def test_strided_slice_is_indexing_within_bounds(data, shape):
    entries = data.draw(st.integers(0, len(shape)))
    begin = [data.draw(st.integers(0, n)) for n in shape[:entries]]
    end = [data.draw(st.integers(b, n)) for b, n in zip(begin, shape, strict=False)]
    stride = [data.draw(st.integers(1, 3)) for _ in begin]
    x = numbered(shape)
    want = x[tuple(map(slice, begin, end, stride))]
    got = strided_slice(x, begin, end, stride)
    assert np.array_equal(got, want)
    assert np.shares_memory(got, x) or not got.size
    order = data.draw(st.permutations(range(entries)))
    axes = [i - data.draw(st.sampled_from([0, len(shape)])) for i in order]
    shuffled = ([v[i] for i in order] for v in (begin, end, stride))
    assert np.array_equal(strided_slice(x, *shuffled, axes=axes), want)


def test_new_axes_and_ellipsis():
    x = numbered((4, 5, 6))
    assert np.array_equal(strided_slice(x, (0, 1), (0, 3), (1, 1), new_axis_mask=1), x[None, 1:3])
    assert np.array_equal(strided_slice(x, (1, 0, 2), (2, 0, 4), (1, 1, 1), new_axis_mask=2), x[1:2, None, 2:4])
    # an ellipsis is one whole axis, as MindSpore Lite reads it
    assert np.array_equal(strided_slice(x, (9, 2), (9, 3), (1, 1), ellipsis_mask=1), x[:, 2:3])
    assert np.array_equal(
        strided_slice(
            x, (0, 1, 0, 2), (0, 2, 0, 3), (1, 1, 1, 1), new_axis_mask=1, shrink_axis_mask=2, ellipsis_mask=4
        ),
        x[None, 1, :, 2:3],
    )


def test_down_to_index_0():
    x = np.arange(5)
    assert strided_slice(x, [3], [-6], [-1]).tolist() == [3, 2, 1, 0]
    assert strided_slice(x, [0], [0], [-2], 1, 1).tolist() == [4, 2, 0]
    assert strided_slice(x, [3], [-1], [-1]).tolist() == []  # -1 is the last element


def test_box_and_crop():
    x = numbered((3, 4, 5))
    assert np.array_equal(box(x, (1, 0, 2), (2, -1, 3)), x[1:, :, 2:5])
    assert np.array_equal(crop(x, (3, 2, 2), (1, 2), 1), x[:, 1:3, 2:4])
    assert np.array_equal(crop(x, (3, 2, 2), (1,), -2), x[:, 1:3, :2])  # the last axis starts at 0
