"""Two runs of the Compose tests on one engine."""

import threading

import pytest

from helpers import compose


def test_a_second_run_waits_for_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(compose.tempfile, "gettempdir", lambda: str(tmp_path))
    entered = threading.Event()

    def second() -> None:
        with compose.only_run():
            entered.set()

    with compose.only_run():
        other = threading.Thread(target=second)
        other.start()
        assert not entered.wait(0.2)
    assert entered.wait(5.0)
    other.join()
