"""Arm NN's layers that move numbers about.

The reference backend decodes and encodes in most of them, so that input and output may be quantised differently; a few
copy bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mlinspect import ir
from mlinspect.execute.ops_armnn import channels_back, channels_last
from mlinspect.execute.registry import Call, op
from mlinspect.execute.values import dequantize_array, encode, numpy_dtype
from mlinspect.kernels import gather, resize, shape, slice, space
from mlinspect.kernels.quantize import quantize

armnn = partial(op, "armnn", stored=True)


def same_numbers(tensors: Sequence[ir.Tensor]) -> bool:
    """Whether decoding as one and encoding as another of these tensors changes nothing.

    An int32 passes through float32, which loses its low bits beyond 2**24.
    """
    first = tensors[0]
    if first.dtype in ("int32", "int64") or any(tensor.dtype != first.dtype for tensor in tensors):
        return False
    if not first.quantized:
        return True
    q = first.quantization
    return all(
        other.quantization is not None
        and q is not None
        and q.axis is None
        and other.quantization.axis is None
        and other.quantization.scale[0] == q.scale[0]
        and other.quantization.zero_point[0] == q.zero_point[0]
        for other in tensors
    )


def moved(
    call: Call,
    arrays: Sequence[np.ndarray],
    move: Callable[..., np.ndarray],
    output: int = 0,
) -> np.ndarray:
    """Move the numbers of the first operands: as stored where that is the same, else decoded and encoded again."""
    target = call.outputs[output]
    sources = call.inputs[: len(arrays)]
    if call.mode == "float" or same_numbers((*sources, target)):
        return move(*arrays)
    real = [dequantize_array(array, tensor) for array, tensor in zip(arrays, sources, strict=True)]
    return encode(move(*real), target)


def zero_of(call: Call) -> int | float:
    """What stands for a real zero among the numbers that :func:`moved` moves."""
    if call.mode == "float" or not same_numbers((call.inputs[0], call.outputs[0])):
        return 0.0
    return int(encode(np.zeros(1, np.float32), call.outputs[0])[0])


def pairs(flat: Sequence[int]) -> list[tuple[int, int]]:
    """[before0, after0, before1, ...] as pairs."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def entries(call: Call, name: str, count: int) -> Sequence[int]:
    """An attribute that has one entry a dimension."""
    values = call.attrs[name]
    if values is None or len(values) != count:
        raise ValueError(f"{name} is {values}, where {count} entries are wanted")
    return values


# --- bytes as they are -------------------------------------------------------------------------------------------


@armnn("Reshape")
def reshape(call: Call, x: np.ndarray) -> np.ndarray:
    return x.reshape(call.attrs["targetShape"] or call.outputs[0].shape)


@armnn("Permute")
def permute(call: Call, x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(shape.permute(x, entries(call, "dimMappings", x.ndim)))


@armnn("Transpose")
def transpose(call: Call, x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(entries(call, "dimMappings", x.ndim)))


@armnn("Slice")
def slice_layer(call: Call, x: np.ndarray) -> np.ndarray:
    return slice.box(x, entries(call, "begin", x.ndim), entries(call, "size", x.ndim))


@armnn("StridedSlice")
def strided_slice(call: Call, x: np.ndarray) -> np.ndarray:
    a = call.attrs
    result = slice.strided_slice(
        x,
        entries(call, "begin", x.ndim),
        entries(call, "end", x.ndim),
        entries(call, "stride", x.ndim),
        begin_mask=a["beginMask"],
        end_mask=a["endMask"],
        shrink_axis_mask=a["shrinkAxisMask"],
        clamp_begin=True,
    )
    return result if result.ndim else result.reshape(1)


@armnn("DepthToSpace")
def depth_to_space(call: Call, x: np.ndarray) -> np.ndarray:
    layout = call.attrs["dataLayout"]
    return channels_back(space.depth_to_space(channels_last(x, layout), call.attrs["blockSize"]), layout)


@armnn("Rank")
def rank(call: Call, x: np.ndarray) -> np.ndarray:
    return np.array(x.ndim, np.int32).reshape(call.outputs[0].shape or ())


@armnn("Shape")
def shape_layer(call: Call, x: np.ndarray) -> np.ndarray:
    return np.array(x.shape, np.int32)


# --- decoded and encoded again -----------------------------------------------------------------------------------


@armnn("Concat", "Merger")
def concat(call: Call, *arrays: np.ndarray) -> np.ndarray:
    entries(call, "viewOrigins", len(arrays))
    origins = [tuple(origin) for origin in call.attrs["viewOrigins"]]
    if any(len(origin) != array.ndim for origin, array in zip(origins, arrays, strict=True)):
        raise ValueError(f"viewOrigins {origins} have other dimensions than the operands")
    ends = [np.add(origin, array.shape) for origin, array in zip(origins, arrays, strict=True)]
    size = tuple(np.max(ends, axis=0).tolist())
    return moved(call, arrays, lambda *parts: shape.concat_views(parts, origins, size))


@armnn("Splitter")
def splitter(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
    origins, sizes = (call.attrs["origins"] or {}).get("viewOrigins") or (), call.attrs["viewSizes"] or ()
    if not len(origins) == len(sizes) == len(call.outputs):
        raise ValueError(f"{len(call.outputs)} outputs have origins {origins} and sizes {sizes}")
    if any(len(place) != x.ndim for place in (*origins, *sizes)):
        raise ValueError(f"origins {origins} and sizes {sizes} have other dimensions than the operand")

    def view(number: int) -> np.ndarray:
        cut = partial(shape.split_views, origins=[origins[number]], sizes=[sizes[number]])
        return moved(call, [x], lambda part: cut(part)[0], number)

    return tuple(view(number) for number in range(len(call.outputs)))


@armnn("Pad")
def pad(call: Call, x: np.ndarray) -> np.ndarray:
    """The pad value of a quantised tensor is the stored integer itself; scale and zero point do not touch it."""
    a, target = call.attrs, call.outputs[0]
    widths, mode = pairs(entries(call, "padList", 2 * x.ndim)), a.get("paddingMode", "Constant").lower()
    if mode not in ("reflect", "symmetric"):
        mode = "constant"
    value = np.float32(a["padValue"])
    if mode == "constant" and target.quantized:
        dtype = numpy_dtype(target)
        stored = quantize(value.reshape(1), 1.0, 0, dtype)[0]
        if call.mode == "float":
            return shape.pad(x, widths, mode, dequantize_array(stored.reshape(1), target)[0])
        return shape.pad(moved(call, [x], lambda body: body), widths, mode, stored)
    return moved(call, [x], lambda body: shape.pad(body, widths, mode, value.astype(body.dtype)))


@armnn("Stack")
def stack(call: Call, *arrays: np.ndarray) -> np.ndarray:
    return moved(call, arrays, lambda *parts: np.stack(parts, call.attrs["axis"]))


@armnn("SpaceToBatchNd")
def space_to_batch(call: Call, x: np.ndarray) -> np.ndarray:
    a, zero = call.attrs, zero_of(call)

    def move(body: np.ndarray) -> np.ndarray:
        last = channels_last(body, a["dataLayout"])
        dealt = space.space_to_batch(last, a["blockShape"], pairs(entries(call, "padList", 4)), body.dtype.type(zero))
        return channels_back(dealt, a["dataLayout"])

    return moved(call, [x], move)


@armnn("BatchToSpaceNd")
def batch_to_space(call: Call, x: np.ndarray) -> np.ndarray:
    a = call.attrs

    def move(body: np.ndarray) -> np.ndarray:
        joined = space.batch_to_space(
            channels_last(body, a["dataLayout"]), a["blockShape"], pairs(entries(call, "crops", 4))
        )
        return channels_back(joined, a["dataLayout"])

    return moved(call, [x], move)


@armnn("SpaceToDepth")
def space_to_depth(call: Call, x: np.ndarray) -> np.ndarray:
    layout = call.attrs["dataLayout"]

    def move(body: np.ndarray) -> np.ndarray:
        return channels_back(space.space_to_depth(channels_last(body, layout), call.attrs["blockSize"]), layout)

    return moved(call, [x], move)


@armnn("ChannelShuffle")
def channel_shuffle(call: Call, x: np.ndarray) -> np.ndarray:
    return moved(call, [x], lambda body: shape.channel_shuffle(body, call.attrs["numGroups"], call.attrs["axis"]))


@armnn("Gather")
def gather_layer(call: Call, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return moved(call, [x], lambda body: gather.gather(body, indices, call.attrs["axis"]))


@armnn("GatherNd")
def gather_nd(call: Call, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return moved(call, [x], lambda body: gather.gather_nd(body, indices))


@armnn("ScatterNd")
def scatter_nd(call: Call, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """Operand 0 is what is written into, or, with m_InputEnabled false, the shape of zeros to write into."""
    given = call.attrs["m_InputEnabled"]
    if call.mode == "vendor":
        updates = dequantize_array(updates, call.inputs[2])
        x = dequantize_array(x, call.inputs[0]) if given else x
    base = x if given else np.zeros(tuple(x), updates.dtype)
    result = gather.scatter_nd(base, indices, updates, call.attrs["m_Function"].lower())
    return result if call.mode == "float" else encode(result, call.outputs[0])


@armnn("Tile")
def tile(call: Call, x: np.ndarray) -> np.ndarray:
    return moved(call, [x], lambda body: np.tile(body, call.attrs["m_Multiples"]))


@armnn("ReverseV2")
def reverse(call: Call, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return moved(call, [x], lambda body: np.flip(body, tuple(axes.ravel().tolist())))


@armnn("Fill")
def fill(call: Call, dims: np.ndarray) -> np.ndarray:
    target = call.outputs[0]
    values = np.full(tuple(dims.ravel().tolist()), call.attrs["value"], np.float32)
    return values if call.mode == "float" and target.quantized else encode(values, target)


@armnn("Resize", "ResizeBilinear")
def resize_layer(call: Call, x: np.ndarray) -> np.ndarray:
    a = call.attrs
    linear = a.get("method", "Bilinear") == "Bilinear"
    transform = "asymmetric"
    if a.get("alignCorners"):
        transform = "align_corners"
    elif a.get("halfPixelCenters"):
        transform = "half_pixel" if linear else "tf_half_pixel_for_nn"
    size = (a["targetHeight"], a["targetWidth"])

    def move(body: np.ndarray) -> np.ndarray:
        last = channels_last(body, a["dataLayout"])
        return channels_back(resize.resize(last, size, "linear" if linear else "nearest", transform), a["dataLayout"])

    if not linear:
        return moved(call, [x], move)
    result = move(x if call.mode == "float" else dequantize_array(x, call.inputs[0]))
    return result if call.mode == "float" else encode(result, call.outputs[0])
