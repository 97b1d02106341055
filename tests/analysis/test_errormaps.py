"""Error maps against plain sums over the arrays themselves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.compare import compare
from mlinspect.analysis.dump_files import Entry
from mlinspect.analysis.dumps import Dump
from mlinspect.analysis.errormaps import accumulated_error, error_channels, error_picture, margins
from mlinspect.execute.trace import Trace

DIGITS = mi.samples.digits()
IMAGES = DIGITS.images[:4, ..., None].astype(np.float32) / 16


def sample(name: str) -> mi.Model:
    return mi.open(mi.samples.path(name))


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray]:
    """Real values of residual/conv in float and in 8 bits, samples along the first axis."""
    want, got = [], []
    a, b = sample("digits_cnn.armnn"), sample("digits_cnn_u8.armnn")
    (q,) = (t.quantization for t in b.network.tensors.values() if t.name == "residual/conv")
    for image in IMAGES:
        want.append(a.trace(image[None])["residual/conv"])
        stored = b.trace(image[None], quantize=True)["residual/conv"].astype(np.float32)
        got.append((stored - np.float32(q.zero_point[0])) * np.float32(q.scale[0]))
    return np.concatenate(want).astype(float), np.concatenate(got).astype(float)


def test_channels(pair: tuple[np.ndarray, np.ndarray]) -> None:
    want, got = pair
    table = error_channels(sample("digits_cnn.armnn"), sample("digits_cnn_u8.armnn"), "residual/conv", IMAGES)
    assert table.index.tolist() == list(range(32))
    error = got - want
    np.testing.assert_allclose(table.mse, (error**2).mean((0, 1, 2)))
    np.testing.assert_allclose(table.share, (error**2).sum((0, 1, 2)) / (error**2).sum())
    np.testing.assert_allclose(table.bias, error.mean((0, 1, 2)))
    np.testing.assert_allclose(table.max_abs, np.abs(error).max((0, 1, 2)))
    np.testing.assert_allclose(table.gain, (want * got).sum((0, 1, 2)) / (want**2).sum((0, 1, 2)))
    np.testing.assert_allclose(table.sqnr_db, 10 * np.log10((want**2).sum((0, 1, 2)) / (error**2).sum((0, 1, 2))))


def test_picture(pair: tuple[np.ndarray, np.ndarray]) -> None:
    want, got = pair
    table = error_picture(sample("digits_cnn.armnn"), sample("digits_cnn_u8.armnn"), "residual/conv", IMAGES)
    np.testing.assert_allclose(table.to_numpy(), np.sqrt(((got - want) ** 2).mean((0, 3))))
    assert (table.index.name, table.columns.name) == ("row", "column")


def test_a_fault_in_one_channel_and_one_corner_is_found_there() -> None:
    trace = sample("digits_cnn.ms").trace(IMAGES[:1])
    (tensor,) = (i for i in trace if trace.network.tensors[i].name == "/res/Conv")
    changed = trace[tensor].copy()
    changed[0, 1, 2, 7] += 3
    other = Trace(trace.network, {**trace.values_by_id, tensor: changed})
    channels = error_channels(trace, other, "/res/Conv")
    assert channels.share.idxmax() == 7
    assert channels.share[7] == 1
    picture = error_picture(trace, other, "/res/Conv")
    assert np.argwhere(picture.to_numpy()).tolist() == [[1, 2]]
    assert picture.loc[1, 2] == pytest.approx(3 / np.sqrt(32))


def dumped(**arrays: np.ndarray) -> Dump:
    return Dump([Entry(name, array, "") for name, array in arrays.items()], {}, [])


def test_vectors_and_channels_first() -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(1, 6)), rng.normal(size=(1, 6))
    a, b = dumped(fc=x), dumped(fc=x + noise)
    np.testing.assert_allclose(error_channels(a, b, "fc").mse, noise[0] ** 2)
    np.testing.assert_allclose(error_picture(a, b, "fc").to_numpy(), np.abs(noise))
    y = rng.normal(size=(1, 3, 4, 5))
    tensor = ir.Tensor(0, "y", 0, "activation", "float32", "Float32", y.shape, layout="NCHW")
    layer = ir.Layer(0, "y", "Conv", "conv2d", 0, {}, (), (0,))
    network = ir.Network("mslite", "", "", (ir.Graph(0, "", (), (), (layer,)),), {0: tensor})
    wrong = y.copy()
    wrong[0, 2, 3, 4] += 1
    table = error_channels(Trace(network, {0: y}), Trace(network, {0: wrong}), "y")
    assert table.share.tolist() == [0, 0, 1]
    assert error_picture(Trace(network, {0: y}), Trace(network, {0: wrong}), "y").shape == (4, 5)


def test_accumulated_error_follows_compare() -> None:
    a, b = sample("digits_cnn.ms"), sample("digits_cnn_wq4.ms")
    table, whole = accumulated_error(a, b, IMAGES), compare(a, b, IMAGES)
    assert table.name_a.tolist()[:3] == ["image", "/stem/Conv", "/dw/Conv"]
    pd.testing.assert_series_equal(table.sqnr_db, whole.sqnr_db.sort_index())
    row = whole[whole.name_a == "/pw/Conv"].iloc[0]
    signal = row.mse * 10 ** (row.sqnr_db / 10)
    assert table.set_index("name_a").relative["/pw/Conv"] == pytest.approx(np.sqrt(row.mse / signal))


def test_margins_are_those_of_the_scores() -> None:
    a, b = sample("digits_cnn.ms"), sample("digits_cnn_u8.armnn")
    images = DIGITS.images[:40, ..., None].astype(np.float32) / 16
    table = margins(a, b, images, k=3)
    scale = float(b.network.tensors[b.network.graphs[0].outputs[0].tensor].quantization.scale[0])
    for number, image in enumerate(images):
        x = a.run(image[None])["probability"][0].astype(float)
        y = b.run(image[None], quantize=True)["output"][0].astype(int)
        row = table.loc[number]
        assert row.top_a == x.argmax()
        assert row.agree == (x.argmax() == y.argmax())
        assert row.margin_a == pytest.approx(np.sort(x)[-1] - np.sort(x)[-2])
        assert row.steps_b == pytest.approx(np.sort(y)[-1] - np.sort(y)[-2], rel=1e-2)
        assert row.margin_b == pytest.approx(row.steps_b * scale, rel=1e-2)
        best = np.argsort(-y, kind="stable")
        assert row.rank_b == list(best).index(x.argmax()) + 1
        assert row.overlap == len(set(np.argsort(-x)[:3]) & set(best[:3])) / 3
    assert table.steps_a.isna().all()
    confusion = pd.crosstab(table.top_a, table.top_b)
    assert confusion.to_numpy().trace() == table.agree.sum()


def test_what_cannot_be_shown() -> None:
    a, b = sample("digits_cnn.ms"), sample("digits_cnn_wq4.ms")
    with pytest.raises(mi.InputError, match="no layer 'nobody'"):
        error_channels(a, b, "nobody", IMAGES)
    with pytest.raises(mi.InputError, match="no layer '/ad' that both sides have; did you mean '/Add'"):
        error_channels(a, b, "/ad", IMAGES)
    with pytest.raises(mi.InputError, match="give inputs"):
        error_picture(a, b, "/Add")
    with pytest.raises(mi.InputError, match="no output 'nobody'; the outputs are 'probability'"):
        margins(a, b, IMAGES, output="nobody")
    with pytest.raises(mi.InputError, match="at least one class"):
        margins(a, b, IMAGES, k=0)
