import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.shape import (
    arange,
    channel_shuffle,
    concat_views,
    one_hot,
    pad,
    permute,
    resolve_shape,
    reverse_sequence,
    split,
    split_views,
    split_with_overlap,
)

few = settings(derandomize=True, deadline=None, max_examples=50)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def numbered(shape, dtype=np.int16):
    return np.arange(1, np.prod(shape) + 1, dtype=dtype).reshape(shape)


def mirrored(i, n, repeat_border):
    """Where place `i`, counted from the body's start, comes from when a body of length `n` is mirrored on and on."""
    period = 2 * n if repeat_border else max(2 * n - 2, 1)
    i %= period
    return i if i < n else period - i - (1 if repeat_border else 0)


@given(shape=shapes, mode=st.sampled_from(["constant", "reflect", "symmetric"]), data=st.data())
@few
def test_pad(shape, mode, data):
    pads = [(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))) for _ in shape]
    x = numbered(shape)
    got = pad(x, pads, mode, 7)
    assert got.dtype == x.dtype
    assert list(got.shape) == [b + n + a for n, (b, a) in zip(shape, pads, strict=True)]
    for place in np.ndindex(got.shape):
        inner = [p - b for p, (b, _) in zip(place, pads, strict=True)]
        if mode == "constant":
            body = all(0 <= i < n for i, n in zip(inner, shape, strict=True))
            assert got[place] == (x[tuple(inner)] if body else 7)
        else:
            assert (
                got[place] == x[tuple(mirrored(i, n, mode == "symmetric") for i, n in zip(inner, shape, strict=True))]
            )


def test_concat_views_first_wins_and_gaps_are_zero():
    a, b = np.full((2, 2), 1), np.full((2, 3), 2)
    got = concat_views([a, b], [(0, 0), (1, 1)], (4, 4))
    assert got.tolist() == [[1, 1, 0, 0], [1, 1, 2, 2], [0, 2, 2, 2], [0, 0, 0, 0]]


@given(shape=shapes, data=st.data())
@few
def test_split_and_concat_are_inverse(shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = numbered(shape)
    cut = data.draw(st.integers(0, shape[axis]))
    parts = split(x, data.draw(st.sampled_from([[cut, -1], [-1, shape[axis] - cut], [cut, shape[axis] - cut]])), axis)
    assert [p.shape[axis] for p in parts] == [cut, shape[axis] - cut]
    origins = [[0] * len(shape), [cut if d == axis else 0 for d in range(len(shape))]]
    assert np.array_equal(concat_views(parts, origins, shape), x)
    for part, view in zip(parts, split_views(x, origins, [p.shape for p in parts]), strict=True):
        assert np.array_equal(part, view)
        assert np.shares_memory(view, x) or not view.size


def test_split_in_equal_parts():
    assert [p.tolist() for p in split(np.arange(6), [], 0, 3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError, match="equal division"):
        split(np.arange(6), [], 0, 4)


def test_split_with_overlap():
    x = numbered((2, 10))
    parts = split_with_overlap(x, [1, 2, 1], [0, 1, 2], [1, 2, 0], 1)
    assert [p[0].tolist() for p in parts] == [[1, 2, 3, 4], [3, 4, 5, 6, 7, 8, 9, 10], [7, 8, 9, 10]]


@given(shape=shapes, seed=st.integers(0, 99))
@few
def test_permute_moves_axis_i_to_mapping_i(shape, seed):
    mappings = np.random.default_rng(seed).permutation(len(shape))
    x = numbered(shape)
    got = permute(x, mappings)
    for place in np.ndindex(x.shape):
        target = [0] * len(shape)
        for i, m in enumerate(mappings):
            target[m] = place[i]
        assert got[tuple(target)] == x[place]


@given(groups=st.integers(1, 4), inner=st.integers(1, 4), axis=st.integers(0, 2))
@few
def test_channel_shuffle(groups, inner, axis):
    shape = [2, 2, 2]
    shape[axis] = groups * inner
    x = numbered(shape)
    got = channel_shuffle(x, groups, axis)
    for g, k in itertools.product(range(groups), range(inner)):
        assert np.array_equal(np.take(got, k * groups + g, axis), np.take(x, g * inner + k, axis))


@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=4), seed=st.integers(0, 99), data=st.data())
@few
def test_reverse_sequence(shape, seed, data):
    seq_axis, batch_axis = data.draw(st.permutations(range(len(shape))))[:2]
    lengths = np.random.default_rng(seed).integers(0, shape[seq_axis] + 1, shape[batch_axis])
    x = numbered(shape)
    got = reverse_sequence(x, lengths, seq_axis, batch_axis)
    for place in np.ndindex(x.shape):
        source, n = list(place), lengths[place[batch_axis]]
        if place[seq_axis] < n:
            source[seq_axis] = n - 1 - place[seq_axis]
        assert got[place] == x[tuple(source)]


@given(shape=shapes, depth=st.integers(1, 5), wrap=st.booleans(), data=st.data())
@few
def test_one_hot(shape, depth, wrap, data):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    indices = np.random.default_rng(depth).integers(-depth - 1, depth + 2, shape)
    got = one_hot(indices, depth, 5, -1, axis, wrap)
    assert got.dtype == np.float32
    got = np.moveaxis(got, axis, -1)
    assert got.shape == (*shape, depth)
    for place in np.ndindex(indices.shape):
        i = indices[place] + (depth if wrap and indices[place] < 0 else 0)
        assert got[place].tolist() == [5 if k == i else -1 for k in range(depth)]


def test_arange_adds_up_in_single_precision():
    got = arange(0, 1, 0.1, np.float32)
    value, want = np.float32(0), []
    for _ in range(10):
        want.append(value)
        value = np.float32(value + np.float32(0.1))
    assert got.tolist() == want
    assert arange(5, -4, -3, np.int32).tolist() == [5, 2, -1]
    assert arange(5, 5, 1, np.int32).tolist() == []
    assert arange(0, 7, 2, np.int32).dtype == np.int32


def test_resolve_shape():
    assert resolve_shape((2, 3, 4), (-1,)) == (24,)
    assert resolve_shape((2, 3, 4), (0, 0, 2, -1)) == (2, 3, 2, 2)
    assert resolve_shape((0, 3), (0, 3)) == (0, 3)
    assert resolve_shape((), (1, -1)) == (1, 1)
