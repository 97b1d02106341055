"""The report is one page that loads nothing, runs nothing, and believes no name."""

import re
from html.parser import HTMLParser

import matplotlib as mpl
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.report import MAX_ROWS, report

mpl.use("Agg")
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Collects tags, checks that they close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("report") / "out.html"
    page = report(mi.open(mi.samples.path("digits_cnn_int8.ms")), file)
    assert file.read_text("utf-8") == page
    return page


def test_page_holds_card_findings_tables_and_plots(text):
    page, model = Page(text), mi.open(mi.samples.path("digits_cnn_int8.ms"))
    words = " ".join(page.words)
    wanted = ["digits_cnn_int8.ms", "float-island", *model.layers.name]
    wanted += ["Findings", "Graph", "Cost", "Quantisation", "Layers", "Constants", "Tensors"]
    assert all(word in words for word in wanted)
    images = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    assert len(images) == 3 + 3 + 2 * 3
    assert all(src.startswith("data:image/png;base64,") for src in images)
    heads = [attrs for tag, attrs in page.tags if tag == "th" and attrs.get("title")]
    assert len(heads) > 30


def test_nothing_is_loaded_and_nothing_runs(text):
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "form"}
    for _, attrs in page.tags:
        assert not [name for name in attrs if name.startswith("on")]
        assert attrs.get("src", "data:").startswith("data:")
    assert not re.findall(r"url\(|@import", text)


def test_names_are_escaped():
    evil = "</td><script>alert(1)</script><img src=x onerror=y>'\"\x1b$"
    tensors = {i: ir.Tensor(i, evil + str(i), 0, "activation", evil, evil, (1,)) for i in range(2)}
    layer = ir.Layer(0, evil, evil, evil, 0, {evil: evil}, (0,), (1,))
    graph = ir.Graph(0, evil, (ir.Port(evil, 0),), (ir.Port(evil, 1),), (layer,))
    page = Page(report(mi.Model(ir.Network("mslite", evil, evil, (graph,), tensors, (evil,)), evil)))
    assert "script" not in {tag for tag, _ in page.tags}
    assert all("onerror" not in attrs for _, attrs in page.tags)
    assert any(evil.replace("\x1b", "\ufffd") in word for word in page.words)


def test_an_empty_model_has_a_page():
    page = Page(report(mi.Model(ir.Network("mslite", "msl2_newest", "", (), {}))))
    assert "no-outputs" in " ".join(page.words)


def test_long_tables_are_cut_and_clean_models_say_so(monkeypatch):
    assert MAX_ROWS >= 100
    monkeypatch.setattr("mlinspect.report.MAX_ROWS", 5)
    monkeypatch.setattr("mlinspect.report._picture", lambda draw: "")
    page = Page(report(mi.open(mi.samples.path("digits_cnn.ms"))))
    assert "6 more rows" in page.words
    assert "Nothing found." in page.words
