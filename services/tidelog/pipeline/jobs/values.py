"""Values of records as columns: text and JSON that hold what they should, and what does not is told apart."""

from typing import Any, Final

from pyspark.sql import functions as F

from tidelog.pipeline.jobs.plans import Field

CORRUPT: Final = "_corrupt"
TIMES: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
NUMBER: Final = "decimal(28,9)"
"""Its sums have 38 digits, Spark's most: room for 10^10 of the greatest."""


def text_of(column: Any) -> Any:
    """NULL where the bytes are not UTF-8."""
    return F.try_validate_utf8(column.cast("string"))


def whole_json(text: Any) -> Any:
    """The text where it is one JSON value, NULL otherwise.

    Spark's own readers take the first value of `{} {}` and drop the rest without a word; as an array that is an error.
    """
    return F.when(F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1, text)


def struct_of(text: Any, schema: str) -> Any:
    """A JSON object in the columns of `schema`; NULL for anything else, and for an object with a field of another type."""
    broken = "__corrupt"
    parsed = F.from_json(text, f"{schema}, {broken} STRING", {"columnNameOfCorruptRecord": broken})
    return F.when(parsed[broken].isNull(), parsed.dropFields(broken))


def number_of(text: Any, field: Field) -> Any:
    """A field as a number of fixed point; NULL where it is absent or no such number.

    Sums of binary fractions depend on the order of the tasks: a micro-batch that is repeated would come to other results.
    """
    return F.get_json_object(text, field.json_path).try_cast(NUMBER)


def time_of(text: Any, field: Field) -> Any:
    """A field as TIMESTAMP: Unix milliseconds, or ISO 8601, in UTC unless it says otherwise; NULL for anything else."""
    found = F.get_json_object(text, field.json_path)
    return F.coalesce(F.timestamp_millis(found.try_cast("bigint")), found.try_cast("timestamp"))
