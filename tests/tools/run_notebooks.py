"""Run notebooks anew and store their outputs so that only what they show can differ from one run to the next.

    python tests/tools/run_notebooks.py [notebooks/05_step_through.ipynb ...]

All tutorials by default. Needs ``pip install nbconvert ipykernel``.
"""

import sys
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"


def plain(outputs):
    """Outputs without what is another one each time: pieces of a stream, ids of widgets."""
    kept = []
    for output in outputs:
        if kept and output.output_type == kept[-1].output_type == "stream" and output.name == kept[-1].name:
            kept[-1].text += output.text
            continue
        if WIDGET in output.get("data", {}):
            output.data[WIDGET]["model_id"] = ""  # the static picture beside it is what a reader without a kernel sees
        kept.append(output)
    return kept


def run(path):
    """Execute a notebook in its own folder and write it back."""
    from nbconvert.preprocessors import ExecutePreprocessor  # the tests, which import this file, do without

    book = nbformat.read(path, as_version=4)
    ExecutePreprocessor(timeout=300).preprocess(book, {"metadata": {"path": str(path.parent)}})
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = plain(cell.outputs)
    book.metadata = {"kernelspec": book.metadata.kernelspec, "language_info": {"name": "python"}}
    nbformat.write(book, path)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or sorted(NOTEBOOKS.glob("*.ipynb"))):
        print(path.name, flush=True)
        run(path)
