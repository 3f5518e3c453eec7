"""A whole cluster in one seeded event loop: what it promises holds, a seed repeats a run, and planted mistakes are found."""

import asyncio
import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from sim.mutants import FOUND_BY
from tidelog.testing import loop as sim_loop
from tidelog.testing.invariants import Violation
from tidelog.testing.sim import Result, Run, run_seed

pytestmark = pytest.mark.sim

SEARCH_SEEDS = 80
"""A found seed stays a find only as long as nothing above it draws differently; then the search goes on from 0."""


@pytest.mark.parametrize("seed", range(10))
def test_a_cluster_under_faults_loses_nothing_and_heals(seed: int) -> None:
    result = run_seed(seed)
    assert result.acked > 0 and result.read > 0
    assert result.faults, "nothing was broken"


def test_the_faults_of_these_seeds_are_of_every_kind() -> None:
    """Each run draws its kinds; together they must have seen all of them (reliability 4.4)."""
    names = {name for seed in range(10) for name in Run(seed).faults._kinds}
    assert names == {
        "kill",
        "start",
        "pause",
        "resume",
        "cut",
        "heal links",
        "zookeeper link",
        "unknown outcome",
        "expire",
        "power loss",
    }


def traced(seed: int) -> tuple[str, int, Result]:
    """Digest of everything that crossed the network and when, the number of steps taken, and the result."""
    digest = hashlib.sha256()
    steps = 0

    async def story() -> Result:
        nonlocal steps
        run = Run(seed)
        run.cluster.network.trace = lambda line: digest.update(line.encode())
        result = await run.story()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, sim_loop.SimLoop)
        steps = loop.steps
        return result

    result = sim_loop.run(story(), seed)
    return digest.hexdigest(), steps, result


@pytest.mark.filterwarnings("ignore")  # a killed process leaves coroutines that never ended: that is what a kill is
def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    first = traced(3)
    assert traced(3) == first
    assert traced(4)[0] != first[0]


def test_a_seed_repeats_its_run_in_another_process_too() -> None:
    """Hashes of texts differ from process to process, addresses of objects always do."""
    script = (
        "import sys, warnings; warnings.simplefilter('ignore'); sys.path.insert(0, sys.argv[1]);"
        "from sim.test_sim import traced; digest, steps, result = traced(14); print(digest, steps, result.acked)"
    )
    found = set()
    for hashes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script, os.path.dirname(os.path.dirname(__file__))],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        found.add(done.stdout.split("\n")[-2])
    assert len(found) == 1, found


@pytest.mark.parametrize(("mistake", "seed"), FOUND_BY.items(), ids=[mistake.__name__ for mistake in FOUND_BY])
def test_a_planted_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, BaseExceptionGroup)) as found:
        for each in itertools.chain((seed,), range(SEARCH_SEEDS)):
            run_seed(each)
    error = found.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Violation), error
