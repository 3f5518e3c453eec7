"""Refuses a directory that holds no finished output of an ingest, before Spark is started, which takes ten seconds."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from tidelog.pipeline.jobs.checkpoints import SINK_LOG
from tidelog.pipeline.jobs.plans import CHECKPOINT

ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""Begins the address of a file system that Hadoop reads."""

DEFAULT_FILES: Final = "spark.hadoop.fs.defaultFS"
"""The setting that makes a plain path one of another file system."""


class NothingFinished(Exception):
    """Says that an ingest has written here and has finished no micro-batch."""


def check_output(directory: str, names: Callable[[str], Collection[str]]) -> None:
    """ValueError when no ingest has written to `directory`, NothingFinished when its run was killed too early.

    `names`: what a directory holds; nothing when there is none.
    """
    inside = names(directory)
    if SINK_LOG not in inside and CHECKPOINT not in inside:
        raise ValueError(
            f"{directory} was not written by an ingest; name the --output of a `tidelog pipeline run ingest`"
            if inside
            else f"{directory} does not exist or is empty; name the --output of a `tidelog pipeline run ingest`"
        )
    if not any(name.removesuffix(".compact").isdigit() for name in names(f"{directory}/{SINK_LOG}")):
        raise NothingFinished(nothing_in(directory))


def nothing_in(directory: str) -> str:
    return f"{directory} holds no finished batch: run the ingest again"


def check_local_output(directory: str, conf: Mapping[str, str]) -> None:
    """`check_output` for files of this machine, which needs no Spark; others pass. `conf` is Spark's."""
    if not ADDRESS.match(directory) and DEFAULT_FILES not in conf:
        check_output(directory, local_names)


def local_names(where: str) -> set[str]:
    path = Path(where)
    return {each.name for each in path.iterdir()} if path.is_dir() else set()
