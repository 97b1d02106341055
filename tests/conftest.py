"""What tests share: vendor-made vectors, real models that lie beside some checkouts, records of any schema."""

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

    ``manifest`` is its manifest.json; ``names`` the model files in it; ``model(name)`` gives the bytes of one and
    ``arrays(name)`` the arrays of a ``.npz``, by the name in the zip.
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


class Filler:
    """Makes records with every field of a schema's tables set to something that is not its default."""

    def __init__(self, schema, seed=0):
        self.schema = schema
        self.rng = np.random.default_rng(seed)

    def table(self, kind, depth=0, **given):
        """A record of a table; ``given`` fields are taken as they are."""
        record = {}
        for item in self.schema.tables[kind].fields:
            union = self.schema.union(item.type)
            if item.name in given:
                record[item.name] = given[item.name]
                if union is not None:
                    record[f"{item.name}_type"] = given[f"{item.name}_type"]
            elif union is not None:
                tag = int(self.rng.choice(sorted(union.members)))
                record[f"{item.name}_type"] = tag
                record[item.name] = self._single(union.members[tag], depth + 1)
            elif item.vector:
                record[item.name] = self._vector(item.type, depth)
            else:
                record[item.name] = self._single(item.type, depth + 1, item.default)
            if record[item.name] is None:
                record = {name: value for name, value in record.items() if not name.startswith(item.name)}
        return record

    def _single(self, kind, depth, default=0):
        if kind == "string":
            return f"text {self.rng.integers(1000)}"
        if kind in self.schema.enums:
            enum = self.schema.enums[kind]
            return enum.names[int(self.rng.choice([v for v in enum.values.values() if v != default] or [default]))]
        if kind in self.schema.tables:
            if depth > 6:  # tables within themselves
                return None
            if self.schema.tables[kind].is_struct:
                return {item.name: self._single(item.type, depth) for item in self.schema.tables[kind].fields}
            return self.table(kind, depth)
        code, size = self.schema.scalar(kind)
        if code == "?":
            return not default
        if code in "fd":
            return float(np.float32(self.rng.normal() + 9))
        top = 8 * size - (2 if code.islower() else 1)
        value = int(self.rng.integers(2, 1 << min(top, 40)))
        return value + 1 if value == default else value

    def _vector(self, kind, depth):
        scalar = self.schema.scalar(kind)
        if scalar is None:
            found = [self._single(kind, depth + 1) for _ in range(2)]
            return None if None in found else found
        dtype = np.dtype(bool if scalar[0] == "?" else "<" + scalar[0])
        return self.rng.integers(0, 100, 3).astype(dtype)


@pytest.fixture
def filler():
    """The class Filler."""
    return Filler


@pytest.fixture
def same():
    """``same(wanted, read)``: whether a record that was read holds all that was written, arrays and dtypes included.

    ``renamed`` maps texts that were written to what they may be called when read.
    """

    def equal(wanted, read, renamed=None):
        if isinstance(wanted, np.ndarray):
            return isinstance(read, np.ndarray) and wanted.dtype == read.dtype and np.array_equal(wanted, read)
        if isinstance(wanted, dict):
            return isinstance(read, dict) and all(
                equal(value, read.get(name), renamed) for name, value in wanted.items()
            )
        if isinstance(wanted, list):
            return len(wanted) == len(read) and all(equal(*pair, renamed) for pair in zip(wanted, read, strict=True))
        return wanted == read or (renamed or {}).get(wanted) == read

    return equal
