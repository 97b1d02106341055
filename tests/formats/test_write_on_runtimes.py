"""Saved files on the vendors' own runtimes: they load, and give the bits that the unsaved originals give.

Arm NN: Debian 12's 20.08 with its reference backend, if g++ and the development package are there (see
``tests/tools/armnn_run.cpp``). MindSpore Lite: the environment variable ``MSLITE_RUN`` names the harness of
``shared/tools/mslite_run.cc``, built as its head says, with ``LD_LIBRARY_PATH`` set for it.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import edit, extract, save

SOURCE = Path(__file__).parents[1] / "tools" / "armnn_run.cpp"
DIGITS = ("digits_cnn.armnn", "digits_cnn_u8.armnn")
# Arm NN 20.08's own loader takes the value of Fill for 1 whatever the file says
LOST = ("fill_f16", "fill_i32")


# ---- Arm NN --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def armnn_runtime(tmp_path_factory):
    """``run([(bytes of a model, network, {binding id: input})])`` -> outputs by binding id, or what went wrong."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("the real Arm NN: there is no g++ to build its harness")
    program = tmp_path_factory.mktemp("armnn") / "armnn_run"
    build = [compiler, "-O1", "-std=c++14", str(SOURCE), "-o", str(program), "-larmnnSerializer", "-larmnn"]
    made = subprocess.run(build, capture_output=True, text=True)
    if made.returncode:
        reason = next(line for line in made.stderr.splitlines() if "error" in line)
        pytest.skip(f"the real Arm NN: its harness does not build: {reason}")

    def run(jobs):
        folder = tmp_path_factory.mktemp("jobs")
        lines = []
        for number, (data, network, inputs) in enumerate(jobs):
            main = network.graphs[0]
            (folder / f"{number}.armnn").write_bytes(data)
            fields = [f"{folder / f'{number}.armnn'}"]
            for port in main.inputs:
                path = folder / f"{number}.in{port.binding_id}"
                np.ascontiguousarray(inputs[port.binding_id]).tofile(path)
                fields.append(f"i:{port.name}={path}")
            fields += [f"o:{port.name}={folder / f'{number}.out{port.binding_id}'}" for port in main.outputs]
            lines.append("\t".join(fields) + "\n")
        done = subprocess.run([program], input="".join(lines), capture_output=True, text=True, check=True)
        results = []
        for number, (answer, (_, network, _)) in enumerate(zip(done.stdout.splitlines(), jobs, strict=True)):
            ports = network.graphs[0].outputs
            files = {port.binding_id: folder / f"{number}.out{port.binding_id}" for port in ports}
            results.append({i: path.read_bytes() for i, path in files.items()} if answer == "ok" else answer)
        return results

    return run


def armnn_job(network, arrays, release="20.08"):
    inputs = {port.binding_id: arrays[f"in_{port.binding_id}"] for port in network.graphs[0].inputs}
    return save.to_bytes(network, release), network, inputs


@pytest.mark.parametrize("archive", ["armnn-nets.zip", "armnn-20.08.zip"])
def test_arm_nn_runs_saved_files(golden, armnn_runtime, archive):
    found = golden(archive)
    cases, jobs = [], []
    for case in found.manifest["cases"]:
        executed = case.get("executed", "file loaded back")  # other files that version cannot load itself
        if "ElementwiseUnary" in case["layer"] or not executed.startswith("file loaded back") or case["name"] in LOST:
            continue
        arrays = found.arrays(case["npz"])
        cases.append((case["name"], arrays))
        jobs.append(armnn_job(mi.open(found.model(case["file"])).network, arrays))
    assert len(jobs) > (700 if archive == "armnn-20.08.zip" else 3)
    for (name, arrays), result in zip(cases, armnn_runtime(jobs), strict=True):
        assert isinstance(result, dict), f"{name}: {result}"
        for binding, data in result.items():
            wanted = arrays[f"out_{binding}"]
            got = np.frombuffer(data, wanted.dtype).reshape(wanted.shape)
            np.testing.assert_array_equal(got, wanted, name)


def test_arm_nn_runs_the_bundled_models(armnn_runtime):
    images = mi.samples.digits().images[:40, ..., None].astype("float32") / 16
    for name in DIGITS:
        network = mi.open(mi.samples.path(name)).network
        (port,) = network.graphs[0].inputs
        model = mi.Model(network)
        jobs, wanted = [], []
        for image in images:
            feed = image[None]
            if network.tensors[port.tensor].dtype == "uint8":
                q = network.tensors[port.tensor].quantization
                feed = np.rint(feed / q.scale[0] + q.zero_point[0]).astype(np.uint8)
            original = mi.samples.path(name).read_bytes()
            saved = armnn_job(network, {f"in_{port.binding_id}": feed})
            jobs += [(original, *saved[1:]), saved]
            wanted.append(model.run(feed))
        results = armnn_runtime(jobs)
        for one, other, ours in zip(results[::2], results[1::2], wanted, strict=True):
            assert isinstance(one, dict)
            assert one == other
            if name == "digits_cnn_u8.armnn":
                assert [*one.values()] == [array.tobytes() for array in ours.values()]


def test_arm_nn_runs_the_ssd_model(models, armnn_runtime):
    network = mi.open(models / "ssd_mobilenet_v3_small_coco_2019_08_14.armnn").network
    arrays = np.load(models / "ssd_mobilenet_v3.x1000_io.npz")
    (result,) = armnn_runtime([armnn_job(network, {"in_0": arrays["in_0"]})])
    np.testing.assert_array_equal(np.frombuffer(result[0], np.float32), arrays["out_0"].ravel())


def test_arm_nn_runs_extracted_layers(golden, armnn_runtime):
    found = golden("armnn-nets.zip")
    model = mi.open(found.model("ds_cnn_int8.armnn"))
    trace = model.trace([array for name, array in found.arrays("ds_cnn_int8.npz").items() if name.startswith("in_")])
    jobs, wanted = [], []
    for layer in trace.network.layers.values():
        if layer.op in ("Input", "Output", "Constant"):
            continue
        piece = extract.extract_layer(trace.network, layer.index)
        main = piece.graphs[0]
        jobs.append(armnn_job(piece, {f"in_{port.binding_id}": trace[port.tensor] for port in main.inputs}))
        wanted.append({port.binding_id: trace[port.tensor].tobytes() for port in main.outputs})
    assert len(jobs) > 15
    assert armnn_runtime(jobs) == wanted


def test_arm_nn_runs_edited_models(golden, armnn_runtime):
    """What an edited model gives here it gives there: other quantisation, attributes, weights, a larger batch."""
    found = golden("armnn-nets.zip")
    network = mi.open(found.model("ds_cnn_int8.armnn")).network
    data = next(array for name, array in found.arrays("ds_cnn_int8.npz").items() if name.startswith("in_"))
    layers = [layer for layer in network.graphs[0].layers if layer.op == "Convolution2d"]
    output, weights = layers[1].outputs[0], layers[2].inputs[1]
    q = network.tensors[output].quantization
    stored = network.tensors[weights].array
    pool = next(layer for layer in network.graphs[0].layers if layer.op == "Pooling2d")
    changed = [
        edit.with_quant(network, output, zero_point=int(q.zero_point[0]) + 5),
        edit.with_quant(network, output, scale=2 * q.scale),
        edit.with_constant(network, weights, stored[..., ::-1]),
        edit.with_attrs(network, pool.index, poolType="Max"),
        edit.with_input_shape(network, (3, *data.shape[1:])),
    ]
    jobs, wanted = [], []
    for one in changed:
        (port,) = one.graphs[0].inputs
        feed = np.concatenate([data] * one.tensors[port.tensor].shape[0])
        jobs.append(armnn_job(one, {f"in_{port.binding_id}": feed}))
        wanted.append([array.tobytes() for array in mi.Model(one).run(feed).values()])
    results = armnn_runtime(jobs)
    assert [[*result.values()] for result in results] == wanted
    # other parameters of an activation hardly change its real values; the other edits do change what comes out
    assert len({tuple(result) for result in wanted}) >= 3


# ---- MindSpore Lite ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def mslite_runtime(tmp_path_factory):
    """``run([(path of a model, [inputs])])`` -> list of outputs' bytes, or the runtime's message."""
    program = os.environ.get("MSLITE_RUN")
    if not program:
        pytest.skip("the real MindSpore Lite: MSLITE_RUN does not name its harness")

    def run(jobs):
        folder = tmp_path_factory.mktemp("jobs")
        lines = []
        for number, (path, inputs) in enumerate(jobs):
            (folder / f"in{number}").mkdir()
            for i, array in enumerate(inputs):
                np.ascontiguousarray(array).tofile(folder / f"in{number}" / f"in_{i}.bin")
            lines.append(f"{path}\t{folder / f'in{number}'}\t{folder / f'out{number}'}\t0\n")
        subprocess.run([program], input="".join(lines), capture_output=True, text=True, check=True)
        results = []
        for number in range(len(jobs)):
            out = folder / f"out{number}"
            answer = json.loads((out / "meta.json").read_text()) if (out / "meta.json").exists() else {"msg": "aborted"}
            found = [(o["name"], o["shape"], (out / o["file"]).read_bytes()) for o in answer.get("outputs", ())]
            results.append(found or f"{answer.get('status')}: {answer.get('msg')}")
        return results

    return run


def numbered(arrays):
    """in_0, in_1, ... of an npz."""
    return [arrays[f"in_{i}"] for i in range(len(arrays)) if f"in_{i}" in arrays]


def both(folder, number, data, network, inputs, **options):
    """Jobs of the original and of the saved file."""
    (folder / f"{number}.ms").write_bytes(data)
    save.save(network, folder / f"{number}_saved.ms", **options)
    return [(folder / f"{number}.ms", inputs), (folder / f"{number}_saved.ms", inputs)]


@pytest.mark.parametrize("weights", ["inline", "external"])
@pytest.mark.parametrize("archive", ["mslite-nets.zip", "mslite-converted.zip", "mslite-ops.zip"])
def test_mindspore_lite_runs_saved_files(golden, mslite_runtime, tmp_path, archive, weights):
    found = golden(archive)
    jobs, names = [], []
    step = 5 if weights == "external" and archive == "mslite-ops.zip" else 1
    for number, name in enumerate(found.names[::step]):
        if name == "resize_dynamic_shape.ms":  # wants a call before it runs
            continue
        data = found.model(name)
        inputs = numbered(found.arrays(name.replace(".ms", ".npz")))
        jobs += both(tmp_path, number, data, mi.open(data).network, inputs, weights=weights)
        names.append(name)
    results = mslite_runtime(jobs)
    for name, one, other in zip(names, results[::2], results[1::2], strict=True):
        assert isinstance(one, list), f"{name}: {one}"
        assert one == other, name


def test_mindspore_lite_runs_the_bundled_models(mslite_runtime, tmp_path):
    image = mi.samples.digits().images[:1, ..., None].astype("float32") / 16
    jobs = []
    for name in mi.samples.names():
        if name.endswith(".ms"):
            path = mi.samples.path(name)
            jobs += both(tmp_path, name, path.read_bytes(), mi.open(path).network, [image])
    results = mslite_runtime(jobs)
    assert len(results) == 10
    assert all(isinstance(one, list) for one in results)
    assert results[::2] == results[1::2]


def test_mindspore_lite_runs_real_models(models, mslite_runtime, tmp_path):
    """Training graphs are cut at the tensor that their reference names: the runtime refuses what trains."""
    jobs, names = [], []
    for path in sorted(models.glob("*.npz")):
        source = path.with_suffix(".ms")
        if not source.exists() or source.name == "mobilefacenet0924.ms":
            continue
        arrays = np.load(path, allow_pickle=False)
        network, inputs = mi.open(source).network, numbered(arrays)
        meta = json.loads(str(arrays["meta"]) if "meta" in arrays else arrays["meta_json"].tobytes().decode())
        if meta.get("pruned_to"):
            network = extract.extract(network, outputs=[meta["pruned_to"]])
            save.save(network, tmp_path / f"{source.name}_saved.ms")
            job = (tmp_path / f"{source.name}_saved.ms", inputs)
            jobs += [job, job]
        else:
            jobs += both(tmp_path, source.name, source.read_bytes(), network, inputs)
        names.append((source.name, arrays["out_0"] if meta.get("pruned_to") else None))
    results = mslite_runtime(jobs)
    for (name, wanted), one, other in zip(names, results[::2], results[1::2], strict=True):
        assert isinstance(one, list), f"{name}: {one}"
        assert one == other, name
        if wanted is not None:  # the runtime refuses the original
            got = np.frombuffer(other[0][2], wanted.dtype)
            np.testing.assert_allclose(got, wanted.ravel(), rtol=1e-5, atol=1e-6, err_msg=name)
    assert len(names) >= 12
    assert sum(wanted is not None for _, wanted in names) >= 3


def test_mindspore_lite_runs_the_upgraded_mobilefacenet(models, mslite_runtime, tmp_path):
    """No identifier in, MSL2 out."""
    network = mi.open(models / "mobilefacenet0924.ms").network
    save.save(network, tmp_path / "new.ms")
    assert (tmp_path / "new.ms").read_bytes()[4:8] == b"MSL2"
    arrays = np.load(models / "mobilefacenet0924.npz", allow_pickle=False)
    ((result,),) = mslite_runtime([(tmp_path / "new.ms", numbered(arrays))])
    np.testing.assert_array_equal(np.frombuffer(result[2], np.float32), arrays["out_0"].ravel())


def test_mindspore_lite_runs_the_upgraded_int8_detector(models, mslite_runtime, tmp_path):
    """A file of 2020 that no present runtime loads, uint8 in and post-processing included: as computed here."""
    model = mi.open(models / "detect.ms")
    save.save(model.network, tmp_path / "new.ms")
    (port,) = model.network.graphs[0].inputs
    image = np.random.default_rng(0).integers(0, 255, model.network.tensors[port.tensor].shape).astype(np.uint8)
    (result,) = mslite_runtime([(tmp_path / "new.ms", [image])])
    outputs = model.run(image)
    assert len(result) == len(outputs) == 4
    for (_, _, data), array in zip(result, outputs.values(), strict=True):
        np.testing.assert_allclose(np.frombuffer(data, np.float32), array.ravel(), rtol=1e-6, atol=1e-6)


def test_mindspore_lite_runs_edited_models(golden, mslite_runtime, tmp_path):
    found = golden("mslite-nets.zip")
    network = mi.open(found.model("ds_cnn_int8.ms")).network
    inputs = numbered(found.arrays("ds_cnn_int8.npz"))
    convolutions = [layer for layer in network.graphs[0].layers if layer.op == "Conv2DFusion"]
    output, weights = convolutions[1].outputs[0], convolutions[2].inputs[1]
    q = network.tensors[output].quantization
    changed = [
        edit.with_quant(network, output, zero_point=int(q.zero_point[0]) + 5),
        edit.with_constant(network, weights, network.tensors[weights].array[..., ::-1]),
        edit.with_attrs(network, convolutions[0].index, activation_type="RELU6"),
        edit.with_input_shape(network, (3, *inputs[0].shape[1:])),
    ]
    packed = mi.open(golden("mslite-converted.zip").model("cnn_wq4.ms")).network
    low_bit = next(tensor for tensor in packed.tensors.values() if tensor.compression == "bitpacking")
    changed.append(edit.with_constant(packed, low_bit.index, low_bit.array[::-1]))
    jobs, wanted = [], []
    for number, one in enumerate(changed):
        feed = inputs if one.graphs[0].inputs[0].name == network.graphs[0].inputs[0].name else None
        if feed is None:
            feed = numbered(golden("mslite-converted.zip").arrays("cnn_wq4.npz"))
        (port,) = one.graphs[0].inputs
        feed = [np.concatenate([feed[0]] * (one.tensors[port.tensor].shape[0] // len(feed[0])))]
        save.save(one, tmp_path / f"{number}.ms")
        jobs.append((tmp_path / f"{number}.ms", feed))
        wanted.append(mi.Model(one).run(feed))
    for number, (result, ours) in enumerate(zip(mslite_runtime(jobs), wanted, strict=True)):
        assert isinstance(result, list), f"{number}: {result}"
        for (_, _, data), array in zip(result, ours.values(), strict=True):
            got = np.frombuffer(data, array.dtype).reshape(array.shape)
            np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6, err_msg=str(number))
