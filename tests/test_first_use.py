"""What tripped a first user: one test a fault."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import mlinspect as mi
from mlinspect.cli import main

INT8 = str(mi.samples.path("digits_cnn_int8.ms"))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16


@pytest.fixture
def quantized() -> mi.Model:
    return mi.open(INT8)


@pytest.fixture
def reference() -> mi.Model:
    return mi.open(mi.samples.path("digits_cnn.ms"))


def test_a_gate_that_compares_nothing_fails(tmp_path, x, capsys):
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "dump").mkdir()
    np.save(tmp_path / "dump" / "nobody.npy", np.zeros(3, np.float32))
    code = main(["compare", INT8, str(tmp_path / "dump"), "--input", str(tmp_path / "x.npy"), "--min-sqnr", "40"])
    assert code == 1
    assert "no layer could be compared" in capsys.readouterr().err


def test_stored_integers_are_not_held_against_a_float_model(tmp_path, x, quantized, reference):
    quantized.trace(x).to_npz(tmp_path / "dump.npz")
    table = mi.compare(reference, mi.read_dump(tmp_path / "dump.npz"), x)
    stem = table[table.name_a == "/stem/Conv"].iloc[0]
    assert np.isnan(stem.sqnr_db)
    assert "stored integers" in stem.note


def test_blame_refuses_its_models_in_the_wrong_order(x, quantized, reference):
    with pytest.raises(mi.InputError, match="first model is not quantised"):
        mi.blame(reference, quantized, x, progress=False)


@pytest.mark.parametrize("function", [mi.compare, mi.blame])
def test_a_path_is_no_model(function, x, reference):
    with pytest.raises(mi.InputError, match=r"mlinspect\.open"):
        function(INT8, reference, x)


def test_shapes_too_large_to_run_are_refused_at_once(quantized):
    with pytest.raises(mi.InputError, match="GB"):
        quantized.with_input_shape([10**7, 8, 8, 1])


@pytest.mark.parametrize(("name", "data"), [("x.npy", b"junk"), ("x.npy", b""), ("x.npz", b"PK\x03\x04junk")])
def test_bad_input_files_end_in_one_line(tmp_path, capsys, name, data):
    (tmp_path / name).write_bytes(data)
    assert main(["run", INT8, "--input", str(tmp_path / name)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no .np" in error
    assert "pickle" not in error


def test_a_query_that_is_no_condition_is_wrong_usage(capsys):
    assert main(["layers", INT8, "--query", "1"]) == 2
    assert "--query" in capsys.readouterr().err


def test_a_model_can_be_pickled_whatever_was_looked_at(x, quantized):
    first = quantized.run(x)
    assert quantized.dequantized["res.weight"].size
    again = pickle.loads(pickle.dumps(quantized))
    assert again.name == quantized.name
    for name, array in again.run(x).items():
        np.testing.assert_array_equal(array, first[name])


def test_a_dump_that_is_not_there_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        mi.read_dump(tmp_path / "nothing.npz")


def test_one_name_stands_for_a_list_of_one(x, quantized):
    assert list(quantized.run(x, outputs="probability")) == ["probability"]
    assert set(quantized.lint("float-island")["rule"]) == {"float-island"}
