"""The files of a process, looked at and damaged from outside: below a directory of this machine, or inside a container.

`python -m tidelog.cluster.files DIRECTORY REQUEST` does the same for whoever can only start a program there.
"""

import contextlib
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

FILLER: Final = "filler.tmp"
"""Brokers take no notice of temporary files."""
OWN_DISK_MAX_BYTES: Final = 1 << 30


class DataFiles(Protocol):
    """Paths are relative to the data directory. OSError when a file is not there."""

    def sizes(self) -> Mapping[str, int]:
        """Of every file."""
        ...

    def read(self, folder: str) -> Mapping[str, bytes]:
        """The files of one folder, by name."""
        ...

    def truncate(self, path: str, size: int) -> None: ...

    def flip(self, path: str, offset: int) -> None:
        """Inverts the lowest bit of one byte, in place: who has the file open reads it so."""
        ...

    def remove(self, path: str) -> None:
        """Harmless when it is not there."""
        ...

    def wipe(self) -> None:
        """Leaves an empty directory."""
        ...


class LocalFiles:
    """Implements `DataFiles`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def sizes(self) -> Mapping[str, int]:
        found = {}
        for path in sorted(self.root.rglob("*")):
            try:
                if path.is_file():
                    found[path.relative_to(self.root).as_posix()] = path.stat().st_size
            except FileNotFoundError:
                pass  # a temporary one that has got its name meanwhile
        return found

    def read(self, folder: str) -> Mapping[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.root / folder).iterdir()) if path.is_file()}

    def truncate(self, path: str, size: int) -> None:
        with (self.root / path).open("r+b") as file:
            file.truncate(size)

    def flip(self, path: str, offset: int) -> None:
        with (self.root / path).open("r+b") as file:
            file.seek(offset)
            (byte,) = file.read(1)
            file.seek(offset)
            file.write(bytes([byte ^ 1]))

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def wipe(self) -> None:
        for entry in self.root.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def check_own_disk(self) -> None:
        """OSError when others share the file system, as its size tells."""
        size = shutil.disk_usage(self.root).total
        if size > OWN_DISK_MAX_BYTES:
            raise OSError(
                f"the file system of the data directory has {size >> 30:,} GiB, which others use as well: remove the cluster "
                "with its volumes, and bring it up with small disks, as deploy/chaos/small-disks.yml says"
            )

    def fill(self) -> int:
        """Takes all room that is left on the file system; returns how much is left then. OSError when others share it."""
        self.check_own_disk()
        with (self.root / FILLER).open("ab", buffering=0) as file:
            for chunk in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(chunk)) == chunk:
                        pass
        return shutil.disk_usage(self.root).free

    def unfill(self) -> None:
        self.remove(FILLER)


def main(directory: str, request: str) -> int:
    """`request` is a JSON list: a method's name and its arguments. What it returns is printed as JSON."""
    method, *arguments = json.loads(request)
    answer = getattr(LocalFiles(Path(directory)), method)(*arguments)
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
