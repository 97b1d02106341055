"""``mlinspect tour``: the tutorials in JupyterLab."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlinspect.cli.output import UsageError

FIRST = "00_start_here.ipynb"


def add_commands(commands: Any) -> None:
    """Add ``tour`` to a parser's sub-parsers."""
    tour = commands.add_parser(
        "tour",
        help="open the first tutorial in JupyterLab",
        description="Copy the tutorials into a folder and open the first in JupyterLab. Copies that are there stay.",
    )
    tour.add_argument("directory", metavar="DIR", nargs="?", default="mlinspect-tour", help="default: mlinspect-tour")
    tour.add_argument("--no-open", action="store_true", help="only copy them")
    tour.set_defaults(run=_tour)


def notebook_folder() -> Path:
    """Where the tutorials are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "notebooks"
    return inside if inside.is_dir() else package.parent / "notebooks"


def _tour(options: argparse.Namespace) -> int:
    folder = Path(options.directory)
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(notebook_folder().glob("*.ipynb")):
        if not (folder / notebook.name).exists():  # it may hold what the user has tried
            shutil.copyfile(notebook, folder / notebook.name)
    first = folder / FIRST
    print(f"tutorials: {folder}")
    if options.no_open:
        return 0
    if find_spec("jupyterlab") is None:
        raise UsageError(f"JupyterLab is not installed: pip install jupyterlab, or open {first} elsewhere")
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(first)])
