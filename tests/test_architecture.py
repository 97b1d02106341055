"""The walls of the house: imports run one way, files stay small, nothing names a machine."""

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mlinspect"

# room -> the rooms of ours that it may import from, besides itself; a room is a module or package in mlinspect/
ROOMS = {
    "errors": [],
    "html": [],
    "ir": ["errors"],
    "samples": ["errors"],
    "flatbuffer": ["errors"],
    "kernels": ["errors"],
    "formats": ["errors", "flatbuffer", "ir"],
    "macs": ["ir"],
    "phases": ["ir"],
    "tables": ["errors", "ir", "macs", "phases"],
    "colours": [],
    "card": ["html", "ir", "macs"],
    "execute": ["errors", "html", "ir", "kernels"],
    "constants": ["errors", "execute", "ir", "kernels"],
    "upgrade": ["errors", "execute", "flatbuffer", "formats", "ir"],
    "save": ["errors", "flatbuffer", "formats", "ir", "upgrade"],
    "infer": ["errors", "execute", "formats", "ir"],
    "reshape": ["formats", "ir"],
    "edit": ["constants", "errors", "execute", "formats", "infer", "ir", "reshape"],
    "extract": ["constants", "errors", "execute", "formats", "infer", "ir", "save"],
    "changes": ["edit", "extract", "ir", "save"],
    "analysis": ["colours", "constants", "errors", "execute", "html", "ir", "kernels", "macs", "tables"],
    "plot": ["analysis", "constants", "errors", "execute", "ir", "macs", "tables"],
    "report": ["analysis", "card", "html", "plot", "tables"],
    "glossary": ["analysis", "errors", "tables"],
    "styling": ["colours", "errors", "glossary"],
    "widgets": ["analysis", "card", "constants", "errors", "execute", "html", "ir", "kernels", "tables"],
}
ROOMS["model"] = [*ROOMS, "flatbuffer", "formats"]
ROOMS["build"] = [*ROOMS]
ROOMS["cli"] = [*ROOMS, ""]  # the public names
ROOMS[""] = [room for room in ROOMS if room not in ("", "cli")]

# what the lower rooms may use besides the standard library
THIRD_PARTY = {
    "errors": [],
    "html": [],
    "ir": ["numpy"],
    "flatbuffer": ["flatbuffers", "numpy"],
    "kernels": ["numpy"],
    "formats": ["numpy"],
    "macs": [],
    "tables": ["numpy", "pandas"],
}


def room_of(module):
    """``mlinspect.kernels.conv`` -> ``kernels``; the package itself is the empty name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() | (PACKAGE / f"{parts[1]}.py").is_file() else ""


def imports(file):
    """Modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} uses a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


SOURCES = sorted(PACKAGE.rglob("*.py"))


def name_of(file):
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_imports_run_one_way(file):
    room = room_of(name_of(file))
    ours = {room_of(module) for module in imports(file) if module.split(".")[0] == "mlinspect"}
    assert ours - {room} <= set(ROOMS[room])


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_lower_rooms_use_few_libraries(file):
    room = room_of(name_of(file))
    roots = {module.split(".")[0] for module in imports(file)} - set(sys.stdlib_module_names) - {"mlinspect"}
    assert roots <= set(THIRD_PARTY.get(room, roots))


def test_every_module_has_its_place_and_there_is_no_way_round():
    found = {room_of(name_of(file)) for file in SOURCES}
    assert found <= set(ROOMS)
    order = list(TopologicalSorter({room: set(below) - {room} for room, below in ROOMS.items()}).static_order())
    assert order.index("ir") < order.index("tables") < order.index("model")


def test_the_checks_see_a_wrong_import(tmp_path):
    """The rules above are worth what this finds: imports in functions, under another name, of a single name."""
    file = tmp_path / "x.py"
    file.write_text(
        "def f():\n    from mlinspect.formats import armnn\n    import mlinspect.cli as c\n    import scipy.signal\n"
    )
    found = list(imports(file))
    assert {room_of(m) for m in found if m.startswith("mlinspect")} == {"formats", "cli"}
    assert "scipy.signal" in found


def text_files():
    for top in ("mlinspect", "tests", "notebooks", "schemas", ".ci", "README.md", "pyproject.toml"):
        path = ROOT / top
        files = path.rglob("*") if path.is_dir() else [path]
        known = (".py", ".ipynb", ".md", ".toml", ".fbs", ".json", "")
        yield from (f for f in files if f.is_file() and f.suffix in known and not {"__pycache__"} & set(f.parts))


def test_files_stay_under_500_lines():
    long = {
        f.name: n for f in text_files() if f.suffix == ".py" and (n := len(f.read_text("utf-8").splitlines())) >= 500
    }
    assert not long


def test_nothing_names_a_machine_or_a_registry():
    # written so that this file does not find itself
    machine = re.compile(
        "|".join(
            [
                "/wor" + "k/",
                "/roo" + "t/",
                "/hom" + "e/[a-z]",
                r"C:\\Use" + "rs",
                "pypi" + r"\.org",
                "pythonhoste" + "d",
                "npm" + r"js\.",
            ]
        )
    )
    found = [
        f"{f.relative_to(ROOT)}: {m.group()}" for f in text_files() for m in machine.finditer(f.read_text("utf-8"))
    ]
    assert not found


def test_the_top_level_holds_what_it_should():
    allowed = {"pyproject.toml", "README.md", "LICENSE", "schemas", "mlinspect", "notebooks", "tests", "build", "dist"}
    assert {p.name for p in ROOT.iterdir() if not p.name.startswith(".")} <= allowed
