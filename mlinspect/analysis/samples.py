"""Inputs for two models at once: split into samples, given to each in its own layout and type; work spread out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from tqdm.auto import tqdm

from mlinspect import ir
from mlinspect.analysis.layouts import layouts
from mlinspect.analysis.match import PASSING
from mlinspect.analysis.operands import grid
from mlinspect.analysis.operations import MOVES
from mlinspect.errors import InputError
from mlinspect.execute.ports import Inputs, bind_inputs
from mlinspect.execute.values import numpy_dtype

Answer = TypeVar("Answer")
MOST_CLIPPED = 0.01  # share of an input's values that may lie outside its range without a warning


class Sample(dict[int, np.ndarray]):
    """One array an input, by position, and what all inputs are called."""

    names: Sequence[str] = ()


def split(network: ir.Network, inputs: Inputs | Sequence[Any], *others: ir.Network) -> list[Sample]:
    """Inputs -> samples, one a run.

    Parameters
    ----------
    network : ir.Network
    inputs : array, mapping, sequence
        What ``model.run(..., quantize=True)`` takes. An array that holds more along its first axis than the model takes
        at once is several samples, as is a sequence of what ``model.run`` takes.
    *others : ir.Network
        Networks that take the same: the arrays may be in the layout and type of one of them instead.

    Returns
    -------
    list of Sample
        Quantised numbers have become real ones.

    Raises
    ------
    InputError
        The arrays are not those that the model takes.
    """
    try:
        return _split(network, inputs)
    except InputError:
        for other in others:
            with suppress(InputError):
                return _split(other, inputs)
        raise


def _split(network: ir.Network, inputs: Any) -> list[Sample]:
    ports = network.graphs[0].inputs
    if hasattr(inputs, "__array__"):
        inputs = {0: np.asarray(inputs)}
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str | bytes):
        nested = inputs and isinstance(inputs[0], Mapping | Sequence) and not isinstance(inputs[0], str)
        if nested or len(inputs) != len(ports):
            return [sample for one in inputs for sample in _split(network, one)]
        inputs = dict(enumerate(inputs))
    if not isinstance(inputs, Mapping):
        raise InputError(f"inputs are arrays, by name or in order, not {type(inputs).__name__}: see Model.run")
    given = {key: np.asarray(value) for key, value in inputs.items()}
    tensors = [network.tensors[port.tensor] for port in ports]
    named = {port.name: tensor for port, tensor in zip(ports, tensors, strict=True)} | dict(enumerate(tensors))
    counts = {_count(named[key], array) for key, array in given.items() if key in named} - {0}
    if len(counts) > 1:
        raise InputError(f"the arrays hold different numbers of samples: {sorted(counts)}")
    count = counts.pop() if counts else 1
    parts = {key: _parts(array, count) for key, array in given.items()}
    samples = []
    for k in range(count):
        bound = bind_inputs(network, {key: part[k] for key, part in parts.items()}, "float", quantize=True)
        sample = Sample((i, bound[port.tensor]) for i, port in enumerate(ports) if port.tensor in bound)
        sample.names = [port.name for port in ports]
        samples.append(sample)
    return samples


def _count(tensor: ir.Tensor, array: np.ndarray) -> int:
    """How many samples an array holds; 0 where that cannot be said."""
    shape = tensor.shape
    if not shape or array.ndim != len(shape) or shape[0] < 1 or array.shape[0] % shape[0]:
        return 0 if shape is None else 1
    return array.shape[0] // shape[0]


def _parts(array: np.ndarray, count: int) -> list[np.ndarray]:
    """One piece a sample; what cannot be cut goes to all of them."""
    return np.split(array, count) if array.ndim and len(array) % count == 0 else [array] * count


def samples_for(
    sides: Sequence[tuple[ir.Network, str]], inputs: Inputs | Sequence[Any], depth: int = 1
) -> list[Sample]:
    """The samples for networks that run in some modes; warns of inputs that are no numbers or that a run clips at once.

    Parameters
    ----------
    sides : sequence of (ir.Network, {"vendor", "float"})
    inputs : array, mapping, sequence
        In the layout and type of one of the networks, the first where it fits several.
    depth : int
        How many calls of ours lie between this one and the user's.

    Raises
    ------
    InputError
        The arrays fit none of the networks, or there are none.
    """
    samples = split(sides[0][0], inputs, *(network for network, _ in sides[1:]))
    if not samples:
        raise InputError("no inputs were given")
    warned = [*_not_finite(samples)]
    warned += [text for network, mode in sides if mode != "float" for text in _clipped(network, samples)]
    for text in dict.fromkeys(warned):
        warnings.warn(text, stacklevel=2 + depth)
    return samples


def _not_finite(samples: Sequence[Sample]) -> Iterator[str]:
    """Of each input that holds NaN or infinite values, how many."""
    for position, name in enumerate(samples[0].names):
        arrays = [sample[position] for sample in samples if position in sample]
        arrays = [array for array in arrays if array.dtype.kind == "f"]
        counts = {
            "NaN": sum(np.count_nonzero(np.isnan(array)) for array in arrays),
            "infinite": sum(np.count_nonzero(np.isinf(array)) for array in arrays),
        }
        found = " and ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        if found:
            yield f"input {name!r} holds {found} of {sum(array.size for array in arrays):,} values"


def _first_quantized(network: ir.Network, tensor: int) -> ir.Tensor:
    """The first quantised tensor that values reach by casts or moves alone; the tensor itself where there is none."""
    reached = [tensor]
    for layer in network.graphs[0].layers:
        if layer.kind in PASSING | MOVES and not set(reached).isdisjoint(layer.inputs):
            reached += layer.outputs
    return next((network.tensors[i] for i in reached if network.tensors[i].quantized), network.tensors[tensor])


def _clipped(network: ir.Network, samples: Sequence[Sample]) -> Iterator[str]:
    """Of each input with too many values outside the range of the scale it is stored in, how many, and the range."""
    for position, port in enumerate(network.graphs[0].inputs):
        tensor = _first_quantized(network, port.tensor)
        q, limits = tensor.quantization, grid(tensor)
        if q is None or limits is None or q.axis is not None or len(q.scale) != 1:
            continue
        low, high = ((limit - int(q.zero_point[0])) * float(q.scale[0]) for limit in limits)
        arrays = [placed[position] for placed in (_placed(network, sample) for sample in samples) if position in placed]
        step = float(q.scale[0]) / 2
        outside = sum(np.count_nonzero((array < low - step) | (array > high + step)) for array in arrays)
        share = outside / max(1, sum(array.size for array in arrays))
        if share > MOST_CLIPPED:
            yield (
                f"{share:.1%} of the values of input {port.name!r} are clipped: its scale can hold {low:.4g} to "
                f"{high:.4g}. Are they scaled as they were when the model was quantised?"
            )


def _placed(network: ir.Network, sample: Sample) -> dict[int, np.ndarray]:
    """A sample by position of a network's inputs: by name where both have the same names, otherwise in order."""
    names = [port.name for port in network.graphs[0].inputs]
    if len(set(names)) == len(names) and sorted(names) == sorted(sample.names):
        return {names.index(sample.names[position]): array for position, array in sample.items()}
    return {position: array for position, array in sample.items() if position < len(names)}


def feeds(network: ir.Network, sample: Sample, mode: str) -> dict[int, np.ndarray]:
    """A sample as a model wants it, by tensor: its layout, its type, quantised where it takes quantised numbers."""
    ready: dict[str | int, np.ndarray] = {}
    for position, array in _placed(network, sample).items():
        tensor = network.tensors[network.graphs[0].inputs[position].tensor]
        if tensor.shape is not None and array.shape != tensor.shape and min(tensor.shape, default=0) > 0:
            found = layouts(array.shape, tensor.shape)
            array = found[0].apply(array) if found else array
        # MindSpore Lite takes float32 for float16
        real = tensor.quantized or (network.format == "mslite" and tensor.dtype == "float16")
        dtype = np.dtype(np.float32) if real else numpy_dtype(tensor)
        whole = array.dtype.kind in "iu"  # indices may become float, but not the other way
        with np.errstate(over="ignore"):  # beyond float16's range is infinity
            fits = dtype.kind == "f" or (whole and dtype.kind in "iu")
            ready[position] = array.astype(dtype, copy=False) if fits else array
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
