import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.normalize import (
    batch_norm,
    group_norm,
    instance_norm,
    instance_norm_one_pass,
    l2_normalize,
    layer_norm,
    local_response_norm,
)

few = settings(derandomize=True, deadline=None, max_examples=30)
seeds = st.integers(0, 2**32 - 1)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(seed=seeds, axis=st.integers(-4, 3), folded=st.booleans())
@few
def test_batch_norm(seed, axis, folded):
    x = normal(seed, 2, 3, 4, 5)
    mean, variance, gamma, beta = normal(seed + 1, 4, x.shape[axis])
    variance = np.abs(variance)
    got = np.moveaxis(batch_norm(x, mean, variance, gamma, beta, epsilon=0.01, folded=folded, axis=axis), axis, -1)
    line = np.moveaxis(x, axis, -1)
    if folded:  # Arm NN's order, to the bit
        slope = gamma / np.sqrt(variance + np.float32(0.01))
        assert np.array_equal(got, slope * line + (beta - slope * mean))
    want = (line - mean.astype(np.float64)) / np.sqrt(variance + 0.01) * gamma + beta
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_unfolded_batch_norm_keeps_small_differences_from_a_large_mean():
    x, mean, one = np.float32([[10000.001]]), np.float32([10000]), np.float32([1])
    got = batch_norm(x, mean, one / 9, one, one / 3, epsilon=0)
    want = (x.astype(np.float64) - 10000) * 3 + 1 / 3
    assert abs(got - want) < 1e-7
    folded = batch_norm(x, mean, one / 9, one, one / 3, epsilon=0, folded=True)
    assert abs(folded - want) > 1e-4


def test_batch_norm_without_gamma_and_beta():
    x = normal(0, 3, 5)
    mean, variance = normal(1, 5), np.abs(normal(2, 5))
    assert np.array_equal(
        batch_norm(x, mean, variance, epsilon=0.1),
        batch_norm(x, mean, variance, np.ones(5, np.float32), np.zeros(5, np.float32), epsilon=0.1),
    )


@given(seed=seeds)
@few
def test_instance_norm_follows_the_loops_to_the_bit(seed):
    x = normal(seed, 2, 3, 4, 2)
    got = instance_norm(x, 1.5, 0.3, epsilon=1e-3)
    for n, c in itertools.product(range(2), range(2)):
        values, count = x[n, :, :, c].ravel(), np.float32(12)
        mean = variance = np.float32(0)
        for value in values:
            mean += value
        mean /= count
        for value in values:
            variance += (value - mean) * (value - mean)
        variance /= count
        want = (values - mean) * np.float32(1.5) / np.sqrt(variance + np.float32(1e-3)) + np.float32(0.3)
        assert np.array_equal(got[n, :, :, c].ravel(), want)


def slow_moments(lanes):
    """Sum and sum of squares down each column as MindSpore Lite's binary has them: the product is not rounded."""
    total, squares = np.zeros((2, lanes.shape[1]), np.float32)
    for row in lanes:
        total = total + row
        squares = np.float32(squares + row.astype(np.float64) ** 2)
    return total, squares


def slow_inverse_deviation(mean, mean_square, epsilon):
    variance = np.float32(mean_square - mean.astype(np.float64) ** 2)
    return np.float32(1) / np.sqrt(variance + np.float32(epsilon))


@pytest.mark.parametrize("mean", [0, 3, 100])
def test_instance_norm_in_one_pass(mean):
    x, gamma, beta = normal(0, 2, 5, 4, 3) + mean, normal(1, 3), normal(2, 3)
    got = instance_norm_one_pass(x, gamma, beta, epsilon=1e-4)
    for n in range(2):
        places = x[n].reshape(20, 3)
        total, squares = slow_moments(places)
        centre = total / np.float32(20)
        slope = gamma * slow_inverse_deviation(centre, squares / np.float32(20), 1e-4)
        np.testing.assert_allclose(got[n].reshape(20, 3), (places - centre) * slope + beta, rtol=1e-6, atol=1e-6)


def test_instance_norms_as_mindspore_lite_computed():
    x = np.float32(100 + np.sin(np.arange(24) * 1.7).round(2)).reshape(1, 3, 4, 2)
    one, zero = np.ones(2, np.float32), np.zeros(2, np.float32)
    want = [0.017583467066287994, 1.2977643013000488, -0.3480217456817627, -1.4504539966583252]
    got = instance_norm_one_pass(x, one, zero, epsilon=1e-4).ravel()[:4]
    np.testing.assert_allclose(got, want, rtol=3e-7)
    assert abs(instance_norm(x, 1, 0, epsilon=1e-4).ravel()[1] - want[1]) > 1e-4  # two passes see the true variance


@pytest.mark.parametrize("function", [instance_norm, instance_norm_one_pass])
def test_instance_norm_by_channel(function):
    x, gamma, beta = normal(0, 2, 4, 3), normal(1, 3), normal(2, 3)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 0.1) * gamma + beta
    np.testing.assert_allclose(function(x, gamma, beta, epsilon=0.1), want, rtol=1e-5, atol=1e-6)


def test_instance_norm_in_double():
    x, gamma, beta = normal(0, 2, 16, 3) + 5, normal(1, 3), normal(2, 3)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 0.1) * gamma + beta
    got = instance_norm_one_pass(x, gamma, beta, epsilon=0.1, double=True)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("begin", [-1, 0, 1, -2])
def test_layer_norm(begin):
    x = normal(0, 3, 4, 5) + 2
    gamma, beta = normal(1, 5), normal(2, 5)
    axes = tuple(range(begin % 3, 3))
    wide = x.astype(np.float64)
    want = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 0.01)
    np.testing.assert_allclose(layer_norm(x, epsilon=0.01, begin_axis=begin), want, rtol=1e-4, atol=1e-5)
    got = layer_norm(x, gamma, beta, epsilon=0.01, begin_axis=begin)
    np.testing.assert_allclose(got, want * gamma + beta, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mean", [0, 3, 100])
@pytest.mark.parametrize("length", [2, 7, 15, 16, 18, 31, 32, 39, 64, 103])
def test_layer_norm_adds_in_lanes(length, mean):
    x = normal(length, 3, length) + mean
    got = layer_norm(x, epsilon=1e-5)
    for row, line in zip(x, got, strict=True):
        total = squares = np.float32(0)
        done = 0
        for lanes in (8, 4):
            if length >= 4 * lanes:
                end = done + (length - done) // lanes * lanes
                lane_totals, lane_squares = slow_moments(row[done:end].reshape(-1, lanes))
                total += np.add.accumulate(lane_totals)[-1]
                squares += np.add.accumulate(lane_squares)[-1]
                done = end
        for value in row[done:]:
            total += value
            squares = np.float32(squares + np.float64(value) ** 2)
        centre = total / np.float32(length)
        want = (row - centre) * slow_inverse_deviation(centre, squares / np.float32(length), 1e-5)
        np.testing.assert_allclose(line, want, rtol=3e-7)


def test_layer_norms_as_mindspore_lite_computed():
    x = np.float32(100 + np.sin(np.arange(39) * 1.7).round(2))
    got = [layer_norm(x[None, :length], epsilon=1e-5)[0, :4] for length in (18, 39)]
    want = [
        [-0.03914280980825424, 1.3844026327133179, -0.41300711035728455, -1.3764160871505737],
        [-0.036648571491241455, 1.3645167350769043, -0.4046352207660675, -1.352898120880127],
    ]
    np.testing.assert_allclose(got, want, rtol=3e-7)


def test_group_norm():
    x, gamma, beta = normal(0, 2, 3, 4, 6) + 1, normal(1, 6), normal(2, 6)
    wide = x.astype(np.float64)
    want = np.empty_like(wide)
    for n, g in itertools.product(range(2), range(3)):
        part = wide[n, :, :, 2 * g : 2 * g + 2]
        want[n, :, :, 2 * g : 2 * g + 2] = (part - part.mean()) / np.sqrt(part.var() + 0.01)
    np.testing.assert_allclose(group_norm(x, 3, gamma, beta, epsilon=0.01), want * gamma + beta, rtol=1e-5, atol=1e-6)


@given(seed=seeds, axis=st.integers(-3, 2), epsilon=st.sampled_from([1e-12, 0.5, 4.0]))
@few
def test_l2_normalize_follows_the_loops_to_the_bit(seed, axis, epsilon):
    x = normal(seed, 2, 3, 4)

    def line(values):
        total = np.float32(0)
        for value in values:
            total += value * value
        return values * (np.float32(1) / np.sqrt(max(total, np.float32(epsilon))))

    assert np.array_equal(l2_normalize(x, axis, epsilon=epsilon), np.apply_along_axis(line, axis, x))


def test_l2_normalize_zeros_and_several_axes():
    assert l2_normalize(np.zeros((1, 3), np.float32), epsilon=0.5).tolist() == [[0, 0, 0]]
    x = normal(0, 2, 3, 4)
    want = x / np.sqrt((x.astype(np.float64) ** 2).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(l2_normalize(x, (1, 2), epsilon=1e-6), want, rtol=1e-6)


@given(
    seed=seeds,
    axes=st.sampled_from([(-1,), (1,), (-2, -1)]),
    radius=st.integers(0, 4),
    divide=st.booleans(),
)
@few
def test_local_response_norm(seed, axes, radius, divide):
    x = normal(seed, 2, 3, 4, 5)
    got = local_response_norm(x, radius=radius, alpha=0.7, beta=0.6, bias=1.3, axes=axes, divide=divide)
    lines = np.moveaxis(x, axes, range(-len(axes), 0))
    got = np.moveaxis(got, axes, range(-len(axes), 0))
    sizes = lines.shape[-len(axes) :]
    for cell in itertools.product(*map(range, sizes)):
        near = tuple(slice(max(0, i - radius), i + radius + 1) for i in cell)
        squares = (lines[(..., *near)].astype(np.float64) ** 2).reshape(*lines.shape[: -len(axes)], -1).sum(-1)
        want = lines[(..., *cell)] * (1.3 + 0.7 * squares) ** -0.6
        np.testing.assert_allclose(got[(..., *cell)], want, rtol=1e-6, atol=1e-7)
