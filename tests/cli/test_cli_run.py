"""``mlinspect run|trace|compare``: what they print, write and exit with."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect.cli import main
from mlinspect.cli.run import add_commands

DUMPS = Path(__file__).parents[1] / "data" / "dumps"
IMAGE = mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16


def command(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(required=True))
    options = parser.parse_args([str(mi.samples.path(a)) if a in mi.samples.names() else str(a) for a in arguments])
    return options.run(options)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", IMAGE)
    return tmp_path / "x.npy"


def test_run_shows_and_writes_outputs(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    want = mi.open(mi.samples.path("digits_cnn_u8.armnn")).run(IMAGE, quantize=True)["output"]
    assert command("run", "digits_cnn_u8.armnn", "--input", image) == 0
    assert ", ".join(map(str, want[0])) in capsys.readouterr().out
    assert command("run", "digits_cnn_u8.armnn", "--input", image, "--npz", tmp_path / "out.npz", "--json", "-") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["dtype"], found["values"]) == ("output", "uint8", want.tolist())
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["output"], want)


def test_run_until_a_layer(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = mi.open(mi.samples.path("digits_cnn.ms")).trace(IMAGE)
    for layer in ("/Add", "5"):
        assert command("run", "digits_cnn.ms", "--input", f"image={image}", "--until", layer, "--json", "-") == 0
        (found,) = json.loads(capsys.readouterr().out)
        np.testing.assert_array_equal(np.float32(found["values"]), trace["/Add"])


@pytest.mark.parametrize("form", ["npz", "raw", "stored"])
def test_inputs_come_in_several_forms(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / {"npz": "x.npz", "raw": "x.input", "stored": "x.bin"}[form]
    if form == "npz":
        np.savez(file, image=IMAGE)
    else:
        stored = np.rint(IMAGE * 255).astype(np.uint8)
        file.write_bytes((IMAGE if form == "raw" else stored).tobytes())
    command("run", "digits_cnn_u8.armnn", "--input", file, "--json", "-")
    (found,) = json.loads(capsys.readouterr().out)
    model = mi.open(mi.samples.path("digits_cnn_u8.armnn"))
    given = stored if form == "stored" else IMAGE
    assert found["values"] == model.run(given, quantize=True)["output"].tolist()


def test_inputs_that_do_not_fit(tmp_path: Path, image: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(7))
    with pytest.raises(mi.InputError, match=r"7 elements of uint8 do not fill \[1, 8, 8, 1\]"):
        command("run", "digits_cnn.ms", "--input", tmp_path / "x.bin")
    with pytest.raises(mi.InputError, match="the model has only 1 inputs"):
        command("run", "digits_cnn.ms", "--input", image, "--input", tmp_path / "x.bin")
    with pytest.raises(mi.InputError, match="no array was given for 'image'"):
        command("run", "digits_cnn.ms")


def test_trace(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("trace", "digits_cnn.ms", "--input", image, "--npz", tmp_path / "t.npz", "--csv", "-") == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    stats = mi.open(mi.samples.path("digits_cnn.ms")).trace(IMAGE).stats
    assert table.name.tolist() == stats.name.tolist()
    np.testing.assert_allclose(table["max"], stats["max"])
    assert json.loads(table["shape"][0]) == [1, 8, 8, 1]
    assert len(np.load(tmp_path / "t.npz").files) == len(stats) + 1
    command("trace", "digits_cnn.ms", "--input", image)
    assert "/res/Conv" in capsys.readouterr().out


def test_compare_refuses_what_falls_below(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = "digits_cnn.ms", "digits_cnn_wq4.ms"
    assert command("compare", *models, "--input", image, "--min-sqnr", 20) == 0
    assert "divergent" not in capsys.readouterr().err
    assert command("compare", *models, "--input", image, "--min-sqnr", 26) == 1
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.startswith("first divergent layer: /pw/Conv, SQNR 25.3 dB; ")
    assert told.out.splitlines()[1].split()[0] == "name_a"
    assert command("compare", *models, "--input", image, "--min-sqnr", 26, "--csv", "-") == 1
    assert capsys.readouterr().err == told.out.splitlines()[0] + "\n"
    assert command("compare", *models, "--input", image) == 0


def test_compare_writes_every_form(image: Path, tmp_path: Path) -> None:
    for kind in ("json", "csv", "markdown"):
        command("compare", "digits_cnn_u8.armnn", "float", "--input", image, f"--{kind}", tmp_path / kind)
    records = json.loads((tmp_path / "json").read_text())
    table = pd.read_csv(tmp_path / "csv")
    lines = (tmp_path / "markdown").read_text().splitlines()
    assert len(records) == len(table) == len(lines) - 2 == 16
    assert [r["sqnr_db"] for r in records] == pytest.approx(table.sqnr_db)
    assert records[0]["shape_a"] == [1, 8, 8, 32]
    assert lines[2].split("|")[1].strip() == records[0]["name_a"]
    assert {len(line.split("|")) for line in lines} == {11}


def test_infinity_in_json(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("compare", "digits_cnn.ms", "digits_cnn.ms", "--input", image, "--json", "-")
    assert {record["sqnr_db"] for record in json.loads(capsys.readouterr().out)} == {"inf"}


def test_compare_with_a_dump(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        command("compare", "digits_cnn_u8.armnn", DUMPS / "executenetwork.txt", "--input", image, "--min-sqnr", 99) == 0
    )
    assert command("compare", "digits_cnn_int8.ms", DUMPS / "benchmark", "--input", image, "--min-sqnr", 99) == 0
    assert command("compare", DUMPS / "onnxruntime.npz", DUMPS / "onnxruntime.npz", "--min-sqnr", 99) == 0
    capsys.readouterr()
    other = (DUMPS / "executenetwork.txt").read_text().replace('"layerName": "head"', '"layerName": "tail"')
    (tmp_path / "log.txt").write_text(other)
    assert command("compare", "digits_cnn_u8.armnn", tmp_path / "log.txt", "--input", image, "--min-sqnr", 20) == 0
    assert "in the dump, but not in the model" in capsys.readouterr().out


def test_modes(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = command("compare", "digits_cnn_u8.armnn", "digits_cnn_u8.armnn", "--mode-b", "float", "--input", image)
    first = capsys.readouterr().out
    assert one == command("compare", "digits_cnn_u8.armnn", "float", "--input", image) == 0
    assert capsys.readouterr().out == first


# --- blame ----------------------------------------------------------------------------------------------------------


def test_blame_writes_the_librarys_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = mi.samples.digits().calibration[:3, ..., None].astype(np.float32) / 16
    np.save(tmp_path / "x.npy", images)
    models = "digits_cnn_wq4.ms", "digits_cnn.ms"
    want = mi.blame(*[mi.open(mi.samples.path(name)) for name in models], images, progress=False)
    assert command("blame", *models, "--input", tmp_path / "x.npy", "--csv", "-") == 0
    out, err = capsys.readouterr()
    found = pd.read_csv(io.StringIO(out), index_col="layer")
    assert found.name.tolist() == want.name.tolist()
    np.testing.assert_allclose(found.share, want.share)
    np.testing.assert_allclose(found.own_mse, want.own_mse)
    assert err == want.finding + "\n"


def test_blame_of_a_model_against_itself_unrounded(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("blame", "digits_cnn_u8.armnn", "float", "--input", f"image={image}", "--no-shares") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("largest own error: ")
    assert lines[1].split() == ["name", "kind", "sqnr_db", "own_db", "share"]
    assert [line.split()[0] for line in lines[2:4]] == ["stem", "stem/bn"]
    assert err == ""


def test_warnings_are_one_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "raw.npy", IMAGE * 255)
    models = [str(mi.samples.path(name)) for name in ("digits_cnn_u8.armnn", "digits_cnn.armnn")]
    assert main(["compare", *models, "--input", str(tmp_path / "raw.npy")]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("mlinspect: ")
    assert "of input 'image' are clipped: its scale can hold 0 to 1." in first
