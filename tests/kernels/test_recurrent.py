import io
import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect import formats
from mlinspect.errors import UnsupportedError
from mlinspect.kernels.libm import expf, tanhf
from mlinspect.kernels.quantize import dequantize
from mlinspect.kernels.recurrent import lstm, qlstm, unidirectional_sequence_lstm

few = settings(derandomize=True, deadline=None, max_examples=60)
F = np.float32
ALL_GATES = ("input", "forget", "cell", "output")
BIAS = {"input": "inputGateBias", "forget": "forgetGateBias", "cell": "cellBias", "output": "outputGateBias"}
FLAGS = ("cifg", "peephole", "projection", "layer_norm")
flags = st.fixed_dictionaries({name: st.booleans() for name in FLAGS})
sizes = st.tuples(*[st.integers(1, 4)] * 4)  # batch, inputs, units, outputs


# ---- the cell as the reference backend writes it: one element, one operation at a time -----------------------------


def store(value, grid):
    """Write to a buffer and read back."""
    if grid is None:
        return value
    scale, zero_point, dtype = F(grid[0]), grid[1], np.iinfo(grid[2])
    steps = float(value / scale)
    whole = math.copysign(math.floor(abs(steps) + 0.5), steps) if not math.isnan(steps) else -zero_point
    return F(min(max(whole + zero_point, dtype.min), dtype.max) - zero_point) * scale


def one(function, value):
    return function(F([value]))[0]


def sigmoid(value):
    return F(1) / (F(1) + one(expf, -value))


def activation(value, function):
    table = {1: lambda v: max(v, F(0)), 3: lambda v: min(max(v, F(0)), F(6)), 4: lambda v: one(tanhf, v), 6: sigmoid}
    return table[function](value)


def accumulate(total, row, x, grid):
    for weight, value in zip(row, x, strict=True):
        total = store(total + weight * value, grid)
    return total


def normalise(values):
    total, squares, count = F(0), F(0), F(len(values))
    for value in values:
        total, squares = total + value, squares + value * value
    mean = total / count
    variance = squares / count - mean * mean
    with np.errstate(invalid="ignore"):
        inverse = F(1) / np.sqrt(F(1e-8) if variance == 0 else variance)
    return [(value - mean) * inverse for value in values]


def slow_cell(x, h, c, p, cell, grids):
    """One row of the batch: final gate buffers by name, new cell state."""
    gates = [gate for gate in ALL_GATES if not (cell["cifg"] and gate == "input")]
    units, buffers = range(len(c)), {}
    for gate in gates:
        start = [F(0)] * len(c) if cell["layer_norm"] or not cell["bias"] else p[BIAS[gate]]
        buffers[gate] = [store(F(value), grids["sums"][gate]) for value in start]
        for source, values in (("input", x), ("recurrent", h)):
            weights = p[f"{source}To{gate.capitalize()}Weights"]
            buffers[gate] = [accumulate(buffers[gate][u], weights[u], values, grids["sums"][gate]) for u in units]

    def finish(gate, function, state):
        values = buffers[gate]
        if cell["peephole"] and gate != "cell":
            weights = p[f"cellTo{gate.capitalize()}Weights"]
            values = [store(v + w * s, grids["sums"][gate]) for v, w, s in zip(values, weights, state, strict=True)]
        if cell["layer_norm"]:
            values = [store(v, grids["norms"][gate]) for v in normalise(values)]
            weights = p[f"{gate}LayerNormWeights"]
            values = [store(v * w, grids["norms"][gate]) for v, w in zip(values, weights, strict=True)]
            values = [store(v + b, grids["biased"]) for v, b in zip(values, p[BIAS[gate]], strict=True)]
        if function:
            values = [store(activation(v, function), grids["active"]) for v in values]
        buffers[gate] = values

    for gate in gates[:-1]:
        finish(gate, cell["activation"] if gate == "cell" else 6, c)
    new = [store(f * s, grids["cell"]) for f, s in zip(buffers["forget"], c, strict=True)]
    if cell["cifg"]:
        buffers["forget"] = [store(F(1) - f, grids["active"]) for f in buffers["forget"]]
    enter = buffers["forget" if cell["cifg"] else "input"]
    new = [store(n + g * i, grids["cell"]) for n, g, i in zip(new, buffers["cell"], enter, strict=True)]
    if cell["clip_cell"] > 0:
        new = [store(min(max(n, F(-cell["clip_cell"])), F(cell["clip_cell"])), grids["cell"]) for n in new]
    finish("output", 6, new)
    if cell["activation"]:
        buffers["cell"] = [store(activation(n, cell["activation"]), grids["active"]) for n in new]
    pairs = zip(buffers["output"], buffers["cell"], strict=True)
    buffers["output"] = [store(o * g, grids["hidden"]) for o, g in pairs]
    return buffers, new


def slow_projection(hidden, p, cell, grid, out):
    if not cell["projection"]:
        return [store(v, out) for v in hidden]
    start = F(0) if grid is None else -F(grid[1]) * F(grid[0])
    bias = p.get("projectionBias")
    rows = enumerate(p["projectionWeights"])
    sums = [accumulate(start if bias is None else store(bias[o], grid), row, hidden, grid) for o, row in rows]
    clip = cell["clip_projection"]
    sums = [store(v, out) for v in sums]
    return [store(min(max(v, F(-clip)), F(clip)), out) for v in sums] if clip > 0 else sums


def slow_lstm(x, h, c, p, cell, scale):
    grid = None if scale is None else (scale, 0, "int16")
    same = dict.fromkeys(ALL_GATES, grid)
    grids = {"sums": same, "norms": same, "biased": grid, "active": grid, "cell": grid, "hidden": grid}
    buffers, cells, outputs = [], [], []
    for row in zip(x, h, c, strict=True):
        gates, new = slow_cell(*row, p, cell, grids)
        buffers.append(gates)
        cells.append(new)
        outputs.append(slow_projection(gates["output"], p, cell, grid, grid))
    order = ("cell", "forget", "output") if cell["cifg"] else ("input", "cell", "forget", "output")
    scratch = np.concatenate([np.ravel([row[gate] for row in buffers]) for gate in order])
    return scratch.reshape(len(x), -1), np.array(outputs), np.array(cells), np.array(outputs)


# ---- random cells --------------------------------------------------------------------------------------------------


def random_params(rng, inputs, units, outputs, choice, grid=None):
    """Every array that the chosen parts need; on a grid of steps when quantised."""

    def draw(*shape):
        return (rng.normal(size=shape) if grid is None else rng.integers(-99, 100, shape) * grid).astype(F)

    gates = ALL_GATES[1:] if choice["cifg"] else ALL_GATES
    p = {f"inputTo{gate.capitalize()}Weights": draw(units, inputs) for gate in gates}
    p |= {f"recurrentTo{gate.capitalize()}Weights": draw(units, outputs) for gate in gates}
    p |= {BIAS[gate]: draw(units) for gate in gates}
    if choice["peephole"]:
        p |= {f"cellTo{gate.capitalize()}Weights": draw(units) for gate in gates if gate != "cell"}
    if choice["layer_norm"]:
        p |= {f"{gate}LayerNormWeights": draw(units) for gate in gates}
    if choice["projection"]:
        p |= {"projectionWeights": draw(outputs, units), "projectionBias": draw(outputs)}
    return p


def random_case(seed, size, choice, grid=None):
    rng = np.random.default_rng(seed)
    batch, inputs, units, outputs = size
    outputs = outputs if choice["projection"] else units
    p = random_params(rng, inputs, units, outputs, choice, grid)
    x, h, c = (rng.normal(size=(batch, n)).astype(F) for n in (inputs, outputs, units))
    return p, x, h, c


@few
@given(
    seed=st.integers(0, 999), size=sizes, choice=flags, function=st.sampled_from([0, 1, 3, 4, 6]), clip=st.booleans()
)
def test_float_lstm_is_the_slow_one(seed, size, choice, function, clip):
    p, x, h, c = random_case(seed, size, choice)
    clips = {"clip_cell": 0.5, "clip_projection": 0.25} if clip else {"clip_cell": 0.0, "clip_projection": 0.0}
    results = lstm(x, h, c, p, activation=function, **choice, **clips)
    expected = slow_lstm(x, h, c, p, {**choice, **clips, "activation": function, "bias": True}, None)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == F
        np.testing.assert_array_equal(result, wanted)


@few
@given(
    seed=st.integers(0, 999), size=sizes, choice=flags, function=st.sampled_from([0, 1, 3, 4, 6]), clip=st.booleans()
)
def test_int16_lstm_rounds_every_sum(seed, size, choice, function, clip):
    scale = 2.0**-9
    p, x, h, c = random_case(seed, size, choice, 0.01)
    x, h, c = (np.round(v * 8) / F(8) for v in (x, h, c))
    clips = {"clip_cell": 0.5, "clip_projection": 0.25} if clip else {"clip_cell": 0.0, "clip_projection": 0.0}
    results = lstm(x, h, c, p, activation=function, **choice, **clips, scale=scale)
    expected = slow_lstm(x, h, c, p, {**choice, **clips, "activation": function, "bias": True}, scale)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == np.int16
        np.testing.assert_array_equal(result * F(scale), wanted)


@few
@given(seed=st.integers(0, 999), size=sizes, choice=flags, clip=st.booleans(), with_bias=st.booleans())
def test_qlstm_is_the_slow_one(seed, size, choice, clip, with_bias):
    p, x, h, c = random_case(seed, size, choice, 0.01)
    if not with_bias:
        p.pop("projectionBias", None)
    rng = np.random.default_rng(seed + 1)
    gates = ALL_GATES[1:] if choice["cifg"] else ALL_GATES
    sums = {gate: 2.0**-10 * (1 + rng.random()) for gate in gates}
    norms = {gate: 2.0**-14 * (1 + rng.random()) for gate in gates} if choice["layer_norm"] else None
    stored_bias = {BIAS[gate]: rng.integers(-90000, 90000, size[2]).astype(np.int32) for gate in gates}
    hidden, out, state = (0.0071, 3), (0.0093, -5), (0.011, 7)
    clips = {"clip_cell": 0.5, "clip_projection": 0.25} if clip else {"clip_cell": 0.0, "clip_projection": 0.0}
    parts = {name: value for name, value in choice.items() if name != "layer_norm"}
    results = qlstm(
        x, h, c, {**p, **stored_bias}, input_scale=0.02, intermediate_scales=sums, hidden_quantization=hidden,
        cell_scale=2.0**-12, output_quantization=out, output_state_quantization=state, layer_norm_scales=norms,
        **parts, **clips,
    )  # fmt: skip

    slow = dict(p)
    grids = {"sums": {gate: (sums[gate], 0, "int16") for gate in gates}, "biased": (1 / 4096, 0, "int16")}
    grids |= {"active": (2.0**-12, 0, "int16"), "cell": (2.0**-12, 0, "int16"), "hidden": (*hidden, "int8")}
    if norms is not None:
        grids["norms"] = {gate: (F(0.02) * F(norms[gate]) * F(1024), 0, "int16") for gate in gates}
        slow |= {BIAS[gate]: stored_bias[BIAS[gate]].astype(F) * (F(norms[gate]) / F(1024)) for gate in gates}
    cell = {**choice, **clips, "activation": 4, "bias": False}
    for b, row in enumerate(zip(x, h, c, strict=True)):
        buffers, new = slow_cell(*row, slow, cell, grids)
        output = slow_projection(buffers["output"], slow, cell, (*out, "int16"), (*out, "int8"))
        next_state = [store(v, (*state, "int8")) for v in output]
        np.testing.assert_array_equal(dequantize(results[0][b], *state), next_state)
        np.testing.assert_array_equal(dequantize(results[1][b], 2.0**-12), new)
        np.testing.assert_array_equal(dequantize(results[2][b], *out), output)
    assert [result.dtype.name for result in results] == ["int8", "int16", "int8"]


@few
@given(seed=st.integers(0, 999), size=sizes, choice=flags, time_major=st.booleans())
def test_sequence_is_single_steps(seed, size, choice, time_major):
    p, _, h, c = random_case(seed, size, choice)
    x = np.random.default_rng(seed).normal(size=(3, *size[:2])).astype(F)
    given_x = x if time_major else np.ascontiguousarray(x.swapaxes(0, 1))
    last_h, last_c, output = unidirectional_sequence_lstm(given_x, h, c, p, time_major=time_major, **choice)
    for t in range(3):
        _, h, c, step = lstm(x[t], h, c, p, **choice)
        np.testing.assert_array_equal(output[t] if time_major else output[:, t], step)
    np.testing.assert_array_equal(last_h, h)
    np.testing.assert_array_equal(last_c, c)


def test_without_activation_the_output_comes_from_the_cell_gate():
    choice = {"cifg": True, "peephole": False, "projection": False, "layer_norm": False}
    p, x, h, c = random_case(3, (2, 3, 4, 4), choice)
    scratch, _, state, output = lstm(x, h, c, p, activation=0, **choice)
    gate = scratch.ravel()[:8].reshape(2, 4)
    assert not np.allclose(gate, state)
    np.testing.assert_allclose(
        gate, x @ p["inputToCellWeights"].T + h @ p["recurrentToCellWeights"].T + p["cellBias"], 1e-5
    )
    assert (np.abs(output) < np.abs(gate)).all()


def test_qlstm_ignores_biases_without_layer_norm():
    choice = {"cifg": False, "peephole": False, "projection": False, "layer_norm": False}
    p, x, h, c = random_case(4, (2, 3, 4, 4), choice, 0.01)
    options = {"input_scale": 0.02, "intermediate_scales": dict.fromkeys(ALL_GATES, 2.0**-10), "cell_scale": 2.0**-12}
    options |= {f"{name}_quantization": (0.0078, 0) for name in ("hidden", "output", "output_state")}
    results = qlstm(x, h, c, p, **options)
    without = qlstm(x, h, c, {name: value for name, value in p.items() if "Bias" not in name}, **options)
    for result, wanted in zip(results, without, strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_equal_gates_are_normalised_to_nearly_nothing():
    choice = {"cifg": True, "peephole": False, "projection": False, "layer_norm": True}
    p, x, h, c = random_case(5, (1, 2, 4, 4), choice)
    p |= {name: np.ones_like(value) for name, value in p.items() if "Weights" in name}
    scratch = lstm(np.ones_like(x), np.zeros_like(h), c, p, activation=0, **choice)[0]
    np.testing.assert_array_equal(scratch.ravel()[:4], p["cellBias"])  # variance exactly 0: (v - mean) = 0


def test_unknown_activation():
    choice = {"cifg": True, "peephole": False, "projection": False, "layer_norm": False}
    p, x, h, c = random_case(6, (1, 1, 1, 1), choice)
    with pytest.raises(UnsupportedError, match="activation 2"):
        lstm(x, h, c, p, activation=2, **choice)


# ---- what Arm NN 22.11 computed ------------------------------------------------------------------------------------

ZIP = zipfile.ZipFile(Path(__file__).parents[1] / "data" / "armnn-22.11.zip")
CASES = {
    case["name"]: case
    for case in json.loads(ZIP.read("manifest.json"))["cases"]
    if case["name"].startswith(("lstm_", "qlstm_", "usl_"))
}


def vendor_case(name):
    """The layer's attributes and constants (stored and decoded), the case's inputs and outputs."""
    case = CASES[name]
    network = formats.read(np.frombuffer(ZIP.read(case["file"]), np.uint8))
    values = np.load(io.BytesIO(ZIP.read(case["npz"])))
    layer = next(layer for layer in network.layers.values() if layer.members)
    tensors = [network.tensors[i] for i in layer.inputs[-len(layer.members) :]]
    params = {}
    for member, tensor in zip(layer.members, tensors, strict=True):
        q = tensor.quantization
        scale, zero_point = (1.0, 0) if q is None else (q.scale[0], q.zero_point[0])
        params[member] = tensor.array, scale, dequantize(tensor.array, scale, zero_point) if q else tensor.array
    return case, layer.attrs, params, values


@pytest.mark.parametrize("name", CASES)
def test_bits_of_armnn(name):
    case, attrs, params, values = vendor_case(name)
    infos, outs = case["inputs"], case["outputs"]
    if case["layer"] == "Lstm":  # the states are read with the input's quantisation
        infos = [infos[0]] * 3
    stored = [values[f"in_{i}"] for i in range(3)]
    x, h, c = (dequantize(v, i["scale"], i["offset"]) for v, i in zip(stored, infos, strict=True))
    p = {member: decoded for member, (_, _, decoded) in params.items()}
    options = {name: attrs[f"{name}Enabled"] for name in ("cifg", "peephole", "projection")}
    if case["layer"] == "QLstm":
        p |= {member: raw for member, (raw, _, _) in params.items() if member in BIAS.values()}
        norms = {g: params[f"{g}LayerNormWeights"][1] for g in ALL_GATES if f"{g}LayerNormWeights" in params}
        quantization = [(out["scale"], out["offset"]) for out in outs]
        results = qlstm(
            x, h, c, p, **options, input_scale=infos[0]["scale"], layer_norm_scales=norms or None,
            intermediate_scales={gate: attrs[f"{gate}IntermediateScale"] for gate in ALL_GATES},
            hidden_quantization=(attrs["hiddenStateScale"], attrs["hiddenStateZeroPoint"]),
            cell_scale=outs[1]["scale"], output_quantization=quantization[2],
            output_state_quantization=quantization[0], clip_cell=attrs["cellClip"],
            clip_projection=attrs["projectionClip"],
        )  # fmt: skip
    else:
        options |= {"layer_norm": attrs["layerNormEnabled"], "activation": attrs["activationFunc"]}
        options |= {"clip_cell": attrs["clippingThresCell"], "clip_projection": attrs["clippingThresProj"]}
        if case["layer"] == "Lstm":
            results = lstm(x, h, c, p, **options, scale=outs[0]["scale"] or None)
        else:
            results = unidirectional_sequence_lstm(x, h, c, p, **options, time_major=attrs["timeMajor"])
    for result, out in zip(results, outs, strict=True):
        if out["binding_id"] in case.get("unwritten_outputs", ()):
            continue
        expected = values[f"out_{out['binding_id']}"]
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
