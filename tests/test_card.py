"""Summary, text and HTML card: right numbers, nothing of a file's own gets through unescaped, sound markup."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import card, ir

EVIL = "<script>alert('x')</script>\"'&\x1b[31m"


def tensor(index, name="t", dtype="float32", shape=(1, 2), **more):
    return ir.Tensor(index, name, 0, more.pop("role", "activation"), dtype, dtype, shape, **more)


def network(**more):
    """Two layers that share one constant, in a file where every string is hostile."""
    q = ir.Quantization(np.array([0.25]), np.array([3]), bits=8)
    w = tensor(1, EVIL, "int8", (2, 2), data=np.zeros((2, 2), np.int8), nbytes=4, quantized=True, quantization=q)
    shape = tensor(4, EVIL, "int32", (2,), data=np.zeros(2, np.int32), nbytes=8)
    tensors = [
        tensor(0, EVIL, "int8", (1, 2), quantized=True, quantization=q, layout="<>"),
        w,
        tensor(2, EVIL),
        tensor(3, EVIL, EVIL, None),
        shape,
    ]
    layers = [
        ir.Layer(0, EVIL, EVIL, "fully_connected", 0, {EVIL: EVIL}, (0, 1), (2,)),
        ir.Layer(1, EVIL, EVIL, "fully_connected", 0, {}, (2, 1, 4), (3,)),
        ir.Layer(2, EVIL, "Custom", "custom", 0, {}, (3,), ()),
    ]
    graph = ir.Graph(0, EVIL, (ir.Port(EVIL, 0),), (ir.Port(EVIL, 3),), tuple(layers))
    return ir.Network("mslite", EVIL, EVIL, (graph,), {t.index: t for t in tensors}, notes=more.get("notes", (EVIL,)))


class Outline(HTMLParser):
    """Tags in order, checked for balance; attributes and text collected."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.stack.append(tag)
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack[-1] != "style":
            self.words.append(data)


def test_summary_counts_each_constant_once():
    s = card.summary(network(), "net.ms", 100)
    assert (s["name"], s["format"], s["file_size"]) == ("net.ms", "mslite", 100)
    assert (s["layers"], s["tensors"], s["graphs"]) == (3, 5, 1)
    assert s["ops"] == {EVIL: 2, "Custom": 1}
    assert s["dtypes"] == {"int8": 2, "float32": 1, EVIL: 1, "int32": 1}
    assert (s["weight_bytes"], s["weight_dtypes"]) == (12, {"int32": 8, "int8": 4})
    assert s["parameters"] == 4 + 2
    assert (s["macs"], s["macs_unknown"]) == (4, 2)
    assert (s["quantized_layers"], s["quantized_weight_bytes"]) == (2, 4)
    assert s["schemes"] == {"none": 3, "per_tensor": 2, "per_channel": 0}
    assert s["inputs"] == [
        {
            "name": EVIL, "dtype": "int8", "shape": (1, 2), "layout": "<>", "scale": 0.25, "zero_point": 3,
            "binding_id": None,
        }
    ]  # fmt: skip
    assert s["outputs"][0]["shape"] is None
    assert s["notes"] == [EVIL]


@pytest.mark.parametrize("name", mi.samples.names())
def test_summary_agrees_with_the_tables(name):
    model = mi.open(mi.samples.path(name))
    s = model.summary()
    assert s["layers"] == len(model.layers)
    assert s["ops"] == model.layers.op.value_counts().to_dict()
    assert s["dtypes"] == model.tensors.dtype.value_counts().to_dict()
    assert s["weight_bytes"] == model.tensors.nbytes.sum() == model.layers.weight_bytes.sum()
    assert s["parameters"] == model.layers.params.sum()
    assert s["macs"] == model.layers.macs.sum()
    assert s["quantized_layers"] == model.layers.quantized.sum()


def test_both_formats_of_the_same_network_cost_the_same():
    """The Arm NN file holds one batch normalisation (1,024 elements) that the other converter folded away."""
    ours = mi.open(mi.samples.path("digits_cnn.ms")).summary()
    theirs = mi.open(mi.samples.path("digits_cnn.armnn")).summary()
    assert theirs["macs"] - ours["macs"] == 8 * 8 * 16
    assert theirs["parameters"] - ours["parameters"] == 4 * 16


@pytest.mark.parametrize("title", ["net.ms", EVIL])
def test_html_is_balanced_and_escapes_all_that_the_file_says(title):
    page = Outline(card.html(network(), title, 100))
    assert set(page.tags) == {
        "div", "style", "span", "b", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "code", "ul",
        "li",
    }  # fmt: skip
    assert {name for name, _ in page.attributes} <= {"class", "style", "title", "open"}
    assert "".join(page.words).count("<script>") >= 8
    assert "<>" in page.words
    assert all(re.fullmatch(r"width:[\d.]+%", value) for name, value in page.attributes if name == "style")


def test_html_loads_nothing_and_runs_nothing():
    text = card.html(network(), "net.ms", 100)
    assert not re.search(r"https?:|url\(|@import|<script|<img|<link| on\w+=|javascript:", text)


def test_html_follows_the_theme():
    text = card.html(network(), "net.ms", 100)
    assert "prefers-color-scheme:dark" in text
    assert "var(--jp-layout-color0," in text
    colours = re.findall(r"#[0-9a-f]{3,6}\b", text.partition("</style>")[0])
    assert colours and not re.search(r"#[0-9a-f]{3,6}\b", text.partition("</style>")[2].replace(EVIL, ""))


def test_long_names_and_long_models_are_shortened():
    layers = tuple(ir.Layer(i, "x" * 500 + str(i), "Abs", "abs", 0, {}, (), ()) for i in range(1000))
    text = card.html(ir.Network("armnn", "armnn_superset", "", (ir.Graph(0, "", (), (), layers),), {}))
    assert text.count("<tr>") < 2 * card.MAX_ROWS
    assert "900 more in" in text
    page = Outline(text)
    assert max(len(word) for word in page.words if "xxx" in word) == card.MAX_NAME
    assert "…" + "x" * (card.MAX_NAME - 2) + "0" in page.words
    assert ("title", "x" * 500 + "0") in page.attributes


def test_text_has_the_facts_and_no_control_characters():
    text = card.text(network(), EVIL, 100)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "3 layers, 5 tensors, 6 parameters in 12 B, 4 multiply-adds (2 layers unknown)" in text
    assert "scale 0.25, zero point 3" in text
    assert "unknown shape" in text


def test_text_of_a_sample():
    assert card.text(mi.open(mi.samples.path("digits_cnn_u8.armnn")).network, "digits_cnn_u8.armnn", 14656) == (
        "digits_cnn_u8.armnn: Arm NN, layout armnn_superset, 14.7 kB\n"
        "  17 layers, 30 tensors, 10,506 parameters in 10.8 kB, 200 k multiply-adds, "
        "17 layers and 100% of the weight bytes quantised\n"
        "  in   image   uint8  1 × 8 × 8 × 1  scale 0.00392157, zero point 0\n"
        "  out  output  uint8  1 × 10         scale 0.00392155, zero point 0\n"
        "  ops  Activation 4, Convolution2d 3, Pooling2d 2, Input 1, BatchNormalization 1, DepthwiseConvolution2d 1, "
        "Addition 1, Reshape 1, FullyConnected 1, Softmax 1, Output 1"
    )


@pytest.mark.parametrize("make", [card.summary, card.text, card.html])
def test_an_empty_network_has_a_card(make):
    assert make(ir.Network("mslite", "msl2_newest", "", (), {}))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00 k"), (9999, "10.0 k"), (99999, "100 k"), (999_499, "999 k"),
     (999_500, "1.00 M"), (5 * 10**12, "5.00 T"), (10**16, "10000 T")],
)  # fmt: skip
def test_counts_have_three_digits(count, text):
    assert card.count_text(count) == text


def test_a_changed_model_has_no_file_whose_size_could_be_told():
    model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    changed = model.rename({"/res/Conv": "residual"})
    assert changed.nbytes is None
    assert f"layout {model.layout}, " in repr(model).split("\n")[0]
    assert repr(changed).split("\n")[0].endswith(f"layout {model.layout}")
