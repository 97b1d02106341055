"""Where a vendor's runtime departs from its operators' definitions, and what each mode does about it."""

from __future__ import annotations

import pandas as pd

from mlinspect.errors import InputError

# operator, what the runtime does, whether mode="vendor" does the same ("followed": bit for bit or within rounding)
MSLITE: tuple[tuple[str, str, str], ...] = (
    ("Activation", "tanh is a quotient of polynomials: off by up to 1e-4, exactly 1 beyond 5", "followed"),
    (
        "Activation",
        "sigmoid, swish, GELU (approximate), softplus, ELU use an exp of five terms, off by 2e-5",
        "followed",
    ),
    ("Activation", "int8 LEAKY_RELU does not scale the zero point of the negative side", "followed"),
    ("Activation", "tanh of NaN, infinity and numbers beyond 1.5e6 is -1", "followed"),
    ("ActivationGrad", "the gradient of ELU takes expm1 for exp", "followed"),
    ("Activation", "int8 SIGMOID never computes the entry of 127", "not followed: that entry is computed"),
    (
        "AddFusion",
        "int8 repeats a run of the smaller operand instead of broadcasting shapes like [2, 1, 1, C]",
        "followed",
    ),
    ("AvgPoolFusion", "int8 sums are int16 and wrap in windows of more than 256 cells", "followed"),
    ("AvgPoolFusion", "int8 ignores the fused activation", "followed"),
    ("Cast", "a cast to float16 changes nothing: half floats are float32 while fp16 is off", "followed in both modes"),
    ("Clip", "the operands min and max are ignored, the attributes count", "followed"),
    (
        "Conv2dTransposeFusion",
        "int8 without depthwise gives meaningless numbers on x86",
        "not followed: fixed point as for convolutions",
    ),
    ("Conv2DFusion", "pad_mode VALID adds the padding that pad_list holds (pooling, too)", "followed in both modes"),
    ("Cos", "a polynomial, off by up to 2e-3", "followed"),
    ("Crop", "a single offset counts for the first cropped axis only", "followed"),
    ("DivFusion", "ignores its activation", "followed"),
    ("DynamicQuant", "per-channel attributes are ignored: one scale for the tensor", "followed"),
    ("EmbeddingLookupFusion", "max_norm divides by the plain sum of a row, and scales short rows up, too", "followed"),
    ("ExpFusion", "exp has five terms, off by 2e-5, and its argument ends at +-88", "followed"),
    ("ExpFusion", "with a scale of 1 the base is ignored; with a shift scale and base of x are", "followed"),
    ("FloorDiv", "int32 truncates toward zero", "followed in both modes"),
    ("GRU", "x86 misplaces weights when batch > 1 and the units are no multiple of 16", "not followed"),
    ("Gather", "rows outside the table are 0", "followed in both modes"),
    ("L2NormalizeFusion", "int8 ignores epsilon, activation and the output's parameters", "followed"),
    ("Log", "a series on the mantissa; log(0) is -88.03", "followed"),
    ("LogicalAnd", "on int32 operands it combines bits", "followed"),
    ("LogicalAnd", "on float32 operands all results are 1", "not followed"),
    ("MaxPoolFusion", "int8 ignores the fused activation", "followed"),
    ("MulFusion", "int8 ignores its activation", "followed"),
    ("OneHot", "negative indices count from the end when on and off come as one vector", "followed in both modes"),
    ("PReLUFusion", "channel_shared is ignored: the number of slopes decides", "followed in both modes"),
    ("PadFusion", "padding_mode MODE_RESERVED acts as SYMMETRIC", "followed in both modes"),
    ("PriorBox", "clip changes nothing", "followed"),
    ("QuantDTypeCast", "int8 <-> uint8 adds 128 whatever the parameters", "followed"),
    ("Rank", "has shape [1] and the type of its operand", "followed in both modes"),
    (
        "ReduceFusion",
        "maxima of float32 start at the smallest positive number, so negative maxima are lost",
        "followed",
    ),
    ("ReduceFusion", "coeff counts only with reduce_to_end", "followed in both modes"),
    ("ReduceFusion", "int8 mean over height and width reads wrong cells of all images but the first", "not followed"),
    ("Resize", "coordinates never lie below 0, so half pixels are clamped at the first edge", "followed"),
    ("Resize", "int8 takes half pixels for asymmetric and does not look at the output's parameters", "followed"),
    (
        "Round",
        "halves to even in the vector part, away from zero in the last few elements",
        "followed for the vector part",
    ),
    (
        "Rsqrt",
        "the processor's 12-bit estimate, off by up to 2.5e-4, different from one processor to the next",
        "not followed: exact",
    ),
    (
        "ScaleFusion",
        "int8 without an offset adds zero points instead of subtracting them; RELU6 ends at the stored 6",
        "followed",
    ),
    ("Softmax", "int8 gives scale 1/256 and zero point -128 whatever the output's parameters", "followed"),
    (
        "SparseToDense",
        "the output is tagged with the type of the indices",
        "not followed: it has the type of the values",
    ),
    ("StridedSlice", "without strides the input comes out unchanged", "followed"),
    ("StridedSlice", "a negative stride with a begin or end mask gives a broken shape", "not followed: as TensorFlow"),
    ("SubFusion", "ignores its activation", "followed"),
    ("TopKFusion", "largest is ignored: always the largest", "followed"),
    ("TopKFusion", "int8 returns the first k elements", "not followed"),
    (
        "Transpose",
        "int8 copies stored numbers even when the quantisation differs (Unsqueeze, StridedSlice, ... too)",
        "followed",
    ),
    ("all", "weights with enableHuffmanCode are never decoded", "not followed: they are decoded"),
)

ARMNN: tuple[tuple[str, str, str], ...] = (
    ("Activation", "the deserialiser knows no SoftReLu and takes Sigmoid", "followed"),
    ("BatchMatMul", "the adjoint is the adjugate, not the conjugate transpose", "followed in both modes"),
    ("Cast", "converts stored numbers, whatever their scale and zero point", "followed in both modes"),
    (
        "Dequantize",
        "22.11 takes a Constant of QAsymmU8 or QSymmS16 before it for zeros",
        "not followed: the constant's values count",
    ),
    ("LogicalBinary", "operations it does not know are LogicalAnd", "followed in both modes"),
    ("Normalization", "the result is encoded with the input's quantisation", "followed"),
    ("Softmax", "unsigned 8-bit gives scale 1/256 and zero point 0 whatever the output's parameters", "followed"),
    ("StridedSlice", "new_axis_mask and ellipsis_mask are ignored", "followed in both modes"),
)

_TABLES = {"mslite": MSLITE, "armnn": ARMNN}


def quirks(model_format: str = "mslite") -> pd.DataFrame:
    """Where the vendor's runtime departs from the operators' definitions.

    Parameters
    ----------
    model_format : {"mslite", "armnn"}

    Returns
    -------
    DataFrame
        ``op``, ``what`` the runtime does in a line, and ``vendor_mode``: whether ``mode="vendor"`` does the same.
        ``mode="float"`` follows the definition unless it says "both modes".

    Raises
    ------
    InputError
        Unknown format.

    Examples
    --------
    >>> table = quirks("mslite")
    >>> table[table.op == "SubFusion"].what.item()
    'ignores its activation'
    """
    if model_format not in _TABLES:
        raise InputError(f"unknown format {model_format!r}: use one of {', '.join(_TABLES)}")
    return pd.DataFrame(_TABLES[model_format], columns=["op", "what", "vendor_mode"])
