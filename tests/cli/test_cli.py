"""The command line: what it prints and writes, and the exit code of each way to go wrong."""

import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import cli
from mlinspect.cli import output, tables
from mlinspect.save import save

MODEL = str(mi.samples.path("digits_cnn_int8.ms"))
TABLES = list(tables.TABLES)


def run(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_info(capsys):
    code, out, err = run(capsys, "info", MODEL)
    assert (code, out, err) == (0, f"{mi.open(MODEL)}\n", "")


def test_info_json(capsys, tmp_path):
    code, out, _ = run(capsys, "info", MODEL, "--json", "-")
    assert code == 0
    want = json.loads(json.dumps(mi.open(MODEL).summary()))
    assert json.loads(out) == want
    run(capsys, "info", MODEL, "--json", str(tmp_path / "facts.json"))
    assert json.loads((tmp_path / "facts.json").read_text("utf-8")) == want


@pytest.mark.parametrize("table", TABLES)
def test_tables_as_text(capsys, table):
    code, out, err = run(capsys, table, MODEL)
    assert (code, err) == (0, "")
    want = getattr(mi.open(MODEL), table)
    rows = len(want() if table in ("stats", "cost") else want)
    assert len(out.splitlines()) in (rows + 1, rows + 2)  # a named index takes a line of its own


def test_stats_and_cost_are_the_models_own(capsys):
    model = mi.open(MODEL)
    code, out, _ = run(capsys, "stats", MODEL, "--by", "channel", "--csv", "-")
    found, want = pd.read_csv(io.StringIO(out)), model.stats(by="channel")
    assert (code, len(found)) == (0, len(want))
    np.testing.assert_allclose(found["absmax"], want["absmax"])
    _, out, _ = run(capsys, "cost", MODEL, "--query", "macs > 0", "--json", "-")
    assert sum(row["macs"] for row in json.loads(out)) == model.cost().macs.sum()


def test_cost_of_a_model_whose_file_leaves_sizes_open(capsys, tmp_path):
    weights = np.ones((3, 4), np.float32)
    path = tmp_path / "open.ms"
    net = mi.build.mslite().input("x", (2, 4)).layer("MatMulFusion", "fc", weights, transpose_b=True).output("y")
    save(open_sizes(net.model().network), path)
    for shape in ("5,4", "x=5,4"):
        _, out, _ = run(capsys, "cost", str(path), "--shape", shape, "--json", "-")
        assert json.loads(out)[0]["macs"] == 5 * 4 * 3
    code, _, err = run(capsys, "cost", str(path), "--shape", "5x4")
    assert (code, err.count("\n")) == (2, 1)
    assert "write whole numbers with commas between them" in err
    code, _, err = run(capsys, "cost", str(path), "--shape", "z=5,4")
    assert code == 1
    assert "no input 'z'" in err


def open_sizes(network):
    """The network, its first axis of any size."""
    tensors = {
        i: dataclasses.replace(t, shape=(-1, *t.shape[1:])) if t.data is None else t for i, t in network.tensors.items()
    }
    return dataclasses.replace(network, tensors=tensors)


@pytest.mark.parametrize("table", TABLES)
def test_tables_as_csv_json_parquet_hold_the_same_rows(capsys, tmp_path, table):
    files = {kind: tmp_path / f"t.{kind}" for kind in output.WRITERS}
    for kind, file in files.items():
        assert run(capsys, table, MODEL, f"--{kind}", str(file)) == (0, "", "")
    csv, parquet = pd.read_csv(files["csv"]), pd.read_parquet(files["parquet"])
    records = json.loads(files["json"].read_text("utf-8"))
    assert csv.columns.tolist() == parquet.columns.tolist() == list(records[0])
    assert len(csv) == len(parquet) == len(records) > 0
    column = {"weights": "tensor", "stats": "tensor", "attrs": "layer", "edges": "consumer"}.get(table, csv.columns[0])
    assert csv[column].tolist() == parquet[column].tolist() == [record[column] for record in records]


def test_nested_cells_can_be_read_back(capsys, tmp_path):
    model = mi.open(MODEL)
    run(capsys, "layers", MODEL, "--csv", str(tmp_path / "t.csv"))
    layers = pd.read_csv(tmp_path / "t.csv", index_col="layer")
    assert [tuple(json.loads(cell)) for cell in layers.inputs] == model.layers.inputs.tolist()
    assert json.loads(layers["attrs"][1]) == json.loads(json.dumps(model.layers["attrs"][1]))
    run(capsys, "layers", MODEL, "--parquet", str(tmp_path / "t.parquet"))
    assert [tuple(cell) for cell in pd.read_parquet(tmp_path / "t.parquet").inputs] == model.layers.inputs.tolist()


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_attributes_of_every_kind_can_be_written(tmp_path, kind):
    """Long vectors stay arrays in the tables; numbers, names and missing values share one column."""
    values = [1, 0.5, "ReLu", None, (1, 2), np.arange(5), {"nested": (True,)}, float("nan")]
    frame = pd.DataFrame({"layer": range(8), "value": pd.Series(values, dtype=object)})
    output.write(str(tmp_path / "out"), output.WRITERS[kind](frame))
    if kind == "json":
        found = [record["value"] for record in json.loads((tmp_path / "out").read_text())]
        assert found == [1, 0.5, "ReLu", None, [1, 2], [0, 1, 2, 3, 4], {"nested": [True]}, None]
    else:
        read = pd.read_csv if kind == "csv" else pd.read_parquet
        found = read(tmp_path / "out", **({"keep_default_na": False} if kind == "csv" else {})).value.tolist()
        want = ["1", "0.5", '"ReLu"', "null", "[1, 2]", "[0, 1, 2, 3, 4]", '{"nested": [true]}', "NaN"]
        assert found == want


def test_query_and_stdout(capsys):
    code, out, _ = run(capsys, "tensors", MODEL, "--query", "role == 'constant' and elements > 300", "--csv", "-")
    assert code == 0
    assert pd.read_csv(io.StringIO(out)).name.tolist() == ["pw.weight", "res.weight", "head.weight"]


def test_weights_are_real_values(capsys):
    _, out, _ = run(capsys, "weights", MODEL, "--query", "name == 'res.weight'", "--csv", "-")
    row = pd.read_csv(io.StringIO(out)).iloc[0]
    real = mi.open(MODEL).dequantized["res.weight"].astype(float)
    np.testing.assert_allclose(row[["min", "max", "mean"]].astype(float), [real.min(), real.max(), real.mean()])
    assert row.zeros == (real == 0).sum()  # a count, as in the table of statistics


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["info", "no_such_file.ms"], 1, "no_such_file.ms: No such file"),
        (["info", __file__], 1, "mlinspect:"),
        (["layers", MODEL, "--query", "nonsense =="], 2, "--query nonsense =="),
        (["layers", MODEL, "--query", "no_such_column > 1"], 2, "no_such_column"),
        (["layers", MODEL, "--csv", "no_such_folder/x.csv"], 1, "No such file"),
    ],
)
def test_failures_are_one_line_and_an_exit_code(capsys, arguments, code, words):
    got, out, err = run(capsys, *arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1 and err.startswith("mlinspect: ")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["layers"], ["layers", MODEL, "--csv", "a", "--json", "b"], ["info", MODEL, "--csv"]],
)
def test_wrong_usage_is_exit_code_2(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "usage: mlinspect" in capsys.readouterr().err


def test_without_a_command_it_says_what_there_is(capsys):
    assert cli.main([]) == 2
    assert "lint" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert (stop.value.code, capsys.readouterr().out) == (0, f"mlinspect {mi.__version__}\n")


def test_a_forks_schema_may_be_given(capsys, tmp_path):
    newest = Path(mi.__file__).parents[1] / "schemas" / "mslite" / "msl2_newest.fbs"
    fork = tmp_path / "fork.fbs"
    fork.write_text(newest.read_text().replace("Conv2DFusion", "AcmeConv"))
    code, out, _ = run(capsys, "layers", MODEL, "--schema", str(fork), "--csv", "-")
    assert (code, out.count("AcmeConv") > 0, "Conv2DFusion" in out) == (0, True, False)


def test_control_characters_of_a_file_do_not_reach_the_terminal():
    frame = pd.DataFrame({"name": ["\x1b[31mred", "a\x07b"], "empty": [None, None]})
    text = output.as_text(frame)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "[31mred" in text and "empty" not in text


def test_demo_shows_everything_and_writes_card_and_plot(capsys, tmp_path):
    code, out, err = run(capsys, "demo", str(tmp_path / "new"))
    assert (code, err) == (0, "")
    assert all(f"{name}: " in out for name in mi.samples.names())
    assert "res.weight" in out and "model.layers" in out
    card, plot = tmp_path / "new" / "mlinspect-demo-card.html", tmp_path / "new" / "mlinspect-demo-weights.png"
    assert mi.open(MODEL)._repr_html_() in card.read_text("utf-8")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_reader_that_closes_early_is_no_error():
    command = [sys.executable, "-m", "mlinspect.cli", "attrs", MODEL, "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_help_loads_neither_matplotlib_nor_ipywidgets():
    code = (
        "import sys; from mlinspect import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: print([m for m in ('matplotlib', 'ipywidgets', 'pyarrow.parquet') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().endswith("[]")


def test_parquet_without_pyarrow_says_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "fastparquet", None)
    code, _, err = run(capsys, "edges", MODEL, "--parquet", str(tmp_path / "t.parquet"))
    assert (code, "pip install pyarrow" in err) == (2, True)
