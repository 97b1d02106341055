"""Pieces of models: what they hold, and that they compute the bits that they computed in the whole."""

import io

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, extract, save
from mlinspect.errors import InputError

PASSIVE = ("Input", "Output", "Constant")


def digits(name):
    model = mi.open(mi.samples.path(name))
    image = mi.samples.digits().images[:1, ..., None].astype("float32") / 16
    return model, model.trace(image, quantize=True)


def check_layers(trace):
    """Every layer, cut out with its operands, gives the bits that it gave."""
    count = 0
    for layer in trace.network.layers.values():
        if layer.op in PASSIVE:
            continue
        case = extract.layer_case(trace.network, trace.values_by_id, layer.index)
        piece = mi.open(case["model"].tobytes())
        outputs = piece.run([case[f"in_{i}"] for i in range(len(piece.inputs))])
        assert len(outputs) == len(layer.outputs)
        for i, (got, tensor) in enumerate(zip(outputs.values(), layer.outputs, strict=True)):
            wanted = trace[tensor]
            assert np.array_equal(case[f"out_{i}"], wanted)
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            assert got.tobytes() == wanted.tobytes(), layer.name
        count += 1
    return count


@pytest.mark.parametrize("name", mi.samples.names())
def test_every_layer_of_the_digit_models(name):
    _, trace = digits(name)
    assert check_layers(trace) >= 11


@pytest.mark.parametrize("archive, suffix", [("armnn-nets.zip", "armnn"), ("mslite-nets.zip", "ms")])
def test_every_layer_of_ds_cnn_int8(golden, archive, suffix):
    found = golden(archive)
    model = mi.open(found.model(f"ds_cnn_int8.{suffix}"))
    arrays = found.arrays("ds_cnn_int8.npz")
    trace = model.trace([array for name, array in arrays.items() if name.startswith("in_")])
    assert check_layers(trace) >= 14


@pytest.mark.parametrize("name", ["digits_cnn_u8.armnn", "digits_cnn_int8.ms"])
def test_a_piece_between_tensors(name):
    _, trace = digits(name)
    network = trace.network
    inner = [layer for layer in network.graphs[0].layers if layer.op not in PASSIVE]
    start, end = inner[3].outputs[0], inner[-2].outputs[0]
    piece = extract.extract(network, [network.tensors[start].name], [end])
    ops = [layer.op for layer in piece.graphs[0].layers if layer.op not in PASSIVE]
    assert ops == [layer.op for layer in inner[4:-1]]
    # names and ids are those of the whole, constants are shared
    for i, tensor in piece.tensors.items():
        assert (tensor.name, tensor.shape) == (network.tensors[i].name, network.tensors[i].shape)
        assert tensor.data is network.tensors[i].data
    assert [port.name for port in piece.graphs[0].inputs] == [network.tensors[start].name]
    assert [port.name for port in piece.graphs[0].outputs] == [network.tensors[end].name]
    saved = mi.open(save.to_bytes(piece))
    for one in (mi.Model(piece), saved):
        (got,) = one.run([trace[start]]).values()
        assert got.tobytes() == trace[end].tobytes()
    assert set(saved.network.tensors) <= set(range(len(saved.network.tensors)))


def test_the_whole_is_a_piece():
    for name in ("digits_cnn.armnn", "digits_cnn.ms"):
        model, trace = digits(name)
        piece = extract.extract(model.network)
        assert piece.layers.keys() == model.network.layers.keys()
        assert piece.graphs[0].inputs == model.network.graphs[0].inputs
        assert piece.graphs[0].outputs == model.network.graphs[0].outputs
        (image,) = (trace[port.tensor] for port in piece.graphs[0].inputs)
        np.testing.assert_array_equal([*mi.Model(piece).run(image).values()], [*trace.outputs.values()])


def two_branches():
    return (
        build.mslite()
        .input("x", (2, 3))
        .input("y", (2, 3))
        .layer("AddFusion", "sum", "x", "y")
        .layer("MulFusion", "square", "sum", "sum")
        .layer("SubFusion", "difference", "x", "y")
        .output(tensor="square")
        .output(tensor="difference")
        .model()
        .network
    )


def test_only_what_the_outputs_need():
    piece = extract.extract(two_branches(), outputs=["sum"])
    assert [layer.name for layer in piece.layers.values()] == ["sum"]
    assert [port.name for port in piece.graphs[0].inputs] == ["x", "y"]
    one = extract.extract(two_branches(), ["sum"], ["square"])
    assert [port.name for port in one.graphs[0].inputs] == ["sum"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(mi.Model(one).run(x)["square"], x * x)


def test_roles_follow_the_cut():
    piece = extract.extract(two_branches(), ["sum"], ["square"])
    assert {tensor.name: tensor.role for tensor in piece.tensors.values()} == {"sum": "input", "square": "output"}


def test_what_is_missing_is_said():
    network = two_branches()
    with pytest.raises(InputError, match="also need 'y': add them, or what they depend on"):
        extract.extract(network, ["x"], ["difference"])
    with pytest.raises(InputError, match="no tensor is called 'sun'"):
        extract.extract(network, ["sun"])
    with pytest.raises(InputError, match="lists of tensors, not 'sum'"):
        extract.extract(network, "sum")
    digit = mi.open(mi.samples.path("digits_cnn.ms")).network
    constant = next(tensor.name for tensor in digit.tensors.values() if tensor.data is not None)
    with pytest.raises(InputError, match="is a constant: data cannot enter there"):
        extract.extract(digit, [constant])
    arm = mi.open(mi.samples.path("digits_cnn.armnn")).network
    with pytest.raises(InputError, match="computes nothing: it is of type Input"):
        extract.extract_layer(arm, 0)


def test_an_arm_nn_piece_gets_ports_of_its_own():
    model = (
        build.armnn()
        .input("x", (1, 4))
        .layer("Activation", "a", activationFunction="ReLu")
        .layer("Activation", "b", activationFunction="Abs")
        .output("y")
        .output("z", tensor="a")
        .model()
    )
    piece = extract.extract(model.network, ["a"], ["b", "a"])
    main = piece.graphs[0]
    assert [(port.name, port.binding_id) for port in main.inputs] == [("a", 0)]
    # outputs that the model has keep their names and ids
    assert [(port.name, port.binding_id) for port in main.outputs] == [("y", 0), ("z", 1)]
    x = np.array([[-1, 2, -3, 4]], np.float32)
    for one in (mi.Model(piece), mi.open(save.to_bytes(piece))):
        outputs = one.run(x)
        np.testing.assert_array_equal(outputs["y"], abs(x))
        np.testing.assert_array_equal(outputs["z"], x)


def test_control_flow_goes_along(golden):
    found = golden("mslite-ops.zip")
    compared = 0
    for name in found.names:
        if not name.startswith("cf_"):
            continue
        model = mi.open(found.model(name))
        if len(model.network.graphs) == 1:
            continue
        arrays = found.arrays(name.replace(".ms", ".npz"))
        inputs = [arrays[f"in_{i}"] for i in range(len(model.inputs))]
        piece = extract.extract(model.network)
        assert len(piece.graphs) == len(model.network.graphs)
        again = mi.open(save.to_bytes(piece))
        for one, other in zip(model.run(inputs).values(), again.run(inputs).values(), strict=True):
            np.testing.assert_array_equal(one, other)
        compared += 1
    assert compared > 3


def test_a_layer_of_a_subgraph(golden):
    model = mi.open(golden("mslite-ops.zip").model(cf_name(golden)))
    graph = model.network.graphs[1]
    layer = next(one for one in graph.layers if one.op not in ("PartialFusion", "Call", "Switch"))
    piece = extract.extract_layer(model.network, layer.index)
    assert len(piece.graphs) == 1
    assert {one.graph for one in piece.layers.values()} == {0}
    assert {tensor.graph for tensor in piece.tensors.values()} == {0}
    assert [one.op for one in mi.open(save.to_bytes(piece)).network.layers.values()] == [layer.op]


def cf_name(golden):
    found = golden("mslite-ops.zip")
    return next(
        name for name in found.names if name.startswith("cf_") and len(mi.open(found.model(name)).network.graphs) > 1
    )


# ---- bug reports ---------------------------------------------------------------------------------------------------


def test_anonymous_cases_hold_no_names_and_other_weights():
    for name in ("digits_cnn.armnn", "digits_cnn_int8.ms", "digits_cnn_wq4.ms"):
        model, trace = digits(name)
        secrets = {tensor.name for tensor in model.network.tensors.values()}
        secrets |= {layer.name for layer in model.network.layers.values()} - {""}
        for layer in trace.network.layers.values():
            if layer.op in PASSIVE:
                continue
            case = extract.layer_case(trace.network, trace.values_by_id, layer.index, anonymize=True)
            data = case["model"].tobytes()
            assert not [secret for secret in secrets if len(secret) > 4 and secret.encode() in data]
            piece = mi.open(data)
            outputs = piece.run([case[f"in_{i}"] for i in range(len(piece.inputs))])
            for i, got in enumerate(outputs.values()):
                assert got.tobytes() == case[f"out_{i}"].tobytes()
            original = mi.open(save.to_bytes(extract.extract_layer(trace.network, layer.index)))
            for tensor in piece.weights:
                values = piece.weights[tensor]
                like = [original.weights[i] for i in original.weights if original.weights[i].shape == values.shape]
                if values.size > 100:
                    assert like
                    assert all((values != other).mean() > 0.5 for other in like if other.std() > 0)
                    assert (
                        min(abs(values.mean() - other.mean()) for other in like) < 0.2 * max(values.std(), 1e-6) + 1e-3
                    )


def test_lookalike_keeps_statistics():
    rng = np.random.default_rng(0)
    x = rng.normal(0.5, 2, 20000).astype(np.float32)
    x[rng.random(20000) < 0.3] = 0
    y = extract.lookalike(x, rng)
    assert y.dtype == np.float32
    assert abs(y.mean() - x.mean()) < 0.3
    assert abs((y == 0).mean() - 0.3) < 0.02
    assert x.min() <= y.min() and y.max() <= x.max()
    q = rng.integers(-20, 90, 5000).astype(np.int8)
    z = extract.lookalike(q, rng)
    assert z.dtype == np.int8
    assert z.min() >= -20 and z.max() <= 89
    assert abs(float(z.mean()) - float(q.mean())) < 3
    same = np.full(10, 7, np.int16)
    np.testing.assert_array_equal(extract.lookalike(same, rng), same)


def test_case_in_a_file(tmp_path):
    model, trace = digits("digits_cnn.ms")
    extract.save_layer(tmp_path / "case.npz", trace.network, trace.values_by_id, "/stem/Conv")
    with np.load(io.BytesIO((tmp_path / "case.npz").read_bytes()), allow_pickle=False) as found:
        assert sorted(found.files) == ["in_0", "model", "out_0"]
    other = extract.extract(trace.network, outputs=[model.network.graphs[0].layers[0].outputs[0]])
    with pytest.raises(InputError, match="the run has no values for"):
        extract.layer_case(trace.network, {}, model.network.graphs[0].layers[0].index)
    assert len(other.layers) == 1
