import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect import formats
from mlinspect.kernels import detection
from mlinspect.kernels.detection import detection_post_process, detection_post_process_nnacl, non_max_suppression
from mlinspect.kernels.quantize import dequantize

few = settings(derandomize=True, deadline=None, max_examples=60)
F = np.float32
EPSILON = float(np.finfo(F).eps)

# what libstdc++'s std::partial_sort (rules 0, 1) and std::priority_queue (rule 2) make of these scores
STEPS = [0.5, 0.5 + 6e-8, 0.5 + 12e-8, 0.5 - 6e-8, 0.5 + 18e-8]
LIBSTDCXX = [
    (0, [0.5] * 8, [7, 4, 1, 3, 5, 0, 2, 6]),
    (0, [0.25, 0.5, 0.5, 0.25, 0.75, 0.5, 0.25, 0.5, 0.75], [8, 4, 1, 7, 5, 2, 3, 0, 6]),
    (0, [0.25, 0.5, 0.5, 0.25, 0.75, 0.5, 0.25, 0.5, 0.75], [8, 4, 1, 5]),
    (1, STEPS, [1, 2, 0, 4, 3]),
    (2, [*STEPS, 0.5], [4, 2, 1, 0, 5, 3]),
]


@pytest.mark.parametrize(("rule", "scores", "expected"), LIBSTDCXX)
def test_ties_as_libstdcxx_orders_them(rule, scores, expected):
    row, k = np.array(scores, F), len(expected)
    if rule == 2:
        assert detection._queue_order(row).tolist() == expected
    else:
        sort = detection._descending_nearly if rule else detection._descending
        assert sort(row[None], k)[0].tolist() == expected


@few
@given(scores=st.lists(st.integers(0, 20), min_size=1, max_size=40), data=st.data())
def test_shortcuts_give_the_order_of_the_heap(scores, data):
    """Only ties go through the heap; all others are sorted faster, to the same order."""
    k = data.draw(st.integers(1, len(scores)))
    row = np.array(scores, F) * F(1 / 32)
    s = row.tolist()
    slow = detection._partial_sort(len(s), k, lambda i, j: s[i] > s[j])
    assert detection._descending(row[None], k)[0].tolist() == slow
    assert [s[i] for i in slow] == sorted(s, reverse=True)[:k]
    row *= F(EPSILON * 16)  # half an epsilon apart
    s = row.tolist()
    near = detection._partial_sort(len(s), k, lambda i, j: i < j if abs(s[i] - s[j]) < EPSILON else s[i] > s[j])
    assert detection._descending_nearly(row[None], k)[0].tolist() == near


def test_a_nan_stays_where_the_heap_leaves_it():
    row = F([0.1, np.nan, 0.3, 0.2])
    s = row.tolist()
    assert detection._descending(row[None], 4)[0].tolist() == detection._partial_sort(4, 4, lambda i, j: s[i] > s[j])


# ---- from the definitions, box by box ------------------------------------------------------------------------------


def slow_iou(a, b, real):
    area = lambda box: (box[2] - box[0]) * (box[3] - box[1])  # noqa: E731
    if real and (area(a) <= 0 or area(b) <= 0):
        return F(0)
    height = max(min(a[2], b[2]) - max(a[0], b[0]), F(0))
    width = max(min(a[3], b[3]) - max(a[1], b[1]), F(0))
    return height * width / (area(a) + area(b) - height * width)


def slow_corners(boxes, anchors, scales, fused):
    wide = np.float64 if fused else F  # exact product, so that the sum is rounded once
    rows = []
    for box, anchor in zip(boxes, anchors, strict=True):
        centre = [F(wide(box[i] / F(scales[i])) * wide(anchor[i + 2]) + wide(anchor[i])) for i in (0, 1)]
        half = [F(0.5) * F(np.exp(float(box[i] / F(scales[i])))) for i in (2, 3)]
        low = [F(wide(c) - wide(h) * wide(anchor[i + 2])) for i, (c, h) in enumerate(zip(centre, half, strict=True))]
        high = [F(wide(c) + wide(h) * wide(anchor[i + 2])) for i, (c, h) in enumerate(zip(centre, half, strict=True))]
        rows.append(low + high)
    return rows


def slow_keep(corners, order, limit, threshold, real):
    kept, gone = [], set()
    for i, box in enumerate(order):
        if len(kept) == limit:
            break
        if box in gone:
            continue
        kept.append(box)
        gone |= {other for other in order[i + 1 :] if slow_iou(corners[box], corners[other], real) > F(threshold)}
    return kept


def slow_armnn(boxes, scores, anchors, o):
    corners = slow_corners(boxes[0], anchors, o["scales"], False)
    table = scores[0, :, 1:].tolist()

    def select(values, limit):
        above = [i for i, v in enumerate(values) if F(v) >= F(o["score_threshold"])]
        moves = detection._partial_sort(len(above), len(above), lambda i, j: values[above[i]] > values[above[j]])
        return slow_keep(corners, [above[i] for i in moves], limit, o["iou_threshold"], False)

    if o["regular"]:
        columns = list(zip(*table, strict=True))
        found = [(b, c) for c, column in enumerate(columns) for b in select(column, o["detections_per_class"])]
        value = [table[b][c] for b, c in found]
        best = detection._partial_sort(
            len(found), min(o["max_detections"], len(found)), lambda i, j: value[i] > value[j]
        )
        rows = [(corners[found[i][0]], found[i][1], value[i]) for i in best]
    else:
        k = min(o["max_classes_per_detection"], o["classes"])
        listed = [
            (b, c, row[c])
            for b, row in enumerate(table)
            for c in detection._partial_sort(len(row), k, lambda i, j, row=row: row[i] > row[j])
        ]
        kept = select([score for _, _, score in listed][: len(table)], o["max_detections"])
        rows = [(corners[listed[i][0]], listed[i][1], listed[i][2]) for i in kept]
    return rows


def slow_nnacl(boxes, scores, anchors, o):
    corners = slow_corners(boxes[0], anchors, o["scales"], True)
    table = scores[0, :, -o["classes"] :].tolist()

    def falling(values, k):
        near = lambda i, j: i < j if abs(values[i] - values[j]) < EPSILON else values[i] > values[j]  # noqa: E731
        return detection._partial_sort(len(values), k, near)

    def select(values, limit):
        order = [i for i in falling(values, len(values)) if F(values[i]) >= F(o["score_threshold"])]
        return slow_keep(corners, order, limit, o["iou_threshold"], True)

    if o["regular"]:
        found = []
        for c in range(o["classes"]):
            column = [row[c] for row in table]
            found += [(column[b], b, c) for b in select(column, o["detections_per_class"])]
            best = falling([score for score, _, _ in found], min(len(found), o["max_detections"]))
            found = [found[i] for i in best]
        return [(corners[b], c, score) for score, b, c in found]
    k = min(o["max_classes_per_detection"], o["classes"])
    top = [falling(row, k) for row in table]
    kept = select([row[t[0]] for row, t in zip(table, top, strict=True)], o["max_detections"])
    return [(corners[b], c, table[b][c]) for b in kept for c in top[b]]


def check(results, rows, size):
    boxes, classes, scores, count = results
    assert (boxes.shape, classes.shape, scores.shape) == ((1, size, 4), (1, size), (1, size))
    assert count.tolist() == [len(rows)]
    wanted_boxes, wanted_classes, wanted_scores = (np.zeros((size, *tail), F) for tail in ((4,), (), ()))
    for i, (corners, label, score) in enumerate(rows[:size]):
        wanted_boxes[i], wanted_classes[i], wanted_scores[i] = corners, label, score
    np.testing.assert_array_equal(classes[0], wanted_classes)
    np.testing.assert_array_equal(scores[0], wanted_scores)
    np.testing.assert_allclose(boxes[0], wanted_boxes, rtol=1e-6, atol=1e-7)
    assert {result.dtype for result in results} == {np.dtype(F)}


options = st.fixed_dictionaries(
    {
        "scales": st.just((10.0, 9.0, 5.0, 4.0)),
        "classes": st.integers(1, 4),
        "max_detections": st.integers(1, 6),
        "max_classes_per_detection": st.integers(1, 5),
        "detections_per_class": st.integers(1, 4),
        "score_threshold": st.sampled_from([0.0, 0.25, 0.3, 0.95]),
        "iou_threshold": st.sampled_from([0.2, 0.5, 0.9]),
        "regular": st.booleans(),
    }
)


def random_boxes(seed, count, columns, ties):
    rng = np.random.default_rng(seed)
    boxes = rng.normal(size=(1, count, 4)).astype(F)
    anchors = rng.uniform(0.1, 0.6, (count, 4)).astype(F)
    scores = rng.random((1, count, columns)).astype(F)
    scores = np.round(scores * ties) / F(ties) if ties else scores
    return boxes, scores, anchors


@few
@given(seed=st.integers(0, 999), count=st.integers(1, 12), o=options, ties=st.sampled_from([0, 4, 64]))
def test_armnn_detections_are_the_slow_ones(seed, count, o, ties):
    case = random_boxes(seed, count, o["classes"] + 1, ties)
    rows = o["max_detections"]
    check(detection_post_process(*case, **o, rows=rows), slow_armnn(*case, o), rows)


@few
@given(
    seed=st.integers(0, 999),
    count=st.integers(1, 12),
    o=options,
    ties=st.sampled_from([0, 4, 64, 1 << 24]),
    background=st.integers(0, 1),
)
def test_nnacl_detections_are_the_slow_ones(seed, count, o, ties, background):
    boxes, scores, anchors = random_boxes(seed, count, o["classes"] + background, ties)
    if ties == 1 << 24:  # near ties
        scores = F(0.5) + np.round(scores * 6) * F(2.0**-24)
    rows = o["max_detections"] * o["max_classes_per_detection"]
    check(detection_post_process_nnacl(boxes, scores, anchors, **o), slow_nnacl(boxes, scores, anchors, o), rows)


@few
@given(
    seed=st.integers(0, 999),
    size=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 9)),
    limit=st.integers(0, 12),
    ties=st.sampled_from([0, 4]),
    centre=st.booleans(),
)
def test_non_max_suppression_is_the_slow_one(seed, size, limit, ties, centre):
    rng = np.random.default_rng(seed)
    batches, classes, count = size
    boxes = rng.uniform(0, 2, (batches, count, 4)).astype(F)
    scores = rng.random((batches, classes, count)).astype(F)
    scores = np.round(scores * ties) / F(ties) if ties else scores
    found = []
    for b in range(batches):
        corners = []
        for y, x, other_y, other_x in boxes[b]:  # in pairs, whatever they mean
            first, second = (y, x), (other_y, other_x)
            if centre:
                first, second = (y - other_y / F(2), x - other_x / F(2)), (y + other_y / F(2), x + other_x / F(2))
            corners.append([min(first[0], second[0]), min(first[1], second[1])])
            corners[-1] += [max(first[0], second[0]), max(first[1], second[1])]
        for c in range(classes):
            order = sorted((i for i in range(count) if scores[b, c, i] > F(0.2)), key=lambda i: (-scores[b, c, i], i))
            found += [(b, c, i) for i in slow_keep(corners, order, limit - len(found), 0.3, False)]
    arguments = {"max_output": limit, "iou_threshold": 0.3, "score_threshold": 0.2, "center_point_box": centre}
    result = non_max_suppression(boxes, scores, **arguments)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, np.array(found, np.int32).reshape(-1, 3))
    if batches == classes == 1:
        only = non_max_suppression(boxes[0], scores[0, 0], **arguments)
        np.testing.assert_array_equal(only, result[:, 2])


@pytest.mark.parametrize("regular", [True, False])
def test_many_boxes_go_in_blocks(regular):
    case = random_boxes(7, 3 * detection._BLOCK, 2, 64)
    o = {"scales": (10.0, 9.0, 5.0, 4.0), "classes": 1, "max_detections": 250, "max_classes_per_detection": 1}
    o |= {"detections_per_class": 250, "score_threshold": 0.1, "iou_threshold": 0.7, "regular": regular}
    rows = slow_armnn(*case, o)
    assert len(rows) > detection._BLOCK
    check(detection_post_process(*case, **o, rows=250), rows, 250)


def test_boxes_without_area_suppress_nothing_in_nnacl():
    boxes, anchors = np.zeros((1, 3, 4), F), np.zeros((3, 4), F)
    scores = F([[[0.9], [0.8], [0.7]]])
    options = {"scales": (10, 10, 5, 5), "classes": 1, "max_detections": 3, "max_classes_per_detection": 1}
    options |= {"detections_per_class": 3, "score_threshold": 0.1, "iou_threshold": 0.0, "regular": True}
    assert detection_post_process_nnacl(boxes, scores, anchors, **options)[3] == 3


# ---- what the vendors' runtimes computed ---------------------------------------------------------------------------

DATA = Path(__file__).parents[1] / "data"
ARMNN, MSLITE = zipfile.ZipFile(DATA / "armnn-22.11.zip"), zipfile.ZipFile(DATA / "mslite-ops.zip")
ARMNN_CASES = [c for c in json.loads(ARMNN.read("manifest.json"))["cases"] if c["name"].startswith("detection")]
MSLITE_OPS = ("DetectionPostProcess", "NonMaxSuppression")
MSLITE_CASES = [c for c in json.loads(MSLITE.read("manifest.json"))["cases"] if c["op"] in MSLITE_OPS]


@pytest.mark.parametrize("case", ARMNN_CASES, ids=lambda case: case["name"])
def test_bits_of_armnn(case):
    network = formats.read(np.frombuffer(ARMNN.read(case["file"]), np.uint8))
    values = np.load(io.BytesIO(ARMNN.read(case["npz"])))
    layer = next(layer for layer in network.layers.values() if layer.op == "DetectionPostProcess")
    a, anchors = layer.attrs, network.tensors[layer.inputs[-1]]
    boxes, scores = (
        dequantize(values[f"in_{i}"], info["scale"], info["offset"]) for i, info in enumerate(case["inputs"])
    )
    grid = anchors.quantization
    decoded = anchors.array if grid is None else dequantize(anchors.array, grid.scale[0], grid.zero_point[0])
    results = detection_post_process(
        boxes, scores, decoded, scales=(a["scaleY"], a["scaleX"], a["scaleH"], a["scaleW"]), classes=a["numClasses"],
        max_detections=a["maxDetections"], max_classes_per_detection=a["maxClassesPerDetection"],
        detections_per_class=a["detectionsPerClass"], score_threshold=a["nmsScoreThreshold"],
        iou_threshold=a["nmsIouThreshold"], regular=a["useRegularNms"], rows=case["outputs"][0]["shape"][1],
    )  # fmt: skip
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, values[f"out_{i}"])


@pytest.mark.parametrize("case", MSLITE_CASES, ids=lambda case: case["case"])
def test_bits_of_mindspore_lite(case):
    network = formats.read(np.frombuffer(MSLITE.read(f"{case['case']}.ms"), np.uint8))
    values = np.load(io.BytesIO(MSLITE.read(f"{case['case']}.npz")))
    feeds = {port.tensor: values[f"in_{i}"] for i, port in enumerate(network.graphs[0].inputs)}
    (layer,) = network.layers.values()
    inputs = [feeds[i] if i in feeds else network.tensors[i].array for i in layer.inputs]
    a = layer.attrs
    if case["op"] == "NonMaxSuppression":
        limits = dict(zip(("max_output", "iou_threshold", "score_threshold"), inputs[2:], strict=False))
        limits = {name: value.item() for name, value in limits.items()}
        results = [non_max_suppression(*inputs[:2], **limits, center_point_box=bool(a["center_point_box"]))]
    else:
        h, w, x, y = a["scale"]
        results = detection_post_process_nnacl(
            *inputs, scales=(y, x, h, w), classes=a["num_classes"], max_detections=a["max_detections"],
            max_classes_per_detection=a["max_classes_per_detection"], detections_per_class=a["detections_per_class"],
            score_threshold=a["nms_score_threshold"], iou_threshold=a["nms_iou_threshold"],
            regular=a["use_regular_nms"],
        )  # fmt: skip
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, values[f"out_{i}"])
