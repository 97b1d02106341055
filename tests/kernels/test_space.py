import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.space import batch_to_space, depth_to_space, space_to_batch, space_to_depth

few = settings(derandomize=True, deadline=None, max_examples=40)
small = st.integers(1, 3)


def numbered(shape):
    return np.arange(1, np.prod(shape) + 1, dtype=np.int16).reshape(shape)


@given(n=small, h=small, w=small, c=small, by=small, bx=small, data=st.data())
@few
def test_space_to_batch_and_back(n, h, w, c, by, bx, data):
    top, left = data.draw(st.integers(0, min(2, h * by - 1))), data.draw(st.integers(0, min(2, w * bx - 1)))
    x = numbered((n, h * by - top, w * bx - left, c))
    got = space_to_batch(x, (by, bx), ((top, 0), (left, 0)), value=-9)
    assert got.shape == (by * bx * n, h, w, c)
    for py, px, i, y, z in itertools.product(range(by), range(bx), range(n), range(h), range(w)):
        row, column = y * by + py - top, z * bx + px - left
        want = x[i, row, column] if row >= 0 and column >= 0 else -9
        assert (got[(py * bx + px) * n + i, y, z] == want).all()
    assert np.array_equal(batch_to_space(got, (by, bx), ((top, 0), (left, 0))), x)
    whole = batch_to_space(got, (by, bx), ((0, 0), (0, 0)))
    assert np.array_equal(batch_to_space(got, (by, bx), ((0, 1), (0, 1))), whole[:, :-1, :-1])


@given(n=small, h=small, w=small, c=small, block=small)
@few
def test_space_to_depth_and_back(n, h, w, c, block):
    x = numbered((n, h * block, w * block, c))
    got = space_to_depth(x, block)
    assert got.shape == (n, h, w, block * block * c)
    for y, z, by, bx, k in itertools.product(range(h), range(w), range(block), range(block), range(c)):
        assert (got[:, y, z, (by * block + bx) * c + k] == x[:, y * block + by, z * block + bx, k]).all()
    assert np.array_equal(depth_to_space(got, block), x)


@pytest.mark.parametrize("block", [1, 2, 3])
def test_depth_to_space_by_columns(block):
    x = numbered((2, 2, 3, 2 * block * block))
    got = depth_to_space(x, block, "CRD")
    for y, z, by, bx, k in itertools.product(range(2), range(3), range(block), range(block), range(2)):
        assert (got[:, y * block + by, z * block + bx, k] == x[:, y, z, (k * block + by) * block + bx]).all()


def test_blocks_that_do_not_fit_are_refused():
    x = numbered((2, 4, 6, 4))
    none = ((0, 0), (0, 0))
    for act, said in (
        (lambda: space_to_depth(x, 0), "4 x 6 pixels cannot be cut into blocks of 0 x 0"),
        (lambda: space_to_depth(x, 3), "4 x 6 pixels cannot be cut into blocks of 3 x 3"),
        (lambda: depth_to_space(x, 0), "4 channels cannot be spread over blocks of 0 x 0"),
        (lambda: depth_to_space(x, 3), "4 channels cannot be spread over blocks of 3 x 3"),
        (lambda: space_to_batch(x, (2, 4), none), "4 x 6 pixels cannot be cut into blocks of 2 x 4"),
        (lambda: batch_to_space(x, (2, 2), none), "2 batch entries do not make up blocks of 2 x 2"),
        (lambda: batch_to_space(x, (0, 2), none), "blocks of 0 x 2"),
    ):
        with pytest.raises(ValueError, match=said):
            act()
