"""The command line's verbs that write models."""

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import cli

ARM = str(mi.samples.path("digits_cnn_u8.armnn"))
MS = str(mi.samples.path("digits_cnn_int8.ms"))


def run(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_upgrade(capsys, tmp_path):
    out = tmp_path / "new.armnn"
    assert run(capsys, "upgrade", ARM, str(out)) == (0, "", "")
    new = mi.open(out)
    assert new.network.meta["featureVersions"]["constantTensorsAsInputs"] == 1
    assert "Constant" in set(new.layers.op)
    # and over itself, back to what 20.08 loads
    assert run(capsys, "upgrade", str(out), str(out), "--release", "20.08") == (0, "", "")
    old = mi.open(out)
    assert old.network.meta["featureVersions"]["constantTensorsAsInputs"] == 0
    assert "Constant" not in set(old.layers.op)


def test_external_weights(capsys, tmp_path):
    assert run(capsys, "upgrade", MS, str(tmp_path / "net.ms"), "--weights", "external")[0] == 0
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".ms", ".msw"]
    np.testing.assert_array_equal(mi.open(tmp_path / "net.ms").weights["pw.weight"], mi.open(MS).weights["pw.weight"])


def test_set_quant(capsys, tmp_path):
    out = tmp_path / "new.ms"
    assert run(capsys, "set-quant", MS, "dw.weight", str(out), "--zero-point", "-3", "--scale", "0.5") == (0, "", "")
    q = mi.open(out).network.tensors[6].quantization
    assert (q.scale.tolist(), q.zero_point.tolist(), q.axis) == ([0.5], [-3], None)
    # by id; what is not said stays
    assert run(capsys, "set-quant", str(out), "6", str(out), "--zero-point", "4")[0] == 0
    q = mi.open(out).network.tensors[6].quantization
    assert (q.scale.tolist(), q.zero_point.tolist()) == ([0.5], [4])


def test_extract(capsys, tmp_path):
    model = mi.open(MS)
    inner = model.network.tensors[model.network.graphs[0].layers[3].outputs[0]].name
    end = model.network.tensors[model.network.graphs[0].layers[6].outputs[0]].name
    out = tmp_path / "piece.ms"
    assert run(capsys, "extract", MS, str(out), "--input", inner, "--output", end) == (0, "", "")
    piece = mi.open(out)
    assert piece.inputs.name.tolist() == [inner]
    assert piece.outputs.name.tolist() == [end]
    layer = model.network.graphs[0].layers[1]
    assert run(capsys, "extract", MS, str(out), "--layer", layer.name, "--anonymize")[0] == 0
    alone = mi.open(out)
    assert alone.layers.op.tolist() == [layer.op]
    assert not {tensor.name for tensor in model.network.tensors.values()} & set(alone.tensors.name)


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (("upgrade", MS, "{out}", "--release", "20.08"), "release='20.08' is unknown for mslite"),
        (("upgrade", ARM, "{out}", "--weights", "external"), "only MindSpore Lite models"),
        (("set-quant", MS, "image", "{out}", "--scale", "1"), "holds no quantised values"),
        (("set-quant", MS, "nothing", "{out}", "--scale", "1"), "no tensor is called 'nothing'"),
        (("extract", MS, "{out}", "--layer", "nothing"), "no layer 'nothing'"),
        (("extract", MS, "{out}", "--layer", "1", "--input", "image"), "--layer cannot be combined"),
        (("extract", MS, "{out}", "--input", "probability"), "no layer lies between"),
    ],
)
def test_what_cannot_be_is_one_line_and_writes_nothing(capsys, tmp_path, arguments, reason):
    out = tmp_path / "out"
    code, printed, err = run(capsys, *(word.replace("{out}", str(out)) for word in arguments))
    assert (code, printed) == (1, "")
    assert reason in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
