"""Small models made by the vendors' own tools, and the data they classify.

One digit classifier (8x8 grey images, ten classes) in seven files: Arm NN in float32 and 8-bit, MindSpore Lite in
float32, float16, int8, and with 8-bit and 4-bit weights; what the vendors' runtimes answered lies beside them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlinspect.errors import NotFoundError

_HERE = Path(__file__).parent


class Digits(NamedTuple):
    """Handwritten digits, 0 (white) to 16 (black); see `digits`.

    Attributes
    ----------
    images : ndarray of uint8, shape (360, 8, 8)
        Test images.
    labels : ndarray of int64, shape (360,)
        The digit on each test image.
    calibration : ndarray of uint8, shape (64, 8, 8)
        Images that the quantised models were calibrated with; none of them is a test image.
    """

    images: np.ndarray
    labels: np.ndarray
    calibration: np.ndarray


def names() -> list[str]:
    """Names of the sample models.

    Returns
    -------
    list of str
        Sorted; each is a name for `path`.

    Examples
    --------
    >>> names()[:2]
    ['digits_cnn.armnn', 'digits_cnn.ms']
    """
    return sorted(file.name for file in _HERE.iterdir() if file.suffix in (".armnn", ".ms"))


def path(name: str) -> Path:
    """Where a sample model lies.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    Path
        To give to ``mlinspect.open``.

    Raises
    ------
    NotFoundError
        When there is no such sample.

    Examples
    --------
    >>> path("digits_cnn_int8.ms").stat().st_size
    21072
    """
    if name not in names():
        raise NotFoundError(f"no sample {name!r}; there are {', '.join(names())}")
    return _HERE / name


@cache
def digits() -> Digits:
    """The images that the sample models classify.

    The models want float32 images of 0 to 1, NHWC: divide by 16 and add the channel axis. The 8-bit Arm NN model
    wants the same numbers quantised with its input's scale and zero point.

    Returns
    -------
    Digits
        images, labels, calibration; read-only.

    Examples
    --------
    >>> data = digits()
    >>> x = (data.images[:1] / 16).astype(np.float32)[..., None]
    >>> x.shape, x.dtype.name, int(data.labels[0])
    ((1, 8, 8, 1), 'float32', 7)
    """
    stored = _load("digits.npz")
    return Digits(stored["images"], stored["labels"], stored["calib"])


@cache
def expected() -> dict[str, np.ndarray]:
    """What the vendors' runtimes answered for all 360 test images.

    Returns
    -------
    dict of str to ndarray, each of shape (360, 10)
        Class probabilities by sample name: float32, but for the 8-bit Arm NN model, whose outputs are uint8 as stored.
        Read-only.

    Examples
    --------
    >>> answers = expected()
    >>> float((answers["digits_cnn.ms"].argmax(1) == digits().labels).mean()) > 0.9
    True
    """
    return _load("expected.npz")


def _load(name: str) -> dict[str, np.ndarray]:
    with np.load(_HERE / name) as stored:
        arrays = {key: stored[key] for key in stored}
    for array in arrays.values():  # the cache hands the same arrays to everybody
        array.flags.writeable = False
    return arrays
