"""Costs counted by hand: operations of each kind, bundled models, memory against a brute-force search."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.columns import COLUMNS
from mlinspect.analysis.cost import cost, liveness, tensor_bytes
from mlinspect.analysis.operations import ACTIVATIONS, FORMULAS, MOVES, PER_INPUT, PER_OUTPUT, count_operations
from mlinspect.errors import InputError


def tensor(index, shape, dtype="float32", data=None, **more):
    return ir.Tensor(index, f"t{index}", 0, "activation", dtype, dtype, shape, data=data, **more)


def operations(kind, ins, outs, op=None, **attrs):
    ins = [tensor(i, shape) for i, shape in enumerate(ins)]
    layer = ir.Layer(0, "", op or kind, kind, 0, attrs, (), ())
    return count_operations(layer, ins, [tensor(9, shape) for shape in outs])


IMAGE, HALF = (1, 4, 4, 3), (1, 2, 2, 3)  # 48 and 12 elements
W, B = (3, 3, 3, 3), (3,)
HAND = [
    ("conv2d", [IMAGE, W], [IMAGE], {}, 0),
    ("conv2d", [IMAGE, W, B], [IMAGE], {}, 48),
    ("conv2d", [IMAGE, W, B], [IMAGE], {"activation_type": "RELU6"}, 48 + 2 * 48),
    ("depthwise_conv2d", [IMAGE, W, B], [IMAGE], {"activation_type": "RELU"}, 48 + 48),
    ("conv2d_transpose", [HALF, W, B], [IMAGE], {}, 48),
    ("conv3d", [(1, 2, 2, 2, 3), (2, 2, 2, 3, 5), (5,)], [(1, 1, 1, 1, 5)], {}, 5),
    ("fully_connected", [(2, 5), (7, 5), (7,)], [(2, 7)], {}, 14),
    ("matmul", [(2, 5), (5, 7)], [(2, 7)], {"activation_type": "HSWISH"}, 5 * 14),
    ("activation", [IMAGE], [IMAGE], {"activationFunction": "ReLu"}, 48),
    ("activation", [IMAGE], [IMAGE], {"activationFunction": "BoundedReLu"}, 96),
    ("activation", [IMAGE], [IMAGE], {"activation_type": "SIGMOID"}, 4 * 48),
    ("activation", [IMAGE], [IMAGE], {"type": "RELU6"}, 96),
    ("max_pool2d", [IMAGE], [HALF], {"poolWidth": 2, "poolHeight": 3}, 5 * 12),
    ("max_pool2d", [IMAGE], [HALF], {"kernel_size": (2, 2), "activation_type": "RELU"}, 3 * 12 + 12),
    ("max_pool3d", [(1, 4, 4, 4, 1)], [(1, 2, 2, 2, 1)], {"poolWidth": 2, "poolHeight": 2, "poolDepth": 2}, 7 * 8),
    ("average_pool2d", [IMAGE], [(1, 1, 1, 3)], {"global": True, "kernel_size": (1, 1)}, 16 * 3),
    ("average_pool2d", [IMAGE], [HALF], {"windowW": 2, "windowH": 2}, 4 * 12),
    ("average_pool3d", [(1, 4, 4, 4, 1)], [(1, 2, 2, 2, 1)], {"poolWidth": 2, "poolHeight": 2, "poolDepth": 2}, 8 * 8),
    ("l2_pool2d", [IMAGE], [HALF], {"poolWidth": 2, "poolHeight": 2}, (4 + 3 + 1 + 1) * 12),
    (
        "l2_pool3d",
        [(1, 4, 4, 4, 1)],
        [(1, 2, 2, 2, 1)],
        {"poolWidth": 2, "poolHeight": 2, "poolDepth": 2},
        (8 + 7 + 2) * 8,
    ),
    ("resize", [HALF], [IMAGE], {"method": "NEAREST"}, 0),
    ("resize", [HALF], [IMAGE], {"method": "Bilinear"}, 9 * 48),
    ("resize", [HALF], [IMAGE], {"method": "CUBIC"}, 35 * 48),
    ("local_response_norm", [IMAGE], [IMAGE], {"depth_radius": 1}, (1 + 2 + 1 + 1 + 1 + 1) * 48),
    ("local_response_norm", [IMAGE], [IMAGE], {"normSize": 3, "normChannelType": "Within"}, (9 + 4) * 48),
    ("add_n", [IMAGE] * 4, [IMAGE], {}, 3 * 48),
    ("lstm", [(2, 5)], [(2, 16), (2, 4), (2, 4), (2, 4)], {"op": "Lstm"}, 26 * 8),
    ("lstm", [(7, 2, 5)], [(7, 1, 2, 4), (1, 2, 4), (1, 2, 4)], {"op": "LSTM"}, 26 * 56),
    ("gru", [(7, 2, 5)], [(7, 1, 2, 4), (1, 2, 4)], {"op": "GRU"}, 20 * 56),
    ("reduce_mean", [IMAGE], [(1, 3)], {}, 48 + 3),
    ("reduce_l2", [IMAGE], [(1, 3)], {}, 96 + 3),
    ("arg_max", [IMAGE], [(1, 4, 4)], {}, 48),
    ("softmax", [(2, 10)], [(2, 10)], {}, 5 * 20),
    ("squared_difference", [IMAGE, IMAGE], [IMAGE], {}, 96),
    ("add", [IMAGE, B], [IMAGE], {"activation_type": "RELU"}, 96),
    ("quantize", [IMAGE], [IMAGE], {}, 3 * 48),
    ("reshape", [IMAGE], [(48,)], {}, 0),
    ("add", [(1, -1)], [(1, -1)], {}, None),
    ("add", [None], [None], {}, None),
    ("activation", [IMAGE], [IMAGE], {"activationFunction": "Unheard"}, None),
    ("max_pool2d", [IMAGE], [HALF], {}, None),
    ("detection_post_process", [IMAGE], [IMAGE], {}, None),
    ("unknown", [IMAGE], [IMAGE], {}, None),
]


@pytest.mark.parametrize(("kind", "ins", "outs", "attrs", "want"), HAND)
def test_operations_counted_by_hand(kind, ins, outs, attrs, want):
    assert operations(kind, ins, outs, **attrs) == want


def test_every_formula_has_a_hand_count():
    assert {case[0] for case in HAND} >= set(FORMULAS)
    tables = [set(PER_OUTPUT), set(PER_INPUT), set(MOVES), set(FORMULAS)]
    assert sum(map(len, tables)) == len(set().union(*tables))


@pytest.mark.parametrize("kind", [*PER_OUTPUT, *PER_INPUT])
def test_rates_are_per_element(kind):
    single = operations(kind, [(1,)], [(1,)])
    assert operations(kind, [IMAGE], [IMAGE]) == 48 * single


def test_kinds_of_vendor_files_are_known(golden):
    """Whatever a golden file computes has a count, but for what depends on the data or hides its work."""
    open_ended = {
        "detection_post_process",
        "custom",
        "stand_in",
        "call",
        "partial",
        "switch",
        "merge",
        "top_k",
        "unique",
    }
    open_ended |= {"non_max_suppression", "crop_and_resize", "roi_pooling", "scatter_nd", "scatter_nd_update"}
    open_ended |= {"glu", "range", "invert_permutation", "unsorted_segment_sum", "sparse_to_dense"}
    known = {*PER_OUTPUT, *PER_INPUT, *MOVES, *FORMULAS}
    for archive in ("armnn-22.11.zip", "mslite-ops.zip"):
        for name in golden(archive).names[::4]:
            kinds = {layer.kind for layer in mi.open(golden(archive).model(name)).network.layers.values()}
            assert kinds <= known | open_ended, name


def test_digits_by_hand():
    table = cost(mi.open(mi.samples.path("digits_cnn.ms")))
    want = {
        "/stem/Conv": (64 * 16 * 9, 2 * 1024), "/dw/Conv": (64 * 16 * 9, 3 * 1024),
        "/pw/Conv": (64 * 32 * 16, 3 * 2048),
        "/MaxPool": (0, 512 * 3), "/res/Conv": (16 * 32 * 32 * 9, 512), "/Add": (0, 2 * 512), "/AveragePool": (0, 512),
        "/AveragePool_post": (0, 0), "/Flatten": (0, 0), "/head/Gemm": (320, 10), "/Softmax": (0, 50),
    }  # fmt: skip
    assert dict(zip(table.name, zip(table.macs, table.other_ops, strict=True), strict=True)) == want
    assert table.macs.sum() == 198_976
    assert table.params.sum() == 16 * 10 + 16 * 10 + 32 * 17 + 32 * 289 + 10 * 33
    row = table[table.name == "/res/Conv"].iloc[0]
    assert (row.weight_bytes, row.bytes_in, row.bytes_out) == (4 * 32 * 289, 4 * 512, 4 * 512)
    assert row.intensity == pytest.approx((2 * 147456 + 512) / (4 * 32 * 289 + 4096))
    assert table.peak == 4 * 64 * (16 + 32)  # the pointwise convolution's input and output
    assert table.liveness.name[table.liveness.live_bytes.argmax()] == "/pw/Conv"
    assert table.peak_tensors.index.tolist() == [7, 4]


@pytest.mark.parametrize(
    ("archive", "name", "macs"),
    [
        # 25 x 5 places: first layer 64 x 10 x 4; four times depthwise 3 x 3 and pointwise 64 x 64; classifier
        ("armnn-nets.zip", "ds_cnn_f32.armnn", 125 * (64 * 40 + 4 * (64 * 9 + 64 * 64)) + 64 * 12),
        ("mslite-nets.zip", "ds_cnn_int8.ms", 125 * (64 * 40 + 4 * (64 * 9 + 64 * 64)) + 64 * 12),
    ],
)
def test_ds_cnn_by_hand(archive, name, macs, golden):
    table = cost(mi.open(golden(archive).model(name)))
    assert table.macs.sum() == macs
    assert not table.other_ops.isna().any()


def test_mobilenet_by_hand(golden):
    """MobileNet V1 at width 0.25: the same count in both formats, float and int8."""
    channels = [8, 16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256]
    strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
    for archive, ending in (("armnn-nets.zip", "armnn"), ("mslite-nets.zip", "ms")):
        for kind in ("f32", "int8"):
            table = cost(mi.open(golden(archive).model(f"mobilenet_v1_{kind}.{ending}")))
            convolutions = table[table.kind == "conv2d"]
            size = (
                int(table[table.kind == "depthwise_conv2d"].bytes_in.iloc[0] // (8 * (4 if kind == "f32" else 1)))
                ** 0.5
            )
            want = size**2 * 27 * channels[0]
            for before, after, stride in zip(channels, channels[1:], strides, strict=False):
                size = np.ceil(size / stride)
                want += size**2 * (9 * before + before * after)
            classes = convolutions.macs.iloc[-1] if len(convolutions) == 15 else table[table.macs > 0].macs.iloc[-1]
            assert table.macs.sum() == want + classes


def test_packed_weights_have_two_sizes():
    table = cost(mi.open(mi.samples.path("digits_cnn_wq4.ms")))
    row = table[table.name == "/res/Conv"].iloc[0]
    assert row.weight_bytes == 9216 // 2 + 128
    assert row.weight_bytes_logical == 9216 + 128


# ---- memory ----------------------------------------------------------------------------------------------------------


def random_graph(seed):
    """A graph of random layers that read what came before, with constants, some outputs, and unused results."""
    rng = np.random.default_rng(seed)
    tensors = {0: tensor(0, (int(rng.integers(1, 500)),)), 1: tensor(1, (int(rng.integers(1, 500)),), "int8")}
    constant = tensor(2, (9,), data=np.zeros(9, np.float32))
    tensors[2] = constant
    layers, known = [], [0, 1, 2]
    for index in range(int(rng.integers(8, 30))):
        ins = tuple(int(i) for i in rng.choice(known, rng.integers(1, 4)))
        outs = []
        for _ in range(int(rng.integers(1, 3))):
            i = len(tensors)
            tensors[i] = tensor(i, (int(rng.integers(1, 500)),), str(rng.choice(["float32", "int8", "float16"])))
            outs.append(i)
        layers.append(ir.Layer(index, f"l{index}", "Any", "any", 0, {}, ins, tuple(outs)))
        known += outs
    results = tuple(ir.Port(f"y{i}", int(i)) for i in rng.choice(known[3:], 2))
    graph = ir.Graph(0, "", (ir.Port("a", 0), ir.Port("b", 1)), results, tuple(layers))
    return ir.Network("mslite", "", "", (graph,), tensors)


def search(network):
    """Bytes at each step by asking, tensor by tensor, whether it is there already and still needed."""
    graph = network.graphs[0]
    found = []
    for step in range(len(graph.layers)):
        total = 0
        for i, t in network.tensors.items():
            if t.data is not None:
                continue
            there = i in [port.tensor for port in graph.inputs] or any(i in x.outputs for x in graph.layers[: step + 1])
            needed = any(i in x.inputs for x in graph.layers[step:]) or i in [port.tensor for port in graph.outputs]
            total += (there and (needed or i in graph.layers[step].outputs)) * tensor_bytes(t)
        found.append(total)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_peak_of_random_graphs_equals_a_brute_force_search(seed):
    network = random_graph(seed)
    table, want = cost(network), search(network)
    assert table.liveness.live_bytes.tolist() == want
    assert table.peak == max(want)
    assert table.peak_layer == want.index(max(want))
    assert table.peak_tensors.bytes.sum() == max(want)
    assert table.peak_tensors.share.sum() == pytest.approx(1)
    steps = table.liveness
    columns = steps.allocated, steps.tensors, steps.freed
    assert all(set(a) <= set(t) and set(f) <= set(t) for a, t, f in zip(*columns, strict=True))
    later = {i for freed in steps.freed for i in freed}
    assert later == {i for alive in steps.tensors for i in alive}


def test_sizes_that_are_not_known_make_the_peak_unknown():
    network = random_graph(1)
    last = network.graphs[0].layers[-1].outputs[0]
    table = cost(replace(network, tensors=network.tensors | {last: tensor(last, (-1,))}))
    assert table.peak is pd.NA
    assert table.peak_layer is pd.NA
    assert table.peak_tensors.empty
    assert table.liveness.live_bytes.isna().sum() == 1
    empty = ir.Network("mslite", "", "", (), {})
    assert cost(empty).empty
    assert liveness(empty).empty
    assert cost(empty).peak is pd.NA


# ---- open shapes -----------------------------------------------------------------------------------------------------


def opened(name):
    """A sample whose file leaves the batch open."""
    network = mi.open(mi.samples.path(name)).network
    tensors = {
        i: replace(t, shape=(-1, *t.shape[1:])) if t.data is None and t.shape else t for i, t in network.tensors.items()
    }
    return replace(network, tensors=tensors)


@pytest.mark.parametrize("name", ["digits_cnn.armnn", "digits_cnn.ms"])
def test_open_sizes_stay_unknown_until_shapes_are_given(name):
    network = opened(name)
    table = cost(network)
    assert table.macs[table.kind == "conv2d"].isna().all()
    assert table.peak is pd.NA
    whole = cost(mi.open(mi.samples.path(name)))
    for key in ("image", 0):
        pd.testing.assert_frame_equal(pd.DataFrame(cost(network, {key: (1, 8, 8, 1)})), pd.DataFrame(whole))
    if name.endswith(".armnn"):
        return  # its reshape's target is for one image
    batch = cost(network, {"image": (5, 8, 8, 1)})
    assert (batch.macs == 5 * whole.macs).all()
    assert (batch.other_ops == 5 * whole.other_ops).all()
    assert batch.peak == 5 * whole.peak


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"imag": (1, 8, 8, 1)}, "no input 'imag'.*did you mean 'image'"),
        ({"image": (1, 9, 8, 1)}, "has shape.*with_input_shape"),
        ((1, 8, 8, 1), "is no dict: give sizes by input"),
        ({"image": (1, 8, 8)}, "has shape"),
        ({7: (1, 8, 8, 1)}, "no input 7"),
    ],
)
def test_wrong_shapes_are_refused(shapes, message):
    with pytest.raises(InputError, match=message):
        cost(opened("digits_cnn.armnn"), shapes)


def test_a_pickle_keeps_what_follows_from_the_table():
    table = mi.open(mi.samples.path("digits_cnn_int8.ms")).cost()
    again = pickle.loads(pickle.dumps(table))
    pd.testing.assert_frame_equal(again, table)
    assert (again.peak, again.peak_layer) == (table.peak, table.peak_layer)
    pd.testing.assert_frame_equal(again.peak_tensors, table.peak_tensors)


def test_columns_are_as_declared():
    table = cost(mi.open(mi.samples.path("digits_cnn.ms")))
    for name, found in (("cost", table), ("liveness", table.liveness), ("peak_tensors", table.peak_tensors)):
        columns = found.reset_index()
        assert [(c, str(d)) for c, d in columns.dtypes.items()] == [(c, d) for c, d, _, _ in COLUMNS[name]]
    assert type(table.head()) is pd.DataFrame
    assert max(ACTIVATIONS.values()) < 10
