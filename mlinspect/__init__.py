"""mlinspect: open Arm NN and MindSpore Lite models, look at them in pandas, run them in numpy.

>>> import mlinspect as mi
>>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
>>> sorted(model.tensors.dtype.unique())
['float32', 'int32', 'int8']
"""

from mlinspect import samples
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
from mlinspect.model import Model, open  # noqa: A004
from mlinspect.tables import describe

__version__ = "0.1.0"

__all__ = [
    "ExecutionError",
    "InputError",
    "MlinspectError",
    "Model",
    "ModelFormatError",
    "SchemaError",
    "UnsupportedError",
    "describe",
    "open",
    "quirks",
    "register_op",
    "samples",
]
