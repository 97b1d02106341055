"""From box encodings and class scores to detections, and non-maximum suppression.

The runtimes sort with ``std::partial_sort``, which is not stable: where scores tie, what comes first depends on the
moves of a heap. So ties, and only they, are sorted by the same moves (libstdc++'s).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlinspect.kernels.libm import expf

_EPSILON = float(np.finfo(np.float32).eps)
_BLOCK = 128  # candidates compared with each other at once
Detections = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _sift(heap: list[int], hole: int, length: int, value: int, before: Callable[[int, int], bool]) -> None:
    """libstdc++'s ``__adjust_heap``: sink the hole to a leaf along the later children, lift ``value`` from there."""
    top, child = hole, hole
    while child < (length - 1) // 2:
        child = 2 * child + 2
        if before(heap[child], heap[child - 1]):
            child -= 1
        heap[hole] = heap[child]
        hole = child
    if length % 2 == 0 and child == (length - 2) // 2:
        child = 2 * child + 1
        heap[hole] = heap[child]
        hole = child
    parent = (hole - 1) // 2
    while hole > top and before(heap[parent], value):
        heap[hole] = heap[parent]
        hole, parent = parent, (parent - 1) // 2
    heap[hole] = value


def _partial_sort(count: int, k: int, before: Callable[[int, int], bool]) -> list[int]:
    """The first ``k`` of ``0 .. count - 1`` after libstdc++'s ``std::partial_sort``."""
    order = list(range(count))
    if k == 0:
        return []
    for start in range((k - 2) // 2, -1, -1):
        _sift(order, start, k, order[start], before)
    for i in range(k, count):
        if before(order[i], order[0]):
            value, order[i] = order[i], order[0]
            _sift(order, 0, k, value, before)
    for last in range(k - 1, 0, -1):
        value, order[last] = order[last], order[0]
        _sift(order, 0, last, value, before)
    return order[:k]


def _descending(scores: np.ndarray, k: int) -> np.ndarray:
    """Positions of the ``k`` highest of each row, ``partial_sort`` by ``>``: ``[rows, n] -> [rows, k]``."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, : k + 1]
    ranked = np.take_along_axis(scores, order, 1)
    unsure = np.isnan(scores).any(axis=1)
    if k > 1:  # a single one is the first of the highest
        unsure |= (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    order = order[:, :k]
    for row in np.flatnonzero(unsure):
        s = scores[row].tolist()
        order[row] = _partial_sort(len(s), k, lambda i, j, s=s: s[i] > s[j])  # type: ignore[misc]
    return order


def _descending_nearly(scores: np.ndarray, k: int, places: int | None = None) -> np.ndarray:
    """As :func:`_descending`, where scores within one epsilon tie and the lower position wins.

    "Nearly equal" is not transitive, so the order of near ties (not of exact ones) again depends on the heap. They are
    looked for among the first ``places`` (by default ``k``).
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, 1)
    order = order[:, :k]
    for row in np.flatnonzero(np.isnan(scores).any(axis=1) | _near_ties(ranked, k if places is None else places)):
        s = scores[row].tolist()

        def before(i: int, j: int, s: list[float] = s) -> bool:
            return i < j if abs(s[i] - s[j]) < _EPSILON else s[i] > s[j]

        order[row] = _partial_sort(len(s), k, before)
    return order


def _near_ties(descending: np.ndarray, places: int) -> np.ndarray:
    """Which rows have unequal neighbours within one epsilon, down to the first clear gap after the first ``places``."""
    if places == 0:
        return np.zeros(len(descending), bool)
    gaps = descending[:, :-1] - descending[:, 1:]
    near = (gaps > 0) & (gaps < _EPSILON)
    near[:, places:] &= np.cumsum(gaps[:, places - 1 : -1] >= _EPSILON, axis=1) == 0
    return near.any(axis=1)


def _decode(
    boxes: np.ndarray, anchors: np.ndarray, scales: tuple[float, float, float, float], fused: bool = False
) -> np.ndarray:
    """Corners ``(ymin, xmin, ymax, xmax)`` of boxes encoded as ``(y, x, h, w)`` against anchors ``(y, x, h, w)``.

    ``fused``: sums of a product are rounded once, as processors with such an instruction do it.
    """
    scale, wide = np.array(scales, np.float32), np.float64 if fused else np.float32
    size = anchors[:, 2:]
    with np.errstate(all="ignore"):
        centre = ((boxes[:, :2] / scale[:2]).astype(wide) * size + anchors[:, :2]).astype(np.float32)
        extent = (np.float32(0.5) * expf(boxes[:, 2:] / scale[2:])).astype(wide) * size
        return np.concatenate([centre - extent, centre + extent], axis=1).astype(np.float32)


def _overlap(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Areas of all pairs ``[len(a), len(b)]``: shared, of the box in ``a``, of the box in ``b``."""
    a = a[:, None]
    sides = np.maximum(np.minimum(a[..., 2:], b[:, 2:]) - np.maximum(a[..., :2], b[:, :2]), np.float32(0))
    area_a, area_b = ((box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1]) for box in (a, b))
    return sides[..., 0] * sides[..., 1], area_a, area_b


def _iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    shared, area_a, area_b = _overlap(a, b)
    return shared / (area_a + area_b - shared)


def _iou_of_real_boxes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union; 0 when a box has no area."""
    shared, area_a, area_b = _overlap(a, b)
    return np.where((area_a <= 0) | (area_b <= 0), np.float32(0), shared / (area_a + area_b - shared))


def _iou_of_sharing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union; -inf, below any threshold, for boxes that share nothing."""
    shared, area_a, area_b = _overlap(a, b)
    return np.where(shared <= 0, -np.inf, shared / (area_a + area_b - shared))


def _suppress(
    corners: np.ndarray,
    order: np.ndarray,
    limit: int,
    threshold: float,
    iou: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> list[int]:
    """At most ``limit`` boxes out of ``order``, each overlapping none kept before it by more than ``threshold``."""
    kept: list[int] = []
    with np.errstate(all="ignore"):
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            if kept:
                block = block[~(iou(corners[kept], corners[block]) > np.float32(threshold)).any(axis=0)]
            over = iou(corners[block], corners[block]) > np.float32(threshold)
            alive = np.ones(len(block), bool)
            for i, box in enumerate(block.tolist()):
                if len(kept) >= limit:
                    return kept
                if alive[i]:
                    kept.append(box)
                    alive &= ~over[i]
    return kept


def _rows(
    corners: np.ndarray, boxes: np.ndarray, classes: np.ndarray, scores: np.ndarray, rows: int, count: int
) -> Detections:
    """The four outputs: boxes, classes, scores (rows beyond the detections are 0) and their number."""
    out_boxes, out_classes, out_scores = (np.zeros((1, rows, *tail), np.float32) for tail in ((4,), (), ()))
    used = min(rows, len(boxes))
    out_boxes[0, :used] = corners[boxes[:used]]
    out_classes[0, :used] = classes[:used]
    out_scores[0, :used] = scores[:used]
    return out_boxes, out_classes, out_scores, np.array([count], np.float32)


def detection_post_process(
    boxes: np.ndarray,
    scores: np.ndarray,
    anchors: np.ndarray,
    *,
    scales: tuple[float, float, float, float],
    classes: int,
    max_detections: int,
    max_classes_per_detection: int,
    detections_per_class: int,
    score_threshold: float,
    iou_threshold: float,
    regular: bool,
    rows: int,
) -> Detections:
    """Arm NN's DetectionPostProcess, on decoded inputs.

    Parameters
    ----------
    boxes : ndarray of float32, shape (1, n, 4)
        Encoded as (y, x, h, w).
    scores : ndarray of float32, shape (1, n, classes + 1)
        Column 0 is the background.
    anchors : ndarray of float32, shape (n, 4)
        Centre and size: (y, x, h, w).
    scales : (float, float, float, float)
        Of y, x, h, w.
    classes, max_detections, max_classes_per_detection, detections_per_class : int
    score_threshold, iou_threshold : float
    regular : bool
        Suppress class by class; otherwise once, on each box's best classes. With more than one class per detection that
        second way takes entry ``i`` of the list of all boxes' best classes for box ``i`` while it suppresses, as the
        reference backend does.
    rows : int
        Rows of the outputs.

    Returns
    -------
    boxes, classes, scores, count : ndarray of float32, shapes (1, rows, 4), (1, rows), (1, rows), (1,)
        Corners (ymin, xmin, ymax, xmax); classes counted without the background.

    Notes
    -----
    Arm NN 22.11, CpuRef: DetectionPostProcess. (20.08 let suppressed boxes suppress others.)

    Examples
    --------
    >>> scores = np.float32([[[0, 0.9, 0.1], [0, 0.8, 0.3]]])
    >>> options = dict(max_detections=3, max_classes_per_detection=1, detections_per_class=3)
    >>> boxes, classes, scores, count = detection_post_process(
    ...     np.zeros((1, 2, 4), np.float32),
    ...     scores,
    ...     np.ones((2, 4), np.float32),
    ...     scales=(10, 10, 5, 5),
    ...     classes=2,
    ...     score_threshold=0.2,
    ...     iou_threshold=0.5,
    ...     regular=True,
    ...     rows=3,
    ...     **options,
    ... )
    >>> boxes[0, 0], classes, scores, count  # doctest: +NORMALIZE_WHITESPACE
    (array([0.5, 0.5, 1.5, 1.5], dtype=float32), array([[0., 1., 0.]], dtype=float32),
     array([[0.9, 0.3, 0. ]], dtype=float32), array([2.], dtype=float32))
    """
    count = boxes.shape[1]
    corners = _decode(boxes[0], anchors.reshape(-1, 4), scales)
    by_class = scores.reshape(-1)[: count * (classes + 1)].reshape(count, classes + 1)[:, 1:]

    def keep(of_boxes: np.ndarray, limit: int) -> list[int]:
        above = np.flatnonzero(of_boxes >= np.float32(score_threshold))
        order = above[_descending(of_boxes[None, above], len(above))[0]]
        return _suppress(corners, order, limit, iou_threshold, _iou)

    if regular:
        found = [(box, c) for c in range(classes) for box in keep(by_class[:, c], detections_per_class)]
        box, label = np.array(found, np.intp).reshape(-1, 2).T
        score = by_class[box, label]
        best = _descending(score[None], min(max_detections, len(score)))[0]
        return _rows(corners, box[best], label[best], score[best], rows, len(best))

    per_box = min(max_classes_per_detection, classes)
    listed = -(-count // per_box)  # only the first `count` entries of the list are looked at
    top = _descending(by_class[:listed], per_box).reshape(-1)[:count]
    box = np.arange(count) // per_box
    score = by_class[box, top]
    best = np.array(keep(score, max_detections), np.intp)
    return _rows(corners, box[best], top[best], score[best], rows, len(best))


def detection_post_process_nnacl(
    boxes: np.ndarray,
    scores: np.ndarray,
    anchors: np.ndarray,
    *,
    scales: tuple[float, float, float, float],
    classes: int,
    max_detections: int,
    max_classes_per_detection: int,
    detections_per_class: int,
    score_threshold: float,
    iou_threshold: float,
    regular: bool,
) -> Detections:
    """MindSpore Lite's DetectionPostProcess, on decoded inputs: TFLite's, but scores within one epsilon tie.

    Parameters
    ----------
    boxes, scores, anchors, scales, classes, max_detections, detections_per_class, score_threshold, iou_threshold
        As for `detection_post_process`; a background may be absent (then ``scores`` has ``classes`` columns).
    max_classes_per_detection : int
        Without ``regular``, each kept box is reported with its so many best classes.
    regular : bool
        Suppress class by class; otherwise once, on each box's best class.

    Returns
    -------
    boxes, classes, scores, count : ndarray of float32, shapes (1, rows, 4), (1, rows), (1, rows), (1,)
        ``rows`` = ``max_detections * max_classes_per_detection``.

    Notes
    -----
    MindSpore Lite, nnacl: DetectionPostProcess.

    Examples
    --------
    >>> scores = np.float32([[[0, 0.9, 0.1], [0, 0.8, 0.3]]])
    >>> boxes, classes, scores, count = detection_post_process_nnacl(
    ...     np.zeros((1, 2, 4), np.float32),
    ...     scores,
    ...     np.ones((2, 4), np.float32),
    ...     scales=(10, 10, 5, 5),
    ...     classes=2,
    ...     max_detections=1,
    ...     max_classes_per_detection=2,
    ...     detections_per_class=3,
    ...     score_threshold=0.2,
    ...     iou_threshold=0.5,
    ...     regular=False,
    ... )
    >>> classes, scores, count
    (array([[0., 1.]], dtype=float32), array([[0.9, 0.1]], dtype=float32), array([2.], dtype=float32))
    """
    count = boxes.shape[1]
    corners = _decode(boxes[0], anchors.reshape(-1, 4), scales, fused=True)
    by_class = scores.reshape(count, -1)[:, -classes:]
    rows = max_detections * max_classes_per_detection

    def keep(of_boxes: np.ndarray, limit: int) -> list[int]:
        above = int(np.count_nonzero(of_boxes >= np.float32(score_threshold)))
        order = _descending_nearly(of_boxes[None], count, above)[0, :above]
        return _suppress(corners, order, limit, iou_threshold, _iou_of_real_boxes)

    if regular:
        box, label, score = np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.float32)
        for c in range(classes):
            kept = np.array(keep(by_class[:, c], detections_per_class), np.intp)
            box, label = np.append(box, kept), np.append(label, np.full(len(kept), c))
            score = np.append(score, by_class[kept, c])
            best = _descending_nearly(score[None], min(max_detections, len(score)))[0]
            box, label, score = box[best], label[best], score[best]
        return _rows(corners, box, label, score, rows, len(box))

    per_box = min(max_classes_per_detection, classes)
    top = _descending_nearly(by_class, per_box)
    kept = np.array(keep(by_class[np.arange(count), top[:, 0]], max_detections), np.intp)
    box, label = np.repeat(kept, per_box), top[kept].reshape(-1)
    return _rows(corners, box, label, by_class[box, label], rows, len(box))


def non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    *,
    max_output: int = 0,
    iou_threshold: float = 0.0,
    score_threshold: float = 0.0,
    center_point_box: bool = False,
) -> np.ndarray:
    """NonMaxSuppression as ONNX has it, within MindSpore Lite's limits.

    Parameters
    ----------
    boxes : ndarray of float32, shape (batches, n, 4), or (n, 4)
        Two opposite corners (y, x, y, x) in any order; (x centre, y centre, width, height) with ``center_point_box``.
    scores : ndarray of float32, shape (batches, classes, n), or fewer dimensions
    max_output : int
        At most so many boxes in all. (ONNX: in each batch and class. The runtime goes on counting.)
    iou_threshold : float
        Boxes that overlap a better one by more than this are left out.
    score_threshold : float
        Only scores above this count.
    center_point_box : bool

    Returns
    -------
    ndarray of int32, shape (found, 3)
        (batch, class, box), best first in each class; only the boxes, shape (found,), when ``boxes`` has no batches.

    Notes
    -----
    MindSpore Lite: NonMaxSuppression. Scores within one epsilon tie, the lower box first.

    Examples
    --------
    >>> boxes = np.float32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 5, 1, 6]]])
    >>> non_max_suppression(boxes, np.float32([[[0.5, 0.9, 0.4]]]), max_output=3, iou_threshold=0.5)
    array([[0, 0, 1],
           [0, 0, 2]], dtype=int32)
    """
    simple = boxes.ndim < 3
    boxes = boxes.reshape((1,) * (3 - boxes.ndim) + boxes.shape)
    scores = scores.reshape((1,) * (3 - scores.ndim) + scores.shape)
    first, second = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        half = second / np.float32(2)
        corners = np.concatenate([first - half, first + half], axis=-1)
    else:
        corners = np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)
    found: list[tuple[int, int, int]] = []
    for b, c in np.ndindex(scores.shape[:2]):
        above = np.flatnonzero(scores[b, c] > np.float32(score_threshold))
        order = above[_queue_order(scores[b, c][above])]
        kept = _suppress(corners[b], order, max_output - len(found), iou_threshold, _iou_of_sharing)
        found += [(b, c, box) for box in kept]
    rows = np.array(found, np.int32).reshape(-1, 3)
    return rows[:, 2].copy() if simple else rows


def _queue_order(scores: np.ndarray) -> np.ndarray:
    """Positions as a ``std::priority_queue`` gives them, highest score first, the lower position of near ties first."""
    order = np.argsort(-scores, kind="stable")
    if np.isnan(scores).any() or _near_ties(scores[None, order], len(order))[0]:
        s = scores.tolist()

        def below(i: int, j: int) -> bool:
            return s[i] < s[j] or (abs(s[i] - s[j]) < _EPSILON and i > j)

        return np.array(_partial_sort(len(s), len(s), below)[::-1], np.intp)
    return order
