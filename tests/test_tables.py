"""The tables of small hand-made networks: every value, every declared dtype, and the speed of large ones."""

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir, tables
from mlinspect.errors import InputError
from mlinspect.glossary import describe
from mlinspect.macs import MACS, count_macs, count_params

TABLES = ["layers", "tensors", "quant", "edges", "inputs", "outputs", "attrs"]


def tensor(index, name="", role="activation", dtype="float32", shape=(1,), **more):
    return ir.Tensor(index, name or f"t{index}", 0, role, dtype, more.pop("vendor_dtype", dtype), shape, **more)


def quantization(scale, zero_point, **more):
    return ir.Quantization(np.array(scale, np.float64), np.array(zero_point, np.int64), **more)


def small():
    """input -> conv (per-channel weights, bias) -> relu -> output, as Arm NN has it: input and output are layers."""
    act = quantization([0.5], [-28])
    weights = quantization([0.5, 0.25], [0, 0], axis=0, symmetric=True)
    tensors = [
        tensor(0, "x", "input", "int8", (1, 4, 4, 3), layout="NHWC", quantization=act, quantized=True),
        tensor(
            1, "conv/weights", "constant", "int8", (2, 3, 3, 3), layout="OHWI", data=np.zeros((2, 3, 3, 3), np.int8),
            quantization=weights, quantized=True, nbytes=54, file_offset=640, vendor_dtype="QSymmS8",
        ),
        tensor(2, "conv/bias", "constant", "int32", (2,), data=np.zeros(2, np.int32), nbytes=8),
        tensor(3, "", "activation", "int8", (1, 4, 4, 2), layout="NHWC", quantization=act, quantized=True),
        tensor(4, "y", "output", "float32", (1, -1, 4, 2)),
    ]  # fmt: skip
    layers = (
        ir.Layer(10, "in", "Input", "input", 0, {"layerBindingId": 7}, (), (0,)),
        ir.Layer(11, "conv", "Convolution2d", "conv2d", 0, {"strideX": 1, "dataLayout": "NHWC"}, (0, 1, 2), (3,)),
        ir.Layer(12, "relu", "Activation", "activation", 0, {"activationFunction": "ReLu"}, (3,), (4,)),
        ir.Layer(13, "out", "Output", "output", 0, {}, (4,), ()),
    )
    graph = ir.Graph(0, "", (ir.Port("in", 0, 7),), (ir.Port("out", 4),), layers)
    return ir.Network("armnn", "armnn_superset", "", (graph,), {t.index: t for t in tensors})


def empty():
    return ir.Network("mslite", "msl2_newest", "", (), {})


@pytest.mark.parametrize("network", [small(), empty()], ids=["small", "empty"])
@pytest.mark.parametrize("name", TABLES)
def test_columns_and_dtypes_are_as_declared(name, network):
    frame = getattr(tables, name)(network)
    declared = [(column, dtype) for column, dtype, _, _ in tables.COLUMNS[name]]
    if name in ("layers", "tensors"):
        column, dtype = declared.pop(0)
        assert (frame.index.name, str(frame.index.dtype)) == (column, dtype)
    else:
        assert isinstance(frame.index, pd.RangeIndex)
    want = [(c, "object" if d == "str" and pd.Series(["a"]).dtype == object else d) for c, d in declared]
    assert [(c, str(d)) for c, d in frame.dtypes.items()] == want


@pytest.mark.parametrize("name", TABLES)
def test_describe_explains_every_column_of_the_design(name):
    design = {
        "layers": "layer name op kind graph inputs outputs input_shapes output_shapes dtype quantized params "
        "weight_bytes macs attrs",
        "tensors": "tensor name graph role dtype shape elements nbytes layout producer consumers quantized scheme "
        "scale zero_point bits compression file_offset",
        "quant": "tensor channel name scale zero_point bits axis qmin qmax real_min real_max symmetric min max "
        "narrow_range inited var_corr mean_corr dst_dtype round_type multiplier",
        "edges": "producer output_slot consumer input_slot tensor",
        "inputs": "position tensor name dtype shape layout scale zero_point binding_id",
        "outputs": "position tensor name dtype shape layout scale zero_point binding_id",
        "attrs": "layer name op attr value",
    }
    about = describe(name)
    assert about.columns.tolist() == ["column", "dtype", "unit", "meaning"]
    assert [c for c in about.column if c in design[name].split()] == design[name].split()
    assert (about.meaning.str.len() > 5).all()


def test_describe_says_which_tables_there_are():
    with pytest.raises(KeyError, match="layers, tensors"):
        describe("layer")
    with pytest.raises(InputError, match=r"a table's name, as describe\('layers'\), not DataFrame"):
        describe(pd.DataFrame())


def test_layers():
    layers = tables.layers(small())
    assert layers.index.tolist() == [10, 11, 12, 13]
    conv = layers.loc[11]
    assert conv[["name", "op", "kind", "graph", "dtype"]].tolist() == ["conv", "Convolution2d", "conv2d", 0, "int8"]
    assert (conv.inputs, conv.outputs) == ((0, 1, 2), (3,))
    assert conv.input_shapes == ((1, 4, 4, 3), (2, 3, 3, 3), (2,))
    assert conv.output_shapes == ((1, 4, 4, 2),)
    assert conv["attrs"] == {"strideX": 1, "dataLayout": "NHWC"}
    assert layers.params.tolist() == [0, 56, 0, 0]
    assert layers.weight_bytes.tolist() == [0, 62, 0, 0]
    assert layers.macs.tolist() == [0, 1 * 4 * 4 * 2 * 3 * 3 * 3, 0, 0]
    assert layers.quantized.tolist() == [True, True, True, False]
    assert pd.isna(layers.dtype[13])


def test_tensors():
    tensors = tables.tensors(small())
    assert tensors.index.tolist() == [0, 1, 2, 3, 4]
    assert tensors.role.tolist() == ["input", "constant", "constant", "activation", "output"]
    assert tensors.vendor_dtype[1] == "QSymmS8"
    assert tensors["shape"].tolist()[1] == (2, 3, 3, 3)
    assert tensors.elements.tolist() == [48, 54, 2, 32, pd.NA]
    assert tensors.producer.tolist() == [10, pd.NA, pd.NA, 11, 12]
    assert tensors.consumers.tolist() == [(11,), (11,), (11,), (12,), (13,)]
    assert tensors.scheme.tolist() == ["per_tensor", "per_channel", "none", "per_tensor", "none"]
    np.testing.assert_array_equal(tensors.scale, [0.5, np.nan, np.nan, 0.5, np.nan])
    assert tensors.zero_point.tolist() == [-28, pd.NA, pd.NA, -28, pd.NA]
    assert tensors.bits.tolist() == [8, 8, pd.NA, 8, pd.NA]
    assert tensors.file_offset.tolist() == [pd.NA, 640, pd.NA, pd.NA, pd.NA]
    assert tensors.nbytes.tolist() == [0, 54, 8, 0, 0]
    assert tensors.layout.dropna().tolist() == ["NHWC", "OHWI", "NHWC"]


def test_quant_has_one_row_a_channel():
    quant = tables.quant(small())
    assert quant[["tensor", "channel", "name"]].values.tolist() == [
        [0, 0, "x"], [1, 0, "conv/weights"], [1, 1, "conv/weights"], [3, 0, "t3"],
    ]  # fmt: skip
    assert quant.scale.tolist() == [0.5, 0.5, 0.25, 0.5]
    assert quant.axis.tolist() == [pd.NA, 0, 0, pd.NA]
    assert quant.qmin.tolist() == [-128] * 4
    assert quant.qmax.tolist() == [127] * 4
    assert quant.real_min.tolist() == [-50.0, -64.0, -32.0, -50.0]
    assert quant.real_max.tolist() == [77.5, 63.5, 31.75, 77.5]
    assert quant.symmetric.tolist() == [False, True, True, False]
    assert quant.loc[:, "min":].isna().all(axis=None)


@pytest.mark.parametrize(
    ("dtype", "bits", "qmin", "qmax"),
    [
        ("int8", 8, -128, 127),
        ("uint8", 8, 0, 255),
        ("int8", 4, -8, 7),
        ("int8", 1, -1, 0),
        ("int16", 16, -32768, 32767),
        ("int32", 32, -(2**31), 2**31 - 1),
        ("int8", 0, pd.NA, pd.NA),
        ("int8", -3, pd.NA, pd.NA),
        ("int8", 200, pd.NA, pd.NA),
    ],
)
def test_quantised_range_from_bits_and_sign(dtype, bits, qmin, qmax):
    extra = {"narrow_range": np.array([True])}  # the schema's default, and no reason to believe it
    t = tensor(0, dtype=dtype, quantization=quantization([2.0], [3], bits=bits, extra=extra))
    row = tables.quant(ir.Network("mslite", "msl2_newest", "", (), {0: t})).loc[0]
    assert (row.qmin, row.qmax) == (qmin, qmax) or (row.qmin is qmin and row.qmax is qmax)
    want = [np.nan, np.nan] if qmin is pd.NA else [2.0 * (qmin - 3), 2.0 * (qmax - 3)]
    np.testing.assert_array_equal([row.real_min, row.real_max], want)


def test_quant_mixes_tensors_with_and_without_mindspore_fields():
    extra = {
        "min": np.array([-1.0, -2.0]), "max": np.array([1.0, 2.0]), "narrow_range": np.array([True, False]),
        "inited": np.array([True, True]), "var_corr": np.array([1.0, 0.5]), "mean_corr": np.array([0.0, 0.25]),
        "dst_dtype": np.array([32, 32]), "round_type": np.array([1, 2]), "multiplier": np.array([0, 1]),
    }  # fmt: skip
    with_extra = tensor(0, dtype="int8", quantization=quantization([1, 1], [0, 0], axis=1, extra=extra))
    without = tensor(1, dtype="int8", quantization=quantization([1], [0]))
    quant = tables.quant(ir.Network("mslite", "msl2_newest", "", (), {0: with_extra, 1: without}))
    assert quant.narrow_range.tolist() == [True, False, pd.NA]
    assert quant.qmin.tolist() == [-128, -128, -128]
    assert quant.dst_dtype.tolist() == [32, 32, pd.NA]
    assert quant.multiplier.tolist() == [0, 1, pd.NA]
    np.testing.assert_array_equal(quant.mean_corr, [0, 0.25, np.nan])


def test_edges():
    edges = tables.edges(small())
    assert edges.values.tolist() == [
        [10, 0, 11, 0, 0],
        [pd.NA, pd.NA, 11, 1, 1],
        [pd.NA, pd.NA, 11, 2, 2],
        [11, 0, 12, 0, 3],
        [12, 0, 13, 0, 4],
    ]


def test_inputs_and_outputs():
    inputs, outputs = tables.inputs(small()), tables.outputs(small())
    assert inputs.loc[0].tolist() == [0, 0, "in", "int8", (1, 4, 4, 3), "NHWC", 0.5, -28, 7]
    row = outputs.loc[0]
    assert row[["position", "tensor", "name", "dtype", "shape"]].tolist() == [0, 4, "out", "float32", (1, -1, 4, 2)]
    assert row[["layout", "scale", "zero_point", "binding_id"]].isna().all()


def test_attrs_are_long():
    attrs = tables.attrs(small())
    assert attrs[["layer", "attr", "value"]].values.tolist() == [
        [10, "layerBindingId", 7],
        [11, "strideX", 1],
        [11, "dataLayout", "NHWC"],
        [12, "activationFunction", "ReLu"],
    ]


def test_a_tensor_read_twice_by_one_layer_has_it_once_among_its_consumers_and_twice_among_the_edges():
    layer = ir.Layer(0, "square", "MulFusion", "mul", 0, {}, (0, 0), (1,))
    graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", 1),), (layer,))
    network = ir.Network("mslite", "msl2_newest", "", (graph,), {0: tensor(0), 1: tensor(1)})
    assert tables.tensors(network).consumers[0] == (0,)
    assert tables.edges(network).input_slot.tolist() == [0, 1]


def test_building_a_table_does_not_unpack_constants():
    def load():
        raise AssertionError("unpacked")

    packed = ir.PackedData(np.zeros(3, np.uint8), load)
    t = tensor(0, role="constant", dtype="int8", data=packed, compression="bitpacking", nbytes=3, shape=(6,))
    layer = ir.Layer(0, "", "MatMulFusion", "matmul", 0, {}, (0,), ())
    network = ir.Network("mslite", "msl2_newest", "", (ir.Graph(0, "", (), (), (layer,)),), {0: t})
    assert tables.tensors(network).nbytes[0] == 3
    assert tables.layers(network).weight_bytes[0] == 3


def macs(kind, ins, outs, **attrs):
    ins = [tensor(i, shape=s, data=np.empty(0) if i else None) for i, s in enumerate(ins)]
    return count_macs(ir.Layer(0, "", kind, kind, 0, attrs, (), ()), ins, [tensor(99, shape=s) for s in outs])


NCHW = {"dataLayout": "NCHW"}


@pytest.mark.parametrize(
    ("kind", "ins", "outs", "attrs", "want"),
    [
        ("conv2d", [(1, 8, 8, 3), (16, 5, 3, 3)], [(2, 4, 4, 16)], {}, 2 * 16 * 16 * 5 * 3 * 3),
        ("conv2d", [(1, 3, 8, 8), (16, 3, 5, 3)], [(2, 16, 4, 4)], NCHW, 2 * 16 * 16 * 5 * 3 * 3),
        ("conv2d", [(1, 8, 8, 4), (8, 3, 3, 2)], [(1, 8, 8, 8)], {"group": 2}, 64 * 8 * 9 * 2),
        ("conv3d", [(1, 8, 8, 8, 2), (3, 3, 3, 2, 5)], [(1, 6, 6, 6, 5)], {}, 216 * 5 * 27 * 2),
        ("conv3d", [(1, 2, 8, 8, 8), (3, 3, 3, 2, 5)], [(1, 5, 6, 6, 6)], {"dataLayout": "NCDHW"}, 216 * 5 * 27 * 2),
        ("depthwise_conv2d", [(1, 8, 8, 4), (2, 4, 3, 5)], [(1, 8, 8, 8)], {}, 64 * 8 * 15),
        ("depthwise_conv2d", [(1, 8, 8, 4), (1, 3, 5, 8)], [(1, 8, 8, 8)], {}, 64 * 8 * 15),
        ("conv2d_transpose", [(1, 4, 4, 3), (6, 2, 2, 3)], [(1, 8, 8, 6)], {}, 16 * 3 * 4 * 6),
        ("conv2d_transpose", [(1, 3, 4, 4), (6, 3, 2, 2)], [(1, 6, 8, 8)], NCHW, 16 * 3 * 4 * 6),
        ("fully_connected", [(5, 20), (20, 7)], [(5, 7)], {}, 5 * 20 * 7),
        ("fully_connected", [(5, 2, 10), (7, 20)], [(5, 7)], {}, 5 * 20 * 7),
        ("matmul", [(3, 4, 5), (3, 5, 6)], [(3, 4, 6)], {}, 3 * 4 * 5 * 6),
        ("matmul", [(3, 5, 4), (3, 5, 6)], [(3, 4, 6)], {"transpose_a": True}, 3 * 4 * 5 * 6),
        ("lstm", [(7, 2, 5), (1, 16, 5), (1, 16, 4), (1, 32)], [(7, 1, 2, 4)], {}, 7 * 2 * (16 * 5 + 16 * 4)),
        ("lstm", [(2, 5), (4, 5), (4, 4), (4,), (4,)], [(2, 4)], {}, 2 * (20 + 16)),
        ("batch_norm", [(1, 4, 4, 3), (3,)], [(1, 4, 4, 3)], {}, 48),
        ("reshape", [(1, 4)], [(4,)], {}, 0),
        ("unknown", [(1, 4)], [(4,)], {}, None),
        ("conv2_d_backprop_filter_fusion", [(1, 4)], [(4,)], {}, None),
        ("conv2d", [(1, 8, 8, 3), (16, 5, 3, 3)], [(2, -1, 4, 16)], {}, None),
        ("conv2d", [(1, 8, 8, 3), (16, 5, 3, 3)], [None], {}, None),
        ("conv2d", [(1, 8, 8, 3), (16, 5, 3, 3)], [()], {}, None),
        ("conv2d", [(1, 8, 8, 3)], [(2, 4, 4, 16)], {}, None),
        ("fully_connected", [(5, 20), (20, 0)], [(5, 0)], {}, None),
        ("lstm", [(2, 5)], [(2, 4)], {}, None),
    ],
)
def test_macs(kind, ins, outs, attrs, want):
    assert macs(kind, ins, outs, **attrs) == want


def test_macs_of_a_convolution_equal_a_count_of_its_products():
    """The direct definition: walk over outputs and taps of a valid convolution and count."""
    count = sum(1 for _ in np.ndindex(2, 4, 3, 6) for _ in np.ndindex(3, 2, 5))
    assert macs("conv2d", [(2, 6, 4, 5), (6, 3, 2, 5)], [(2, 4, 3, 6)]) == count


def test_params_leave_out_shapes_and_axes():
    shape = tensor(0, dtype="int32", shape=(4,))
    quantised = tensor(1, dtype="int8", shape=(3, 2), quantized=True)
    half = tensor(2, dtype="float16", shape=(5,))
    assert count_params("reshape", [shape]) == 0
    assert count_params("mul", [shape, quantised, half]) == 11
    assert all(count_params(kind, [shape]) == 4 for kind in MACS)


@pytest.mark.filterwarnings("error")
def test_what_a_damaged_file_may_claim_fits_the_tables():
    huge = (2**31 - 1,) * 5
    q = quantization([np.inf, np.nan, 1e308], [0, -(2**31), 2**31 - 1], axis=2**31 - 1, bits=2**31 - 1)
    none = quantization([], [])
    found = [
        tensor(0, shape=huge, quantization=q),
        tensor(1, shape=huge, data=np.empty(0), quantization=none, quantized=True),
        tensor(2, shape=(2**31 - 1,), quantization=quantization([np.inf], [-128])),
    ]
    layer = ir.Layer(2**32 - 1, "", "MatMulFusion", "matmul", 0, {"huge": 2**64 - 1}, (0, 1, 1), (2,))
    graph = ir.Graph(0, "", (ir.Port("", 1, -(2**31)),), (ir.Port("", 2),), (layer,))
    network = ir.Network("mslite", "msl2_newest", "", (graph,), {t.index: t for t in found})
    for name in TABLES:
        getattr(tables, name)(network)
    assert tables.tensors(network).elements.tolist() == [pd.NA, pd.NA, 2**31 - 1]
    assert tables.layers(network).macs.tolist() == [pd.NA]
    assert tables.quant(network).qmax.tolist() == [pd.NA, pd.NA, pd.NA, 127]


def large(n):
    tensors, layers = [tensor(0, "x", "input", "int8", (1, 8, 8, 16))], []
    for i in range(n):
        weights = quantization(np.full(16, 0.5), np.zeros(16), axis=0)
        w, y = 2 * i + 1, 2 * i + 2
        tensors += [
            tensor(w, "", "constant", "int8", (16, 3, 3, 16), layout="OHWI", data=np.empty(0), quantization=weights),
            tensor(y, "", "activation", "int8", (1, 8, 8, 16), quantization=quantization([0.5], [0])),
        ]
        layers.append(ir.Layer(i, f"l{i}", "Convolution2d", "conv2d", 0, {"strideX": 1}, (max(y - 2, 0), w), (y,)))
    graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", 2 * n),), tuple(layers))
    return ir.Network("armnn", "armnn_superset", "", (graph,), {t.index: t for t in tensors})


def test_row_counts_of_a_large_network():
    network = large(1_000)
    made = [getattr(tables, name)(network) for name in TABLES]
    assert [len(frame) for frame in made] == [1_000, 2_001, 17_000, 2_000, 1, 1, 1_000]


def test_the_memory_of_a_lent_table_is_the_readers_own():
    model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    for name in ("layers", "tensors", "quant", "edges", "inputs", "outputs"):
        before, table = getattr(model, name), getattr(model, name)
        for column in table:
            array = table[column].to_numpy()
            if array.flags.writeable and array.dtype.kind in "iufb":
                array[:] = 0 if array.dtype.kind == "b" else 7
        pd.testing.assert_frame_equal(getattr(model, name), before)
