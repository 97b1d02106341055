"""Inputs for two models at once: split into samples, given to each in its own layout and type; work spread out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from tqdm.auto import tqdm

from mlinspect import ir
from mlinspect.analysis.layouts import layouts
from mlinspect.errors import InputError
from mlinspect.execute.conditions import real_values
from mlinspect.execute.ports import Inputs, bind_inputs
from mlinspect.execute.values import numpy_dtype

Sample = dict[int, np.ndarray]  # by position of the input
Answer = TypeVar("Answer")


def split(network: ir.Network, inputs: Inputs | Sequence[Any]) -> list[Sample]:
    """Inputs -> samples, one a run.

    Parameters
    ----------
    network : ir.Network
    inputs : array, mapping, sequence
        What ``model.run`` takes. An array that holds more along its first axis than the model takes at once is several
        samples, as is a sequence of what ``model.run`` takes.

    Returns
    -------
    list of dict of int to ndarray
        By position; quantised numbers have become real ones.

    Raises
    ------
    InputError
        The arrays are not those that the model takes.
    """
    ports = network.graphs[0].inputs
    if isinstance(inputs, Sequence) and not isinstance(inputs, np.ndarray):
        nested = inputs and isinstance(inputs[0], Mapping | Sequence) and not isinstance(inputs[0], str | np.ndarray)
        if nested or len(inputs) != len(ports):
            return [sample for one in inputs for sample in split(network, one)]
        inputs = dict(enumerate(inputs))
    elif isinstance(inputs, np.ndarray):
        inputs = {0: inputs}
    names = [port.name for port in ports]
    given: Sample = {}
    for key, value in inputs.items():
        position = names.index(key) if key in names else key
        if not isinstance(position, int) or not 0 <= position < len(ports):
            raise InputError(f"the model has no input {key!r}; it takes {', '.join(map(repr, names))}")
        tensor = network.tensors[ports[position].tensor]
        array = np.asarray(value)
        given[position] = real_values(array, tensor) if array.dtype == numpy_dtype(tensor) else array
    counts = {_count(network.tensors[ports[i].tensor], array) for i, array in given.items()} - {0}
    if len(counts) > 1:
        raise InputError(f"the arrays hold different numbers of samples: {sorted(counts)}")
    count = counts.pop() if counts else 1
    parts = {i: np.split(array, count) if count > 1 else [array] for i, array in given.items()}
    return [{i: part[k] for i, part in parts.items()} for k in range(count)]


def _count(tensor: ir.Tensor, array: np.ndarray) -> int:
    """How many samples an array holds; 0 where that cannot be said."""
    shape = tensor.shape
    if not shape or array.ndim != len(shape) or shape[0] < 1 or array.shape[0] % shape[0]:
        return 0 if shape is None else 1
    return array.shape[0] // shape[0]


def feeds(network: ir.Network, sample: Sample, mode: str) -> dict[int, np.ndarray]:
    """A sample as a model wants it, by tensor: its layout, its type, quantised where it takes quantised numbers."""
    ready: dict[str | int, np.ndarray] = {}
    for position, array in sample.items():
        if position >= len(network.graphs[0].inputs):
            continue
        tensor = network.tensors[network.graphs[0].inputs[position].tensor]
        if tensor.shape is not None and array.shape != tensor.shape and min(tensor.shape, default=0) > 0:
            found = layouts(array.shape, tensor.shape)
            array = found[0].apply(array) if found else array
        dtype = np.dtype(np.float32) if tensor.quantized else numpy_dtype(tensor)
        ready[position] = array.astype(dtype) if array.dtype != dtype and dtype.kind in "iuf" else array
    return bind_inputs(network, ready, mode, quantize=True)


def portable(network: ir.Network) -> ir.Network:
    """A network that another process can be sent: packed constants are unpacked."""
    packed = {
        i: replace(tensor, data=tensor.array)
        for i, tensor in network.tensors.items()
        if isinstance(tensor.data, ir.PackedData)
    }
    return replace(network, tensors={**network.tensors, **packed}) if packed else network


def spread(
    work: Callable[[Any, list[Sample]], list[Answer]],
    shared: Any,
    samples: list[Sample],
    executor: Executor | None,
    title: str,
    progress: bool,
) -> list[Answer]:
    """``work(shared, samples)`` for all samples, in their order; in pieces, where an executor runs them."""
    with tqdm(total=len(samples), desc=title, unit="sample", delay=1, leave=False, disable=not progress) as bar:
        if executor is None:
            answers: list[Answer] = []
            for sample in samples:
                answers += work(shared, [sample])
                bar.update()
            return answers
        size = max(1, min(64, len(samples) // 32))
        pieces = [samples[start : start + size] for start in range(0, len(samples), size)]
        futures = {executor.submit(work, shared, piece): i for i, piece in enumerate(pieces)}
        done: dict[int, list[Answer]] = {}
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            bar.update(len(pieces[futures[future]]))
    return [answer for i in sorted(done) for answer in done[i]]
