import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels import recurrent_int
from mlinspect.kernels.recurrent_int import quantized_lstm

few = settings(derandomize=True, deadline=None, max_examples=60)
GATES = {"Input": "inputGateBias", "Forget": "forgetGateBias", "Cell": "cellBias", "Output": "outputGateBias"}

# raw x with 3 integer bits, and what gemmlowp's logistic and tanh give for it
GEMMLOWP = [
    (-32768, 11, -32767), (-20000, 243, -32767), (-9001, 3279, -31972), (-4096, 8815, -24964), (-1234, 13935, -9580),
    (-1, 16383, -8), (0, 16384, 0), (1, 16384, 8), (777, 17932, 6144), (4095, 23950, 24960), (12345, 31236, 32616),
    (32767, 32756, 32767),
]  # fmt: skip

# Android's own test of the operation: quantized_lstm
ANDROID = {
    "inputToInputWeights": [[146, 250], [235, 171], [10, 218], [171, 108]],
    "inputToForgetWeights": [[24, 50], [132, 179], [158, 110], [3, 169]],
    "inputToCellWeights": [[133, 34], [29, 49], [206, 109], [54, 183]],
    "inputToOutputWeights": [[195, 187], [11, 99], [109, 10], [218, 48]],
    "recurrentToInputWeights": [[254, 206, 77, 168], [71, 20, 215, 6], [223, 7, 118, 225], [59, 130, 174, 26]],
    "recurrentToForgetWeights": [[137, 240, 103, 52], [68, 51, 237, 112], [0, 220, 89, 23], [69, 4, 207, 253]],
    "recurrentToCellWeights": [[172, 60, 205, 65], [14, 0, 140, 168], [240, 223, 133, 56], [142, 64, 246, 216]],
    "recurrentToOutputWeights": [[106, 214, 67, 23], [59, 158, 45, 3], [119, 132, 49, 205], [129, 218, 11, 98]],
    "inputGateBias": [-7876, 13488, -726, 32839],
    "forgetGateBias": [9206, -46884, -11693, -38724],
    "cellBias": [39481, 48624, 48976, -21419],
    "outputGateBias": [-58999, -17050, -41852, -40538],
}


def test_androids_own_vectors():
    params = {name: np.array(value, np.int32 if "Bias" in name else np.uint8) for name, value in ANDROID.items()}
    cell, output = quantized_lstm(
        np.uint8([[166, 179], [50, 150]]),
        np.int16([[876, 1034, 955, -909], [761, 1029, 796, -1036]]),
        np.uint8([[136, 150, 140, 115], [135, 152, 138, 112]]),
        params,
        weights_zero_point=100,
        bias_scale=0.00408021 / 128,
    )
    np.testing.assert_array_equal(cell, np.int16([[1485, 1177, 1373, -1023], [1019, 1355, 1097, -1235]]))
    np.testing.assert_array_equal(output, np.uint8([[140, 151, 146, 112], [136, 156, 142, 112]]))
    assert (cell.dtype, output.dtype) == (np.int16, np.uint8)


@pytest.mark.parametrize(("x", "logistic", "tanh"), GEMMLOWP)
def test_functions_of_gemmlowp(x, logistic, tanh):
    assert recurrent_int._logistic(np.array([x])) == logistic
    assert recurrent_int._tanh(np.array([x])) == tanh


def test_functions_are_near_the_real_ones():
    x = np.arange(-32768, 32768)
    real = x * 2.0**-12
    assert np.abs(recurrent_int._logistic(x) - 2**15 / (1 + np.exp(-real))).max() < 12
    assert np.abs(recurrent_int._tanh(x) - 2**15 * np.tanh(real)).max() < 16


# ---- one number at a time ------------------------------------------------------------------------------------------


def nearest(x, shift):
    """x / 2**shift, halves away from zero."""
    return int(math.copysign((abs(x) + (1 << shift >> 1)) >> shift, x)) if shift else x


def product(a, b):
    return min((a * b + 2**14) // 2**15, 32767)


def clamp(x):
    return max(-32768, min(32767, x))


def slow_quantized_lstm(x, cell, output, params, zero_point, bias_scale):
    mantissa, shift = math.frexp(4096 * float(np.float32(bias_scale)))
    multiplier = math.floor(mantissa * 2**31 + 0.5)
    joined = [int(v) - 128 for v in [*x, *output]]
    gate = {}
    for name, bias in GATES.items():
        gate[name] = []
        for u in range(len(cell)):
            row = [*params[f"recurrentTo{name}Weights"][u], *params[f"inputTo{name}Weights"][u]]
            total = int(params[bias][u]) + sum(v * (int(w) - zero_point) for v, w in zip(joined, row, strict=True))
            scaled = (total * 2 ** max(shift, 0) * multiplier + 2**30) // 2**31
            gate[name].append(clamp(nearest(scaled, max(-shift, 0))))
    logistic = lambda name, u: int(recurrent_int._logistic(np.array([gate[name][u]]))[0])  # noqa: E731
    tanh = lambda v: int(recurrent_int._tanh(np.array([v]))[0])  # noqa: E731
    states, outputs = [], []
    for u, old in enumerate(cell):
        entering = product(logistic("Input", u), tanh(gate["Cell"][u]))
        state = clamp(nearest(entering, 4) + product(logistic("Forget", u), int(old)))
        doubled = 32767 if state > 16383 else -32768 if state < -16383 else 2 * state
        hidden = product(logistic("Output", u), tanh(doubled))
        states.append(state)
        outputs.append(128 + max(-128, min(127, nearest(hidden, 8))))
    return states, outputs


@few
@given(
    seed=st.integers(0, 999),
    size=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)),
    zero_point=st.integers(0, 255),
    bias_scale=st.sampled_from([3e-6, 3.1876640625e-05, 2.0**-12, 7e-4]),
)
def test_quantized_lstm_is_the_slow_one(seed, size, zero_point, bias_scale):
    rng = np.random.default_rng(seed)
    batch, inputs, units = size
    params = {f"inputTo{gate}Weights": rng.integers(0, 256, (units, inputs), np.uint8) for gate in GATES}
    params |= {f"recurrentTo{gate}Weights": rng.integers(0, 256, (units, units), np.uint8) for gate in GATES}
    params |= {bias: rng.integers(-60000, 60000, units, np.int32) for bias in GATES.values()}
    x, output = (rng.integers(0, 256, (batch, n), np.uint8) for n in (inputs, units))
    cell = rng.integers(-32768, 32768, (batch, units)).astype(np.int16)
    options = {"weights_zero_point": zero_point, "bias_scale": bias_scale}
    new_cell, new_output = quantized_lstm(x, cell, output, params, **options)
    for b in range(batch):
        states, outputs = slow_quantized_lstm(x[b], cell[b], output[b], params, zero_point, bias_scale)
        np.testing.assert_array_equal(new_cell[b], states)
        np.testing.assert_array_equal(new_output[b], outputs)
