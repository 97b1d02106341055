"""The tables: ``ir.Network`` in, pandas DataFrames out, one function per table.

``COLUMNS`` declares the columns; the functions below fill them as plain lists, and ``_frame`` converts each list to its
declared dtype in one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mlinspect import ir
from mlinspect.macs import count_elements, count_macs, count_params
from mlinspect.phases import phases

# table -> (column, dtype, unit, meaning). The first row of a table with an index of its own is that index.
COLUMNS: dict[str, list[tuple[str, str, str, str]]] = {
    "layers": [
        ("layer", "int64", "id", "index: Arm NN's LayerBase.index, MindSpore Lite's position in nodes"),
        ("name", "str", "", "the layer's name in the file"),
        ("op", "category", "", "the format's own name of the operator"),
        ("kind", "category", "", "the operator in the vocabulary that both formats share"),
        ("graph", "int64", "id", "graph that the layer belongs to; 0 is the main graph"),
        ("inputs", "object", "tensor ids", "tensors that the layer reads, constants included"),
        ("outputs", "object", "tensor ids", "tensors that the layer produces"),
        ("input_shapes", "object", "elements", "shapes of the inputs; None: unknown rank, -1: unknown size"),
        ("output_shapes", "object", "elements", "shapes of the outputs"),
        ("dtype", "category", "", "stored type of output 0; missing when the layer has no output"),
        ("quantized", "bool", "", "at least one tensor that the layer reads or produces holds quantised values"),
        ("params", "int64", "elements", "elements of the constants it computes with (no shapes, axes or indices)"),
        ("weight_bytes", "int64", "bytes", "all constants that the layer reads, as stored"),
        ("macs", "Int64", "multiply-adds", "products of weights or matrices in one run; 0 where none, NA when unknown"),
        ("phase", "category", "", "forward, loss, backward or optimizer; all but forward occur in training files only"),
        (
            "reference",
            "category",
            "",
            "whose arithmetic a run follows: vendor, published definition, user or none",
        ),
        ("attrs", "object", "", "the operator's attributes as a dict, in the schema's own names"),
    ],
    "tensors": [
        ("tensor", "int64", "id", "index: the id that every table, trace and plot is keyed by"),
        ("name", "str", "", "the file's name, or one made from the layer that produces or reads the tensor"),
        ("graph", "int64", "id", "graph that the tensor belongs to; 0 is the main graph"),
        ("role", "category", "", "input, output, constant or activation"),
        ("dtype", "category", "", "stored type, in numpy's name"),
        ("vendor_dtype", "category", "", "stored type, in the format's own name"),
        ("shape", "object", "elements", "size of each axis; None: unknown rank, -1: unknown size"),
        ("elements", "Int64", "elements", "product of the shape; NA when a size is unknown"),
        ("nbytes", "int64", "bytes", "bytes in the file, as stored; 0 when not a constant"),
        ("layout", "category", "", "order of the axes where the file says so: NHWC, OHWI, MIHW, ..."),
        ("producer", "Int64", "layer id", "layer that produces the tensor; NA for constants and inputs without one"),
        ("consumers", "object", "layer ids", "layers that read the tensor"),
        ("quantized", "bool", "", "the stored numbers are quantised values"),
        ("scheme", "category", "", "none, per_tensor or per_channel"),
        ("scale", "float64", "real / step", "quantisation step; NaN when there is none or one per channel"),
        ("zero_point", "Int64", "steps", "stored number of real 0; NA when there is none or one per channel"),
        ("bits", "Int64", "bits", "width of the quantised values"),
        ("compression", "category", "", "packing of the stored bytes; none when they are the array itself"),
        ("file_offset", "Int64", "bytes", "where the constant's bytes start in the file; NA when not in it"),
    ],
    "quant": [
        ("tensor", "int64", "id", "tensor that the row describes"),
        ("channel", "int64", "", "position along axis; 0 when per tensor"),
        ("name", "str", "", "the tensor's name"),
        ("scale", "float64", "real / step", "real = scale * (stored - zero_point)"),
        ("zero_point", "int64", "steps", "stored number of real 0"),
        ("bits", "int64", "bits", "width of the quantised values"),
        ("axis", "Int64", "", "axis that the channels lie along; NA when per tensor"),
        ("qmin", "Int64", "steps", "smallest stored number that bits and signedness allow"),
        ("qmax", "Int64", "steps", "largest stored number"),
        ("real_min", "float64", "real", "scale * (qmin - zero_point)"),
        ("real_max", "float64", "real", "scale * (qmax - zero_point)"),
        ("symmetric", "bool", "", "the type has no zero point, or every zero point is 0"),
        ("min", "float64", "real", "MindSpore Lite: smallest value seen when the model was calibrated"),
        ("max", "float64", "real", "MindSpore Lite: largest value seen when the model was calibrated"),
        (
            "narrow_range",
            "boolean",
            "",
            "MindSpore Lite: the file's claim that qmin is not used; true by default, often wrong",
        ),
        ("inited", "boolean", "", "MindSpore Lite: the file's claim that the parameters are real"),
        ("var_corr", "float64", "factor", "MindSpore Lite: weights are multiplied by it after dequantising"),
        ("mean_corr", "float64", "real", "MindSpore Lite: added to weights after var_corr"),
        ("dst_dtype", "Int64", "TypeId", "MindSpore Lite: type that the values are meant to become (32 is int8)"),
        ("round_type", "Int64", "", "MindSpore Lite: choice of rounding, as the file has it"),
        ("multiplier", "Int64", "", "MindSpore Lite: choice of fixed-point method, as the file has it"),
    ],
    "edges": [
        ("producer", "Int64", "layer id", "layer that produces the tensor; NA for constants and inputs without one"),
        ("output_slot", "Int64", "", "position among the producer's outputs"),
        ("consumer", "int64", "layer id", "layer that reads the tensor"),
        ("input_slot", "int64", "", "position among the consumer's inputs"),
        ("tensor", "int64", "id", "tensor that flows"),
    ],
    "inputs": [
        ("position", "int64", "", "place in the order of the model's inputs"),
        ("tensor", "int64", "id", "tensor that the data are bound to"),
        ("name", "str", "", "name of the input"),
        ("dtype", "category", "", "stored type, in numpy's name"),
        ("shape", "object", "elements", "size of each axis; None: unknown rank, -1: unknown size"),
        ("layout", "category", "", "order of the axes where the file says so"),
        ("scale", "float64", "real / step", "quantisation step; NaN when the data are not quantised"),
        ("zero_point", "Int64", "steps", "stored number of real 0; NA when the data are not quantised"),
        ("binding_id", "Int64", "", "Arm NN: the id that its runtime binds data to"),
    ],
    "attrs": [
        ("layer", "int64", "id", "layer that has the attribute"),
        ("name", "str", "", "the layer's name"),
        ("op", "category", "", "the format's own name of the operator"),
        ("attr", "category", "", "the attribute, in the schema's own name"),
        ("value", "object", "", "its value: enums by name, vectors as tuples"),
    ],
}
COLUMNS["outputs"] = [
    (name, dtype, unit, meaning.replace("input", "output")) for name, dtype, unit, meaning in COLUMNS["inputs"]
]
_INDEXED = ("layers", "tensors")


def layers(network: ir.Network, references: Mapping[int, str] | None = None) -> pd.DataFrame:
    """One row per layer, in execution order, subgraph after subgraph.

    Parameters
    ----------
    network : ir.Network
    references : mapping of int to str, optional
        By layer index, for the column ``reference``.

    Examples
    --------
    >>> layers(ir.Network("mslite", "msl2_newest", "", (), {})).columns[:3].tolist()
    ['name', 'op', 'kind']
    """
    found, every = network.tensors, [layer for graph in network.graphs for layer in graph.layers]
    ins = [[found[i] for i in layer.inputs] for layer in every]
    outs = [[found[i] for i in layer.outputs] for layer in every]
    constants = [[t for t in tensors if t.data is not None] for tensors in ins]
    phase = phases(network)
    return _frame(
        "layers",
        layer=[layer.index for layer in every],
        name=[layer.name for layer in every],
        op=[layer.op for layer in every],
        kind=[layer.kind for layer in every],
        graph=[layer.graph for layer in every],
        inputs=[layer.inputs for layer in every],
        outputs=[layer.outputs for layer in every],
        input_shapes=[tuple([t.shape for t in tensors]) for tensors in ins],
        output_shapes=[tuple([t.shape for t in tensors]) for tensors in outs],
        dtype=[tensors[0].dtype if tensors else None for tensors in outs],
        quantized=[any(t.quantized for t in i) or any(t.quantized for t in o) for i, o in zip(ins, outs, strict=True)],
        params=[count_params(layer.kind, tensors) for layer, tensors in zip(every, constants, strict=True)],
        weight_bytes=[sum([t.nbytes for t in tensors]) for tensors in constants],
        macs=[count_macs(layer, i, o) for layer, i, o in zip(every, ins, outs, strict=True)],
        phase=[phase[layer.index] for layer in every],
        reference=[(references or {}).get(layer.index) for layer in every],
        attrs=[dict(layer.attrs) for layer in every],
    )


def tensors(network: ir.Network) -> pd.DataFrame:
    """One row per tensor, in the order of their ids.

    Examples
    --------
    >>> tensors(ir.Network("armnn", "armnn_superset", "", (), {})).index.name
    'tensor'
    """
    every = sorted(network.tensors.values(), key=lambda t: t.index)
    producer = _producers(network)
    consumers: dict[int, list[int]] = {}
    for graph in network.graphs:
        for layer in graph.layers:
            for tensor in dict.fromkeys(layer.inputs):
                consumers.setdefault(tensor, []).append(layer.index)
    quant = [t.quantization for t in every]
    shared = [None if q is None else q.shared for q in quant]
    return _frame(
        "tensors",
        tensor=[t.index for t in every],
        name=[t.name for t in every],
        graph=[t.graph for t in every],
        role=[t.role for t in every],
        dtype=[t.dtype for t in every],
        vendor_dtype=[t.vendor_dtype for t in every],
        shape=[t.shape for t in every],
        elements=[count_elements(t.shape) for t in every],
        nbytes=[t.nbytes for t in every],
        layout=[t.layout for t in every],
        producer=[producer.get(t.index, (None,))[0] for t in every],
        consumers=[tuple(consumers.get(t.index, ())) for t in every],
        quantized=[t.quantized for t in every],
        scheme=["none" if q is None else "per_channel" if q.per_channel else "per_tensor" for q in quant],
        scale=[np.nan if pair is None else pair[0] for pair in shared],
        zero_point=[None if pair is None else pair[1] for pair in shared],
        bits=[None if q is None else q.bits for q in quant],
        compression=[t.compression for t in every],
        file_offset=[t.file_offset for t in every],
    )


def quant(network: ir.Network) -> pd.DataFrame:
    """One row per tensor and channel, for every tensor that has quantisation parameters.

    Examples
    --------
    >>> q = ir.Quantization(np.array([0.5, 0.25]), np.array([0, 0]), axis=0, symmetric=True)
    >>> w = ir.Tensor(7, "w", 0, "constant", "int8", "Int8", (2, 3), quantization=q, quantized=True)
    >>> quant(ir.Network("mslite", "msl2_newest", "", (), {7: w}))[["tensor", "channel", "real_max"]].values.tolist()
    [[7.0, 0.0, 63.5], [7.0, 1.0, 31.75]]
    """
    rows = [(t, q) for _, t in sorted(network.tensors.items()) if (q := t.quantization) is not None]
    found = [q for _, q in rows]
    counts = np.array([len(q.scale) for q in found], np.intp)

    def spread(values: Sequence[Any], dtype: Any = np.int64) -> np.ndarray:
        """One value per tensor -> one per row."""
        return np.repeat(np.array(values, dtype), counts)

    def join(parts: list[Any]) -> np.ndarray:
        """One array per tensor -> one value per row; NaN where the file's format has no such field."""
        if not any(p is not None for p in parts):
            return np.full(counts.sum(), np.nan)
        return np.concatenate([np.full(n, np.nan) if p is None else p for p, n in zip(parts, counts, strict=True)])

    names = ("min", "max", "narrow_range", "inited", "var_corr", "mean_corr", "dst_dtype", "round_type", "multiplier")
    extras = {name: join([q.extra.get(name) for q in found]) for name in names}
    scale, zero = join([q.scale for q in found]), join([q.zero_point for q in found])
    bits = spread([q.bits for q in found])
    known = (bits >= 1) & (bits <= 32)  # a width outside is a broken field, not a range
    span = np.int64(1) << np.where(known, bits, 1)
    qmin = np.where(spread([t.dtype.startswith(("uint", "bool")) for t, _ in rows], bool), 0, -(span >> 1))
    qmax = qmin + span - 1
    # narrow_range is true in every real file (the schema's default), also where the smallest number is stored
    with np.errstate(all="ignore"):  # damaged files have scales like inf
        real_min, real_max = (np.where(known, scale * (q - zero), np.nan) for q in (qmin, qmax))
    starts = np.cumsum(counts) - counts
    return _frame(
        "quant",
        tensor=spread([t.index for t, _ in rows]),
        channel=np.arange(counts.sum()) - np.repeat(starts, counts),
        name=spread([t.name for t, _ in rows], object),
        scale=scale,
        zero_point=zero,
        bits=bits,
        axis=spread([np.nan if q.axis is None else q.axis for q in found], float),
        qmin=pd.arrays.IntegerArray(qmin, ~known),
        qmax=pd.arrays.IntegerArray(qmax, ~known),
        real_min=real_min,
        real_max=real_max,
        symmetric=spread([q.symmetric for q in found], bool),
        **extras,
    )


def edges(network: ir.Network) -> pd.DataFrame:
    """One row for each tensor that a layer reads, in the order of the readers and of their input slots.

    Examples
    --------
    >>> edges(ir.Network("armnn", "armnn_superset", "", (), {})).columns.tolist()
    ['producer', 'output_slot', 'consumer', 'input_slot', 'tensor']
    """
    producer = _producers(network)
    reads = [
        (layer.index, slot, tensor)
        for graph in network.graphs
        for layer in graph.layers
        for slot, tensor in enumerate(layer.inputs)
    ]
    made_by = [producer.get(tensor, (None, None)) for _, _, tensor in reads]
    return _frame(
        "edges",
        producer=[layer for layer, _ in made_by],
        output_slot=[slot for _, slot in made_by],
        consumer=[layer for layer, _, _ in reads],
        input_slot=[slot for _, slot, _ in reads],
        tensor=[tensor for _, _, tensor in reads],
    )


def inputs(network: ir.Network) -> pd.DataFrame:
    """The main graph's inputs, in the order that ``run`` expects them.

    Examples
    --------
    >>> len(inputs(ir.Network("armnn", "armnn_superset", "", (), {})))
    0
    """
    return _ports("inputs", network, network.graphs[0].inputs if network.graphs else ())


def outputs(network: ir.Network) -> pd.DataFrame:
    """The main graph's outputs, in the order that ``run`` returns them.

    Examples
    --------
    >>> outputs(ir.Network("armnn", "armnn_superset", "", (), {})).columns[0]
    'position'
    """
    return _ports("outputs", network, network.graphs[0].outputs if network.graphs else ())


def attrs(network: ir.Network) -> pd.DataFrame:
    """One row for each attribute of each layer.

    Examples
    --------
    >>> relu = ir.Layer(3, "relu", "Activation", "activation", 0, {"activationFunction": "ReLu"}, (), ())
    >>> graph = ir.Graph(0, "", (), (), (relu,))
    >>> attrs(ir.Network("armnn", "armnn_superset", "", (graph,), {})).loc[0, ["op", "attr", "value"]].tolist()
    ['Activation', 'activationFunction', 'ReLu']
    """
    rows = [(layer, k, v) for graph in network.graphs for layer in graph.layers for k, v in layer.attrs.items()]
    return _frame(
        "attrs",
        layer=[layer.index for layer, _, _ in rows],
        name=[layer.name for layer, _, _ in rows],
        op=[layer.op for layer, _, _ in rows],
        attr=[attr for _, attr, _ in rows],
        value=[value for _, _, value in rows],
    )


def lent(table: pd.DataFrame) -> pd.DataFrame:
    """A copy of a table whose cells, dicts included, may be changed without changing this one.

    Examples
    --------
    >>> kept = pd.DataFrame({"attrs": [{"axis": 1}]})
    >>> reader = lent(kept)
    >>> reader.loc[0, "attrs"]["axis"] = reader.loc[0, "other"] = 2
    >>> kept
             attrs
    0  {'axis': 1}
    """
    own = table.copy(deep=not _COPIES_ON_WRITE)
    for name, dtype in table.dtypes.items():
        if str(dtype) in _MASKED:  # whose to_numpy() is the memory itself, copy-on-write or not
            own[name] = table[name].copy()
    for name in ("attrs", "value"):
        if name in own and dict in map(type, cells := own[name].tolist()):
            own[name] = _objects([_own(cell) for cell in cells], "object")
    return own


def _own(cell: Any) -> Any:
    if type(cell) is not dict:
        return cell
    return {name: _own(value) for name, value in cell.items()} if dict in map(type, cell.values()) else cell.copy()


def _ports(table: str, network: ir.Network, ports: Iterable[ir.Port]) -> pd.DataFrame:
    ports = list(ports)
    found = [network.tensors[port.tensor] for port in ports]
    shared = [t.quantization.shared if t.quantized and t.quantization is not None else None for t in found]
    return _frame(
        table,
        position=list(range(len(ports))),
        tensor=[port.tensor for port in ports],
        name=[port.name for port in ports],
        dtype=[t.dtype for t in found],
        shape=[t.shape for t in found],
        layout=[t.layout for t in found],
        scale=[np.nan if pair is None else pair[0] for pair in shared],
        zero_point=[None if pair is None else pair[1] for pair in shared],
        binding_id=[port.binding_id for port in ports],
    )


def _producers(network: ir.Network) -> dict[int, tuple[int, int]]:
    """Tensor -> the first layer that produces it, and that layer's output slot."""
    made: dict[int, tuple[int, int]] = {}
    for graph in network.graphs:
        for layer in graph.layers:
            for slot, tensor in enumerate(layer.outputs):
                made.setdefault(tensor, (layer.index, slot))
    return made


def _frame(table: str, **columns: Any) -> pd.DataFrame:
    """Lists -> DataFrame, each column in its declared dtype."""
    declared = COLUMNS[table]
    ready = {name: _CONVERT.get(dtype, _numpy)(columns[name], dtype) for name, dtype, _, _ in declared}
    index = None
    if table in _INDEXED:
        name = declared[0][0]
        index = pd.Index(ready.pop(name), name=name)
    return pd.DataFrame(ready, index=index, copy=False)


def _numpy(values: Sequence[Any], dtype: str) -> np.ndarray:
    return np.asarray(values, dtype)


def _objects(values: Sequence[Any], dtype: str) -> np.ndarray:
    """Keeps tuples whole: ``np.array`` would make a matrix of them."""
    return np.fromiter(values, object, len(values))


def _strings(values: Sequence[str], dtype: str) -> Any:
    """pandas' own string type, whichever this version of pandas has."""
    return pd.Series(values, dtype=str).array


def _category(values: Sequence[str | None], dtype: str) -> pd.Categorical:
    names = sorted({v for v in set(values) if v is not None})
    code: dict[str | None, int] = {name: i for i, name in enumerate(names)} | {None: -1}
    categories = pd.CategoricalDtype(pd.Index(names, dtype=str))
    codes = np.array([code[v] for v in values], np.intp)
    return pd.Categorical.from_codes(codes, dtype=categories, validate=False)


def _masked(values: Any, dtype: str) -> Any:
    """A list with None, or an array with NaN, for what is missing -> pandas' masked array."""
    make, stored = _MASKED[dtype]
    if isinstance(values, make):
        return values
    if isinstance(values, list):
        missing = np.array([v is None for v in values], bool)
        values = [0 if v is None else v for v in values] if missing.any() else values
    else:
        missing = np.isnan(values)
        values = np.where(missing, 0, values)
    return make(np.asarray(values, stored), missing)


_COPIES_ON_WRITE = int(pd.__version__.split(".")[0]) >= 3
_MASKED = {"Int64": (pd.arrays.IntegerArray, np.int64), "boolean": (pd.arrays.BooleanArray, bool)}
_CONVERT = {"object": _objects, "str": _strings, "category": _category, "Int64": _masked, "boolean": _masked}
