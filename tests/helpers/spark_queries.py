"""Streaming queries of a real Spark in tests."""

from typing import Any, Final

from tidelog.cluster.wait import until

PATIENCE_S: Final = 300.0


def started(writer: Any) -> Any:
    """The query of a DataStreamWriter, once its source has come up.

    Spark gives the process of a Python source 10 s to start, which a machine that does much else cannot always keep.
    """
    while not _comes_up(query := writer.start()):
        pass
    return query


def _comes_up(query: Any) -> bool:
    until(
        lambda: query.exception() is not None or not query.status["message"].startswith("Initializing"),
        "the source of a query",
        timeout_s=PATIENCE_S,
    )
    return "Python worker failed to connect back" not in str(query.exception())
