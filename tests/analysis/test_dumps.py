"""Dumps of both runtimes, read and laid beside the model.

The samples in tests/data/dumps hold what the digit models give for the first test image (values that equal the vendors'
runtimes' bit for bit), written in the runtimes' formats as their sources print them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.compare import compare
from mlinspect.analysis.dumps import Dump, read_dump
from mlinspect.execute.trace import Trace

DUMPS = Path(__file__).parents[1] / "data" / "dumps"
IMAGE = mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16


def sample(name: str) -> mi.Model:
    return mi.open(mi.samples.path(name))


def check(dump: Dump, trace: Trace) -> set[str]:
    """The dump's values are the trace's; gives the names of the tensors that it has."""
    aligned = dump.align(trace)
    assert aligned.values
    for tensor, array in aligned.values.items():
        assert array.dtype == trace[tensor].dtype
        assert array.shape == trace[tensor].shape
        tolerance = 1e-5 if array.dtype.kind == "f" else 0  # float sums differ in their last bits
        np.testing.assert_allclose(array, trace[tensor], rtol=tolerance, atol=tolerance)
    return {trace.network.tensors[tensor].name for tensor in aligned.values}


# --- Arm NN -------------------------------------------------------------------------------------------------------


def written(name: str, slot: int, array: np.ndarray) -> str:
    """A tensor as Arm NN's debug layer prints it."""
    numbers = ", ".join(f"{float(x):g}" for x in array.ravel())
    shape = ", ".join(map(str, array.shape))
    head = f'{{ "layerGuid": 7, "layerName": "{name}", "outputSlot": {slot}, "shape": [{shape}], '
    ends = f'"min": {array.min():g}, "max": {array.max():g}, '
    return head + ends + f'"data": {"[" * array.ndim}{numbers}{"]" * array.ndim} }}\n'


def test_printed_tensors_among_other_lines() -> None:
    model = sample("digits_cnn_u8.armnn")
    dump = read_dump(DUMPS / "executenetwork.txt")
    names = [layer.name for layer in model.network.graphs[0].layers if layer.outputs]
    assert list(dump) == names
    assert dump.table["shape"].tolist() == [shapes[0] for shapes in model.layers.output_shapes if shapes]
    assert check(dump, model.trace(IMAGE, quantize=True)) == set(names)
    aligned = dump.align(model)
    assert (aligned.notes, aligned.unused) == ({}, [])
    table = compare(model, dump, IMAGE)
    assert (table.sqnr_db == np.inf).all()
    assert len(table) == 16


def test_stored_numbers_are_read_with_the_models_parameters() -> None:
    a, b = sample("digits_cnn.armnn"), sample("digits_cnn_u8.armnn")
    trace = b.trace(IMAGE, quantize=True)
    values = read_dump(DUMPS / "executenetwork.txt").align(trace).values
    want = compare(a, b, IMAGE)
    assert compare(a, Trace(trace.network, values), IMAGE).sqnr_db.tolist() == want.sqnr_db.tolist()


def test_folder_of_numpy_files_says_what_is_missing() -> None:
    model = sample("digits_cnn_u8.armnn")
    dump = read_dump(DUMPS / "armnn_files")
    assert check(dump, model.trace(IMAGE, quantize=True)) == set(dump)
    assert set(dump) == {"image", "stem", "global_pool", "flatten", "head", "probability"}
    notes = {model.network.tensors[i].name: note for i, note in dump.align(model).notes.items()}
    assert notes["stem/bn"] == "missing in the dump"  # no file can be called so
    assert len(notes) == 10
    table = compare(model, dump, IMAGE)
    assert sorted(table[table.sqnr_db == np.inf].name_a) == sorted(dump)
    assert set(table[table.sqnr_db.isna()].note) == {"not computed in b; missing in the dump"}
    assert not table.divergent.any()


def renamed(model: mi.Model, names: list[str], to: str) -> ir.Network:
    graph = model.network.graphs[0]
    layers = tuple(replace(layer, name=to) if layer.name in names else layer for layer in graph.layers)
    tensors = {i: replace(t, name=to) if t.name in names else t for i, t in model.network.tensors.items()}
    return replace(model.network, graphs=(replace(graph, layers=layers),), tensors=tensors)


def test_two_layers_of_one_name(tmp_path: Path) -> None:
    network = renamed(sample("digits_cnn_u8.armnn"), ["flatten", "global_pool"], "twin")
    first, second = (layer.outputs[0] for layer in network.graphs[0].layers if layer.name == "twin")
    trace = mi.Model(network).trace(IMAGE, quantize=True)
    (tmp_path / "twin.numpy").write_text(written("twin", 0, trace[second]))
    aligned = read_dump(tmp_path).align(network)
    assert list(aligned.values) == [second]
    assert aligned.notes[first] == "overwritten in the dump: 2 layers are called 'twin'"
    (tmp_path / "log.txt").write_text(written("twin", 0, trace[first]) + written("twin", 0, trace[second]))
    values = read_dump(tmp_path / "log.txt").align(network).values
    for tensor in (first, second):
        np.testing.assert_array_equal(values[tensor], trace[tensor])


def test_odd_numbers_and_names(tmp_path: Path) -> None:
    array = np.array([[1.5, -2e-7, np.nan], [np.inf, -np.inf, 1234567.0]])
    text = written('a "quoted", name', 1, array).replace(" nan", " -nan")
    (tmp_path / "x.txt").write_text("noise " + text + '{ "layerGuid": broken }\n')
    dump = read_dump(tmp_path / "x.txt")
    (entry,) = dump.entries
    assert (entry.name, entry.slot) == ('a "quoted", name', 1)
    np.testing.assert_allclose(entry.array, array, rtol=1e-5)
    (tmp_path / "x.txt").write_text(text.replace("[2, 3]", "[2, 4]"))
    with pytest.raises(mi.InputError, match=r"has 6 numbers, not \[2, 4\]"):
        read_dump(tmp_path / "x.txt")


# --- MindSpore Lite -----------------------------------------------------------------------------------------------


def test_benchmark_folder() -> None:
    model = sample("digits_cnn_int8.ms")
    dump = read_dump(DUMPS / "benchmark")
    assert len(dump.entries) == 20
    names = {model.network.tensors[t].name for layer in model.network.layers.values() for t in layer.outputs}
    assert check(dump, model.trace(IMAGE)) == names | {"image"}
    aligned = dump.align(model)
    assert (aligned.notes, aligned.unused) == ({}, [])
    table = compare(model, dump, IMAGE)
    assert (table.sqnr_db > 100).all()
    against_float = compare(sample("digits_cnn.ms"), model, IMAGE).set_index("name_a").sqnr_db
    assert against_float["/pw/Conv"] > 35


def test_names_of_dumped_files(tmp_path: Path) -> None:
    numbers = np.arange(6, dtype=np.float32)
    for name in ("a_output_0_shape_1_2_output_0_shape_2_3_Float32_NCHW.bin.bin", "b_input_1_shape_3_2_Int16.bin",
                 "c_output_0_shape_9_Float32_NHWC.bin", "d_output_0_shape_6_Strange_NHWC.bin"):  # fmt: skip
        (tmp_path / name).write_bytes((numbers.astype(np.int16) if name[0] == "b" else numbers).tobytes())
    entries = {entry.name: entry for entry in read_dump(tmp_path).entries}
    first = entries["a_output_0_shape_1_2"]
    np.testing.assert_array_equal(first.array, numbers.reshape(2, 3))
    second = entries["b"]
    assert (second.side, second.slot, second.array.dtype, second.array.shape) == ("input", 1, np.int16, (3, 2))
    assert not entries["c"].shaped  # 6 numbers are no 9
    assert not entries["d"].typed


def test_sizes_that_do_not_fit_are_said(tmp_path: Path) -> None:
    model = sample("digits_cnn.ms")
    (tmp_path / ".res.Conv_output_0_shape_2_Float32_NHWC.bin").write_bytes(bytes(8))
    (tmp_path / ".pw.Conv_output_0_shape_2_Strange_NHWC.bin").write_bytes(bytes(9))
    (tmp_path / "nobody_output_0_shape_2_Float32_NHWC.bin").write_bytes(bytes(8))
    aligned = read_dump(tmp_path).align(model)
    notes = {model.network.tensors[i].name: note for i, note in aligned.notes.items()}
    assert notes["/res/Conv"] == "2 elements in the dump, 512 in the model"
    assert notes["/pw/Conv"].startswith("9 bytes in the dump fit neither float32")
    assert not aligned.values
    assert aligned.unused == ["nobody (nobody_output_0_shape_2_Float32_NHWC.bin)"]
    table = compare(model, read_dump(tmp_path), IMAGE)
    assert table[table.name_b.str.startswith("nobody")].note.tolist() == ["in the dump, but not in the model"]


def test_tables_of_the_converter() -> None:
    model = sample("digits_cnn_int8.ms")
    dump = read_dump(DUMPS / "converter")
    assert not dump.entries
    quant = dump.quant
    assert quant is not None
    for name, rows in quant[quant.NodeName == "/pw/Conv"].groupby("TensorName"):
        tensor = next(t for t in model.network.tensors.values() if t.name == name)
        assert rows.Dims.iloc[0] == tensor.shape
        np.testing.assert_allclose(rows.Scale, tensor.quantization.scale, rtol=1e-5)
        np.testing.assert_array_equal(rows.ZeroPoint, tensor.quantization.zero_point)
    assert dump.stats is not None
    assert set(dump.stats.DataTypeFlag) == {"Origin", "Dequant"}
    assert set(dump.stats.File) == {"round_0.csv"}
    assert (dump.stats.CosineSimilarity > 0.99).all()
    assert dump.outputs is not None
    assert dump.outputs.TensorName.tolist() == ["probability"]
    assert "tables quant, stats, outputs" in repr(dump)


# --- arrays -------------------------------------------------------------------------------------------------------


def test_onnx_runtime_has_other_names_and_layouts() -> None:
    model = sample("digits_cnn.ms")
    dump = read_dump(DUMPS / "onnxruntime.npz")
    assert dump["/stem/Conv_output_0"].shape == (1, 16, 8, 8)
    assert not dump.align(model).unused
    table = compare(model, dump, IMAGE).set_index("name_a")
    found = table[table.sqnr_db.notna()]
    assert len(found) == 10
    assert (found.sqnr_db > 100).all()  # float sums differ in their last bits
    assert found.note["/res/Conv"] == "layout: NCHW against NHWC"
    assert found.note["/head/Gemm"] == ""
    assert table.note["/AveragePool_post"] == "not computed in b; missing in the dump"


def test_saved_traces_come_back(tmp_path: Path) -> None:
    trace = sample("digits_cnn_u8.armnn").trace(IMAGE, quantize=True)
    trace.to_npz(tmp_path / "trace.npz")
    assert len(check(read_dump(tmp_path / "trace.npz"), trace)) == len(trace)


def test_raw_files() -> None:
    model = sample("digits_cnn.ms")
    want = model.trace(IMAGE)
    by_suffix = read_dump(DUMPS / "raw" / "Softmax.f32").align(model)
    by_size = read_dump(DUMPS / "raw" / "probability.output").align(model)
    for aligned in (by_suffix, by_size):
        (array,) = aligned.values.values()
        np.testing.assert_allclose(array, want.outputs["probability"], rtol=1e-5)
    image = read_dump(DUMPS / "raw" / "image.input", shape=(1, 8, 8, 1))
    np.testing.assert_array_equal(image["image"], IMAGE)
    by_name = read_dump(DUMPS / "raw", shape={"image": (1, 8, 8, 1)}, dtype="float32")
    np.testing.assert_array_equal(by_name["image"], IMAGE)
    with pytest.raises(mi.InputError, match=r"do not fill \[3\]"):
        read_dump(DUMPS / "raw" / "Softmax.f32", shape=(3,))
    with pytest.raises(mi.InputError, match="no whole number of complex128"):
        read_dump(DUMPS / "raw" / "probability.output", dtype="complex128")


def test_two_dumps_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a = {"x": rng.normal(size=(1, 4, 5, 3)), "y": rng.normal(size=7)}
    np.savez(tmp_path / "a.npz", **a)
    np.savez(tmp_path / "b.npz", x=a["x"].transpose(0, 3, 1, 2), y=a["y"] + 0.1, z=a["y"])
    table = compare(read_dump(tmp_path / "a.npz"), read_dump(tmp_path / "b.npz")).set_index("name_b")
    assert table.sqnr_db["x"] == np.inf
    assert table.divergent.to_dict() == {"x": False, "y": True, "z": False}
    assert table.mse["y"] == pytest.approx(0.01)
    assert table.matched["z"] == "only in b"


def test_files_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("nothing")
    (tmp_path / "some.csv").write_text("a,b\n1,2\n")
    with pytest.raises(mi.InputError, match="holds no dump that is known"):
        read_dump(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros(3))
    dump = read_dump(tmp_path)
    assert dump.notes == ["notes.md: no tensor in it", "some.csv: no table of MindSpore Lite's converter"]
    with pytest.raises(OSError, match="nobody"):
        read_dump(tmp_path / "nobody.npz")
    np.save(tmp_path / "y.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "z.npz").write_bytes(b"PK\x03\x04 and no more")
    for name in ("y.npy", "z.npz"):
        with pytest.raises(mi.InputError, match=name):
            read_dump(tmp_path / name)
