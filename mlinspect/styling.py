"""Tables in colour, for looking at: any table of this package, told by its columns."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler

from mlinspect.colours import colour
from mlinspect.errors import NotFoundError
from mlinspect.glossary import COLUMNS


class Coloured(Styler):
    """A Styler that shows the plain table where there are no colours."""

    data: pd.DataFrame

    def __repr__(self) -> str:
        return repr(self.data)


def style(frame: pd.DataFrame, table: str | None = None) -> Styler:
    """A table in colour, for looking at: bars for sizes and counts, colours by what is documented as good or bad.

    Parameters
    ----------
    frame : DataFrame
        Any table of this package, or rows and columns of one; it stays as it is.
    table : str, optional
        Its name, as for ``mlinspect.describe``; by default the one whose columns fit best.

    Returns
    -------
    pandas Styler
        Green is good, red and bold is bad, amber lies between; columns that the tables do not know stay plain.

    Raises
    ------
    NotFoundError
        No such table.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn_wq4.ms"))
    >>> html = style(model.stats()[["name", "nbytes", "levels_share"]]).to_html()
    >>> "linear-gradient" in html
    True
    """
    return colour(Coloured(frame), _rows(frame, table))


def _rows(frame: pd.DataFrame, table: str | None) -> list[tuple[str, str, str, str]]:
    """The declared columns of a table, or of the one that shares most columns with the frame."""
    if table is None:
        has = {str(name) for name in [*frame.columns, *frame.index.names]}
        table = max(COLUMNS, key=lambda name: len(has & {row[0] for row in COLUMNS[name]}))
    if table not in COLUMNS:
        raise NotFoundError(f"no table {table!r}; the tables are {', '.join(COLUMNS)}")
    return COLUMNS[table]
