"""Cut a part out of a model: the sub-graph between tensors, or one layer with its operands in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mlinspect import ir
from mlinspect.constants import find_tensor
from mlinspect.errors import InputError
from mlinspect.execute.engine import execute
from mlinspect.execute.names import find_layer
from mlinspect.execute.programs import Programs
from mlinspect.formats.packing import with_numbers
from mlinspect.formats.ports import port_of, with_ports
from mlinspect.infer import CALLS
from mlinspect.save import to_bytes

_ENDS = ("Input", "Output")  # Arm NN's layers for them
_FEW = 8  # elements: smaller constants are sizes, scales or exponents rather than learnt weights


def extract(
    network: ir.Network, inputs: Sequence[int | str] | None = None, outputs: Sequence[int | str] | None = None
) -> ir.Network:
    """The sub-graph that leads from some tensors to others, as a network of its own.

    Layers, tensors and constants are those of the network, with their names and ids; nothing is copied.

    Parameters
    ----------
    network : Network
    inputs : sequence of int or str, optional
        Tensors, by id or name, or inputs by name, where data enter; by default the inputs that the outputs need.
    outputs : sequence of int or str, optional
        Tensors or outputs where data leave; by default all outputs.

    Returns
    -------
    Network

    Raises
    ------
    InputError
        The outputs need more than the inputs; the message says what is missing.

    Examples
    --------
    >>> import mlinspect as mi
    >>> network = mi.open(mi.samples.path("digits_cnn.ms")).network
    >>> piece = extract(network, outputs=[network.graphs[0].layers[1].outputs[0]])
    >>> [layer.op for layer in piece.layers.values()]
    ['Conv2DFusion', 'Conv2DFusion']
    """
    main = network.graphs[0]
    wanted = _tensors(network, outputs, main.outputs)
    given = [port.tensor for port in main.inputs] if inputs is None else _tensors(network, inputs, main.inputs)
    for tensor in given:
        if network.tensors[tensor].data is not None:
            raise InputError(f"tensor {network.tensors[tensor].name!r} is a constant: data cannot enter there")
    graph = next((g for g in network.graphs if wanted and any(wanted[0] in layer.outputs for layer in g.layers)), main)
    layers, needed = _between(graph, given, wanted)
    if not layers:
        raise InputError("no layer lies between these inputs and outputs")
    if inputs is None:
        given = [tensor for tensor in given if tensor in needed]
    _check_complete(network, layers, given, needed)
    others = network.graphs[1:] if graph is main and any(layer.op in CALLS for layer in layers) else ()
    if graph is not main:
        if any(layer.op in CALLS for layer in layers):
            raise InputError("a piece of a subgraph that runs other subgraphs cannot be cut out")
        layers = [replace(layer, graph=0) for layer in layers]
    return _network(network, layers, given, wanted, others)


def _tensors(network: ir.Network, keys: Sequence[int | str] | None, ports: Sequence[ir.Port]) -> list[int]:
    """Tensor ids of what was asked for, each once."""
    if keys is None:
        return list(dict.fromkeys(port.tensor for port in ports))
    if isinstance(keys, str | int):
        raise InputError(f"inputs and outputs are lists of tensors, not {keys!r}")
    by_port = {port.name: port.tensor for port in ports}
    return list(dict.fromkeys(by_port[key] if key in by_port else find_tensor(network, key).index for key in keys))


def _between(graph: ir.Graph, given: Sequence[int], wanted: Sequence[int]) -> tuple[list[ir.Layer], set[int]]:
    """The layers that lead from some tensors to others, and all that they touch."""
    needed, chosen = set(wanted), []
    for layer in reversed(graph.layers):
        leads = any(tensor in needed and tensor not in given for tensor in layer.outputs)
        if layer.op not in _ENDS and leads:
            chosen.append(layer)
            needed.update(layer.inputs)
    return chosen[::-1], needed


def _check_complete(network: ir.Network, layers: Sequence[ir.Layer], given: Sequence[int], needed: set[int]) -> None:
    made = {tensor for layer in layers for tensor in layer.outputs}
    missing = [i for i in sorted(needed - made - set(given)) if network.tensors[i].data is None]
    if missing:
        names = ", ".join(repr(network.tensors[i].name) for i in missing)
        raise InputError(f"the outputs also need {names}: add them, or what they depend on, to the inputs")


def _network(
    network: ir.Network, layers: list[ir.Layer], given: list[int], wanted: list[int], others: Sequence[ir.Graph]
) -> ir.Network:
    graph_of = {tensor: 0 for layer in layers for tensor in (*layer.inputs, *layer.outputs)}
    graph_of |= dict.fromkeys((*given, *wanted), 0)
    for graph in others:
        touched = {i for layer in graph.layers for i in (*layer.inputs, *layer.outputs)}
        touched.update(port.tensor for port in (*graph.inputs, *graph.outputs))
        graph_of = {i: network.tensors[i].graph for i in touched} | graph_of
    inner = {port.tensor for graph in others for port in (*graph.inputs, *graph.outputs)}
    tensors = {}
    for i in sorted(graph_of):
        tensor = network.tensors[i]
        role = "constant" if tensor.data is not None else tensor.role if i in inner else "activation"
        role = "input" if i in given else "output" if i in wanted and role == "activation" else role
        place = tensor.graph if others else 0
        tensors[i] = tensor if (tensor.role, tensor.graph) == (role, place) else replace(tensor, role=role, graph=place)
    name = network.graphs[0].name
    if network.format == "mslite":
        entries, exits = (tuple(ir.Port(tensors[i].name, i) for i in side) for side in (given, wanted))
        main = ir.Graph(0, name, entries, exits, tuple(layers))
    else:
        main = with_port_layers(network, layers, given, wanted)
    return replace(network, graphs=(main, *others), tensors=tensors, notes=())


def with_port_layers(
    network: ir.Network, layers: Sequence[ir.Layer], given: Sequence[int], wanted: Sequence[int]
) -> ir.Graph:
    """Arm NN: a graph of the layers with an Input or Output layer at each end, the network's own where it has them."""
    main = network.graphs[0]
    number = max(network.layers, default=-1) + 1
    ends: dict[str, list[ir.Layer]] = {}
    ports: dict[str, list[ir.Port]] = {}
    for op, tensors, known in (("Input", given, main.inputs), ("Output", wanted, main.outputs)):
        ends[op], ports[op] = [], []
        taken = {port.binding_id for port in known if port.tensor in tensors}
        for tensor in tensors:
            own = [layer for layer in main.layers if layer.op == op and tensor in (layer.outputs or layer.inputs)]
            if not own:
                binding = next(i for i in range(len(taken) + 1) if i not in taken)
                taken.add(binding)
                side = ((), (tensor,)) if op == "Input" else ((tensor,), ())
                name = network.tensors[tensor].name
                own = [ir.Layer(number, name, op, op.lower(), 0, {"layerBindingId": binding}, *side)]
                number += 1
            ends[op] += own
            ports[op] += [port for layer in own if (port := port_of(layer)) is not None]
    everything = (*ends["Input"], *layers, *ends["Output"])
    return ir.Graph(0, main.name, tuple(ports["Input"]), tuple(ports["Output"]), everything)


# ---- one layer, for a bug report -------------------------------------------------------------------------------------


def extract_layer(network: ir.Network, layer: int | str) -> ir.Network:
    """One layer as a network of its own; its inputs are those that are not constants.

    Raises
    ------
    InputError
        No such layer, or one that computes nothing (Input, Output, Constant).

    Examples
    --------
    >>> import mlinspect as mi
    >>> network = mi.open(mi.samples.path("digits_cnn.armnn")).network
    >>> [layer.op for layer in extract_layer(network, network.graphs[0].layers[1].index).layers.values()]
    ['Input', 'Convolution2d', 'Output']
    """
    found = find_layer(network, layer)
    if found.op in (*_ENDS, "Constant"):
        raise InputError(f"layer {found.index} {found.name!r} computes nothing: it is of type {found.op}")
    inputs = [i for i in dict.fromkeys(found.inputs) if network.tensors[i].data is None]
    return extract(network, inputs, list(found.outputs))


def layer_case(
    network: ir.Network, values: Mapping[int, np.ndarray], layer: int | str, anonymize: bool = False
) -> dict[str, np.ndarray]:
    """What a bug report about one layer needs: a model of it alone, its inputs and its outputs in a run.

    Parameters
    ----------
    network : Network
    values : mapping of int to ndarray
        A run's tensors by id, as in a trace.
    layer : int or str
    anonymize : bool
        Replace all names, and weights by random numbers of the same mean, spread, range and share of zeros. Outputs are
        computed anew; inputs stay, as they are the data of the run.

    Returns
    -------
    dict of str to ndarray
        ``model``: the bytes of the model's file; ``in_<i>`` and ``out_<i>`` in the order of its inputs and outputs.

    Raises
    ------
    InputError
        No such layer, or it was not computed in the run.
    """
    piece = extract_layer(network, layer)
    main = piece.graphs[0]
    missing = [port.name for port in (*main.inputs, *main.outputs) if port.tensor not in values]
    if missing:
        raise InputError(f"the run has no values for {', '.join(map(repr, missing))}")
    results = {port.tensor: values[port.tensor] for port in main.outputs}
    if anonymize:
        piece = anonymous(piece)
        wanted = [port.tensor for port in main.outputs]
        feeds = {port.tensor: values[port.tensor] for port in main.inputs}
        results = execute(Programs(piece).get("vendor", wanted), feeds)
    case = {"model": np.frombuffer(to_bytes(piece), np.uint8)}
    case |= {f"in_{i}": values[port.tensor] for i, port in enumerate(main.inputs)}
    return case | {f"out_{i}": results[port.tensor] for i, port in enumerate(main.outputs)}


def save_layer(
    path: str | Path,
    network: ir.Network,
    values: Mapping[int, np.ndarray],
    layer: int | str,
    anonymize: bool = False,
) -> None:
    """Write :func:`layer_case` to an ``.npz`` file.

    Examples
    --------
    >>> import io, tempfile
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
    >>> trace = model.trace(mi.samples.digits().images[:1, ..., None].astype("float32") / 16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_layer(f"{folder}/case.npz", trace.network, trace.values_by_id, 0)
    ...     case = dict(np.load(f"{folder}/case.npz"))
    >>> again = mi.open(case["model"].tobytes()).run([case["in_0"]])
    >>> all((array == case["out_0"]).all() for array in again.values())
    True
    """
    np.savez_compressed(path, **layer_case(network, values, layer, anonymize))  # type: ignore[arg-type]


def anonymous(network: ir.Network, seed: int = 0) -> ir.Network:
    """The network without names, and with random weights of the same statistics.

    Integers that are not quantised (shapes, axes, indices) and the few numbers of small constants stay.
    """
    rng = np.random.default_rng(seed)
    keep = {i for layer in network.layers.values() if layer.op == "Resize" for i in layer.inputs}
    names: dict[int, str] = {}
    for layer in network.layers.values():
        for position, i in enumerate(layer.inputs):
            names.setdefault(i, f"layer_{layer.index}/input_{position}")
        names |= {i: f"layer_{layer.index}/{name}" for name, i in layer.held.items()}
        single = len(layer.outputs) == 1
        names |= {
            i: f"layer_{layer.index}" if single else f"layer_{layer.index}:{n}" for n, i in enumerate(layer.outputs)
        }
    tensors = {}
    for i, tensor in network.tensors.items():
        named = replace(tensor, name=names.get(i, f"tensor_{i}"))
        learnt = tensor.data is not None and (tensor.quantized or "float" in tensor.dtype) and i not in keep
        if learnt and tensor.array is not None and tensor.array.size >= _FEW:
            named = with_numbers(named, lookalike(tensor.array, rng))
        tensors[i] = named
    graphs = []
    for graph in network.graphs:
        layers = tuple(replace(layer, name=f"layer_{layer.index}") for layer in graph.layers)
        graphs.append(replace(graph, name="", layers=layers))
    meta = {name: value for name, value in network.meta.items() if name != "name"}
    return with_ports(network, replace(network, graphs=tuple(graphs), tensors=tensors, meta=meta))


def lookalike(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random numbers with the mean, spread, range and share of zeros of an array, in its shape and type.

    Examples
    --------
    >>> x = np.random.default_rng(1).normal(3, 2, 10000).astype(np.float32)
    >>> y = lookalike(x, np.random.default_rng(2))
    >>> bool(abs(y.mean() - x.mean()) < 0.1), bool(abs(y.std() - x.std()) < 0.1), bool((x == y).any())
    (True, True, False)
    """
    real = array.astype(np.float64)
    real = real[np.isfinite(real)]
    if not real.size:
        return array
    found = rng.normal(real.mean(), real.std(), array.shape).clip(real.min(), real.max())
    found[rng.random(array.shape) < (real == 0).mean()] = 0
    return (np.rint(found) if array.dtype.kind in "iu" else found).astype(array.dtype)
