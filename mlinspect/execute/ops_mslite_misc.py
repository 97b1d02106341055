"""MindSpore Lite's rarer operators: detection, embeddings, sparse tensors, tensor lists, speech front ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.execute.ops_mslite import matrices
from mlinspect.execute.ops_mslite_elementwise import fused
from mlinspect.execute.ops_mslite_shape import TYPES, integers, scalar
from mlinspect.execute.registry import Call, op
from mlinspect.kernels import detection, nnacl, shape, text

mslite = partial(op, "mslite")
published = partial(op, "mslite", reference="published definition")

# --- detection -------------------------------------------------------------------------------------------------------


@mslite("DetectionPostProcess")
def detection_post_process(call: Call, boxes: np.ndarray, scores: np.ndarray, anchors: np.ndarray) -> tuple[Any, ...]:
    a = call.attrs
    height, width, x, y = a["scale"]
    return detection.detection_post_process_nnacl(
        boxes,
        scores,
        anchors,
        scales=(y, x, height, width),
        classes=a["num_classes"],
        max_detections=a["max_detections"],
        max_classes_per_detection=a["max_classes_per_detection"],
        detections_per_class=a["detections_per_class"],
        score_threshold=a["nms_score_threshold"],
        iou_threshold=a["nms_iou_threshold"],
        regular=a["use_regular_nms"],
    )


@mslite("NonMaxSuppression")
def non_max_suppression(call: Call, boxes: np.ndarray, scores: np.ndarray, *limits: np.ndarray) -> np.ndarray:
    most, iou, least = [limit.reshape(-1)[0] for limit in limits] + [0, 0, 0][len(limits) :]
    return detection.non_max_suppression(
        boxes,
        scores,
        max_output=int(most),
        iou_threshold=float(iou),
        score_threshold=float(least),
        center_point_box=bool(call.attrs["center_point_box"]),
    )


@mslite("PriorBox")
def prior_box(call: Call, features: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Caffe's boxes for every cell, and their variances. The runtime's ``clip`` changes nothing."""
    a = call.attrs
    (rows, columns), (height, width) = features.shape[1:3], image.shape[1:3]
    step_x = a["step_w"] or (a["image_size_w"] or width) / columns
    step_y = a["step_h"] or (a["image_size_h"] or height) / rows
    ratios: list[float] = []
    for ratio in a["aspect_ratios"] or ():
        if all(abs(ratio - known) >= 1e-6 for known in (1.0, *ratios)):
            ratios += [ratio, 1 / ratio] if a["flip"] else [ratio]
    sizes = []
    for i, least in enumerate(a["min_sizes"] or ()):
        sizes.append((least, least))
        if a["max_sizes"]:
            sizes.append((np.sqrt(least * a["max_sizes"][i]),) * 2)
        sizes += [(least * np.sqrt(ratio), least / np.sqrt(ratio)) for ratio in ratios]
    half = np.array(sizes, np.float32) / np.array([step_x, step_y], np.float32) * np.float32(0.5)
    y, x = np.mgrid[:rows, :columns].astype(np.float32) + np.float32(a["offset"])
    centre = np.stack([x, y], -1)[:, :, None]
    boxes = np.concatenate([centre - half, centre + half], -1) / np.array([columns, rows, columns, rows], np.float32)
    if a["clip"] and call.mode == "float":
        boxes = boxes.clip(0, 1)
    spread = np.tile(np.array(a["variances"], np.float32), boxes.size // 4)
    return np.concatenate([boxes.reshape(-1), spread]).astype(np.float32).reshape(1, -1, 1, 2)


# --- embeddings, sparse tensors --------------------------------------------------------------------------------------


@mslite("EmbeddingLookupFusion")
def embedding_lookup(call: Call, *operands: np.ndarray) -> np.ndarray:
    """Rows of the joined tables; ``max_norm`` scales by the rows' sum in the runtime, by definition by their norm."""
    *tables, ids = operands
    rows = np.concatenate(tables)[ids]
    most = np.float32(call.attrs["max_norm"])
    if most == 0:
        return rows
    axes = tuple(range(ids.ndim, rows.ndim))
    if call.mode == "vendor":
        total = rows.sum(axes, keepdims=True)
        return rows * np.where(total != 0, most / np.where(total == 0, 1, total), np.float32(1))
    norm = np.sqrt(np.square(rows).sum(axes, keepdims=True))
    return np.where(norm > most, rows * (most / np.maximum(norm, np.finfo(np.float32).tiny)), rows)


@mslite("SparseToDense")
def sparse_to_dense(
    call: Call, places: np.ndarray, wanted: np.ndarray, values: np.ndarray, default: np.ndarray | None = None
) -> np.ndarray:
    filling = 0 if default is None else default.reshape(-1)[0]
    dense = np.full(integers(wanted), filling, values.dtype)
    index = places.reshape(-1, 1) if places.ndim < 2 else places
    dense[tuple(index.T)] = values.reshape(-1) if values.size > 1 else values.reshape(-1)[0]
    return dense


@published("SparseFillEmptyRows")
def sparse_fill_empty_rows(
    call: Call, places: np.ndarray, values: np.ndarray, dense_shape: np.ndarray, default: np.ndarray
) -> tuple[np.ndarray, ...]:
    """TensorFlow's: rows without an entry get the default at column 0; which they were; where each entry went."""
    rows = scalar(dense_shape[:1])
    empty = np.ones(rows, bool)
    empty[places[:, 0]] = False
    more = np.zeros((empty.sum(), places.shape[1]), places.dtype)
    more[:, 0] = np.flatnonzero(empty)
    joined = np.concatenate([places, more])
    order = np.argsort(joined[:, 0], kind="stable")
    filled = np.concatenate([values, np.full(len(more), default.reshape(-1)[0], values.dtype)])
    went = np.argsort(order)[: len(places)].astype(places.dtype)
    return (joined[order], filled[order], empty, went)[: len(call.outputs)]


@published("SparseReshape")
def sparse_reshape(
    call: Call, places: np.ndarray, dense_shape: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    old = integers(dense_shape)
    new = shape.resolve_shape(old, integers(wanted))
    flat = np.ravel_multi_index(tuple(places.T), old)
    return np.stack(np.unravel_index(flat, new), -1).astype(places.dtype), np.array(new, dense_shape.dtype)


@published("SparseSegmentSum")
def sparse_segment_sum(call: Call, x: np.ndarray, rows: np.ndarray, segments: np.ndarray) -> np.ndarray:
    total = np.zeros((int(segments.max(initial=-1)) + 1, *x.shape[1:]), x.dtype)
    np.add.at(total, segments, x[rows])
    return total


@published("HashtableLookup")
def hashtable_lookup(
    call: Call, wanted: np.ndarray, keys: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values by key, and whether it was found; those that were not are 0. Keys are sorted."""
    place = np.searchsorted(keys, wanted).clip(0, len(keys) - 1)
    hit = keys[place] == wanted
    found = values[place]
    found[~hit] = "" if values.dtype == object else 0
    return found, hit.astype(np.uint8)


# --- text -------------------------------------------------------------------------------------------------------------


def sentences(values: np.ndarray) -> list[str]:
    """Strings as Python's, whether they are bytes or not."""
    flat = np.asarray(values, object).reshape(-1)
    return [value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value) for value in flat]


@published("CustomNormalize")
def custom_normalize(call: Call, values: np.ndarray) -> np.ndarray:
    return np.array([text.normalize_sentence(value) for value in sentences(values)] or [""], object)


@published("SkipGram")
def skip_gram(call: Call, values: np.ndarray) -> np.ndarray:
    a = call.attrs
    size, skip = int(a["ngram_size"]), int(a["max_skip_size"])
    return np.array(text.skip_grams(sentences(values)[0], size, skip, bool(a["include_all_grams"])), object)


@published("CustomExtractFeatures")
def custom_extract_features(call: Call, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A hash below a million for each string, and its number of words; both 0 for sentence marks."""
    found = [
        (0, 0)
        if value in ("<S>", "<E>", "<S> <E>")
        else (_remainder(text.fingerprint64(value.encode("utf-8", "surrogateescape"))), value.count(" ") + 1)
        for value in sentences(values)
    ] or [(0, 0)]
    labels, weights = zip(*found, strict=True)
    return np.array(labels, np.int32), np.array(weights, np.float32)


def _remainder(hashed: int) -> int:
    """Of a division by a million, the hash counting as signed: C's remainder has the dividend's sign."""
    signed = hashed - (1 << 64) if hashed >> 63 else hashed
    return abs(signed) % 1_000_000 * (1 if signed >= 0 else -1)


@published("CustomPredict")
def custom_predict(
    call: Call, hashes: np.ndarray, keys: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The labels with the largest mean weight over all features; -1 where there are too few above the threshold."""
    wanted = hashes.reshape(-1)
    place = np.searchsorted(keys, wanted).clip(0, len(keys) - 1)
    rows = place[keys[place] == wanted]
    score: dict[int, np.float32] = {}
    for label, weight in zip(labels[rows].reshape(-1).tolist(), weights[rows].reshape(-1), strict=True):
        score[label] = score.get(label, np.float32(0)) + weight / np.float32(wanted.size)
    best = sorted(score.items(), key=lambda item: -item[1])[: call.attrs["output_num"]]
    best = [item for item in best if item[1] >= call.attrs["weight_threshold"]]
    missing = call.attrs["output_num"] - len(best)
    return (
        np.array([label for label, _ in best] + [-1] * missing, np.int32),
        np.array([weight for _, weight in best] + [0] * missing, np.float32),
    )


@published("LshProjection")
def lsh_projection(
    call: Call, seeds: np.ndarray, features: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    bits = text.lsh_bits(seeds, features, weights)
    if call.attrs["type"] == "DENSE":
        return bits.reshape(-1)
    powers = 1 << np.arange(seeds.shape[1])[::-1]
    return (bits @ powers + np.arange(len(seeds)) * (1 << seeds.shape[1])).astype(np.int32)


# --- gates, speech ---------------------------------------------------------------------------------------------------


@mslite("GLU")
def gated_linear_unit(call: Call, x: np.ndarray) -> np.ndarray:
    left, right = np.split(x, 2, call.attrs["axis"])
    return left / (1 + (nnacl.exp if call.mode == "vendor" else np.exp)(-right))


@mslite("Splice")
def splice(call: Call, x: np.ndarray) -> np.ndarray:
    """Every output row joins the frames that ``forward_indexes`` lists for it."""
    width = len(call.attrs["context"])
    frames = x[:, np.array(call.attrs["forward_indexes"])]
    return frames.reshape(len(x), -1, width * x.shape[-1])


@mslite("Affine")
def affine(call: Call, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """A Splice of neighbouring frames, then a matrix product."""
    context = np.array(call.attrs["context"])
    rows = np.arange(-context.min(), x.shape[1] - context.max())
    frames = x[:, rows[:, None] + context].reshape(len(x), len(rows), -1)
    y = np.matmul(*matrices(call, frames, weights))
    return fused(call, y if bias is None else y + bias)


@published("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quantize(call: Call, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """TensorFlow's: to the grid of ``num_bits`` between the bounds, nudged so that 0 lies on it."""
    first = 1 if call.attrs.get("narrow_range") else 0
    last = 2 ** (call.attrs.get("num_bits") or 8) - 1
    low, high = low.reshape(-1), high.reshape(-1)
    scale = (high - low) / np.float32(last - first)
    zero = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    lower, upper = (first - zero) * scale, (last - zero) * scale
    steps = np.floor((np.clip(x, lower, upper) - lower) / scale + np.float32(0.5))
    return (steps * scale + lower).astype(np.float32)


# --- tensor lists ----------------------------------------------------------------------------------------------------


class TensorList(list[Any]):
    """A list of tensors as a value; None where nothing was set. ``shape`` and ``dtype`` are those of its elements."""

    shape: tuple[int, ...] = ()
    dtype = np.dtype(np.float32)


def _list(items: Any, element_shape: tuple[int, ...], dtype: Any) -> TensorList:
    made = TensorList(items)
    made.shape, made.dtype = element_shape, np.dtype(dtype)
    return made


lists = partial(op, "mslite", stored=True)


@lists("TensorListFromTensor")
def tensor_list_from_tensor(call: Call, x: np.ndarray, element_shape: np.ndarray) -> Any:
    return _list(x, x.shape[1:], x.dtype)


@lists("TensorListReserve")
def tensor_list_reserve(call: Call, element_shape: np.ndarray, count: np.ndarray) -> Any:
    return _list(
        [None] * scalar(count), tuple(integers(element_shape)), TYPES.get(call.attrs["element_dtype"], "float32")
    )


@lists("TensorListGetItem")
def tensor_list_get_item(call: Call, items: TensorList, index: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    item = items[scalar(index)]
    return _empty(items, integers(rest[0]) if rest else ()) if item is None else item


def _empty(items: TensorList, wanted: Any = ()) -> np.ndarray:
    """Zeros for an element that was never set, of the shape that the others have."""
    known = next((item.shape for item in items if item is not None), None)
    sizes = known or [max(size, 1) for size in (wanted or items.shape)]
    return np.zeros(sizes, items.dtype)


@lists("TensorListSetItem")
def tensor_list_set_item(call: Call, items: TensorList, index: np.ndarray, value: np.ndarray) -> Any:
    place = scalar(index)
    changed = [*items, *[None] * (place + 1 - len(items))]
    changed[place] = value
    return _list(changed, items.shape or value.shape, value.dtype)


@lists("TensorListStack")
def tensor_list_stack(call: Call, items: TensorList, element_shape: np.ndarray) -> np.ndarray:
    return np.stack([_empty(items, integers(element_shape)) if item is None else item for item in items])


@lists("TensorArray")
def tensor_array(call: Call, count: np.ndarray) -> Any:
    a = call.attrs
    return _list([None] * scalar(count), tuple(a["element_shape"] or ()), TYPES.get(a["data_type"], "float32"))


@lists("TensorArrayRead")
def tensor_array_read(call: Call, items: TensorList, index: np.ndarray, *flow: np.ndarray) -> np.ndarray:
    item = items[scalar(index)]
    return _empty(items) if item is None else item


@lists("TensorArrayWrite")
def tensor_array_write(
    call: Call, items: TensorList, index: np.ndarray, value: np.ndarray, *flow: np.ndarray
) -> tuple[Any, ...]:
    """Writes into the array that it is given: every later read sees it."""
    place = scalar(index)
    items.extend([None] * (place + 1 - len(items)))
    items[place] = value
    return (np.zeros(1, np.float32),)[: len(call.outputs)]


@published("AllGather", "ReduceScatter")
def collective(call: Call, x: np.ndarray) -> np.ndarray:
    """With a single device they change nothing."""
    if (call.attrs["rank_size"] or 1) > 1:
        raise UnsupportedError(f"{call.layer.op} joins {call.attrs['rank_size']} devices; here there is one")
    return x
