"""What the columns of the analysis tables mean: rows as in ``mlinspect.tables``, the reading last in the meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

Row = tuple[str, str, str, str]

_MOMENTS: list[Row] = [
    ("min", "float64", "real", "smallest value, NaN and Inf left out"),
    ("max", "float64", "real", "largest value, NaN and Inf left out"),
    ("absmax", "float64", "real", "largest magnitude"),
    ("mean", "float64", "real", "mean; of weights: good near 0, a shift costs asymmetric range"),
    ("std", "float64", "real", "standard deviation (of the population)"),
    ("kurtosis", "float64", "", "excess kurtosis; 0 for a normal distribution, above 10 outliers stretch the range"),
    ("zeros", "Int64", "elements", "values that are exactly 0"),
    ("nan", "Int64", "elements", "values that are not a number; good: 0"),
    ("inf", "Int64", "elements", "infinite values; good: 0"),
    ("stored_min", "Int64", "steps", "smallest stored integer; NA beyond int64, and for floats, as all of stored_*"),
    ("stored_max", "Int64", "steps", "largest stored integer"),
    ("stored_absmax", "Int64", "steps", "largest magnitude of a stored integer"),
    ("stored_mean", "float64", "steps", "mean of the stored integers; good near the zero point"),
    ("stored_std", "float64", "steps", "standard deviation of the stored integers; of 8-bit weights: good above 10"),
    ("stored_kurtosis", "float64", "", "excess kurtosis of the stored integers"),
    ("stored_zeros", "Int64", "elements", "stored integers that are 0"),
    ("levels", "Int64", "", "distinct stored numbers that occur; NA for types of more than 16 bits"),
    ("levels_share", "float64", "share", "levels / 2**bits; of 8-bit weights: good above 1/2, bad below 1/8"),
    ("at_qmin", "Int64", "elements", "quantised values at the smallest number of their grid: clipped, or the extreme"),
    ("at_qmax", "Int64", "elements", "quantised values at the largest number of their grid"),
    (
        "clipped",
        "float64",
        "share",
        "values at either end of the grid beyond those that the range is made for (one a scale, two where there is a "
        "zero point); good below 0.01",
    ),
    ("entropy", "float64", "bits", "Shannon entropy of the stored numbers, each by itself; NA above 16 bits"),
    ("compressed_bytes", "Int64", "bytes", "size that an ideal entropy coder could come to: elements * entropy / 8"),
    (
        "range_used",
        "float64",
        "share",
        "share of the real range that the parameters allow, mean over channels; NA above 16 bits; good above 0.9",
    ),
]
_SUBJECT: list[Row] = [
    ("name", "str", "", "the tensor's name"),
    ("layer", "Int64", "layer id", "first layer that reads it; NA when nobody does"),
]

COLUMNS: dict[str, list[Row]] = {
    "stats": [
        ("tensor", "int64", "id", "index: the constant that the row describes"),
        *_SUBJECT,
        ("dtype", "category", "", "stored type, in numpy's name"),
        ("shape", "object", "elements", "size of each axis"),
        ("scheme", "category", "", "none, per_tensor or per_channel"),
        ("bits", "Int64", "bits", "width of the quantised values"),
        ("elements", "int64", "elements", "numbers in it"),
        ("nbytes", "int64", "bytes", "bytes in the file, as stored"),
        *_MOMENTS,
        (
            "channel_range_ratio",
            "float64",
            "",
            "absmax of the widest channel / of the narrowest that is not all 0; with one scale for all good below 8, "
            "bad above 32; NaN for one number a channel",
        ),
    ],
    "channel_stats": [
        ("tensor", "int64", "id", "constant that the row describes"),
        ("channel", "int64", "", "output channel of the layer that reads it; 0 where there is no such axis"),
        *_SUBJECT,
        ("elements", "int64", "elements", "numbers in the channel"),
        *_MOMENTS,
        ("range_share", "float64", "share", "absmax / that of the tensor's widest channel; bad below 1/32 per tensor"),
    ],
}

_PAIR: list[Row] = [
    ("tensor_a", "Int64", "id", "constant of the first model, the reference; NA where it has no such constant"),
    ("tensor_b", "Int64", "id", "constant of the second model"),
    ("name_a", "str", "", "its name in the first model"),
    ("name_b", "str", "", "its name in the second model"),
    ("layer_a", "Int64", "layer id", "first layer that reads it in the first model"),
    ("layer_b", "Int64", "layer id", "first layer that reads it in the second model"),
    ("kind", "category", "", "kind of that layer"),
    ("role", "category", "", "what the constant is for: weights, bias, gamma, ..."),
    ("matched", "category", "", "how the two were matched: name, structure; or a only, b only: no partner"),
]
_DISTANCE: list[Row] = [
    ("elements", "int64", "elements", "numbers compared"),
    (
        "sqnr_db",
        "float64",
        "dB",
        "10 log10(sum a^2 / sum (a - b)^2); 6 dB a bit; inf: equal; NaN: a is all 0, see max_abs_error; "
        "good above 40 (8 bits), bad below 20",
    ),
    (
        "corrected_db",
        "float64",
        "dB",
        "the same with var_corr and mean_corr applied to b, as MindSpore Lite's loader does",
    ),
    ("cosine", "float64", "", "cosine of the angle between the two; good above 0.999, bad below 0.98"),
    ("max_abs_error", "float64", "real", "largest difference; good: half the quantisation step"),
    ("bias", "float64", "real", "mean of b - a; good near 0, else outputs shift: correct the layer's bias"),
    ("kl", "float64", "nats", "Kullback-Leibler divergence of their histograms; good below 0.05"),
]
COLUMNS["weight_pairs"] = [
    *_PAIR,
    ("dtype_a", "category", "", "stored type in the first model"),
    ("dtype_b", "category", "", "stored type in the second model"),
    ("shape_a", "object", "elements", "shape in the first model"),
    ("shape_b", "object", "elements", "shape in the second model"),
    *_DISTANCE,
]
COLUMNS["weight_pair_channels"] = [
    *_PAIR,
    ("channel", "Int64", "", "output channel of the layer; NA for a constant without partner"),
    *_DISTANCE,
]

COLUMNS["lint"] = [
    ("rule", "category", "", "id of the rule; mlinspect.analysis.lint.rules() lists them all"),
    (
        "severity",
        "category",
        "",
        "error: wrong results or refused; warning: accuracy or speed lost; info: good to know",
    ),
    ("layer", "Int64", "layer id", "layer that it is about; NA for the whole model"),
    ("tensor", "Int64", "tensor id", "tensor that it is about; NA for the whole layer"),
    ("message", "str", "", "what was found"),
    ("fix", "str", "", "what to do"),
]

COLUMNS["cost"] = [
    ("layer", "int64", "id", "index: the layer, in execution order"),
    ("name", "str", "", "the layer's name in the file"),
    ("op", "category", "", "the format's own name of the operator"),
    ("kind", "category", "", "the operator in the vocabulary that both formats share"),
    ("graph", "int64", "id", "graph that the layer belongs to; 0 is the main graph"),
    ("macs", "Int64", "multiply-adds", "products of weights or matrices in one run; NA when a size is unknown"),
    (
        "other_ops",
        "Int64",
        "operations",
        "other arithmetic in one run: biases, activations, comparisons, roundings, functions; NA when unknown",
    ),
    ("params", "int64", "elements", "elements of the constants it computes with (no shapes, axes or indices)"),
    ("weight_bytes", "int64", "bytes", "all constants that the layer reads, as stored"),
    ("weight_bytes_logical", "Int64", "bytes", "the same once unpacked, in their own type"),
    ("bytes_in", "Int64", "bytes", "activations that the layer reads, each once"),
    ("bytes_out", "Int64", "bytes", "activations that it gives"),
    (
        "intensity",
        "float64",
        "operations / byte",
        "(2 macs + other_ops) / (weight_bytes_logical + bytes_in + bytes_out); below about 10 memory sets the time",
    ),
]
COLUMNS["liveness"] = [
    ("step", "int64", "", "index: position in the order of execution"),
    ("layer", "int64", "id", "layer that runs"),
    ("name", "str", "", "its name"),
    ("live_bytes", "Int64", "bytes", "activations in memory while it runs, its inputs and outputs included"),
    ("tensors", "object", "tensor ids", "the activations in memory"),
    ("allocated", "object", "tensor ids", "those of them that begin to live here"),
    ("freed", "object", "tensor ids", "those of them that nobody needs afterwards"),
]
COLUMNS["peak_tensors"] = [
    ("tensor", "int64", "id", "index: an activation in memory at the peak"),
    ("name", "str", "", "its name"),
    ("shape", "object", "elements", "its shape"),
    ("bytes", "Int64", "bytes", "its size"),
    ("share", "float64", "share", "part of the peak"),
]

_WAY: list[Row] = [
    ("bits", "Int64", "bits", "width of the stored integers; NA: left as it is"),
    ("per_channel", "boolean", "", "one scale an output channel, or one for all"),
    ("clip", "category", "", "how the range was chosen: minmax, percentile, mse"),
    ("sqnr_db", "float64", "dB", "10 log10(sum w^2 / sum (w - stored)^2); 6 dB a bit; good above 40, bad below 20"),
    ("bytes", "int64", "bytes", "packed integers with their scales and zero points"),
    ("clipped", "float64", "share", "values outside the range; good below 0.01"),
]
COLUMNS["what_if"] = COLUMNS["plan"] = [
    ("tensor", "int64", "id", "the weight"),
    ("name", "str", "", "its name"),
    ("layer", "Int64", "layer id", "first layer that reads it"),
    ("kind", "category", "", "kind of that layer"),
    ("elements", "int64", "elements", "numbers in it"),
    ("bytes_before", "int64", "bytes", "its size in the file as it is"),
    *_WAY,
]


def frame(table: str, columns: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Lists by column, or rows -> DataFrame with the declared columns, the first the index if its meaning says so."""
    return declared_frame(COLUMNS[table], columns)


def declared_frame(
    declared: Sequence[Row], columns: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """:func:`frame` of any declaration of columns."""
    if not isinstance(columns, Mapping):
        columns = {name: [row.get(name) for row in columns] for name, _, _, _ in declared}
    made = {name: pd.Series(columns[name], dtype=dtype).array for name, dtype, _, _ in declared}  # nothing to align
    result = pd.DataFrame(made, copy=False)
    return result.set_index(declared[0][0]) if declared[0][3].startswith("index:") else result
