"""Columns and windows that every rule is made of.

A `place` is a position in a history as one number: the record's number and, within a poll or a list, the position there. What
comes first in a history has the smaller place, so a minimum of places says what was first and needs no sort.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

KEY: Final = ("run", "k")
VALUE: Final = ("run", "k", "value")
POSITION_BITS: Final = 24
"""A poll of 16 million records does not exist."""
LATER: Final = 1 << 62
"""Behind every place of a history."""


def place(seq: str | Column = "seq", position: str | Column | None = None) -> Column:
    begin = F.shiftleft(seq, POSITION_BITS)
    return begin if position is None else begin + (F.col(position) if isinstance(position, str) else position)


def seq_of(name: str) -> Column:
    return F.shiftright(name, POSITION_BITS)


def of_kind(history: DataFrame, *kinds: str) -> DataFrame:
    return history.filter(F.col("kind").isin(*kinds))


def before(window: WindowSpec) -> WindowSpec:
    """All rows before the one that is looked at."""
    return window.rowsBetween(Window.unboundedPreceding, -1)


def so_far(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def latest(column: Column, window: WindowSpec) -> Column:
    """The last one in the window that is not null."""
    return F.last(column, ignorenulls=True).over(window)


def holds(condition: Column) -> Column:
    """Null is no."""
    return F.coalesce(condition, F.lit(False))
