"""Checkpoints and outputs where Spark keeps them: this machine's files, or any file system that Hadoop knows."""

import json
from collections.abc import Mapping
from typing import Any

from tidelog.pipeline.jobs.checkpoints import IDENTITY_FILE, Place


class Places:
    """Of one session."""

    def __init__(self, spark: Any) -> None:
        self._path = spark._jvm.org.apache.hadoop.fs.Path
        self._conf = spark._jsc.hadoopConfiguration()

    def qualified(self, where: str) -> str:
        """With its file system, and absolute: what Spark itself makes of it."""
        path, files = self._open(where)
        return str(files.makeQualified(path).toString())

    def look(self, checkpoint: str, output: str | None) -> Place:
        """Both qualified."""
        names = self.names(checkpoint)
        commits = [int(name) for name in self.names(f"{checkpoint}/commits") if name.isdigit()]
        inside = None if output is None else f"{checkpoint}/".removeprefix(f"{output}/").split("/")[0]
        return Place(
            checkpoint=checkpoint,
            identity=self._read(f"{checkpoint}/{IDENTITY_FILE}") if IDENTITY_FILE in names else None,
            checkpoint_names=frozenset(names - {IDENTITY_FILE, f"{IDENTITY_FILE}.new"}),
            batches=max(commits, default=-1) + 1,
            output=output,
            output_names=frozenset(self.names(output) - {inside}) if output is not None else frozenset(),
        )

    def mark(self, checkpoint: str, identity: Mapping[str, Any]) -> None:
        """Makes the checkpoint this job's; whole or not at all."""
        new, files = self._open(f"{checkpoint}/{IDENTITY_FILE}.new")
        stream = files.create(new, True)
        stream.write(bytearray(json.dumps(identity, indent=2).encode()))
        stream.close()
        files.rename(new, self._path(f"{checkpoint}/{IDENTITY_FILE}"))

    def _open(self, where: str) -> tuple[Any, Any]:
        path = self._path(where)
        return path, path.getFileSystem(self._conf)

    def names(self, where: str) -> set[str]:
        """What a directory holds; nothing when there is none."""
        path, files = self._open(where)
        return {str(each.getPath().getName()) for each in files.listStatus(path)} if files.exists(path) else set()

    def _read(self, where: str) -> str:
        path, files = self._open(where)
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode(errors="replace")
        finally:
            stream.close()
