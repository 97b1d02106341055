"""Open Arm NN and MindSpore Lite models, look at them in pandas, run them in numpy.

>>> import mlinspect as mi
>>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
>>> sorted(model.tensors.dtype.unique())
['float32', 'int32', 'int8']

Open
    mi.open(file)                 an Arm NN or MindSpore Lite file -> mi.Model, which a notebook shows as a card
    mi.samples                    seven small models and their test images: names(), path(name), digits(), expected()
    model.name, .nbytes           the file's name and size
    model.format, .layout, .version, .notes
                                  which format, which schema read it, who wrote it, what to know about it
    model.summary()               the card's facts as a dict

Look: pandas tables
    model.layers, .tensors        one row per layer, one row per tensor (constants and activations)
    model.quant                   scale, zero point and range of every tensor and channel
    model.inputs, .outputs        what the model takes and gives
    model.edges, .attrs           connections between layers, attributes of layers
    model.weights, .dequantized   constants by name or id: as stored, and as real numbers
    model.stats()                 statistics of every constant, by tensor or by channel
    mi.describe(table)            what the columns of a table mean, their units, what is good and what is bad
    mi.style(table)               a table in colour

Run and step
    model.run(inputs)             outputs, in the arithmetic of the vendor's runtime
    model.trace(inputs)           every intermediate tensor
    model.session(inputs)         step, run to a layer, go back, patch tensors, break on conditions

Compare: which layer is to blame
    mi.compare(a, b, inputs)      two runs, layer by layer, worst first; a and b are models, traces or dumps
    mi.blame(model, reference, inputs)
                                  each layer's own error apart from the error it inherits
    mi.sensitivity(model, inputs, labels)
                                  the accuracy gained when one layer is computed in float
    mi.read_dump(path)            the values that a device recorded of its run

Quantisation
    mi.compare_weights(a, b)      weights of two models, worst first
    mi.what_if(model)             other bit widths, per channel or per tensor, other ways to clip
    mi.plan(model, budget_bytes)  the bit widths that lose the least accuracy within a budget

Cost and lint
    model.cost()                  multiply-adds, bytes and activation memory of every layer
    model.lint()                  faults in the file, and what to do about them

Pictures and widgets
    model.plot                    weights, channel_ranges, scales, zero_points, levels, sqnr, cost, memory, graph
    model.stepper(inputs)         a run in a notebook, layer by layer
    model.explore()               search layers and weights in a notebook
    model.report(file)            card, tables, lint and plots on one HTML page
    mlinspect.plot.errors         pictures of what compare and blame give: accumulated(table), shares(table), ...

Change and save: each gives a new model
    model.with_attrs(layer, ...), .with_constant(tensor, array), .with_quant(tensor, scale=...)
                                  other attributes, other numbers, other quantisation parameters
    model.without(layer), .rename(layers, tensors), .with_input_shape(shapes)
                                  drop a layer, rename, change the input's shape
    model.extract(inputs, outputs)
                                  the part between some tensors
    model.save(path)              write the file
    mi.build                      build a model from scratch: mi.build.armnn(), mi.build.mslite()
    model.network                 the model as plain data

Extend
    mi.register_op(format, name)  your arithmetic for an operator that the vendor does not define
    mi.quirks(format)             where a vendor's runtime departs from the definitions of its operators
    mi.open(file, schema=...)     a vendor's fork of a format

Errors: all are of the kind mi.MlinspectError
    mi.ModelFormatError           the file is no such model, or damaged: at which byte, in which field
    mi.InputError                 what was passed to a method is not what the model wants
    mi.NotFoundError              no tensor, table, rule or sample is called so: an InputError, and a KeyError, too
    mi.UnsupportedError           the model is sound, but a layer has no arithmetic here
    mi.ExecutionError             a layer could not be computed
    mi.SchemaError                a schema, or a record to be written by it, does not make sense

Each name has help of its own, with an example: help(mi.compare), help(mi.Model.run). `mlinspect --help` lists the
commands, `mlinspect tour` opens the tutorials.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlinspect import build, samples
from mlinspect.errors import (
    ExecutionError,
    InputError,
    MlinspectError,
    ModelFormatError,
    NotFoundError,
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
    "NotFoundError",
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
