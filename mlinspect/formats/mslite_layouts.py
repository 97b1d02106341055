"""The layouts that ``.ms`` files have had, and which of them a file has.

The identifier tells the generation (none, MSL1, MSL2), the version string the layout within MSL2. Both can lie or be
absent, so a layout counts as the file's only if it has a name for every stored field.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Decoder, Record, Schema, parse_schema
from mlinspect.formats.records import layout_schema
from mlinspect.formats.typeids import version_number

_MSL2 = ("msl2_newest", "msl2_r1_3", "msl2_r1_2", "msl2_r1_1_1")
LAYOUTS = (*_MSL2, "msl1_r1_1", "ms_v0_r1_0", "ms_v0_compat", "ms_v0_r0_7", "msl2_2021_11_seed")

# releases whose layout was not the newest (MSL2 files only; 1.1.1 calls itself 1.1.0, 1.4 calls itself 1.3)
_BY_RELEASE = {(1, 1): "msl2_r1_1_1", (1, 2): "msl2_r1_2", (1, 3): "msl2_r1_3", (1, 4): "msl2_r1_3"}

# what has not moved since there is a version: enough to read it before the layout is known
_HEAD = parse_schema("table MetaGraph { name: string; version: string; } root_type MetaGraph;", "head")


def candidates(buffer: np.ndarray) -> tuple[str, ...]:
    """Layouts that a file may have, likeliest first.

    Examples
    --------
    >>> candidates(np.frombuffer(b"\\x08\\0\\0\\0MSL1", np.uint8))
    ('msl1_r1_1', 'ms_v0_compat')
    """
    identifier = bytes(buffer[4:8])
    if identifier == b"MSL1":
        return ("msl1_r1_1", "ms_v0_compat")
    if not identifier.startswith(b"MSL"):
        return ("ms_v0_r1_0", "ms_v0_compat", "ms_v0_r0_7")
    try:
        version = Decoder(buffer, _HEAD).root()["version"] or ""
    except ModelFormatError:
        version = ""
    first = _BY_RELEASE.get(version_number(version)[:2], "msl2_newest")
    return (first, *(layout for layout in _MSL2 if layout != first))


def schemas(buffer: np.ndarray) -> Iterable[tuple[str, Schema]]:
    """The layouts of :func:`candidates` with their schemas."""
    return ((layout, layout_schema("mslite", layout)) for layout in candidates(buffer))


def doubts(root: Record) -> int:
    """What speaks against a layout besides stray fields: r0.7, read as r1.0, has its tensors in the field before."""
    return int("allTensors" not in root.plan.present) + int("nodes" not in root.plan.present)
