"""What the columns of every table mean."""

from __future__ import annotations

import pandas as pd

from mlinspect import tables
from mlinspect.analysis import columns, columns_runs
from mlinspect.errors import InputError, NotFoundError

COLUMNS = tables.COLUMNS | columns.COLUMNS | columns_runs.COLUMNS


def describe(table: str | None = None) -> pd.DataFrame:
    """What the columns of a table mean.

    Parameters
    ----------
    table : str, optional
        ``"layers"``, ``"tensors"``, ``"quant"``, ``"stats"``, ``"compare"``, ...; without it, every table's columns.

    Returns
    -------
    DataFrame
        column, dtype, unit, meaning (with the reading: what is good, what is bad); one row a column, the index first
        where the table has a named one. Over all tables, a column ``table`` comes first.

    Raises
    ------
    NotFoundError
        There is no such table.
    InputError
        What is given is no name.

    Examples
    --------
    >>> describe("edges").set_index("column").unit["producer"]
    'layer id'
    """
    if table is None:
        rows = [(name, *row) for name, declared in COLUMNS.items() for row in declared]
        return pd.DataFrame(rows, columns=["table", "column", "dtype", "unit", "meaning"])
    if not isinstance(table, str):
        raise InputError(f"describe takes a table's name, as describe('layers'), not {type(table).__name__}")
    if table not in COLUMNS:
        raise NotFoundError(f"no table {table!r}; the tables are {', '.join(COLUMNS)}")
    return pd.DataFrame(COLUMNS[table], columns=["column", "dtype", "unit", "meaning"])
