"""mlinspect: open Arm NN and MindSpore Lite models, look at them in pandas, run them in numpy.

>>> import mlinspect as mi
>>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
>>> sorted(model.tensors.dtype.unique())
['float32', 'int32', 'int8']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlinspect import build, samples
from mlinspect.errors import (
    ExecutionError,
    InputError,
    MlinspectError,
    ModelFormatError,
    SchemaError,
    UnsupportedError,
)
from mlinspect.execute.quirks import quirks
from mlinspect.execute.registry import register_op
from mlinspect.model import Model, open

if TYPE_CHECKING:
    from mlinspect.analysis.blame import blame, sensitivity
    from mlinspect.analysis.compare import compare
    from mlinspect.analysis.dumps import read_dump
    from mlinspect.analysis.pairs import compare_weights
    from mlinspect.analysis.whatif import plan, what_if
    from mlinspect.glossary import describe
    from mlinspect.styling import style

__version__ = "0.1.0"

__all__ = [
    "ExecutionError",
    "InputError",
    "MlinspectError",
    "Model",
    "ModelFormatError",
    "SchemaError",
    "UnsupportedError",
    "blame",
    "build",
    "compare",
    "compare_weights",
    "describe",
    "open",
    "plan",
    "quirks",
    "read_dump",
    "register_op",
    "samples",
    "sensitivity",
    "style",
    "what_if",
]

# loaded when first asked for, so that opening a file waits for nothing else
_LATER = {
    "blame": "mlinspect.analysis.blame",
    "compare": "mlinspect.analysis.compare",
    "compare_weights": "mlinspect.analysis.pairs",
    "describe": "mlinspect.glossary",
    "plan": "mlinspect.analysis.whatif",
    "read_dump": "mlinspect.analysis.dumps",
    "sensitivity": "mlinspect.analysis.blame",
    "style": "mlinspect.styling",
    "what_if": "mlinspect.analysis.whatif",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'mlinspect' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
