"""Constants as stored and as real numbers, by id and by name."""

from dataclasses import replace

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import constants, ir
from mlinspect.errors import MlinspectError, ModelFormatError


def tensor(array, dtype, number=0, name="w", **more):
    return ir.Tensor(number, name, 0, "constant", dtype, dtype.title(), array.shape, data=array, **more)


def network(*tensors):
    return ir.Network("mslite", "msl2_newest", "", (), {one.index: one for one in tensors})


def test_a_name_that_several_tensors_have_needs_an_id():
    array = np.ones(2, np.float32)
    found = constants.Constants(network(tensor(array, "float32"), tensor(array + 1, "float32", 5)), constants.stored)
    with pytest.raises(KeyError, match="2 tensors are called 'w': use one of the ids 0, 5"):
        found["w"]
    assert found[5].tolist() == [2, 2]
    assert (list(found), len(found), repr(found)) == ([0, 5], 2, "<2 constants by tensor id or name>")


def test_what_is_no_constant_is_said():
    weights = mi.open(mi.samples.path("digits_cnn.ms")).weights
    with pytest.raises(KeyError, match="is not a constant: its role is input"):
        weights["image"]
    with pytest.raises(KeyError, match=r"no tensor is called 'res\.wieght'; did you mean 'res\.weight'"):
        weights["res.wieght"]
    with pytest.raises(KeyError, match="no tensor has the id 999"):
        weights[999]


def test_bfloat16_is_the_upper_half_of_float32():
    stored = (np.array([1.0, -2.5], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    real = constants.real(tensor(stored, "bfloat16"), "armnn")
    assert (real.dtype, real.tolist()) == (np.float32, [1.0, -2.5])


def test_clusters_are_looked_up():
    centres = np.linspace(-1, 1, 256).astype(np.float32)
    index = np.array([[-128, 0], [1, 127]], np.int8)
    real = constants.real(tensor(index, "int8", meta={"quantClusters": centres}), "mslite")
    np.testing.assert_array_equal(real, centres[[[0, 128], [129, 255]]])


def test_an_index_beyond_the_clusters_is_a_damaged_file():
    short = tensor(np.array([127], np.int8), "int8", meta={"quantClusters": np.zeros(8, np.float32)})
    found = constants.Constants(network(short), lambda one: constants.real(one, "mslite"))
    with pytest.raises(ModelFormatError, match="constant w: parameters do not fit"):
        found["w"]


def test_text_stands_for_no_real_numbers():
    text = replace(tensor(np.zeros(1, object), "string"), vendor_dtype="String")
    with pytest.raises(MlinspectError, match="'w' of type String does not stand for real numbers"):
        constants.real(text, "mslite")
