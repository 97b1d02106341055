"""The 16-bit fixed-point LSTM cell of TFLite and Android NN, which Arm NN calls QuantizedLstm.

Real numbers are int16 with ``m`` integer bits: ``raw * 2**(m - 15)``. The functions on them follow gemmlowp's
definition of fixed-point arithmetic; all work in int64 and keep to the int16 range.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mlinspect.kernels.fixedpoint import high_multiply16, multiply, quantize_multiplier, rounding_shift
from mlinspect.kernels.recurrent import BIASES, weights_name

_ONE = 32767  # 1 with 0 integer bits, as near as it gets
_EXP_MINUS_EIGHTH, _THIRD = 28918, 10923  # 0 integer bits
_EXP_MINUS_POWERS = ((-2, 25520), (-1, 19875), (0, 12055), (1, 4435), (2, 600), (3, 11))  # e: exp(-2**e)
_48_OVER_17, _MINUS_32_OVER_17 = 23130, -15420  # 2 integer bits


def _saturate(x: np.ndarray) -> np.ndarray:
    return np.clip(x, -32768, 32767)


def _more_bits(x: np.ndarray, exponent: int) -> np.ndarray:
    """``x * 2**exponent``, saturated one step before the type's end as gemmlowp does it."""
    threshold = (1 << (15 - exponent)) - 1
    return np.where(x > threshold, 32767, np.where(x < -threshold, -32768, x << exponent))


def _exp_of_negative(a: np.ndarray, integer_bits: int) -> np.ndarray:
    """exp(a) for a <= 0: a Taylor series on the last quarter, times exp of the whole quarters by their bits."""
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    x = (rest << integer_bits) + (1 << 12)
    x2 = high_multiply16(x, x)
    x3, x4 = high_multiply16(x2, x), high_multiply16(x2, x2)
    series = rounding_shift(high_multiply16(rounding_shift(x4, 2) + x3, _THIRD) + x2, 1)
    result = _saturate(_EXP_MINUS_EIGHTH + high_multiply16(x + series, _EXP_MINUS_EIGHTH))
    quarters = rest - a
    for exponent, factor in _EXP_MINUS_POWERS[: integer_bits + 2]:
        result = np.where(quarters >> (fraction + exponent) & 1, high_multiply16(result, factor), result)
    return np.where(a == 0, _ONE, result)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    """2 / (1 + x) for 0 <= x <= 1 (0 integer bits), with 2 integer bits: three Newton steps."""
    half_denominator = (x + _ONE + 1) >> 1
    y = _48_OVER_17 + high_multiply16(half_denominator, _MINUS_32_OVER_17)
    for _ in range(3):
        missing = (1 << 13) - high_multiply16(half_denominator, y)
        y = y + _more_bits(high_multiply16(y, missing), 2)
    return y


def _logistic(a: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-a)), from 3 integer bits to 0."""
    positive = _more_bits(_reciprocal(_exp_of_negative(-np.abs(a), 3)), 1)
    return np.where(a == 0, 1 << 14, np.where(a > 0, positive, _ONE - positive))


def _tanh(a: np.ndarray) -> np.ndarray:
    """tanh(a), from 3 integer bits to 0: 2 / (1 + exp(-2 |a|)) - 1 with a's sign."""
    size = _more_bits(_reciprocal(_exp_of_negative(-np.abs(a), 4)) - (1 << 13), 2)  # one integer bit more doubles
    return np.sign(a) * size


def quantized_lstm(
    x: np.ndarray,
    cell_state: np.ndarray,
    output_state: np.ndarray,
    params: Mapping[str, np.ndarray],
    *,
    weights_zero_point: int,
    bias_scale: float,
) -> tuple[np.ndarray, np.ndarray]:
    """One step of the QuantizedLstm layer, all in integers.

    Parameters
    ----------
    x : ndarray of uint8, shape (batch, inputs)
        Scale 1/128, zero point 128.
    cell_state : ndarray of int16, shape (batch, units)
        Scale 1/2048.
    output_state : ndarray of uint8, shape (batch, units)
        Scale 1/128, zero point 128.
    params : mapping of str to ndarray
        As stored, by the schema's names: uint8 weights ``[units, inputs]`` (``inputToForgetWeights``, ...) and
        ``[units, units]`` (``recurrentToForgetWeights``, ...), int32 biases ``[units]``.
    weights_zero_point : int
        Of all weights.
    bias_scale : float
        Scale of the biases: the weights' scale / 128.

    Returns
    -------
    cell_state : ndarray of int16
    output_state : ndarray of uint8

    Notes
    -----
    Android NN's QUANTIZED_16BIT_LSTM with TFLite's quantised LstmCell. Arm NN's CpuRef has no QuantizedLstm; the test
    of its other backends allows 2 steps in the cell state and 1 in the output. All of them put the recurrent weights
    before the input weights but ``x`` before ``output_state``: the first ``inputs`` columns of the joined matrix,
    whichever weights these are, meet ``x``.

    Examples
    --------
    >>> names = [weights_name(source, gate) for source in ("input", "recurrent") for gate in BIASES]
    >>> params = {name: np.full((1, 1), 101, np.uint8) for name in names}
    >>> params |= {bias: np.full(1, 1000, np.int32) for bias in BIASES.values()}
    >>> state = np.zeros((1, 1), np.int16), np.full((1, 1), 128, np.uint8)
    >>> quantized_lstm(np.full((1, 1), 200, np.uint8), *state, params, weights_zero_point=100, bias_scale=2**-13)
    (array([[142]], dtype=int16), array([[133]], dtype=uint8))
    """
    inputs = np.concatenate([x, output_state], axis=1).astype(np.float64) - 128
    gates, to_gate = {}, quantize_multiplier(4096 * float(np.float32(bias_scale)))  # 3 integer bits
    for gate, bias in BIASES.items():
        weights = np.concatenate([params[weights_name(source, gate)] for source in ("recurrent", "input")], axis=1)
        total = inputs @ (weights.astype(np.float64).T - weights_zero_point)  # exact: far below 2**53
        gates[gate] = _saturate(multiply(total.astype(np.int64) + params[bias], *to_gate))

    entering = high_multiply16(_logistic(gates["input"]), _tanh(gates["cell"]))
    kept = high_multiply16(_logistic(gates["forget"]), cell_state.astype(np.int64))
    new_state = _saturate(rounding_shift(entering, 4) + kept)
    output = high_multiply16(_logistic(gates["output"]), _tanh(_more_bits(new_state, 1)))
    return new_state.astype(np.int16), (np.clip(rounding_shift(output, 8), -128, 127) + 128).astype(np.uint8)
