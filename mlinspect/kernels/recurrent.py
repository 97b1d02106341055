"""LSTM and GRU layers, step by step as the vendors' runtimes take them.

Arm NN's Lstm, UnidirectionalSequenceLstm and QLstm are one cell with different buffers: float32 ones, or quantised ones
whose value is rounded after every single multiply-accumulate. ``_step`` is that cell, ``_Grid`` a quantised buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.libm import expf, tanhf
from mlinspect.kernels.quantize import quantize, round_half_away

Params = Mapping[str, np.ndarray]

# the schema's name of each gate's bias, in the schema's order of gates
BIASES = {"input": "inputGateBias", "forget": "forgetGateBias", "cell": "cellBias", "output": "outputGateBias"}


class _Grid(NamedTuple):
    """A quantised buffer: its values are ``scale * n``, ``low <= n <= high`` (n is the stored integer - zero point)."""

    scale: np.ndarray | np.float32
    low: np.float32
    high: np.float32
    zero_point: int
    dtype: str


class _Cell(NamedTuple):
    """What an LSTM cell does."""

    gates: tuple[str, ...]
    peephole: bool
    layer_norm: bool
    activation: int
    clip: float


class _Grids(NamedTuple):
    """What a cell's buffers hold (None: float32): gates summed, normalised, biased, activated; cell, hidden state."""

    sums: Mapping[str, _Grid | None]
    normalised: Mapping[str, _Grid | None]
    biased: _Grid | None
    activated: _Grid | None
    cell: _Grid | None
    hidden: _Grid | None


def _grid(scale: float | np.floating | np.ndarray, zero_point: int = 0, dtype: str = "int16") -> _Grid:
    limits = np.iinfo(dtype)
    low, high = np.float32(limits.min - zero_point), np.float32(limits.max - zero_point)
    return _Grid(np.asarray(scale, np.float32)[()], low, high, zero_point, dtype)


def _store(values: np.ndarray, grid: _Grid | None) -> np.ndarray:
    """What is read back after writing ``values`` to a buffer: nearest grid point, ties away from zero."""
    if grid is None:
        return values
    steps = round_half_away(values / grid.scale)
    np.minimum(steps, grid.high, out=steps)
    np.maximum(steps, grid.low, out=steps)
    steps *= grid.scale
    return steps


def _stored(values: np.ndarray, grid: _Grid | None) -> np.ndarray:
    """The integers behind values that lie on ``grid``."""
    return values if grid is None else quantize(values, grid.scale, grid.zero_point, grid.dtype)


def _accumulate(total: np.ndarray, x: np.ndarray, weights: np.ndarray, grid: _Grid | None) -> np.ndarray:
    """``total + x @ weights``, term after term as the runtime adds them, each sum rounded to ``grid``."""
    total, term = total.copy(), np.empty_like(total)
    for column, row in zip(x.T[:, :, None], weights, strict=True):
        np.multiply(column, row, out=term)
        total += term
        if grid is not None:
            total = _store(total, grid)
    return total


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + expf(-x))


def _activate(x: np.ndarray, function: int) -> np.ndarray:
    if function == 1:
        return np.where(x > 0, x, np.float32(0))
    if function == 3:
        return np.minimum(np.where(x > 0, x, np.float32(0)), np.float32(6))
    if function == 4:
        return tanhf(x)
    if function == 6:
        return _sigmoid(x)
    raise UnsupportedError(f"LSTM activation {function}; there are 0, 1 (ReLu), 3 (ReLu6), 4 (TanH), 6 (Sigmoid)")


def _normalise(x: np.ndarray) -> np.ndarray:
    """Rows to mean 0, variance 1. The order of sums matters: the variance is a difference of nearly equal numbers."""
    count = np.float32(x.shape[1])
    mean = np.cumsum(x, axis=1, dtype=np.float32)[:, -1:] / count
    variance = np.cumsum(x * x, axis=1, dtype=np.float32)[:, -1:] / count - mean * mean
    with np.errstate(invalid="ignore"):  # rounding can make it negative: NaN, as in the runtime
        return (x - mean) * (1 / np.sqrt(np.where(variance == 0, np.float32(1e-8), variance)))


def weights_name(source: str, gate: str) -> str:
    """The schema's name of the weights from ``source`` (input, recurrent or cell) to a gate.

    Parameters
    ----------
    source, gate : str

    Returns
    -------
    str

    Examples
    --------
    >>> weights_name("input", "forget")
    'inputToForgetWeights'
    """
    return f"{source}To{gate.capitalize()}Weights"


def _weights(params: Params, source: str, gates: tuple[str, ...]) -> np.ndarray:
    """The matrices from ``source`` to all gates side by side, ``[K, gates * units]``."""
    matrices = [params[weights_name(source, gate)] for gate in gates]
    return np.ascontiguousarray(np.concatenate(matrices).T, np.float32)


def _step(
    sums: np.ndarray, cell_state: np.ndarray, params: Params, cell: _Cell, grids: _Grids
) -> tuple[list[np.ndarray], np.ndarray]:
    """From the gates' sums ``[B, gates * units]`` to the final gate buffers (hidden state last) and the cell state."""
    units = cell_state.shape[1]
    parts = {gate: sums[:, i * units : (i + 1) * units] for i, gate in enumerate(cell.gates)}

    def gate(name: str, state: np.ndarray | None) -> np.ndarray:
        value = parts[name]
        if cell.peephole and state is not None:
            value = _store(value + params[weights_name("cell", name)] * state, grids.sums[name])
        if cell.layer_norm:
            value, grid = _normalise(value), grids.normalised[name]
            if grid is not None:
                value = np.nan_to_num(value, nan=0.0)  # a NaN is stored as the integer 0
            value = _store(params[f"{name}LayerNormWeights"] * _store(value, grid), grid)
            value = _store(value + params[BIASES[name]], grids.biased)
        return value

    forget = _store(_sigmoid(gate("forget", cell_state)), grids.activated)
    modulation = gate("cell", None)
    if cell.activation:
        modulation = _store(_activate(modulation, cell.activation), grids.activated)
    if "input" in parts:
        enter = _store(_sigmoid(gate("input", cell_state)), grids.activated)
    else:
        enter = _store(1 - forget, grids.activated)
    new_state = _store(_store(forget * cell_state, grids.cell) + modulation * enter, grids.cell)
    if cell.clip > 0:
        new_state = _store(np.clip(new_state, -cell.clip, cell.clip), grids.cell)
    leave = _store(_sigmoid(gate("output", new_state)), grids.activated)
    if cell.activation:  # without one the runtime takes what the buffer still holds: the modulation gate
        modulation = _store(_activate(new_state, cell.activation), grids.activated)
    hidden = _store(leave * modulation, grids.hidden)
    buffers = [enter, modulation, forget, hidden] if "input" in parts else [modulation, enter, hidden]
    return buffers, new_state


def _project(hidden: np.ndarray, params: Params, grid: _Grid | None, out: _Grid | None, clip: float) -> np.ndarray:
    """The projection of the hidden state: summed on ``grid``, then stored (and clipped) on ``out``."""
    weights = np.ascontiguousarray(params["projectionWeights"].T, np.float32)
    start = np.zeros((len(hidden), weights.shape[1]), np.float32)
    if "projectionBias" in params:
        start = _store(start + params["projectionBias"], grid)
    elif grid is not None and grid.zero_point:
        start -= grid.zero_point * grid.scale  # the buffer starts as integer zeros
    value = _store(_accumulate(start, hidden, weights, grid), out)
    return _store(np.clip(value, -clip, clip), out) if clip > 0 else value


def _run(
    x: np.ndarray,
    output_state: np.ndarray,
    cell_state: np.ndarray,
    params: Params,
    cell: _Cell,
    projection: bool,
    clip_projection: float,
    grid: _Grid | None,
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Steps over ``x`` ``[T, B, I]``: the last step's gate buffers, the last cell state, the outputs ``[T, B, O]``."""
    same = dict.fromkeys(cell.gates, grid)
    grids = _Grids(same, same, grid, grid, grid, grid)
    steps, batch, depth = x.shape
    recurrent = _weights(params, "recurrent", cell.gates)
    start = np.zeros((steps * batch, recurrent.shape[1]), np.float32)
    if not cell.layer_norm:
        start = _store(start + np.concatenate([params[BIASES[gate]] for gate in cell.gates]), grid)
    sums = _accumulate(start, x.reshape(-1, depth), _weights(params, "input", cell.gates), grid)
    outputs = np.empty((steps, batch, recurrent.shape[0]), np.float32)
    buffers: list[np.ndarray] = []
    for t, step_sums in enumerate(sums.reshape(steps, batch, -1)):
        step_sums = _accumulate(step_sums, output_state, recurrent, grid)
        buffers, cell_state = _step(step_sums, cell_state, params, cell, grids)
        hidden = buffers[-1]
        if projection:
            hidden = _project(hidden, params, grid, grid, clip_projection)
        outputs[t] = output_state = hidden
    return buffers, cell_state, outputs


def _cell(cifg: bool, peephole: bool, layer_norm: bool, activation: int, clip: float) -> _Cell:
    gates = ("forget", "cell", "output") if cifg else ("input", "forget", "cell", "output")
    return _Cell(gates, peephole, layer_norm, activation, clip)


def lstm(
    x: np.ndarray,
    output_state: np.ndarray,
    cell_state: np.ndarray,
    params: Params,
    *,
    activation: int = 4,
    cifg: bool = False,
    peephole: bool = False,
    projection: bool = False,
    layer_norm: bool = False,
    clip_cell: float = 0.0,
    clip_projection: float = 0.0,
    scale: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One step of Arm NN's Lstm layer, in float32 or on QSymmS16 buffers.

    Parameters
    ----------
    x : ndarray of float32, shape (batch, inputs)
    output_state, cell_state : ndarray of float32, shapes (batch, outputs), (batch, units)
        Quantised ones are decoded with the quantisation of ``x``, whatever their own says.
    params : mapping of str to ndarray of float32
        By the schema's names (``inputToForgetWeights`` ``[units, inputs]``, ``forgetGateBias``, ...), decoded.
    activation : int
        Of cell gate and cell state: 0 none, 1 ReLu, 3 ReLu6, 4 TanH, 6 Sigmoid. With 0 the output is made from the cell
        gate, not from the cell state, as in the reference backend.
    cifg, peephole, projection, layer_norm : bool
        Parts of the cell; ``cifg``: the input gate is 1 - the forget gate.
    clip_cell, clip_projection : float
        Largest magnitude, 0 for no limit.
    scale : float, optional
        Of the int16 buffers. Every multiply-accumulate is rounded to them. None: float32.

    Returns
    -------
    scratch, output_state, cell_state, output : ndarray
        Of float32, or of int16 when ``scale`` is given. ``scratch`` ``[batch, units * (3 or 4)]`` is the gates' final
        buffers one after the other.

    Raises
    ------
    UnsupportedError
        An activation function that the layer does not have.

    Notes
    -----
    Arm NN 22.11, CpuRef: Lstm. A projection without bias starts from whatever its buffer holds there, from 0 here.

    Examples
    --------
    >>> names = [f"{a}To{g}Weights" for a in ("input", "recurrent") for g in ("Forget", "Cell", "Output")]
    >>> params = {name: np.ones((1, 1), np.float32) for name in names}
    >>> params |= {name: np.zeros(1, np.float32) for name in ("forgetGateBias", "cellBias", "outputGateBias")}
    >>> state = np.zeros((1, 1), np.float32)
    >>> lstm(np.ones((1, 1), np.float32), state, state, params, cifg=True)[3]
    array([[0.14767905]], dtype=float32)
    """
    grid = None if scale is None else _grid(scale)
    cell = _cell(cifg, peephole, layer_norm, activation, clip_cell)
    buffers, new_state, outputs = _run(
        x[None], output_state, cell_state, params, cell, projection, clip_projection, grid
    )
    scratch = np.concatenate([buffer.ravel() for buffer in buffers]).reshape(len(x), -1)
    output = _stored(outputs[0], grid)
    return _stored(scratch, grid), output, _stored(new_state, grid), output.copy()


def unidirectional_sequence_lstm(
    x: np.ndarray,
    output_state: np.ndarray,
    cell_state: np.ndarray,
    params: Params,
    *,
    time_major: bool = False,
    activation: int = 4,
    cifg: bool = False,
    peephole: bool = False,
    projection: bool = False,
    layer_norm: bool = False,
    clip_cell: float = 0.0,
    clip_projection: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arm NN's UnidirectionalSequenceLstm: Lstm steps over time in float32.

    Parameters
    ----------
    x : ndarray of float32, shape (batch, time, inputs), or (time, batch, inputs) when ``time_major``
    output_state, cell_state, params, activation, cifg, peephole, projection, layer_norm, clip_cell, clip_projection
        As for `lstm`.

    Returns
    -------
    output_state, cell_state : ndarray of float32
        After the last step. The reference backend leaves these two outputs unwritten.
    output : ndarray of float32
        Every step's output, laid out as ``x``.

    Notes
    -----
    Arm NN 22.11, CpuRef: UnidirectionalSequenceLstm.

    Examples
    --------
    >>> names = [f"{a}To{g}Weights" for a in ("input", "recurrent") for g in ("Forget", "Cell", "Output")]
    >>> params = {name: np.ones((1, 1), np.float32) for name in names}
    >>> params |= {name: np.zeros(1, np.float32) for name in ("forgetGateBias", "cellBias", "outputGateBias")}
    >>> state = np.zeros((1, 1), np.float32)
    >>> unidirectional_sequence_lstm(np.ones((1, 2, 1), np.float32), state, state, params, cifg=True)[2]
    array([[[0.14767905],
            [0.25688642]]], dtype=float32)
    """
    steps = x if time_major else x.swapaxes(0, 1)
    cell = _cell(cifg, peephole, layer_norm, activation, clip_cell)
    _, new_state, outputs = _run(steps, output_state, cell_state, params, cell, projection, clip_projection, None)
    last = outputs[-1] if len(outputs) else output_state
    return last.copy(), new_state, outputs if time_major else np.ascontiguousarray(outputs.swapaxes(0, 1))


def qlstm(
    x: np.ndarray,
    output_state: np.ndarray,
    cell_state: np.ndarray,
    params: Params,
    *,
    input_scale: float,
    intermediate_scales: Mapping[str, float],
    hidden_quantization: tuple[float, int],
    cell_scale: float,
    output_quantization: tuple[float, int],
    output_state_quantization: tuple[float, int],
    layer_norm_scales: Mapping[str, float] | None = None,
    cifg: bool = False,
    peephole: bool = False,
    projection: bool = False,
    clip_cell: float = 0.0,
    clip_projection: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One step of Arm NN's QLstm layer: int16 gates, int8 hidden state and output.

    Parameters
    ----------
    x, output_state, cell_state : ndarray of float32, shapes (batch, inputs), (batch, outputs), (batch, units)
        Decoded, each with its own quantisation.
    params : mapping of str to ndarray
        By the schema's names, decoded to float32, but the gates' biases as stored: only layer norm uses them, on a
        scale of its own.
    input_scale : float
        Of ``x``.
    intermediate_scales : mapping of str to float
        The gates' scales before activation: ``input`` (not with ``cifg``), ``forget``, ``cell``, ``output``.
    hidden_quantization, output_quantization, output_state_quantization : (float, int)
        Scale and zero point of the int8 hidden state, output and new output state.
    cell_scale : float
        Of the new int16 cell state, and of the activated gates.
    layer_norm_scales : mapping of str to float, optional
        Scales of ``inputLayerNormWeights`` and its siblings, by ``input``, ``forget``, ``cell``, ``output``. None: no
        layer norm.
    cifg, peephole, projection, clip_cell, clip_projection
        As for `lstm`.

    Returns
    -------
    output_state : ndarray of int8
    cell_state : ndarray of int16
    output : ndarray of int8

    Notes
    -----
    Arm NN 22.11, CpuRef: QLstm.

    Examples
    --------
    >>> names = [f"{a}To{g}Weights" for a in ("input", "recurrent") for g in ("Forget", "Cell", "Output")]
    >>> params = {name: np.ones((1, 1), np.float32) for name in names}
    >>> state = np.zeros((1, 1), np.float32)
    >>> int8 = (1 / 128, 0)
    >>> scales = dict.fromkeys(("forget", "cell", "output"), 1 / 4096)
    >>> quantisation = dict(input_scale=1 / 64, intermediate_scales=scales, hidden_quantization=int8, cell_scale=2**-13)
    >>> quantisation |= dict(output_quantization=int8, output_state_quantization=int8)
    >>> qlstm(np.ones((1, 1), np.float32), state, state, params, cifg=True, **quantisation)
    (array([[19]], dtype=int8), array([[1678]], dtype=int16), array([[19]], dtype=int8))
    """
    cell = _cell(cifg, peephole, layer_norm_scales is not None, 4, clip_cell)
    sums = {gate: _grid(intermediate_scales[gate]) for gate in cell.gates}
    state, out = _grid(cell_scale), _grid(*output_quantization, "int8")
    grids = _Grids(sums, {}, None, state, state, _grid(*hidden_quantization, "int8"))
    if layer_norm_scales is not None:
        step = {gate: np.float32(layer_norm_scales[gate]) for gate in cell.gates}
        scaled = {gate: np.float32(input_scale) * step[gate] * np.float32(1024) for gate in cell.gates}
        biases = {BIASES[gate]: params[BIASES[gate]].astype(np.float32) * (step[gate] / 1024) for gate in cell.gates}
        params = {**params, **biases}
        grids = grids._replace(normalised={g: _grid(scaled[g]) for g in cell.gates}, biased=_grid(1 / 4096))

    units = cell_state.shape[1]
    columns = _grid(np.repeat([sums[gate].scale for gate in cell.gates], units))
    total = np.zeros((len(x), len(cell.gates) * units), np.float32)
    total = _accumulate(total, x, _weights(params, "input", cell.gates), columns)
    total = _accumulate(total, output_state, _weights(params, "recurrent", cell.gates), columns)
    buffers, new_state = _step(total, cell_state, params, cell, grids)
    if projection:
        output = _project(buffers[-1], params, _grid(*output_quantization), out, clip_projection)
    else:
        output = _store(buffers[-1], out)
    new_output_state = _grid(*output_state_quantization, "int8")
    return _stored(_store(output, new_output_state), new_output_state), _stored(new_state, state), _stored(output, out)
