"""The explorer through its traits, and the search behind it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.widgets.explorer import explore
from mlinspect.widgets.search import find, listing


@pytest.fixture(scope="module")
def model():
    return mi.open(mi.samples.path("digits_cnn_wq4.ms"))


@pytest.fixture
def found(model):
    return explore(model)


def test_words_and_queries(found):
    found.word = "CONV"
    assert found.rows.name.tolist() == ["/stem/Conv", "/dw/Conv", "/pw/Conv", "/res/Conv"]
    found.query = "macs > 20000"
    assert found.rows.name.tolist() == ["/pw/Conv", "/res/Conv"]
    assert "2 of 11 layers" in found.found
    found.kind, found.word, found.query = "tensors", "", "role == 'constant' and bits == 4"
    assert found.rows.name.tolist() == ["pw.weight", "res.weight", "head.weight"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("mac > 3", "no column &#x27;mac&#x27;; the columns are layer, name, op"),
        ("macs >", "not a pandas expression: macs &gt;"),
        ("macs + 1", "not a condition: macs + 1"),
        ("name > 3", "TypeError"),
        ("__import__('os').getcwd()", "mli-bad"),
        ("@model", "mli-bad"),
    ],
)
def test_a_bad_query_is_told_and_the_list_stays(found, query, message):
    found.word = "conv"
    before = found.found
    found.query = query
    assert message in found.message
    assert found.found == before
    found.query = ""
    assert not found.message


def test_missing_values_are_no_hits():
    frame = pd.DataFrame({"name": ["a", "b"], "macs": pd.array([None, 5], "Int64")})
    assert find(frame, query="macs > 1").name.tolist() == ["b"]


def test_a_layer_is_shown_with_its_weights(found, model):
    found.layer = 4
    assert "multiply-adds 147,456" in found.details and "kernel_size" in found.details
    assert found.operand == "in1" and found.has_values
    np.testing.assert_array_equal(found.shown().array, model.weights["res.weight"])
    np.testing.assert_array_equal(found.shown().real, model.dequantized["res.weight"])
    found.operand = "in2"
    assert found.shown().tensor.name == "res.bias"
    found.layer = 6
    assert not found.has_values


def test_a_tensor_is_shown_and_takes_the_layers_place(found):
    found.layer = 4
    found.tensor = 12
    assert found.layer == -1 and "bitpacking" in found.details and "4 bits" in found.details
    assert found.shown().tensor.name == "res.weight"
    found.layer = 4
    assert found.tensor == -1 and "Conv2DFusion" in found.details
    found.tensor = 999
    assert "no tensor 999" in found.message and "Conv2DFusion" in found.details


def test_names_are_set_as_indices(found):
    found.layer = "/res/Conv"
    assert found.layer == 4 and "Conv2DFusion" in found.details
    found.tensor = "res.weight"
    assert (found.layer, found.tensor) == (-1, 12)
    found.layer = np.int64(4)
    with pytest.raises(mi.InputError, match="no layer '/res/Con'; did you mean '/res/Conv'"):
        found.layer = "/res/Con"
    assert found.layer == 4


@pytest.mark.parametrize("other", ["float", Path("model.ms"), 3])
def test_what_is_no_model_is_refused(model, other):
    with pytest.raises(mi.InputError, match=r"explore shows models, not .*: open the file first"):
        model.explore(other)


def test_another_kind_of_list_is_refused(found):
    with pytest.raises(mi.InputError, match="no kind 'layer': use one of 'layers', 'tensors'"):
        found.kind = "layer"
    assert found.kind == "layers"


def test_lint_stands_beside_what_it_is_about():
    found = explore(mi.open(mi.samples.path("digits_cnn_int8.ms")))
    found.layer = 5
    assert "info:" in found.details


def test_a_second_model_stands_beside(model):
    found = explore(model, mi.open(mi.samples.path("digits_cnn.ms")))
    assert not found.beside_picture
    found.layer = 4
    assert "36,992" in found.beside and "147,456" in found.beside
    assert "SQNR 19.3 dB" in found.picture and "9,216 real values" in found.beside_picture
    found.tensor = 12
    assert "36,864" in found.beside


def test_a_second_model_of_the_other_format(model):
    found = explore(model, mi.open(mi.samples.path("digits_cnn.armnn")))
    found.layer = 4
    assert "residual/conv" in found.beside and found.beside_picture
    assert "against the reference" in found.picture


def test_the_snapshot_shows_what_was_found(found):
    found.query, found.layer = "macs > 3", 4
    html = found._repr_html_()
    assert "query: macs &gt; 3" in html and "147,456" in html and "<button" not in html
    assert repr(found) == "<Explorer of digits_cnn_wq4.ms>"


def test_lists_are_cut_and_say_so():
    frame = pd.DataFrame({"name": [f"<{i}>" for i in range(1000)], "op": "Relu", "macs": 0})
    html = listing(frame, "layers", -1)
    assert html.count("<tr>") == 201 and "800 more" in html and "&lt;7&gt;" in html
    assert "nothing found" in listing(frame[:0], "layers", -1)


def test_text_and_long_attributes_are_shown_short():
    text = ir.Tensor(0, "words", 0, "constant", "string", "String", (3,), data=np.zeros(3, np.uint8), nbytes=3)
    layer = ir.Layer(0, "many", "Split", "split", 0, {"size_splits": tuple(range(20))}, (0,), (1,))
    out = ir.Tensor(1, "y", 0, "output", "float32", "Float32", (3,))
    graph = ir.Graph(0, "", (), (ir.Port("y", 1),), (layer,))
    model = mi.Model(ir.Network("mslite", "msl2_newest", "", (graph,), {0: text, 1: out}))
    found = explore(model)
    found.layer = 0
    assert "0, 1, 2, 3, 4, 5, 6, 7, ... (20)" in found.details
    found.tensor = 0
    assert "words" in found.details and found.has_values
