"""``mlinspect lint`` and ``mlinspect report``."""

import dataclasses
import json

import numpy as np

import mlinspect as mi
from mlinspect.cli import main
from mlinspect.save import save

CLEAN = str(mi.samples.path("digits_cnn_int8.ms"))


def test_a_clean_model_passes_at_any_severity_but_info(capsys):
    assert main(["lint", CLEAN, "--fail-on", "warning"]) == 0
    assert "float-island" in capsys.readouterr().out
    assert main(["lint", CLEAN, "--fail-on", "info"]) == 1


def test_a_fault_fails_and_shows_in_every_form(capsys, tmp_path):
    model = mi.open(mi.samples.path("digits_cnn_u8.armnn"))
    broken = tmp_path / "broken.armnn"
    tensor = next(t for t in model.network.tensors.values() if t.role == "activation" and t.quantized)
    bad = dataclasses.replace(tensor, quantization=dataclasses.replace(tensor.quantization, scale=np.array([-0.5])))
    save(dataclasses.replace(model.network, tensors=model.network.tensors | {tensor.index: bad}), broken)
    assert main(["lint", str(broken)]) == 1
    assert main(["lint", str(broken), "--github"]) == 1
    assert "::error file=" in capsys.readouterr().out
    assert main(["lint", str(broken), "--json", str(tmp_path / "found.json")]) == 1
    assert any(row["severity"] == "error" for row in json.loads((tmp_path / "found.json").read_text("utf-8")))


def test_report_is_one_page(tmp_path):
    out = tmp_path / "report.html"
    assert main(["report", CLEAN, "-o", str(out)]) == 0
    page = out.read_text("utf-8")
    assert "digits_cnn_int8.ms" in page
    assert "<script" not in page
