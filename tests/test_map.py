"""`help(mlinspect)` is a map of everything that is there, and of nothing else."""

import re

import pytest

import mlinspect as mi

LINES = mi.__doc__.splitlines()


@pytest.fixture(scope="module")
def model():
    return mi.open(mi.samples.path("digits_cnn.ms"))


def named(owner):
    """What the map names as ``mi.name`` or ``model.name``; a bare ``.name`` belongs to the owner before it."""
    found, last = set(), ""
    for given, name in re.findall(r"(\bmi|\bmodel|(?<![\w)\"']))\.([a-zA-Z_]\w*)", mi.__doc__):
        last = given or last
        found |= {name} if last == owner else set()
    return found


def test_every_public_name_is_on_the_map(model):
    assert set(mi.__all__) - named("mi") == set()
    public = {name for name in {*dir(mi.Model), *vars(model)} if not name.startswith("_")}
    assert public - named("model") == set()


def test_the_map_names_nothing_that_is_not_there(model):
    assert [name for name in named("mi") if not hasattr(mi, name)] == []
    assert [name for name in named("model") if not hasattr(model, name)] == []
    plots = next(line for line in LINES if line.strip().startswith("model.plot ")).split("model.plot")[1]
    assert [name for name in re.findall(r"\w+", plots) if not hasattr(model.plot, name)] == []


def test_the_map_fits_a_screen():
    assert max(map(len, LINES)) < 120
    assert len(LINES) < 90
