"""Jars that other systems are published as, with what they need; kept below build/ from then on."""

import asyncio
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.harness import CannotRun

BUILD: Final = Path(__file__).resolve().parents[2] / "build"
FETCH_S: Final = 300.0
REASON: Final = re.compile(r"Could not (?:find|transfer) artifact [^\s)]+")
"""What Maven says among much else."""


async def fetch_jars(folder: Path, what: str, artifacts: Sequence[str], *, download: bool) -> Path:
    """The folder below `folder` with the jars of `artifacts` (group:name:version); CannotRun says why there is none.

    `what` names them in that reason: "Apache Kafka's".
    """
    jars = folder / "jars"
    if jars.is_dir():
        return jars
    if not download:
        raise CannotRun(f"not run: {what} jars are not in {folder.relative_to(BUILD.parent)}")
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotRun(f"not run: {what} jars come with Maven, and there is no mvn here (Debian: maven)")
    project, coming = _prepared(folder, artifacts)
    fetching = await asyncio.create_subprocess_exec(
        *(maven, "-B", "-q", "-f", str(project), "dependency:copy-dependencies"),
        *(f"-DoutputDirectory={coming}", "-DincludeScope=runtime"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(FETCH_S):
            printed, _ = await fetching.communicate()
    except TimeoutError:
        fetching.kill()
        await fetching.wait()
        raise CannotRun(f"not run: Maven did not bring {what} jars within {FETCH_S:g} s") from None
    if fetching.returncode:
        found = REASON.search(printed.decode(errors="replace"))
        reason = found[0] if found else f"mvn ended with {fetching.returncode}"
        raise CannotRun(f"not run: Maven could not bring {what} jars ({reason})")
    coming.rename(jars)
    return jars


def _prepared(folder: Path, artifacts: Sequence[str]) -> tuple[Path, Path]:
    """The project file that Maven wants, and where the jars come in: in their own place they are complete."""
    folder.mkdir(parents=True, exist_ok=True)
    project, coming = folder / "pom.xml", folder / "coming"
    project.write_text(_pom(artifacts))
    shutil.rmtree(coming, ignore_errors=True)
    return project, coming


def _pom(artifacts: Sequence[str]) -> str:
    lines = []
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        lines.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    dependencies = "\n    ".join(lines)
    return f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidelog.bench</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    {dependencies}
  </dependencies>
</project>
"""
