"""Constants: stored numbers of real values are those that the real values came from."""

import dataclasses

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.execute.values import dequantize_array, quantize_array, quantize_constant


@pytest.mark.parametrize("name", ["digits_cnn_int8.ms", "digits_cnn_u8.armnn"])
def test_every_constant_comes_back(name):
    model = mi.open(mi.samples.path(name))
    found = [tensor for tensor in model.network.tensors.values() if tensor.data is not None and tensor.quantized]
    assert {tensor.dtype for tensor in found} >= {"int32"}  # biases
    for tensor in found:
        again = quantize_constant(model.dequantized[tensor.index], tensor)
        assert again.dtype == tensor.array.dtype
        np.testing.assert_array_equal(again, tensor.array)
        same = model.with_constant(tensor.index, model.dequantized[tensor.index], quantize=True)
        np.testing.assert_array_equal(same.weights[tensor.index], tensor.array)


def test_depthwise_weights_of_arm_nn_by_output_channel():
    stored = np.random.default_rng(0).integers(-127, 128, (2, 3, 4, 5)).astype(np.int8)
    q = ir.Quantization(np.linspace(0.1, 0.6, 6), np.zeros(6, np.int64), 0, symmetric=True)
    tensor = ir.Tensor(0, "w", 0, "constant", "int8", "QSymmS8", stored.shape, "MIHW", stored, q, True)
    real = dequantize_array(stored, tensor)
    np.testing.assert_allclose(real[1, 2], stored[1, 2] * np.float32(0.6), rtol=1e-6)  # channel 2 * 2 + 1
    np.testing.assert_array_equal(quantize_array(real, tensor), stored)


def test_numbers_beyond_the_grid_become_its_ends():
    q = ir.Quantization(np.array([0.5]), np.array([0]), bits=4)
    tensor = ir.Tensor(0, "w", 0, "constant", "int8", "Int8", (4,), quantization=q, quantized=True)
    assert quantize_constant(np.float32([-99, -1, 3.4, 99]), tensor).tolist() == [-8, -2, 7, 7]


@pytest.mark.parametrize(
    ("name", "constant"), [("digits_cnn_int8.ms", "res.weight"), ("digits_cnn_u8.armnn", "stem/weights")]
)
def test_a_constant_that_is_an_output_is_real_in_float_mode(name, constant):
    network = mi.open(mi.samples.path(name)).network
    weights = next(tensor for tensor in network.tensors.values() if tensor.name == constant)
    main = network.graphs[0]
    main = dataclasses.replace(main, outputs=(*main.outputs, ir.Port("weights", weights.index)))
    model = mi.Model(dataclasses.replace(network, graphs=(main,)))
    x = mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16
    np.testing.assert_array_equal(model.run(x, quantize=True)["weights"], weights.array)
    want = model.dequantized[constant]
    for found in (
        model.run(x, mode="float"),
        model.trace(x, mode="float").outputs,
        model.session(x, mode="float").finish(),
    ):
        assert found["weights"].dtype == np.float32
        np.testing.assert_array_equal(found["weights"], want)


def test_bfloat16_is_the_upper_half_of_float32():
    tensor = ir.Tensor(0, "w", 0, "constant", "bfloat16", "BFloat16", (3,))
    assert dequantize_array(np.uint16([0x3F80, 0xC020, 0x7F80]), tensor).tolist() == [1, -2.5, np.inf]


def test_constants_without_a_grid_are_only_cast():
    tensor = ir.Tensor(0, "w", 0, "constant", "float16", "Float16", (2,))
    got = quantize_constant(np.float32([0.5, 1 / 3]), tensor)
    assert got.tolist() == np.float16([0.5, 1 / 3]).tolist()
