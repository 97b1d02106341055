import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect import formats
from mlinspect.kernels.recurrent_nnacl import gru, lstm, split_lstm_weights

few = settings(derandomize=True, deadline=None, max_examples=60)
sizes = st.tuples(*[st.integers(1, 4)] * 4, st.integers(1, 2))  # time, batch, inputs, units, directions


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_lstm(x, wx, wh, bias, h0, c0, projection, zoneout_hidden, zoneout_cell):
    """In double precision, from the definition; gates i, o, f, g."""
    steps, batch, units = len(x), x.shape[1], c0.shape[-1]
    output = np.zeros((steps, len(wx), batch, h0.shape[-1]))
    hidden, cell = h0.astype(float), c0.astype(float)
    for d in range(len(wx)):
        for t in range(steps) if d == 0 else reversed(range(steps)):
            for b in range(batch):
                total = wx[d] @ x[t, b] + bias[d, : 4 * units] + wh[d] @ hidden[d, b] + bias[d, 4 * units :]
                i, o, f, g = total.astype(float).reshape(4, units)
                c = sigmoid(f) * cell[d, b] + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
                if projection is not None:
                    h = projection[d] @ h
                output[t, d, b] = h
                hidden[d, b] = zoneout_hidden * hidden[d, b] + (1 - zoneout_hidden) * h
                cell[d, b] = zoneout_cell * cell[d, b] + (1 - zoneout_cell) * c
    return output, hidden, cell


def slow_gru(x, wx, wh, bias, h0):
    """In double precision, from the definition; gates z, r, n."""
    steps, batch, units = len(x), x.shape[1], h0.shape[-1]
    output, hidden = np.zeros((steps, len(wx), batch, units)), h0.astype(float)
    for d in range(len(wx)):
        for t in range(steps) if d == 0 else reversed(range(steps)):
            for b in range(batch):
                h = hidden[d, b]
                zx, rx, nx = (wx[d] @ x[t, b] + bias[d, : 3 * units]).astype(float).reshape(3, units)
                weights, offsets = wh[d].reshape(3, units, units), bias[d, 3 * units :].reshape(3, units)
                z = sigmoid(zx + weights[0] @ h + offsets[0])
                r = sigmoid(rx + weights[1] @ h + offsets[1])
                n = np.tanh(nx + weights[2] @ (r * h) + offsets[2])
                output[t, d, b] = hidden[d, b] = (1 - z) * n + z * h
    return output, hidden


def weights_of(rng, gates, directions, units, inputs, outputs):
    shapes = (directions, gates * units, inputs), (directions, gates * units, outputs), (directions, 2 * gates * units)
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


@few
@given(
    seed=st.integers(0, 999),
    size=sizes,
    outputs=st.integers(0, 4),
    zoneout=st.sampled_from([(0.0, 0.0), (0.1, 0.0), (0.0, 0.25), (0.5, 0.125)]),
)
def test_lstm_is_the_slow_one(seed, size, outputs, zoneout):
    rng = np.random.default_rng(seed)
    steps, batch, inputs, units, directions = size
    wx, wh, bias = weights_of(rng, 4, directions, units, inputs, outputs or units)
    projection = rng.normal(size=(directions, outputs, units)).astype(np.float32) if outputs else None
    x = rng.normal(size=(steps, batch, inputs)).astype(np.float32)
    h, c = (rng.normal(size=(directions, batch, n)).astype(np.float32) for n in (outputs or units, units))
    before = h.copy(), c.copy()
    results = lstm(
        x, wx, wh, bias, h, c, projection=projection, zoneout_hidden=zoneout[0], zoneout_cell=zoneout[1]
    )  # fmt: skip
    for result, wanted in zip(results, slow_lstm(x, wx, wh, bias, h, c, projection, *zoneout), strict=True):
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-3)  # exp and tanh are approximate
    np.testing.assert_array_equal((h, c)[0], before[0])
    np.testing.assert_array_equal((h, c)[1], before[1])


@few
@given(seed=st.integers(0, 999), size=sizes, length=st.none() | st.integers(-1, 5))
def test_gru_is_the_slow_one(seed, size, length):
    rng = np.random.default_rng(seed)
    steps, batch, inputs, units, directions = size
    wx, wh, bias = weights_of(rng, 3, directions, units, inputs, units)
    x = rng.normal(size=(steps, batch, inputs)).astype(np.float32)
    h = rng.normal(size=(directions, batch, units)).astype(np.float32)
    output, hidden = gru(x, wx, wh, bias, h, sequence_length=length)
    wanted, wanted_hidden = slow_gru(x, wx, wh, bias, h)
    if length is not None:
        wanted[max(length, 0) :] = 0
    np.testing.assert_allclose(output, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(hidden, wanted_hidden, rtol=1e-3, atol=1e-3)


def test_states_without_directions():
    rng = np.random.default_rng(1)
    weights = weights_of(rng, 4, 1, 3, 2, 3)
    x, h, c = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 4, 2), (4, 3), (4, 3)))
    for flat, full in zip(lstm(x, *weights, h, c), lstm(x, *weights, h[None], c[None]), strict=True):
        np.testing.assert_array_equal(flat, full)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("biases", [0, 1, 2])
def test_flat_weights_come_apart(directions, biases):
    rng = np.random.default_rng(directions)
    wx, wh, bias = weights_of(rng, 4, directions, 3, 2, 3)
    bias = bias.reshape(directions, 2, 12)
    bias[:, biases:] = 0
    other = [0, 2, 3, 1]  # i, o, f, g -> i, f, g, o

    def flatten(matrix):
        return matrix.reshape(directions, 4, 3, -1)[:, other].reshape(directions, -1)

    flat_bias = bias.reshape(directions, 2, 4, 3)[:, :, other][:, :biases]
    if biases == 2:
        matrices = np.concatenate([flatten(wx), flatten(wh)], axis=1)
    else:
        matrices = np.concatenate([flatten(wx).ravel(), flatten(wh).ravel()])
    flat = np.concatenate([matrices.ravel(), flat_bias.ravel()])
    for result, wanted in zip(split_lstm_weights(flat, 2, 3, directions), (wx, wh, bias), strict=True):
        np.testing.assert_array_equal(result, wanted.reshape(result.shape))


def test_flat_weights_of_a_wrong_number():
    with pytest.raises(ValueError, match="13 LSTM weights"):
        split_lstm_weights(np.zeros(13, np.float32), 1, 1, 1)


# ---- what MindSpore Lite 2.0.0 computed ----------------------------------------------------------------------------

ZIP = zipfile.ZipFile(Path(__file__).parents[1] / "data" / "mslite-ops.zip")
CASES = [c for c in json.loads(ZIP.read("manifest.json"))["cases"] if c["op"] in ("LSTM", "GRU")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_vendor_cases(case):
    network = formats.read(np.frombuffer(ZIP.read(f"{case['case']}.ms"), np.uint8))
    values = np.load(io.BytesIO(ZIP.read(f"{case['case']}.npz")))
    feeds = {port.tensor: values[f"in_{i}"] for i, port in enumerate(network.graphs[0].inputs)}
    (layer,) = network.layers.values()
    inputs = [feeds[i] if i in feeds else network.tensors[i].array for i in layer.inputs]
    if case["op"] == "LSTM":
        zoneout = {name: layer.attrs[name] for name in ("zoneout_hidden", "zoneout_cell")}
        results = lstm(*inputs, **zoneout)
    else:
        results = gru(*inputs)
    for i, result in enumerate(results):
        assert result.shape == values[f"out_{i}"].shape
        np.testing.assert_allclose(result, values[f"out_{i}"], rtol=1e-6, atol=2e-7)
