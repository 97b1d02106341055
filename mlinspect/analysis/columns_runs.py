"""What the columns of tables about runs mean: rows as in ``mlinspect.tables``, the reading last in the meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from mlinspect.analysis.columns import Row, declared_frame

_FIGURES: list[Row] = [
    ("sqnr_db", "float64", "dB", "signal / noise of real values; inf: the same; good above 40, bad below 20"),
    ("cosine", "float64", "", "cosine of the angle between the two; good above 0.99"),
    ("mse", "float64", "real^2", "mean squared difference"),
    ("max_abs", "float64", "real", "largest difference"),
    ("equal", "float64", "share", "share of the values that are the same"),
]

COLUMNS: dict[str, list[Row]] = {
    "compare": [
        ("order", "int64", "", "index: place in the order of execution of a; what only b has comes after"),
        ("layer_a", "Int64", "layer id", "layer of a; NA for an input, or where only b has it"),
        ("layer_b", "Int64", "layer id", "layer of b; NA for an input, or where only a has it"),
        ("name_a", "str", "", "the layer's name in a"),
        ("name_b", "str", "", "the layer's name in b"),
        ("kind", "category", "", "the operator in the vocabulary that both formats share"),
        ("tensor_a", "Int64", "tensor id", "tensor of a, behind all that b does in one layer or stored range"),
        ("tensor_b", "Int64", "tensor id", "tensor of b"),
        ("shape_a", "object", "elements", "shape in a"),
        ("shape_b", "object", "elements", "shape in b"),
        ("matched", "category", "", "how they were paired: input, name, weights, structure, output; or only in a, b"),
        *_FIGURES,
        ("threshold_db", "float64", "dB", "what sqnr_db should not be below"),
        ("divergent", "bool", "", "sqnr_db is below the threshold, or the values cannot be compared"),
        ("first", "bool", "", "the first divergent layer in the order of execution: look here"),
        ("note", "str", "", "layers behind it that are judged with it, other layout, what only one of the two has"),
    ],
    "blame": [
        ("layer", "Int64", "layer id", "index: layer of the quantised model"),
        ("name", "str", "", "the layer's name"),
        ("kind", "category", "", "the operator in the vocabulary that both formats share"),
        ("reference", "str", "", "the layer's name in the reference"),
        ("sqnr_db", "float64", "dB", "of the layer's output, errors of earlier layers included; bad below 20"),
        ("own_db", "float64", "dB", "the same where it is fed the reference's values; good above 30, bad below 20"),
        ("inherited_db", "float64", "dB", "the reference's signal against what the errors of its operands become"),
        ("mse", "float64", "real^2", "mean squared error; own + inherited + cross"),
        ("own_mse", "float64", "real^2", "of its own error"),
        ("inherited_mse", "float64", "real^2", "of the inherited error"),
        ("cross_mse", "float64", "real^2", "twice the mean product of the two; negative where they cancel"),
        (
            "share",
            "float64",
            "share",
            "part of the final error that its own error makes, after it has gone through the quantised layers behind; "
            "all rows add up to 1; below 0: it cancels others' errors; above 1: others cancel some of it; where their "
            "sizes add up to more than 2, so much cancels that own_db tells more",
        ),
        ("samples", "int64", "", "inputs that were run; shares of fewer than 8 may be chance"),
        ("folded", "str", "", "layers whose errors count here, too, as one of the two does all in one layer or range"),
    ],
    "sensitivity": [
        ("layer", "Int64", "layer id", "index: layer of the model"),
        ("name", "str", "", "the layer's name"),
        ("kind", "category", "", "the operator in the vocabulary that both formats share"),
        ("reference", "str", "", "the layer's name in the reference"),
        ("restored", "float64", "metric", "the metric when this layer alone is computed as in the reference"),
        ("gain", "float64", "metric", "restored - the model's metric; large: keep this layer in float"),
        ("alone", "float64", "metric", "the metric when this layer alone is computed as in the model"),
        ("loss", "float64", "metric", "the reference's metric - alone"),
        ("model", "float64", "metric", "the metric of the model, the same in all rows"),
        ("float", "float64", "metric", "the metric of the reference, the same in all rows"),
    ],
    "error_channels": [
        ("channel", "int64", "", "index: position along the axis of channels"),
        ("mse", "float64", "real^2", "mean squared error in the channel"),
        ("share", "float64", "share", "part of the tensor's error that sits in the channel; even: 1 / channels"),
        ("bias", "float64", "real", "mean error; as large as the root of mse: a shift, such as a lost bias"),
        ("max_abs", "float64", "real", "largest error"),
        ("sqnr_db", "float64", "dB", "signal / noise within the channel"),
        ("gain", "float64", "factor", "least-squares factor from reference to other; away from 1: a wrong scale"),
    ],
    "margins": [
        ("sample", "int64", "", "index: place among the inputs"),
        ("top_a", "int64", "class", "most likely class of a"),
        ("top_b", "int64", "class", "most likely class of b"),
        ("agree", "bool", "", "they are the same"),
        ("rank_b", "int64", "", "place that b gives to a's class; 1: the same"),
        ("overlap", "float64", "share", "classes that the first k of both have in common"),
        ("margin_a", "float64", "real", "a's first score less its second"),
        ("margin_b", "float64", "real", "b's first score less its second"),
        ("steps_a", "float64", "steps", "margin_a in quantisation steps of a's output; NaN when it is not quantised"),
        ("steps_b", "float64", "steps", "margin_b in quantisation steps of b's output; below 2: one step decides"),
    ],
}  # fmt: skip


def frame(table: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows -> DataFrame with the declared columns in the declared dtypes; the first one an index where it says so."""
    return declared_frame(COLUMNS[table], list(rows))
