"""The reason that a process gives for its end, in one line."""

import pytest

from tidelog.cluster.ready import last_line


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ('{"event": "starts"}\ncannot listen at 127.0.0.1:1: Address already in use\n\n', "cannot listen at 127.0.0.1:1: "
         "Address already in use"),
        ('{"event": "starts"}\n{"event": "disk full", "level": "error"}\n', "disk full"),
        ('{"event": "task failed", "exception": "Traceback ...\\nValueError: a bug"}\n', "ValueError: a bug"),
        ("", "it wrote nothing"),
    ],
)  # fmt: skip
def test_the_last_line_is_the_reason(log: str, line: str) -> None:
    assert last_line(log) == line
