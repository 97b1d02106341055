"""MindSpore Lite's operators that move numbers about, or make them from shapes and indices.

Most copy whatever bytes they get (``stored``): int8 operators that requantise are in ``ops_mslite_int8``.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from mlinspect.execute.registry import Call, choice, op
from mlinspect.execute.values import numpy_dtype
from mlinspect.kernels import gather, quantize, shape, slice, space

moves = partial(op, "mslite", stored=True)
published = partial(op, "mslite", stored=True, reference="published definition")

# TypeId -> numpy, as far as casts know them
TYPES = {30: "bool", 31: "int32", 32: "int8", 33: "int16", 34: "int32", 35: "int64", 36: "uint32", 37: "uint8"}
TYPES |= {38: "uint16", 39: "uint32", 40: "uint64", 41: "float32", 42: "float16", 43: "float32", 44: "float64"}


def integers(values: np.ndarray) -> list[int]:
    """A vector operand as Python integers."""
    return [int(value) for value in values.reshape(-1)]


def scalar(value: np.ndarray) -> int:
    """A scalar operand as a Python integer."""
    return int(value.reshape(-1)[0])


# --- shape -----------------------------------------------------------------------------------------------------------


@moves("Reshape")
def reshape(call: Call, x: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
    target = call.outputs[0].shape if wanted is None else integers(wanted)
    return x.reshape(shape.resolve_shape(x.shape, target or ()))


@moves("Flatten")
def flatten(call: Call, x: np.ndarray) -> np.ndarray:
    axis = call.attrs.get("axis", 1) % (x.ndim + 1)
    return x.reshape(math.prod(x.shape[:axis]), -1)


@moves("FlattenGrad")
def flatten_grad(call: Call, x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return x.reshape(integers(wanted))


@moves("Squeeze")
def squeeze(call: Call, x: np.ndarray) -> np.ndarray:
    axes = call.attrs["axis"]
    return x.squeeze(tuple(axes) if axes is not None and len(axes) else None)


@moves("Unsqueeze")
def unsqueeze(call: Call, x: np.ndarray) -> np.ndarray:
    axes = call.attrs["axis"]
    return np.expand_dims(x, tuple(axes)) if axes is not None and len(axes) else x.squeeze()


@moves("ExpandDims")
def expand_dims(call: Call, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    return np.expand_dims(x, scalar(axis))


@moves("Transpose")
def transpose(call: Call, x: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    axes = None if order is None or not order.size else integers(order)
    return np.ascontiguousarray(x.transpose(axes))


_ORDERS = {("NCHW", "NHWC"): (0, 2, 3, 1), ("NHWC", "NCHW"): (0, 3, 1, 2)}


@published("FormatTranspose")
def format_transpose(call: Call, x: np.ndarray) -> np.ndarray:
    order = _ORDERS.get((call.attrs["src_format"], call.attrs["dst_format"]))
    return np.ascontiguousarray(x.transpose(order)) if order and x.ndim == 4 else x


@moves("Shape")
def shape_of(call: Call, x: np.ndarray) -> np.ndarray:
    return np.array(x.shape, np.int32)


@moves("Size")
def size_of(call: Call, x: np.ndarray) -> np.ndarray:
    return np.array(x.size, np.int32)


@moves("Rank")
def rank_of(call: Call, x: np.ndarray) -> np.ndarray:
    """One number, of the operand's own type."""
    return np.array([x.ndim], x.dtype)


# --- joining, cutting ------------------------------------------------------------------------------------------------


@moves("Concat")
def concat(call: Call, *arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays, call.attrs["axis"])


@moves("Stack")
def stack(call: Call, *arrays: np.ndarray) -> np.ndarray:
    return np.stack(arrays, call.attrs["axis"])


@moves("Unstack")
def unstack(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.moveaxis(x, call.attrs["axis"], 0))


@moves("Split")
def split(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
    a = call.attrs
    return tuple(shape.split(x, a["size_splits"] or (), a["axis"], len(call.outputs)))


@moves("SplitWithOverlap")
def split_with_overlap(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
    a = call.attrs
    return tuple(shape.split_with_overlap(x, a["ratio"], a["extend_top"], a["extend_bottom"], a["split_dim"]))


@moves("SliceFusion")
def slice_fusion(call: Call, x: np.ndarray, begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    starts, sizes = [0] * x.ndim, [-1] * x.ndim
    axes = call.attrs.get("axes")
    for axis, b, n in zip(axes or range(x.ndim), integers(begin), integers(size), strict=False):
        starts[axis], sizes[axis] = b, n
    return slice.box(x, starts, sizes)


@moves("StridedSlice")
def strided_slice(call: Call, x: np.ndarray, begin: np.ndarray, end: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    """Operands: begin, end, stride; or begin, end, axes, stride. Without strides the runtime changes nothing."""
    if not rest:
        if call.mode == "vendor":
            return x
        rest = (np.ones_like(begin),)
    axes, stride = rest if len(rest) == 2 else (None, rest[0])
    steps = integers(stride) if stride.size else [1] * begin.size
    along = integers(axes) if axes is not None and axes.size else None
    return slice.strided_slice(x, integers(begin), integers(end), steps, **masks_of(call), axes=along)


MASKS = ("begin_mask", "end_mask", "shrink_axis_mask", "new_axis_mask", "ellipsis_mask")


def masks_of(call: Call) -> dict[str, Any]:
    """A strided slice's masks."""
    return {name: int(call.attrs.get(name) or 0) for name in MASKS}


@moves("Crop")
def crop(call: Call, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """One offset counts for the first cropped axis only in the runtime, for all by definition."""
    axis, offsets = call.attrs["axis"], list(call.attrs["offsets"] or (0,))
    if len(offsets) == 1 and call.mode == "float":
        offsets *= x.ndim - axis % x.ndim
    return slice.crop(x, like.shape, offsets, axis)


PAD_MODES = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric", "MODE_RESERVED": "symmetric"}


def padded(call: Call, x: np.ndarray, paddings: np.ndarray | None, value: float) -> np.ndarray:
    """The result of a PadFusion that fills with ``value``."""
    flat = integers(paddings) if paddings is not None else [n for pair in call.attrs["paddings"] for n in pair]
    flat = [0] * (2 * x.ndim - len(flat)) + flat
    pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
    return shape.pad(x, pairs, choice(PAD_MODES, call.attrs["padding_mode"], "padding mode"), value)


@op("mslite", "PadFusion")
def pad_fusion(
    call: Call, x: np.ndarray, paddings: np.ndarray | None = None, value: np.ndarray | None = None
) -> np.ndarray:
    constant = call.attrs["constant_value"] if value is None else value.reshape(-1)[0]
    return padded(call, x, paddings, constant)


@moves("TileFusion")
def tile(call: Call, x: np.ndarray, multiples: np.ndarray) -> np.ndarray:
    repeats = [1] * x.ndim
    for axis, n in zip(call.attrs["dims"] or range(x.ndim), integers(multiples), strict=False):
        repeats[axis] = n
    return np.tile(x, repeats)


@moves("BroadcastTo")
def broadcast_to(call: Call, x: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
    target = list(call.attrs.get("shape") or ()) if wanted is None else integers(wanted)
    lead = len(target) - x.ndim
    target = [x.shape[i - lead] if n == -1 else n for i, n in enumerate(target)]
    return np.broadcast_to(x, target)


# --- space, order ----------------------------------------------------------------------------------------------------


def block_of(call: Call) -> list[int]:
    """Block sizes along y and x (along y alone in files for sequences)."""
    return list(call.attrs.get("block_size") or call.attrs.get("block_shape") or ())


@moves("SpaceToBatch", "SpaceToBatchND")
def space_to_batch(call: Call, x: np.ndarray, *operands: np.ndarray) -> np.ndarray:
    q = call.inputs[0].quantization
    fill = int(q.zero_point[0]) if q is not None and x.dtype == np.int8 else 0
    block, pads = block_of(call), [list(pair) for pair in call.attrs["paddings"] or ()]
    if len(block) == 1:
        block, pads = [*block, 1], [*pads, [0, 0]]
        if x.ndim == 3:
            return space.space_to_batch(x[:, :, None], block, pads, fill)[:, :, 0]
    return space.space_to_batch(x, block, pads, fill)


@moves("BatchToSpace")
def batch_to_space(call: Call, x: np.ndarray, *operands: np.ndarray) -> np.ndarray:
    block, crops = block_of(call), [list(pair) for pair in call.attrs["crops"] or ()]
    if len(block) == 1:
        block, crops = [*block, 1], [*crops, [0, 0]]
        if x.ndim == 3:
            return space.batch_to_space(x[:, :, None], block, crops)[:, :, 0]
    return space.batch_to_space(x, block, crops or [[0, 0], [0, 0]])


published("BatchToSpaceND")(batch_to_space)


@moves("SpaceToDepth")
def space_to_depth(call: Call, x: np.ndarray) -> np.ndarray:
    return space.space_to_depth(x, call.attrs["block_size"])


@moves("DepthToSpace")
def depth_to_space(call: Call, x: np.ndarray) -> np.ndarray:
    return space.depth_to_space(x, call.attrs["block_size"], "CRD" if call.attrs.get("mode") == "CRD" else "DCR")


@moves("ReverseV2")
def reverse(call: Call, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    """The attribute counts; files from TFLite repeat the axes as an operand."""
    return np.flip(x, tuple(call.attrs["axis"] or (integers(axes) if axes is not None else ())))


@moves("ReverseSequence")
def reverse_sequence(call: Call, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return shape.reverse_sequence(x, lengths, call.attrs["seq_dim"], call.attrs["batch_dim"])


@moves("Triu", "Tril")
def triangle(call: Call, x: np.ndarray, k: np.ndarray | None = None) -> np.ndarray:
    return (np.triu if call.layer.op == "Triu" else np.tril)(x, 0 if k is None else scalar(k))


# --- by index --------------------------------------------------------------------------------------------------------


@moves("Gather")
def gather_layer(call: Call, x: np.ndarray, indices: np.ndarray, axis: np.ndarray) -> np.ndarray:
    return gather.gather(x, indices, scalar(axis))


@moves("GatherNd")
def gather_nd(call: Call, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return gather.gather_nd(x, indices)


@moves("GatherD")
def gather_d(call: Call, x: np.ndarray, axis: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return gather.gather_elements(x, indices, scalar(axis))


@moves("ScatterNd")
def scatter_nd(call: Call, indices: np.ndarray, updates: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return gather.scatter_nd(np.zeros(integers(wanted), updates.dtype), indices, updates)


@moves("ScatterNdUpdate")
def scatter_nd_update(call: Call, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    return gather.scatter_nd(x, indices, updates)


@moves("TensorScatterAdd")
def tensor_scatter_add(call: Call, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    return gather.scatter_nd(x, indices, updates, "add")


@published("ScatterElements")
def scatter_elements(call: Call, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    y, axis = x.copy(), call.attrs["axis"]
    np.put_along_axis(y, np.where(indices < 0, indices + x.shape[axis], indices), updates, axis)
    return y


@moves("Where")
def where(call: Call, condition: np.ndarray, *branches: np.ndarray) -> np.ndarray:
    return np.where(condition, *branches) if branches else np.argwhere(condition).astype(np.int32)


@published("NonZero")
def non_zero(call: Call, x: np.ndarray) -> np.ndarray:
    """Indices of what is not 0, one row a dimension (ONNX)."""
    return np.argwhere(x).T.astype(numpy_dtype(call.outputs[0]))


@moves("Select")
def select(call: Call, condition: np.ndarray, *branches: np.ndarray) -> tuple[np.ndarray, ...]:
    half = len(branches) // 2
    return tuple(
        (yes if condition.reshape(-1)[0] else no) if condition.size == 1 else np.where(condition, yes, no)
        for yes, no in zip(branches[:half], branches[half:], strict=True)
    )


@moves("OneHot")
def one_hot(call: Call, indices: np.ndarray, depth: np.ndarray, *values: np.ndarray) -> np.ndarray:
    """Values on and off, or both as one vector [off, on], with which negative indices count from the end."""
    if len(values) == 2:
        on, off = (value.reshape(-1)[0] for value in values)
    else:
        off, on = values[0].reshape(-1)[:2]
    axis = call.attrs["axis"]
    return shape.one_hot(indices, scalar(depth), on, off, axis, wrap=len(values) == 1, dtype=values[0].dtype)


@moves("InvertPermutation")
def invert_permutation(call: Call, x: np.ndarray) -> np.ndarray:
    return np.argsort(x).astype(x.dtype)


@moves("Unique")
def unique(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Values in order of appearance, and where each element's value stands among them."""
    values, first, place = np.unique(x.reshape(-1), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return values[order], rank[place].astype(np.int32).reshape(x.shape)


@moves("UnsortedSegmentSum")
def unsorted_segment_sum(call: Call, x: np.ndarray, segments: np.ndarray, count: np.ndarray) -> np.ndarray:
    y = np.zeros((scalar(count), *x.shape[segments.ndim :]), x.dtype)
    inside = (segments >= 0) & (segments < len(y))
    np.add.at(y, segments[inside], x[inside])
    return y


# --- constants -------------------------------------------------------------------------------------------------------


@moves("Fill")
def fill(call: Call, value: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return np.full(integers(wanted), value.reshape(-1)[0], value.dtype)


@published("FillV2")
def fill_v2(call: Call, wanted: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.full(integers(wanted), value.reshape(-1)[0], value.dtype)


@moves("ConstantOfShape")
def constant_of_shape(call: Call, wanted: np.ndarray) -> np.ndarray:
    values = call.attrs["value"] or (0,)
    return np.full(integers(wanted), values[0], TYPES.get(call.attrs["data_type"], "float32"))


@moves("ZerosLike")
def zeros_like(call: Call, x: np.ndarray) -> np.ndarray:
    return np.zeros_like(x)


@moves("OnesLike")
def ones_like(call: Call, x: np.ndarray) -> np.ndarray:
    return np.ones_like(x)


@moves("Range")
def range_layer(call: Call, *operands: np.ndarray) -> np.ndarray:
    """From operands (start, limit, delta), of their type; otherwise from int32 attributes."""
    a = call.attrs
    if len(operands) == 3:
        start, limit, delta = (operand.reshape(-1)[0] for operand in operands)
        return shape.arange(start, limit, delta, operands[0].dtype)
    return shape.arange(a["start"], a["limit"], a["delta"], np.int32)


@published("LinSpace")
def lin_space(call: Call, start: np.ndarray, stop: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.linspace(start.reshape(-1)[0], stop.reshape(-1)[0], scalar(count), dtype=start.dtype)


@moves("RaggedRange")
def ragged_range(
    call: Call, starts: np.ndarray, limits: np.ndarray, deltas: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One range a row, all in one vector, and where each begins."""
    bounds = np.broadcast_arrays(*map(np.atleast_1d, (starts, limits, deltas)))
    rows = [np.arange(*row, dtype=starts.dtype) for row in zip(*bounds, strict=True)]
    splits = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return splits, np.concatenate(rows) if rows else np.zeros(0, starts.dtype)


@moves("Cast")
def cast(call: Call, x: np.ndarray, type_id: np.ndarray | None = None) -> np.ndarray:
    wanted = TYPES.get(scalar(type_id)) if type_id is not None else None
    dtype = np.dtype(wanted) if wanted else numpy_dtype(call.outputs[0])
    if dtype == np.float16:  # fp16 is off: half floats are float32
        dtype = np.dtype(np.float32)
    return quantize.cast(x, dtype) if x.dtype.kind == "f" and dtype.kind in "iu" else x.astype(dtype)


# --- nothing ---------------------------------------------------------------------------------------------------------


@published("Depend")
def depend(call: Call, x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    return x


@published("Dropout")
def dropout(call: Call, x: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Does nothing outside training; a second output is the mask of what was kept: all."""
    return (x, np.ones_like(x))[: len(call.outputs)]


@published("Assert")
def assert_layer(call: Call, condition: np.ndarray, *shown: np.ndarray) -> tuple[np.ndarray, ...]:
    if not np.all(condition):
        raise ValueError(f"the model's assertion does not hold; it shows {[array.tolist() for array in shown]}")
    return (condition,)[: len(call.outputs)]
