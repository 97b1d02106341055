"""A few thousand damaged models; tests/benchmarks/fuzz_reader.py does the same with 200,000."""

import importlib.util
import random
from pathlib import Path

import pytest

from mlinspect.errors import ModelFormatError

_PATH = Path(__file__).parents[1] / "benchmarks" / "fuzz_reader.py"
_SPEC = importlib.util.spec_from_file_location("fuzz_reader", _PATH)
fuzz_reader = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fuzz_reader)


@pytest.fixture(scope="module")
def small():
    """The samples, and what small real models there are: large ones only take longer to damage."""
    return {
        name: data for name, data in (fuzz_reader.samples_only() | fuzz_reader.files()).items() if len(data) < 400_000
    }


@pytest.mark.parametrize("seed", range(4))
def test_damaged_models_are_refused_or_opened(seed, small):
    found = fuzz_reader.run(500, seed, small, memory_every=25)
    assert sum(count for key, count in found.items() if key[1:] == ("refused",)) > 150
    assert sum(count for key, count in found.items() if key[1:] == ("opened",)) > 40


def test_undamaged_models_open():
    for data in fuzz_reader.samples_only().values():
        assert fuzz_reader.look(data)
        assert fuzz_reader.structure(data)


@pytest.mark.parametrize("name", ["digits_cnn.armnn", "digits_cnn_u8.armnn", "digits_cnn.ms", "digits_cnn_int8.ms"])
def test_damage_does_not_make_a_file_older(name):
    """What a broken field leaves of a file often makes some sense under another layout; it is not taken for it."""
    original = fuzz_reader.samples_only()[name]
    layout = fuzz_reader.mi.open(original).layout
    rng, ranges = random.Random(name), fuzz_reader.structure(original)[1:]
    opened = 0
    for _ in range(150):
        data = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            data[fuzz_reader.somewhere(rng, data, ranges)] = rng.randrange(256)
        try:
            assert fuzz_reader.mi.open(data).layout == layout
            opened += 1
        except ModelFormatError:
            continue
    assert 15 < opened < 135
