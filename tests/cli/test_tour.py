"""``mlinspect tour`` copies the tutorials once and opens the first."""

import argparse
import subprocess
import sys

import pytest

from mlinspect.cli import tour
from mlinspect.cli.output import UsageError


@pytest.fixture
def run():
    parser = argparse.ArgumentParser()
    tour.add_commands(parser.add_subparsers())

    def call(*arguments):
        options = parser.parse_args(["tour", *map(str, arguments)])
        return options.run(options)

    return call


def test_tutorials_are_copied_once(run, tmp_path):
    assert run(tmp_path / "new", "--no-open") == 0
    names = sorted(file.name for file in (tmp_path / "new").iterdir())
    assert names[0] == tour.FIRST and "05_step_through.ipynb" in names
    (tmp_path / "new" / tour.FIRST).write_text("mine")
    assert run(tmp_path / "new", "--no-open") == 0
    assert (tmp_path / "new" / tour.FIRST).read_text() == "mine"


def test_the_first_is_opened_in_jupyterlab(run, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(tour, "find_spec", lambda name: object())
    monkeypatch.setattr(subprocess, "call", lambda command: called.append(command) or 3)
    assert run(tmp_path) == 3
    assert called == [[sys.executable, "-m", "jupyterlab", str(tmp_path / tour.FIRST)]]


def test_without_jupyterlab_it_says_what_to_do(run, tmp_path, monkeypatch):
    monkeypatch.setattr(tour, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install jupyterlab"):
        run(tmp_path)
