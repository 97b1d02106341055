"""Saving: atomic, deterministic, with little memory; weights inside or beside."""

import errno
import itertools
import os
import random
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, edit, save
from mlinspect.errors import InputError, SchemaError, UnsupportedError

NAMES = mi.samples.names()


@pytest.mark.parametrize("name", NAMES)
def test_saved_file_is_what_to_bytes_gives(tmp_path, name):
    network = mi.open(mi.samples.path(name)).network
    save.save(network, tmp_path / name)
    assert (tmp_path / name).read_bytes() == save.to_bytes(network)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_model_may_be_saved_over_its_own_file(tmp_path):
    path = tmp_path / "net.ms"
    path.write_bytes(mi.samples.path("digits_cnn.ms").read_bytes())
    path.chmod(0o640)
    model = mi.open(path)
    changed = edit.rename(model.network, tensors={"image": "x"})
    save.save(changed, path)
    # the old map still holds the old file's weights
    before = mi.open(mi.samples.path("digits_cnn.ms"))
    for tensor in before.weights:
        np.testing.assert_array_equal(before.weights[tensor], model.weights[tensor])
    assert mi.open(path).inputs.name.tolist() == ["x"]


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        save.save(mi.open(mi.samples.path("digits_cnn.ms")).network, tmp_path / "net.ms")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "net.ms").stat().st_mode) == 0o640


def test_links_are_followed(tmp_path):
    (tmp_path / "real.ms").write_bytes(b"old")
    (tmp_path / "link.ms").symlink_to("real.ms")
    save.save(mi.open(mi.samples.path("digits_cnn.ms")).network, tmp_path / "link.ms")
    assert (tmp_path / "link.ms").is_symlink()
    assert len(mi.open(tmp_path / "real.ms").layers) == 11


def test_a_failing_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.ms"
    path.write_bytes(b"old")
    network = mi.open(mi.samples.path("digits_cnn.ms")).network

    def broken(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        save.save(network, path)
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["net.ms"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_file(tmp_path):
    """A child saves two models in turn over one file and is killed, 200 times; the file is always one of the two."""
    weights = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    networks = [
        build.mslite().input("x", (1, 256)).layer("MatMulFusion", "mm", weights + i).output("y").model().network
        for i in range(2)
    ]
    wanted = {save.to_bytes(network) for network in networks}
    path = tmp_path / "net.ms"
    start = time.perf_counter()
    for network in networks * 3:
        save.save(network, path)
    once = (time.perf_counter() - start) / 6  # how long a save takes on this machine now
    rng, seen, leftover = random.Random(0), set(), 0
    for attempt in range(200):
        child = os.fork()
        if child == 0:
            for number in itertools.count(attempt):
                save.save(networks[number % 2], path)
        time.sleep(rng.uniform(0, 3 * once))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        content = path.read_bytes()
        assert content in wanted
        seen.add(content)
        for stray in tmp_path.glob(".net.ms.*.tmp"):
            leftover += 1
            stray.unlink()
    assert seen == wanted
    assert leftover > 10  # the kills did hit saves under way


MEMORY = """
import sys
import numpy as np
import mlinspect as mi
from mlinspect import save

def anonymous_kilobytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

model = mi.open(sys.argv[1])
before, most = anonymous_kilobytes(), 0
write = save.np.ascontiguousarray

def watched(array, *rest):
    global most
    found = write(array, *rest)
    most = max(most, anonymous_kilobytes())
    return found

save.np.ascontiguousarray = watched
save.save(model.network, sys.argv[2], **eval(sys.argv[3]))
print(max(most, anonymous_kilobytes()) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("options", ["{}", "{'weights': 'external'}"])
def test_large_constants_are_not_copied(tmp_path, options):
    big = np.zeros((64, 1 << 20), np.uint8).view(np.float32)  # 64 MB, of zeros: pages that cost nothing here
    model = build.mslite().input("x", (1, 1 << 18)).layer("MatMulFusion", "mm", big, transpose_b=True).output().model()
    save.save(model.network, tmp_path / "in.ms")
    arguments = [str(tmp_path / "in.ms"), str(tmp_path / "out.ms"), options]
    found = subprocess.run([sys.executable, "-c", MEMORY, *arguments], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 16_000
    assert (tmp_path / "out.ms").exists()


# ---- external weights ----------------------------------------------------------------------------------------------


def external_files(folder):
    return sorted(path for path in folder.iterdir() if path.suffix == ".msw")


def test_external_weights(tmp_path):
    model = mi.open(mi.samples.path("digits_cnn.ms"))
    save.save(model.network, tmp_path / "net.ms", weights="external")
    (beside,) = external_files(tmp_path)
    assert beside.stem.startswith("net.")
    assert (tmp_path / "net.ms").stat().st_size < 12_000 < beside.stat().st_size
    again = mi.open(tmp_path / "net.ms")
    assert set(again.tensors.query("role == 'constant'").compression) == {"none", "external"}
    for tensor in model.weights:
        np.testing.assert_array_equal(model.weights[tensor], again.weights[tensor])
    image = mi.samples.digits().images[:1, ..., None].astype("float32") / 16
    np.testing.assert_array_equal([*model.run(image).values()], [*again.run(image).values()])
    # and inside again, even where there is nothing beside
    (tmp_path / "other").mkdir()
    save.save(again.network, tmp_path / "other" / "net.ms")
    assert (tmp_path / "other" / "net.ms").read_bytes() == save.to_bytes(model.network)


def test_external_weights_are_never_written_over(tmp_path):
    """A crash between the two files must not leave the old model with the new weights."""
    model = mi.open(mi.samples.path("digits_cnn.ms"))
    save.save(model.network, tmp_path / "net.ms", weights="external")
    first = external_files(tmp_path)
    save.save(model.network, tmp_path / "net.ms", weights="external")
    assert external_files(tmp_path) == first
    weights = next(i for i in model.weights if model.weights[i].size > 300)
    changed = edit.with_constant(model.network, weights, model.weights[weights] * 2)
    save.save(changed, tmp_path / "net.ms", weights="external")
    assert len(external_files(tmp_path)) == 2
    np.testing.assert_array_equal(mi.open(tmp_path / "net.ms").weights[weights], model.weights[weights] * 2)


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["inline", "external"])
def test_places_that_cannot_be_written_are_named_as_they_were_given(tmp_path, monkeypatch, weights):
    network = mi.open(mi.samples.path("digits_cnn.ms")).network
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").write_bytes(b"")
    for path, kind in (
        ("nowhere/net.ms", FileNotFoundError),
        ("file/net.ms", FileNotFoundError),
        ("folder", IsADirectoryError),
    ):
        with pytest.raises(kind) as caught:
            save.save(network, path, weights=weights)
        assert caught.value.filename == path
        assert str(tmp_path) not in str(caught.value)
    for number in (errno.EACCES, errno.ENOSPC):  # a test's user may be one that is allowed everything

        def refused(descriptor, number=number):
            raise OSError(number, os.strerror(number), "hidden")

        monkeypatch.setattr(os, "fsync", refused)
        with pytest.raises(OSError, match=r"'folder/net\.ms'") as caught:
            save.save(network, "folder/net.ms", weights=weights)
        assert (caught.value.errno, caught.value.filename2) == (number, None)
    assert not list(Path("folder").iterdir())


def test_wrong_choices(tmp_path):
    arm, ms = (mi.open(mi.samples.path(f"digits_cnn.{suffix}")).network for suffix in ("armnn", "ms"))
    with pytest.raises(InputError, match=r"'20.08' is unknown for mslite: use one of 'newest', 'unchanged'"):
        save.save(ms, tmp_path / "x", release="20.08")
    with pytest.raises(InputError, match="use one of 'inline', 'external'"):
        save.save(ms, tmp_path / "x", weights="outside")
    with pytest.raises(InputError, match="only MindSpore Lite"):
        save.save(arm, tmp_path / "x", weights="external")
    with pytest.raises(InputError, match=r"x\.armnn: the model's format is that of \.ms files"):
        save.save(ms, tmp_path / "x.armnn")
    assert not list(tmp_path.iterdir())


def test_more_than_a_flatbuffer_holds_is_refused_before_anything_is_written(tmp_path):
    huge = np.broadcast_to(np.float32(0), (1 << 15, 1 << 14))  # 2 GB that take no memory
    weights = np.zeros((4, 2), np.float32)
    network = build.armnn().input("x", (1, 4)).layer("FullyConnected", "fc", weights=weights).output().model().network
    tensor = next(tensor for tensor in network.tensors.values() if tensor.data is not None)
    tensors = {**network.tensors, tensor.index: replace(tensor, data=huge, shape=huge.shape)}
    with pytest.raises(SchemaError, match="more than the 2147483647 that a FlatBuffer can have"):
        save.save(replace(network, tensors=tensors), tmp_path / "net.armnn")
    assert not list(tmp_path.iterdir())


def test_control_flow_of_before_1_5_is_refused():
    model = build.mslite().input("x", (1, 4)).layer("Abs", "abs").output().model().network
    old = replace(model, layout="msl2_r1_3", version="MindSpore Lite 1.3.0")
    layer = replace(old.graphs[0].layers[0], op="While", attrs={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    old = replace(old, graphs=(replace(old.graphs[0], layers=(layer,)),))
    with pytest.raises(UnsupportedError, match=r"While, as files before MindSpore Lite 1.5 have it"):
        save.to_bytes(old)
    assert mi.open(save.to_bytes(old, "unchanged")).network.layers[0].op == "While"
