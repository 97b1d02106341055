"""A new batch is followed into the shapes that layers hold, in either format."""

from dataclasses import replace

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, ir
from mlinspect.reshape import with_batch


def ones(batch, *sizes):
    return np.arange(batch * np.prod(sizes), dtype=np.float32).reshape(batch, *sizes)


def test_the_operand_of_a_mindspore_reshape():
    sizes = np.array([2, 8], np.int32)
    model = build.mslite().input("x", (2, 2, 4)).layer("Reshape", "flat", "x", sizes).output("y").model()
    larger = model.with_input_shape((3, 2, 4))
    assert larger.weights["flat/input_1"].tolist() == [3, 8]
    assert model.weights["flat/input_1"].tolist() == [2, 8]
    np.testing.assert_array_equal(larger.run(ones(3, 2, 4))["y"], ones(3, 8))


def test_the_attribute_of_a_reshape_of_2020():
    layer = ir.Layer(0, "flat", "Reshape", "reshape", 0, {"shape": (2, 8)}, (0,), (1,))
    graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", 1),), (layer,))
    network = ir.Network("mslite", "ms_v0_r1_0", "", (graph,), {})
    assert with_batch(network, {0: ((2, 8), (5, 8))}).layers[0].attrs == {"shape": (5, 8)}


@pytest.mark.parametrize(
    ("op", "attrs", "shape"),
    [
        ("Reshape", {"targetShape": [2, 8]}, (3, 8)),
        ("Slice", {"begin": [0, 0, 1], "size": [2, 2, 3]}, (3, 2, 3)),
        ("StridedSlice", {"begin": [0, 0, 0], "end": [2, 1, 4], "stride": [1, 1, 1]}, (3, 1, 4)),
    ],
)
def test_attributes_of_arm_nn(op, attrs, shape):
    model = build.armnn().input("x", (2, 2, 4)).layer(op, "layer", **attrs).output("y").model()
    larger = model.with_input_shape((3, 2, 4))
    assert larger.outputs["shape"].tolist() == [shape]
    assert larger.run(ones(3, 2, 4))["y"].shape == shape


def test_the_views_of_an_arm_nn_splitter():
    origins = {"numViews": 2, "numDimensions": 2, "viewOrigins": [[0, 0], [0, 3]]}
    model = build.armnn().input("x", (2, 4))
    model.layer("Splitter", "cut", outputs=2, origins=origins, viewSizes=[[2, 3], [2, 1]])
    larger = model.output("a", "cut:0").output("b", "cut:1").model().with_input_shape((5, 4))
    found = larger.run(ones(5, 4))
    np.testing.assert_array_equal(found["a"], ones(5, 4)[:, :3])
    np.testing.assert_array_equal(found["b"], ones(5, 4)[:, 3:])


def test_only_one_batch_for_all_inputs_is_followed():
    network = mi.open(mi.samples.path("digits_cnn.ms")).network
    for moved in (
        {0: ((1, 8), (2, 8)), 1: ((1, 8), (3, 8))},  # two batches
        {0: ((1, 8), (2, 9))},  # another size changes too
        {0: (None, (2, 8))},  # nothing to follow
    ):
        assert with_batch(network, moved) is network


def test_a_size_that_is_not_the_batch_stays():
    sizes = np.array([-1, 8], np.int32)
    model = build.mslite().input("x", (2, 2, 4)).layer("Reshape", "flat", "x", sizes).output("y").model()
    assert model.with_input_shape((3, 2, 4)).weights["flat/input_1"].tolist() == [-1, 8]
    network = replace(model.network, format="mslite")
    assert with_batch(network, {0: ((7, 2, 4), (3, 2, 4))}).tensors[1] is network.tensors[1]
