"""MindSpore's TypeId numbers, which are not in the schema."""

from __future__ import annotations

import re

# TypeId -> (numpy's name, MindSpore's name); 0..44 never changed
TYPE_IDS: dict[int, tuple[str, str]] = {
    12: ("string", "String"),
    30: ("bool", "Bool"),
    31: ("int32", "Int"),
    32: ("int8", "Int8"),
    33: ("int16", "Int16"),
    34: ("int32", "Int32"),
    35: ("int64", "Int64"),
    36: ("uint32", "UInt"),
    37: ("uint8", "UInt8"),
    38: ("uint16", "UInt16"),
    39: ("uint32", "UInt32"),
    40: ("uint64", "UInt64"),
    41: ("float32", "Float"),
    42: ("float16", "Float16"),
    43: ("float32", "Float32"),
    44: ("float64", "Float64"),
}

# types that are not numbers, by TypeId from 0 to 28
_OBJECTS = (
    *("Unknown", "Meta", "Any", "Object", "TypeType", "Problem", "External", "None", "Null", "Ellipsis", "ObjectBegin"),
    *("Number", "String", "List", "Tuple", "Slice", "Keyword", "TensorType", "RowTensor", "SparseTensor"),
    *("Undetermined", "Class", "Dictionary", "Function", "JTagged", "SymbolicKey", "EnvType", "RefKey", "Ref"),
)

# 45 and above were renumbered several times: (first version, names from 45 on)
_RENUMBERED: tuple[tuple[tuple[int, int], tuple[str, ...]], ...] = (
    ((2, 1), ("BFloat16", "Double", "Complex", "Complex64", "Complex128", "Int4", "GLUInt")),
    ((2, 0), ("Double", "Complex", "Complex64", "Complex128", "Int4", "GLUInt")),
    ((1, 5), ("Complex64", "Complex128", "Int4")),
    ((0, 0), ("Complex64",)),
)
_NUMPY = {
    "BFloat16": "bfloat16",
    "Double": "float64",
    "Complex": "complex64",
    "Complex64": "complex64",
    "Complex128": "complex128",
    "Int4": "int4",
}


def version_number(version: str) -> tuple[int, int, int]:
    """``"MindSpore Lite 1.5.0"`` -> ``(1, 5, 0)``; ``(0, 0, 0)`` when it says nothing, as to the vendor's runtime.

    Examples
    --------
    >>> version_number("MindSpore Lite 2.2.0.20231010")
    (2, 2, 0)
    """
    match = re.match(r"MindSpore Lite (\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def type_names(type_id: int, version: tuple[int, int, int], width: float = 0) -> tuple[str, str]:
    """numpy's and MindSpore's name of a TypeId.

    Parameters
    ----------
    type_id : int
        ``Tensor.dataType`` of the file.
    version : tuple of int
        Of the writer; numbers above 44 depend on it.
    width : float
        Bytes that an element takes in the file, 0 if none is stored. The vendor's headers of 2.2 and later call both
        45 and 46 BFloat16; two bytes decide.

    Returns
    -------
    dtype, vendor_dtype : str

    Examples
    --------
    >>> type_names(43, (2, 0, 0)), type_names(57, (2, 0, 0))
    (('float32', 'Float32'), ('unknown(57)', 'Unknown(57)'))
    """
    if type_id in TYPE_IDS:
        return TYPE_IDS[type_id]
    if 0 <= type_id < len(_OBJECTS):
        return _OBJECTS[type_id].lower(), _OBJECTS[type_id]
    if type_id in (45, 46) and width == 2 and version >= (2, 1, 0):
        return "bfloat16", "BFloat16"
    names = next(names for since, names in _RENUMBERED if version[:2] >= since)
    if 45 <= type_id < 45 + len(names):
        name = names[type_id - 45]
        return _NUMPY.get(name, name.lower()), name
    return f"unknown({type_id})", f"Unknown({type_id})"
