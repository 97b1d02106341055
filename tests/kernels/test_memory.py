import math
import threading
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels import memory
from mlinspect.kernels.memory import aligned, blocks, copy_runs, scratch, small_buffers

few = settings(derandomize=True, deadline=None, max_examples=60)


@few
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 40))
def test_blocks_cover_everything_once_and_in_order(shape, limit):
    array = np.arange(math.prod(shape)).reshape(shape)
    parts = [array[block] for block in blocks(shape, limit)]
    assert np.array_equal(np.concatenate([part.ravel() for part in parts]), array.ravel())
    assert all(part.size <= limit for part in parts)
    assert all(part.flags.c_contiguous for part in parts)


def test_blocks_of_nothing():
    assert sum(math.prod(np.zeros((0, 3))[block].shape) for block in blocks((0, 3), 2)) == 0


@few
@given(st.data(), st.sampled_from([0, 1 << 13]))
def test_runs_are_copied_whatever_their_strides(data, few_numbers):
    shape = [data.draw(st.integers(0, 4)) for _ in range(3)]
    source = np.random.default_rng(0).normal(size=[2 * n + 1 for n in shape])
    steps = [data.draw(st.sampled_from([1, 2])) for _ in shape]
    view = source[tuple(slice(0, s * n, s) for s, n in zip(steps, shape, strict=True))]
    order = data.draw(st.permutations(range(3)))
    target = np.zeros([shape[i] for i in order]).transpose(np.argsort(order))
    single = np.zeros(shape, np.float32)
    with mock.patch.object(memory, "_FEW", few_numbers):
        copy_runs(target, view)
        copy_runs(single, view)
    assert np.array_equal(target, view)
    assert np.array_equal(single, view.astype(np.float32))


def test_aligned_memory_is_ones_own():
    a, b = aligned((3, 5), np.float32), aligned((7,), np.int8)
    assert a.ctypes.data % 64 == b.ctypes.data % 64 == 0
    assert a.shape == (3, 5) and a.dtype == np.float32 and a.flags.c_contiguous and a.flags.writeable
    assert not np.shares_memory(a, b)


def test_scratch_memory_is_each_threads_own():
    first, second = scratch((3, 7))
    assert first.ctypes.data % 64 == second.ctypes.data % 64 == 0
    assert not np.shares_memory(first, second)
    found = []
    thread = threading.Thread(target=lambda: found.extend(scratch((3, 7))))
    thread.start()
    thread.join()
    assert not any(np.shares_memory(one, other) for one in found for other in (first, second))
    large, _ = scratch((first.base.size + 5,))
    large[:] = 1
    assert large.size == first.base.size + 5


def test_buffers_are_small_in_this_thread_only_and_after_an_error_as_before():
    before, seen = np.getbufsize(), []
    try:
        with small_buffers():
            thread = threading.Thread(target=lambda: seen.append(np.getbufsize()))
            thread.start()
            thread.join()
            seen.append(np.getbufsize())
            raise RuntimeError
    except RuntimeError:
        pass
    assert seen == [before, 1024]
    assert np.getbufsize() == before
