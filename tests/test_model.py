"""``mlinspect.open`` and what it returns: sources, errors, weights as views, weights as the vendor dequantises them."""

import contextlib
import gc
import inspect
import io
import mmap
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import samples
from mlinspect.errors import MlinspectError, ModelFormatError, SchemaError
from mlinspect.execute import registry

ROOT = Path(__file__).parents[1]
INT8 = samples.path("digits_cnn_int8.ms")


def test_sources():
    """A path, its text, bytes in three kinds, and an open file give the same model."""
    data = INT8.read_bytes()
    wanted = mi.open(INT8)
    assert (wanted.name, wanted.format, wanted.layout) == ("digits_cnn_int8.ms", "mslite", "msl2_newest")
    with INT8.open("rb") as file:
        others = [
            mi.open(source) for source in (str(INT8), data, bytearray(data), memoryview(data), io.BytesIO(data), file)
        ]
    assert [model.name for model in others] == [wanted.name, "", "", "", "", wanted.name]
    for model in others:
        pd.testing.assert_frame_equal(model.layers, wanted.layers)
        pd.testing.assert_frame_equal(model.tensors, wanted.tensors)
        assert all((model.weights[i] == wanted.weights[i]).all() for i in wanted.weights)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "page.ms"
    path.write_text("<html>not found</html>")
    with pytest.raises(ModelFormatError, match=r"page\.ms: this is an HTML page"):
        mi.open(path)
    path.write_bytes(b"")
    with pytest.raises(ModelFormatError, match=r"page\.ms: the file is empty"):
        mi.open(path)
    with pytest.raises(FileNotFoundError):
        mi.open(tmp_path / "none.ms")
    with pytest.raises(ModelFormatError, match="the file is empty"):
        mi.open(b"")
    path.write_bytes(INT8.read_bytes()[:1000])
    with pytest.raises(ModelFormatError, match=r"page\.ms: .*cut off or damaged") as caught:
        mi.open(path)
    assert caught.value.offset is not None
    assert caught.value.path


def test_schema_by_path_and_as_object():
    path = ROOT / "schemas" / "mslite" / "msl2_newest.fbs"
    wanted = mi.open(INT8).layers
    pd.testing.assert_frame_equal(mi.open(INT8, schema=path).layers, wanted)
    pd.testing.assert_frame_equal(mi.open(INT8, schema=str(path)).layers, wanted)
    with pytest.raises(SchemaError, match="cannot read schema"):
        mi.open(INT8, schema="none.fbs")


# ---- weights ---------------------------------------------------------------------------------------------------------


def backing(array):
    """The object at the root of a view."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.mark.parametrize("name", ["digits_cnn.armnn", "digits_cnn_u8.armnn", "digits_cnn.ms", "digits_cnn_int8.ms"])
def test_weights_are_read_only_views_of_the_map(name):
    model = mi.open(samples.path(name))
    data = samples.path(name).read_bytes()
    maps = set()
    for number, offset in model.tensors.file_offset.dropna().items():
        array = model.weights[number]
        assert isinstance(backing(array), mmap.mmap)
        maps.add(backing(array))
        assert np.shares_memory(array, np.frombuffer(backing(array), np.uint8))
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        assert array.tobytes() == data[offset : offset + array.nbytes]
    assert len(maps) == 1


def test_weights_of_a_writable_source_are_read_only():
    model = mi.open(bytearray(INT8.read_bytes()))
    assert not any(model.weights[i].flags.writeable for i in model.weights)


def test_weights_by_name_and_id():
    model = mi.open(INT8)
    constants = model.tensors[model.tensors.role == "constant"]
    assert sorted(model.weights) == constants.index.tolist()
    assert len(model.weights) == len(constants)
    for number, row in constants.iterrows():
        assert model.weights[row["name"]] is not None
        assert model.weights[number].shape == row["shape"]
        assert (model.weights[row["name"]] == model.weights[number]).all()
    with pytest.raises(KeyError, match="no tensor is called 'nothing'"):
        model.weights["nothing"]
    with pytest.raises(KeyError, match="no tensor has the id 999"):
        model.weights[999]
    number = model.inputs.tensor[0]
    with pytest.raises(KeyError, match="is not a constant"):
        model.weights[number]


def test_dequantised_as_the_vendors_loader(golden):
    """Weights of all packings, per channel and with corrections, equal what the runtime computed with, to the bit."""
    zipped = golden("mslite-ops.zip")
    checked = 0
    for case in zipped.manifest["cases"]:
        arrays = zipped.arrays(f"{case['case']}.npz")
        wanted = arrays.get("dequantised_weight")
        if wanted is None:
            continue
        model = mi.open(zipped.model(f"{case['case']}.ms"))
        found = [model.dequantized[i] for i in model.dequantized if model.weights[i].size == wanted.size]
        assert any(np.array_equal(array.ravel(), wanted.ravel()) for array in found), case["case"]
        assert all(array.dtype == np.float32 for array in found)
        checked += 1
    assert checked == 27


def test_dequantised_float16_and_bias():
    half = mi.open(samples.path("digits_cnn_fp16.ms"))
    number = next(i for i in half.weights if half.weights[i].dtype == np.float16)
    assert half.dequantized[number].dtype == np.float32
    assert (half.dequantized[number] == half.weights[number]).all()
    model = mi.open(INT8)
    (bias, *_) = model.tensors.query("role == 'constant' and dtype == 'int32' and quantized").index
    q = model.quant.set_index("tensor").loc[[bias]]
    wanted = (model.weights[bias].astype(np.float64) * q.scale.to_numpy()).astype(np.float32)
    assert (model.dequantized[bias] == wanted).all()


def test_strings_do_not_stand_for_numbers(models):
    model = mi.open(models / "tinynet.om.ms")
    assert all(model.dequantized[i].dtype == np.float32 for i in model.dequantized)


def sqnr(exact, other):
    exact, other = exact.astype(np.float64), other.astype(np.float64)
    return round(float(10 * np.log10((exact**2).sum() / ((exact - other) ** 2).sum())), 2)


def test_isface_pair(models):
    """What 8 bits cost each layer's weights: the figures of the vendor's own float and quantised file.

    They are those of scale and zero point alone; the corrections by channel, which the loader applies too, gain a bit.
    """
    exact, quantised = mi.open(models / "ml_face_isface.ms"), mi.open(models / "ml_face_isface_quant.ms")
    plain, corrected = {}, {}
    for _, layer in quantised.layers[quantised.layers.quantized].iterrows():
        number = layer.inputs[1]
        weights = exact.weights[exact.layers.set_index("name").inputs[layer["name"]][1]]
        stored = quantised.weights[number]
        rows = quantised.quant[quantised.quant.tensor == number]
        channels = (-1, *[1] * (stored.ndim - 1))
        scale, zero_point = rows.scale.to_numpy().reshape(channels), rows.zero_point.to_numpy().reshape(channels)
        plain[layer["name"]] = sqnr(weights, (stored - zero_point) * scale)
        corrected[layer["name"]] = sqnr(weights, quantised.dequantized[number])
    assert plain == {"conv2": 41.97, "conv3": 41.76, "conv4": 42.72, "fc5": 41.46, "fc6": 48.10}
    assert corrected == {"conv2": 42.01, "conv3": 41.79, "conv4": 42.75, "fc5": 41.47, "fc6": 48.12}


def test_one_row_a_channel(models):
    model = mi.open(models / "ml_face_isface_quant.ms")
    for number, rows in model.quant.groupby("tensor"):
        assert rows.channel.tolist() == list(range(model.tensors["shape"][number][0]))
        assert set(rows.axis) == {0}
    assert len(model.quant) == 482


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_tables_of_every_vendor_made_file(golden):
    """Edges, layers and tensors of a file agree with each other."""
    for name in ("armnn-22.11.zip", "armnn-20.08.zip", "armnn-legacy.zip", "mslite-ops.zip", "mslite-converted.zip"):
        zipped = golden(name)
        for file in zipped.names[::25]:
            model = mi.open(zipped.model(file))
            assert len(model.layers) == len(model.network.layers)
            assert len(model.edges) == model.layers.inputs.map(len).sum()
            assert model.tensors.nbytes.sum() == sum(t.nbytes for t in model.network.tensors.values())
            assert (model.tensors.loc[model.inputs.tensor].role == "input").all()
            assert len(model.quant) >= model.tensors.quantized.sum()


def test_real_files_by_their_tables(models):
    for path in sorted([*models.glob("*.ms"), *models.glob("*.armnn")]):
        if path.name == "ml_Hand_deploy.ms":
            continue
        model = mi.open(path)
        assert model.nbytes == path.stat().st_size
        assert len(model.layers) > 0
        assert model.tensors.nbytes.sum() < model.nbytes
        assert {"name", "op", "kind"} <= set(model.layers.columns)


def test_foreign_numbers_are_refused_by_name(golden):
    """A type that stands for no real number says so."""
    zipped = golden("mslite-ops.zip")
    model = mi.open(zipped.model(zipped.names[0]))
    with pytest.raises((KeyError, MlinspectError)):
        model.dequantized["nothing"]


# ---- what a reader does to a table is the reader's own ----------------------------------------------------------


@pytest.mark.parametrize("name", ["layers", "tensors", "quant", "edges", "inputs", "outputs", "attrs"])
def test_a_table_may_be_written_to_without_changing_the_next_readers(name):
    model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    want = getattr(mi.open(mi.samples.path("digits_cnn_int8.ms")), name)
    table = getattr(model, name)
    for column in table.columns:
        table[column] = table[column].iloc[::-1].to_numpy()
    table.insert(0, "mine", 0)
    table.index.name = "mine"
    pd.testing.assert_frame_equal(getattr(model, name), want)
    with contextlib.suppress(ValueError):  # pandas 3 lends its memory read-only
        getattr(model, name).iloc[:, 0].to_numpy()[:] = getattr(model, name).iloc[-1, 0]
    table = getattr(model, name)
    table.loc[:, want.columns[0]] = want.iloc[0, 0]
    pd.testing.assert_frame_equal(getattr(model, name), want)


def test_dicts_in_cells_are_the_readers_own_too(golden):
    model = mi.open(mi.samples.path("digits_cnn.ms"))
    model.layers["attrs"][0]["group"] = 99
    assert model.layers["attrs"][0]["group"] == 1
    assert model.network.layers[0].attrs["group"] == 1
    found = golden("armnn-22.11.zip")
    opened = (mi.open(found.model(name)) for name in found.names if "lstm" in name)
    deep = next(model for model in opened if _nested(model))
    _nested(deep).clear()
    assert _nested(deep)


def _nested(model):
    """A dict that is the value of an attribute, as a reader of the table of layers gets it."""
    return next((value for attrs in model.layers["attrs"] for value in attrs.values() if isinstance(value, dict)), None)


def test_statistics_of_a_trace_are_the_readers_own():
    model = mi.open(mi.samples.path("digits_cnn.ms"))
    trace = model.trace(mi.samples.digits().images[:1, ..., None].astype("float32") / 16)
    table = trace.stats
    table["min"] = 0.0
    del table["max"]
    assert trace.stats["min"].any()
    assert "max" in trace.stats


def test_the_table_of_layers_knows_functions_that_were_registered_later(monkeypatch):
    monkeypatch.setattr(registry, "LAYER_OPS", {})
    model = mi.open(mi.samples.path("digits_cnn.ms"))
    assert model.layers.reference[5] == "vendor"
    mi.register_op("mslite", "AddFusion", layer="/Add")(lambda call, a, b: a + b)
    assert model.layers.reference[5] == "user"


def test_what_goes_into_a_parquet_file(tmp_path):
    """The columns of dicts and of values of any kind are the only ones that do not."""
    model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    for name in ("layers", "tensors", "quant", "edges", "inputs", "outputs", "attrs"):
        table = getattr(model, name).drop(columns="attrs", errors="ignore")
        table = table.astype({"value": str}) if name == "attrs" else table
        table.to_parquet(tmp_path / "table.parquet")
        assert len(pd.read_parquet(tmp_path / "table.parquet")) == len(table)
        assert len(table.drop_duplicates()) <= len(table)


# ---- sources that are none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [None, 3, [1], {}])
def test_what_is_no_source_is_told_what_would_be(source):
    with pytest.raises(TypeError, match=r"open takes a path, bytes, or a file opened with mode 'rb', not .+"):
        mi.open(source)


def test_a_file_opened_for_text_is_no_source():
    with pytest.raises(TypeError, match="not a file opened for text"):
        mi.open(io.StringIO("text"))


# ---- help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("with_attrs", "with_constant", "with_quant", "without", "rename", "with_input_shape"),
        *("extract", "save", "lint", "cost", "stats", "run"),
    ],
)
def test_help_says_all_there_is_to_know(name):
    method = getattr(mi.Model, name)
    text = inspect.getdoc(method)
    for section in ("Parameters", "Raises", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text
    for parameter in inspect.signature(method).parameters.values():
        shown = "**" * (parameter.kind is parameter.VAR_KEYWORD) + parameter.name
        assert parameter.name == "self" or re.search(rf"^{re.escape(shown)}( :|$)", text, re.MULTILINE), shown


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_as_it_was_before(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        model = mi.open(mi.samples.path("digits_cnn.ms"))
        assert len(model.layers) and gc.isenabled() is enabled
        with pytest.raises(mi.ModelFormatError):
            mi.open(b"no model at all")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
