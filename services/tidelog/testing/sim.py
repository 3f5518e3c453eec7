"""Seeded runs of a simulated cluster: `python -m tidelog.testing.sim --seeds 50 --first 0`, on all cores.

Fails when a seed fails, or when the set is large enough to be judged and one of the goals was never reached.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tidelog.testing import goals
from tidelog.testing.last_steps import first_error
from tidelog.testing.sim_story import FAILURES, Result, Run, run_story, run_twice
from tidelog.testing.stories import story_of

SEEDS_BEFORE_A_NEW_PROCESS: Final = 40


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    result: Result | None
    failure: str
    """Empty when it held."""
    cpu_s: float


def attempt_watched(seed: int) -> Outcome:
    return attempt(seed, run_twice)


def attempt(seed: int, play: Callable[[type[Run], int], Result] = run_story) -> Outcome:
    began = time.process_time()
    result, failure = None, ""
    try:
        result = play(story_of(seed), seed)
    except FAILURES as error:
        failure = describe(error)
        logging.getLogger(__name__).info("seed %d failed", seed, exc_info=error)
    return Outcome(seed, result, failure, time.process_time() - began)


def describe(error: BaseException) -> str:
    """The error that broke a run, with its notes."""
    first = first_error(error)
    return "\n".join([f"{type(first).__name__}: {first}", *getattr(first, "__notes__", ())])


def outcomes(seeds: range, jobs: int, *, watched: bool) -> Iterator[Outcome]:
    """In the order of the seeds."""
    once = attempt_watched if watched else attempt
    if jobs == 1:
        yield from map(once, seeds)
        return
    # A process of its own for every few seeds: what a killed simulated process leaves behind goes with it.
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=SEEDS_BEFORE_A_NEW_PROCESS) as pool:
        yield from pool.imap(once, seeds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--until-failure", action="store_true", help="end with the first seed that fails; judge no goals"
    )
    parser.add_argument("--watched", action="store_true", help="play each seed again with watchers, and compare")
    parser.add_argument("--verbose", action="store_true", help="the log of every simulated process")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.CRITICAL, format="%(name)s %(message)s", stream=sys.stdout
    )
    started = time.perf_counter()
    totals: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    seeds_reached: Counter[str] = Counter()
    cpu_s = 0.0
    failed = done = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for outcome in outcomes(seeds, min(arguments.jobs, max(len(seeds), 1)), watched=arguments.watched):
        done += 1
        cpu_s += outcome.cpu_s
        if sys.stderr.isatty():
            sys.stderr.write(f"\rseed {outcome.seed}: {done} of {len(seeds)} done, {failed} failed ")
        if outcome.failure:
            failed += 1
            report(outcome, watched=arguments.watched)
            if arguments.until_failure:
                break
        elif (result := outcome.result) is not None:
            totals += result.faults
            totals.update(acked=result.acked, read=result.read, vetoed=result.vetoed, delivered=result.delivered)
            totals.update({"processed by groups": result.processed})
            reached += result.reached
            seeds_reached.update(goal for goal, count in result.reached.items() if count)
    sys.stdout.write(", ".join(f"{name} {count:,}" for name, count in sorted(totals.items())) + "\n")
    sys.stdout.write(goals.table(reached, seeds_reached))
    missed = goals.missed(reached) if done >= goals.JUDGED_SEEDS else []
    for goal in missed:
        sys.stdout.write(f"never reached, so this set of seeds proves nothing: {goal}\n")
    took = time.perf_counter() - started
    sys.stdout.write(
        f"{done - failed} passed, {failed} failed\n{took:.1f} s, {cpu_s / max(done, 1):.2f} s of CPU a seed\n"
    )
    return 1 if failed or missed else 0


def report(outcome: Outcome, *, watched: bool) -> None:
    again = f"make sim SEEDS=1 SEED={outcome.seed}{' WATCHED=1' if watched else ''}"
    look = f"make sim SEED={outcome.seed} STORY=seed-{outcome.seed}.yaml"
    sys.stdout.write(f"seed {outcome.seed}: {outcome.failure}\n  again: {again}\n  step by step in the lab: {look}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
