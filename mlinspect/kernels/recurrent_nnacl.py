"""LSTM and GRU over a sequence in one or both directions, as MindSpore Lite's CPU kernels (nnacl) compute them."""

from __future__ import annotations

import numpy as np

from mlinspect.kernels import nnacl

_EPSILON = np.finfo(np.float32).eps


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + nnacl.exp(-x))


def _blend(old: np.ndarray, new: np.ndarray, zoneout: float) -> np.ndarray:
    """The state to carry on; a zoneout within one epsilon counts as none."""
    if abs(zoneout) <= _EPSILON:
        return new
    keep = np.float32(zoneout)
    return old * keep + new * (1 - keep)


def lstm(
    x: np.ndarray,
    input_weights: np.ndarray,
    state_weights: np.ndarray,
    bias: np.ndarray,
    hidden: np.ndarray,
    cell: np.ndarray,
    *,
    projection: np.ndarray | None = None,
    zoneout_hidden: float = 0.0,
    zoneout_cell: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """MindSpore Lite's LSTM: the first direction reads the sequence forward, a second one backward.

    Parameters
    ----------
    x : ndarray of float32, shape (time, batch, inputs)
    input_weights : ndarray of float32, shape (directions, 4 * units, inputs)
        Gates in the order input, output, forget, cell.
    state_weights : ndarray of float32, shape (directions, 4 * units, outputs)
    bias : ndarray of float32, shape (directions, 8 * units)
        The input products' four, then the state products' four.
    hidden : ndarray of float32, shape (directions, batch, outputs), or (batch, outputs) for one direction
    cell : ndarray of float32, shape (directions, batch, units), or (batch, units) for one direction
    projection : ndarray of float32, shape (directions, outputs, units), optional
        Makes the output from the cell's; without it outputs = units.
    zoneout_hidden, zoneout_cell : float
        Share of the old state in the state that is carried on. The outputs stay unblended.

    Returns
    -------
    output : ndarray of float32, shape (time, directions, batch, outputs)
    hidden, cell : ndarray of float32, shapes (directions, batch, outputs) and (directions, batch, units)
        The carried states after the last step.

    Notes
    -----
    MindSpore Lite, nnacl: LSTM, with its approximate exp and tanh.

    Examples
    --------
    >>> one, state = np.ones((1, 4, 1), np.float32), np.zeros((1, 1, 1), np.float32)
    >>> output, hidden, cell = lstm(
    ...     np.ones((2, 1, 1), np.float32), one, one, np.zeros((1, 8), np.float32), state, state
    ... )
    >>> output.ravel().round(4), hidden.ravel().round(4), cell.ravel().round(4)
    (array([0.3696, 0.6505], dtype=float32), array([0.6505], dtype=float32), array([1.1444], dtype=float32))
    """
    steps, batch, _ = x.shape
    directions, units = len(input_weights), input_weights.shape[1] // 4
    hidden = hidden.reshape(directions, batch, -1).copy()
    cell = cell.reshape(directions, batch, units).copy()
    output = np.empty((steps, *hidden.shape), np.float32)
    for d in range(directions):
        from_input = x @ input_weights[d].T + bias[d, : 4 * units]
        recurrent, h, c = state_weights[d].T, hidden[d], cell[d]
        for t in range(steps)[:: -1 if d else 1]:
            gates = from_input[t] + (h @ recurrent + bias[d, 4 * units :])
            enter, leave, forget = np.split(_sigmoid(gates[:, : 3 * units]), 3, axis=1)
            new_cell = forget * c + enter * nnacl.tanh(gates[:, 3 * units :])
            new_hidden = nnacl.tanh(new_cell) * leave
            if projection is not None:
                new_hidden = new_hidden @ projection[d].T
            output[t, d] = new_hidden
            h, c = _blend(h, new_hidden, zoneout_hidden), _blend(c, new_cell, zoneout_cell)
        hidden[d], cell[d] = h, c
    return output, hidden, cell


def split_lstm_weights(
    flat: np.ndarray, inputs: int, units: int, directions: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights of an LSTM node with four inputs (x, hidden, cell, weights), as `lstm` wants them.

    Parameters
    ----------
    flat : ndarray of float32
        Gates in the order input, forget, cell, output. With as many biases as `lstm` has, one direction's weights
        follow the other's (input, state); with one bias a gate or none, all input weights precede all state weights.
    inputs, units, directions : int

    Returns
    -------
    input_weights, state_weights, bias : ndarray
        In the order and shapes of `lstm`. Such a node's output is ``[time, batch, directions * units]``.

    Raises
    ------
    ValueError
        The number of values fits neither.

    Examples
    --------
    >>> input_weights, state_weights, bias = split_lstm_weights(np.arange(12.0), 1, 1, 1)
    >>> input_weights.ravel(), state_weights.ravel(), bias.ravel()
    (array([0., 3., 1., 2.]), array([4., 7., 5., 6.]), array([ 8., 11.,  9., 10.,  0.,  0.,  0.,  0.]))
    """
    gates = 4 * units
    matrices, row = directions * gates * (inputs + units), directions * gates
    weights, biases = np.split(flat.reshape(-1), [matrices])
    if biases.size == 2 * row:
        by_direction = weights.reshape(directions, -1)
        input_weights, state_weights = np.split(by_direction, [gates * inputs], axis=1)
        bias = biases.reshape(directions, 2, 4, units)
    elif biases.size in (0, row):
        input_weights, state_weights = np.split(weights, [row * inputs])
        bias = np.zeros((directions, 2, 4, units), flat.dtype)
        bias[:, 0] = biases.reshape(directions, 4, units) if biases.size else 0
    else:
        raise ValueError(f"{flat.size} LSTM weights for {inputs} inputs, {units} units, {directions} directions")
    order = [0, 3, 1, 2]

    def matrix(values: np.ndarray, depth: int) -> np.ndarray:
        return values.reshape(directions, 4, units, depth)[:, order].reshape(directions, gates, depth)

    return matrix(input_weights, inputs), matrix(state_weights, units), bias[:, :, order].reshape(directions, -1)


def gru(
    x: np.ndarray,
    input_weights: np.ndarray,
    state_weights: np.ndarray,
    bias: np.ndarray,
    hidden: np.ndarray,
    *,
    sequence_length: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """MindSpore Lite's GRU: the first direction reads the sequence forward, a second one backward.

    Parameters
    ----------
    x : ndarray of float32, shape (time, batch, inputs)
    input_weights : ndarray of float32, shape (directions, 3 * units, inputs)
        Gates in the order update, reset, new. The reset gate acts on the state before the product.
    state_weights : ndarray of float32, shape (directions, 3 * units, units)
    bias : ndarray of float32, shape (directions, 6 * units)
        The input products' three, then the state products' three.
    hidden : ndarray of float32, shape (directions, batch, units)
    sequence_length : int, optional
        Steps from there on give 0 in the output; the state runs through all of them nevertheless.

    Returns
    -------
    output : ndarray of float32, shape (time, directions, batch, units)
    hidden : ndarray of float32, shape (directions, batch, units)

    Notes
    -----
    MindSpore Lite, nnacl: GRU, with its approximate exp and tanh. Its x86 build misplaces weights when batch > 1 and
    units is no multiple of 16; this does not.

    Examples
    --------
    >>> one, state = np.ones((1, 3, 1), np.float32), np.zeros((1, 1, 1), np.float32)
    >>> output, hidden = gru(np.ones((2, 1, 1), np.float32), one, one, np.zeros((1, 6), np.float32), state)
    >>> output.ravel().round(4), hidden.ravel().round(4)
    (array([0.2048, 0.3468], dtype=float32), array([0.3468], dtype=float32))
    """
    steps, batch, _ = x.shape
    directions, units = len(input_weights), input_weights.shape[1] // 3
    hidden = hidden.reshape(directions, batch, units).copy()
    output = np.empty((steps, *hidden.shape), np.float32)
    for d in range(directions):
        from_input = x @ input_weights[d].T + bias[d, : 3 * units]
        recurrent, from_bias, h = state_weights[d].T, bias[d, 3 * units :], hidden[d]
        to_gates, to_new = np.split(recurrent, [2 * units], axis=1)
        for t in range(steps)[:: -1 if d else 1]:
            gates = _sigmoid(from_input[t, :, : 2 * units] + (h @ to_gates + from_bias[: 2 * units]))
            update, reset = np.split(gates, 2, axis=1)
            new = nnacl.tanh(from_input[t, :, 2 * units :] + ((h * reset) @ to_new + from_bias[2 * units :]))
            output[t, d] = h = update * h + (1 - update) * new
        hidden[d] = h
    if sequence_length is not None:
        output[max(sequence_length, 0) :] = 0
    return output, hidden
