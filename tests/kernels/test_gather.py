import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.gather import gather, gather_elements, gather_nd, scatter_nd

few = settings(derandomize=True, deadline=None, max_examples=60)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def numbered(shape):
    return np.arange(1, np.prod(shape) + 1, dtype=np.int16).reshape(shape)


@given(shape=shapes, wanted=st.lists(st.integers(0, 3), max_size=2), seed=st.integers(0, 99), data=st.data())
@few
def test_gather(shape, wanted, seed, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = shape[axis]
    indices = np.random.default_rng(seed).integers(-n - 1, n + 1, wanted, np.int32)  # some outside
    x = numbered(shape)
    got = gather(x, indices, axis)
    axis %= len(shape)
    assert got.shape == (*shape[:axis], *wanted, *shape[axis + 1 :])
    assert got.dtype == x.dtype
    for place in np.ndindex(indices.shape):
        i = indices[place]
        want = np.take(x, i, axis) if -n <= i < n else 0
        assert (got[(slice(None),) * axis + place] == want).all()


@given(shape=shapes, lead=st.lists(st.integers(1, 3), max_size=2), seed=st.integers(0, 99), data=st.data())
@few
def test_gather_nd_and_scatter_nd(shape, lead, seed, data):
    depth = data.draw(st.integers(1, len(shape)))
    rng = np.random.default_rng(seed)
    indices = np.stack([rng.integers(0, n, lead) for n in shape[:depth]], -1)
    x = numbered(shape)
    got = gather_nd(x, indices)
    assert got.shape == (*lead, *shape[depth:])
    for place in np.ndindex(*lead):
        assert (got[place] == x[tuple(indices[place])]).all()

    updates = rng.integers(-5, 5, got.shape).astype(np.int16)
    combine = {
        "update": lambda old, new: new,
        "add": lambda old, new: old + new,
        "sub": lambda old, new: old - new,
        "mul": lambda old, new: old * new,
        "max": np.maximum,
        "min": np.minimum,
    }
    for mode, f in combine.items():
        want = x.copy()
        for place in np.ndindex(*lead):  # repeated places meet one after the other
            want[tuple(indices[place])] = f(want[tuple(indices[place])], updates[place])
        assert np.array_equal(scatter_nd(x, indices, updates, mode), want), mode
    assert np.array_equal(x, numbered(shape))


@given(shape=shapes, seed=st.integers(0, 99), data=st.data())
@few
def test_gather_elements(shape, seed, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    wanted = [data.draw(st.integers(1, n)) for n in shape]
    wanted[axis] = data.draw(st.integers(1, 5))
    n = shape[axis]
    indices = np.random.default_rng(seed).integers(-n, n, wanted)
    x = numbered(shape)
    got = gather_elements(x, indices, axis)
    for place in np.ndindex(*wanted):
        source = list(place)
        source[axis] = indices[place]
        assert got[place] == x[tuple(source)]


def test_an_index_outside_is_refused():
    x = numbered((2, 3))
    with pytest.raises(IndexError):
        gather_nd(x, np.array([[2, 0]]))
    with pytest.raises(IndexError):
        scatter_nd(x, np.array([[0, 3]]), np.array([1]))
    with pytest.raises(IndexError):
        gather_elements(x, np.array([[3]]), 1)


def test_an_unknown_way_to_scatter_is_refused():
    with pytest.raises(UnsupportedError, match="'xor'"):
        scatter_nd(numbered((2,)), np.array([[0]]), np.array([1]), "xor")


def test_nothing_to_gather_from_gives_zeros():
    got = gather(np.zeros((2, 0, 3), np.int16), np.array([0, 5]), 1)
    assert got.shape == (2, 2, 3)
    assert not got.any()
    assert gather(np.zeros((0, 2)), np.array([0, 1])).tolist() == [[0, 0], [0, 0]]
