"""What tests share: vendor-made vectors from tests/data, and real models that lie beside the checkout on some machines."""

import io
import json
import zipfile
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


class Golden:
    """A zip of models with their inputs and outputs.

    ``manifest`` is its manifest.json; ``names`` the model files in it; ``model(name)`` and ``arrays(name)`` the bytes of
    one and the arrays of its ``.npz``, by the name in the zip.
    """

    def __init__(self, path):
        self._zip = zipfile.ZipFile(path)
        self.names = [name for name in self._zip.namelist() if name.endswith((".armnn", ".ms"))]

    @cached_property
    def manifest(self):
        return json.loads(self._zip.read("manifest.json"))

    def model(self, name):
        return self._zip.read(name)

    def arrays(self, name):
        with np.load(io.BytesIO(self._zip.read(name)), allow_pickle=False) as found:
            return dict(found)


@pytest.fixture(scope="session")
def golden():
    """``golden("armnn-22.11.zip")`` -> Golden."""
    return cache(lambda name: Golden(ROOT / "tests" / "data" / name))


@pytest.fixture(scope="session")
def models():
    """The folder of real models; tests that want it are skipped where it is not."""
    folder = ROOT.parent / "shared" / "models"
    if not folder.is_dir():
        pytest.skip("no folder of real models beside the checkout")
    return folder
