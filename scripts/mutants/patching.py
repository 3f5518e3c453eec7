"""A source tree with a mistake in it, and whether something notices. See the package."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGE: Final = "tidelog"
_TESTS_FAILED: Final = 1
"""pytest's exit code; every other one but 0 means that no test has judged anything."""
_TEST_LIMIT_S: Final = 900
_SEED_LIMIT_S: Final = 600
_FAILED_SEED: Final = re.compile(r"^seed (\d+): (.*)$", re.MULTILINE)

_BROKEN_PATCH: Final = re.compile(r"\b(TypeError|NameError|AttributeError|ImportError)\b")


class StalePatch(Exception):
    """The code that a patch changes is not there any more, or not once."""


class Inconclusive(Exception):
    """Neither survived nor killed: what was to judge it could not run."""


@dataclass(frozen=True, slots=True)
class Patch:
    file: str
    """Below services/tidelog."""
    old: str
    new: str

    def apply(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise StalePatch(f"{self.file} has {text.count(self.old)} times, not once: {self.old!r}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class BySimulator:
    """Some seed of the simulator must fail."""


@dataclass(frozen=True, slots=True)
class ByTest:
    test: str
    """A pytest id."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    mistake: str
    patches: tuple[Patch, ...]
    must_fail: BySimulator | ByTest = BySimulator()


@dataclass(frozen=True, slots=True)
class Verdict:
    killed: bool
    how: str = ""
    """What was noticed first."""
    seed: int | None = None


def patched_tree(patches: Iterable[Patch], folder: Path, source: Path = ROOT / "services") -> Path:
    """`folder`, which is made, is to come first in PYTHONPATH. StalePatch."""
    texts: dict[str, str] = {}
    for patch in patches:
        before = texts.get(patch.file) or (source / PACKAGE / patch.file).read_text()
        texts[patch.file] = patch.apply(before)
    _mirror(source / PACKAGE, folder / PACKAGE, {Path(file): text for file, text in texts.items()})
    return folder


def _mirror(real: Path, copy: Path, texts: dict[Path, str]) -> None:
    """Links to everything in `real` but the files that have a new text, and the directories above them."""
    copy.mkdir(parents=True)
    for entry in real.iterdir():
        below = {Path(*file.parts[1:]): text for file, text in texts.items() if file.parts[0] == entry.name}
        if Path() in below:
            (copy / entry.name).write_text(below[Path()])
        elif below:
            _mirror(entry, copy / entry.name, below)
        elif entry.name != "__pycache__":
            (copy / entry.name).symlink_to(entry)


def judge(mutant: Mutant, folder: Path, seeds: Iterable[range]) -> Verdict:
    """`seeds` are tried in this order until one fails. StalePatch, Inconclusive."""
    tree = patched_tree(mutant.patches, folder)
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    if isinstance(mutant.must_fail, ByTest):
        return _judge_by_test(mutant, mutant.must_fail.test, environment)
    for some in seeds:
        verdict = _judge_by_seeds(mutant, some, environment)
        if verdict.killed:
            return verdict
    return Verdict(killed=False)


def _judge_by_test(mutant: Mutant, test: str, environment: dict[str, str]) -> Verdict:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TEST_LIMIT_S,
    )
    if done.returncode not in (0, _TESTS_FAILED) or "no tests ran" in done.stdout:
        raise Inconclusive(f"{mutant.name}: pytest {test} ended with {done.returncode}: {done.stdout[-2000:]}")
    return Verdict(killed=done.returncode == _TESTS_FAILED, how=test)


def _judge_by_seeds(mutant: Mutant, seeds: range, environment: dict[str, str]) -> Verdict:
    found = _first_failure(mutant, seeds, environment)
    if found is None:
        return Verdict(killed=False)
    seed, how = found
    if _BROKEN_PATCH.search(how):
        raise Inconclusive(f"{mutant.name}: seed {seed}: the patch itself does not work: {how}")
    real = {**environment, "PYTHONPATH": str(ROOT / "services")}
    if _first_failure(mutant, range(seed, seed + 1), real) is not None:
        raise Inconclusive(f"{mutant.name}: seed {seed} fails without the mistake too")
    return Verdict(killed=True, how=how, seed=seed)


def _first_failure(mutant: Mutant, seeds: range, environment: dict[str, str]) -> tuple[int, str] | None:
    """The seed and what it said; None when all of them held."""
    command = [sys.executable, "-m", "tidelog.testing.sim", "--until-failure", "--jobs", "1"]
    done = subprocess.run(
        [*command, "--first", str(seeds.start), "--seeds", str(len(seeds))],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SEED_LIMIT_S * len(seeds),
    )
    found = _FAILED_SEED.search(done.stdout)
    if found is not None:
        return int(found[1]), found[2]
    if done.returncode != 0:
        raise Inconclusive(f"{mutant.name}: the simulator ended with {done.returncode}: {done.stderr[-2000:]}")
    return None
