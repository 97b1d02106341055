"""The errors that mlinspect raises on purpose; each says what was wrong, where, and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class MlinspectError(Exception):
    """Base of every error that mlinspect raises on purpose."""


class ModelFormatError(MlinspectError, ValueError):
    """The bytes are not a readable model.

    Parameters
    ----------
    message : str
        What was wrong.
    offset : int, optional
        Byte offset in the file.
    path : str, optional
        Fields that lead there, as ``layers[12].outputSlots[0].tensorInfo``.

    Examples
    --------
    >>> str(ModelFormatError("string without a terminating zero", offset=64, path="layers[3].layerName"))
    'string without a terminating zero (at byte 64, in layers[3].layerName)'
    """

    def __init__(self, message: str, offset: int | None = None, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.path = path

    def __str__(self) -> str:
        where = [f"at byte {self.offset}"] if self.offset is not None else []
        where += [f"in {self.path}"] if self.path else []
        return f"{self.message} ({', '.join(where)})" if where else self.message

    def within(self, step: str) -> "ModelFormatError":
        """The same error seen from one level further out."""
        joint = "" if not self.path or self.path.startswith("[") else "."
        self.path = step + joint + self.path
        return self


class SchemaError(MlinspectError, ValueError):
    """A ``.fbs`` text is wrong, or a record cannot be encoded by it."""


class UnsupportedError(MlinspectError, NotImplementedError):
    """The model is sound, but something in it has no arithmetic here (yet)."""


class ExecutionError(MlinspectError, RuntimeError):
    """A layer could not be computed; ``__cause__`` keeps the original error."""


class InputError(MlinspectError, ValueError):
    """An argument does not fit the model: an input, a name, a value."""


class NotFoundError(InputError, KeyError):
    """No tensor, table, rule or sample of that name; also a KeyError, as mappings raise it."""

    __str__ = Exception.__str__  # KeyError's would quote the sentence


def near(name: object, names: Iterable[str]) -> str:
    """End of a message about an unknown name: known names that look like it, or ``""``.

    Examples
    --------
    >>> near("conv_1", ["conv1", "conv2", "pool"])
    "; did you mean 'conv1' or 'conv2'?"
    >>> near("softmax", ["/head/Softmax", "/Add"])
    "; did you mean '/head/Softmax'?"
    """
    if not isinstance(name, str) or not 0 < len(name) < _LONG:
        return ""
    known = {other.lower(): other for other in reversed(list(names)) if other and len(other) < _LONG}
    found = get_close_matches(name.lower(), known)
    if not found and len(name) > 2:
        found = [other for other in known if name.lower() in other][:3]
    return f"; did you mean {' or '.join(repr(known[other]) for other in found)}?" if found else ""


_LONG = 200  # to compare longer names takes too long
