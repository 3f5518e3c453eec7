"""The verdict on a mutant: whether something notices it. See the package."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mutants.patching import BROKEN, MUTANT, REPORT, ROOT, ByTest, Mutant

_TESTS_FAILED: Final = 1
"""pytest's exit code; every other one but 0 means that no test has judged anything."""
_TEST_LIMIT_S: Final = 900
_SEED_LIMIT_S: Final = 600
_FAILED_TEST: Final = re.compile(r"^(?:FAILED|ERROR) (.*)$", re.MULTILINE)
_FAILED_SEED: Final = re.compile(r"^seed (\d+): (.*)$", re.MULTILINE)
_BROKEN_MUTANT: Final = re.compile(r"\b(TypeError|NameError|AttributeError|ImportError)\b")


class Inconclusive(Exception):
    """Neither survived nor killed: what was to judge it could not run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    killed: bool
    how: str = ""
    """The first failure."""
    seed: int | None = None
    reached: bool = True
    """Something that the mutant replaces was used."""


def judge(mutant: Mutant, report: Path, seeds: Iterable[range]) -> Verdict:
    """`seeds` are tried in this order until one fails; `report` is a file of this judgement alone. Inconclusive."""
    report.touch()
    path = os.pathsep.join([str(ROOT / "services"), str(ROOT / "scripts"), str(ROOT / "tests")])
    plain = {**os.environ, "PYTHONPATH": path}
    planted = {**plain, MUTANT: mutant.reference, REPORT: str(report)}
    if isinstance(mutant.must_fail, ByTest):
        verdict = _judge_by_test(mutant, mutant.must_fail.test, planted)
    else:
        verdict = _judge_by_seeds(mutant, seeds, planted, plain)
    told = report.read_text().splitlines()
    broken = [each for each in told if each.startswith(BROKEN)]
    if broken or _BROKEN_MUTANT.search(verdict.how):
        raise Inconclusive(f"{mutant.name}: the mutant itself does not work: {', '.join(broken) or verdict.how}")
    if verdict.killed and not told:
        raise Inconclusive(f"{mutant.name}: nothing that it replaces was used, yet this failed: {verdict.how}")
    return replace(verdict, reached=bool(told))


def _judge_by_test(mutant: Mutant, test: str, environment: Mapping[str, str]) -> Verdict:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "mutants.plugin", test],
        cwd=ROOT,
        env={**environment, "COLUMNS": "1000"},  # for the reason behind the name of the test
        capture_output=True,
        text=True,
        timeout=_TEST_LIMIT_S,
    )
    if done.returncode not in (0, _TESTS_FAILED) or "no tests ran" in done.stdout:
        raise Inconclusive(
            f"{mutant.name}: pytest {test} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    if done.returncode == 0:
        return Verdict(killed=False)
    found = _FAILED_TEST.search(done.stdout)
    return Verdict(killed=True, how=test if found is None else found[1])


def _judge_by_seeds(
    mutant: Mutant, seeds: Iterable[range], planted: Mapping[str, str], plain: Mapping[str, str]
) -> Verdict:
    for some in seeds:
        found = _first_failure(mutant, some, planted)
        if found is None:
            continue
        seed, how = found
        if _first_failure(mutant, range(seed, seed + 1), plain) is not None:
            raise Inconclusive(f"{mutant.name}: seed {seed} fails without the mistake too")
        return Verdict(killed=True, how=how, seed=seed)
    return Verdict(killed=False)


def _first_failure(mutant: Mutant, seeds: range, environment: Mapping[str, str]) -> tuple[int, str] | None:
    """The seed and what it said; None when all of them held."""
    command = [sys.executable, "-m", "mutants.simulate", "--until-failure", "--jobs", "1"]
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
