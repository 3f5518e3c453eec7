"""Files of a process, damaged from outside."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tidelog.cluster.files import OWN_DISK_MAX_BYTES, LocalFiles, main


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "a.log").write_bytes(b"abcdef")
    (tmp_path / ".marker").write_bytes(b"m")
    return LocalFiles(tmp_path)


def test_every_file_has_a_size_and_a_folder_its_contents(files: LocalFiles) -> None:
    assert files.sizes() == {".marker": 1, "t-0/a.log": 6}
    assert files.read("t-0") == {"a.log": b"abcdef"}
    with pytest.raises(FileNotFoundError):
        files.read("t-1")


def test_damage_is_done_in_place(files: LocalFiles) -> None:
    with (files.root / "t-0/a.log").open("rb") as open_already:
        files.flip("t-0/a.log", 1)
        assert open_already.read() == b"accdef"
        files.truncate("t-0/a.log", 2)
        assert open_already.seek(0, 2) == 2


def test_what_is_removed_twice_is_gone(files: LocalFiles) -> None:
    files.remove(".marker")
    files.remove(".marker")
    assert files.sizes() == {"t-0/a.log": 6}
    files.wipe()
    assert files.sizes() == {} and files.root.is_dir() and not list(files.root.iterdir())


def test_a_disk_that_others_use_is_not_filled(files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(files.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(total=OWN_DISK_MAX_BYTES + 1))
    before = files.sizes()
    with pytest.raises(OSError, match="which others use as well"):
        files.fill()
    assert files.sizes() == before


def test_a_program_beside_it_does_the_same(files: LocalFiles, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(*request: object) -> Any:
        assert main(str(files.root), json.dumps(request)) == 0
        return json.loads(capsys.readouterr().out)

    assert asked("truncate", "t-0/a.log", 3) is None
    assert asked("sizes") == {".marker": 1, "t-0/a.log": 3}
