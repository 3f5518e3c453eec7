"""`make mutants`: planted mistakes, and what notices them.

Without SEARCH=1 those are replayed that have been noticed before, from the kept seeds, and all of them must be noticed again;
one that no search has noticed yet is named. With it every one is searched for from seed 0 on, and must be noticed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mutants import checker, edge_clients, edge_disks, edge_requests, edges, groups, rules, simulator
from mutants.judging import Inconclusive, Verdict, judge
from mutants.patching import BySimulator, Mutant

TABLES: Final = (
    simulator.MUTANTS,
    groups.MUTANTS,
    rules.MUTANTS,
    edges.MUTANTS,
    edge_clients.MUTANTS,
    edge_disks.MUTANTS,
    edge_requests.MUTANTS,
    checker.MUTANTS,
)
FOUND: Final = Path(__file__).with_name("found_seeds.json")
REPLAY_SEEDS: Final = 40
"""How many are tried when a kept seed fails no more, since any change of the code draws another run."""
SEARCH_SEEDS: Final = 300
_BATCH: Final = 20


def needs_seed(mutant: Mutant, kept: dict[str, int]) -> bool:
    return isinstance(mutant.must_fail, BySimulator) and mutant.name not in kept


def seeds_for(mutant: Mutant, kept: dict[str, int], *, search: bool, most: int) -> list[range]:
    seed = kept.get(mutant.name)
    first = [] if search or seed is None else [range(seed, seed + 1)]
    return [*first, *(range(at, min(at + _BATCH, most)) for at in range(0, most, _BATCH))]


def verdict_on(mutant: Mutant, seeds: Sequence[range]) -> tuple[Verdict | str, float]:
    """The verdict, or why there is none; and the seconds that it took."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        try:
            verdict: Verdict | str = judge(mutant, Path(folder) / "report", seeds)
        except Inconclusive as error:
            verdict = str(error)
    return verdict, time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--search", action="store_true", help="forget the kept seeds and search from 0")
    parser.add_argument("--seeds", type=int, default=0, help="how many seeds to search at most")
    parser.add_argument("--only", default="", help="names, by comma")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.only.split(",")))
    mutants = [mutant for table in TABLES for mutant in table if not wanted or mutant.name in wanted]
    if unknown := wanted - {mutant.name for mutant in mutants}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    kept: dict[str, int] = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    never = [] if arguments.search or wanted else [mutant for mutant in mutants if needs_seed(mutant, kept)]
    mutants = [mutant for mutant in mutants if mutant not in never]
    most = arguments.seeds or (SEARCH_SEEDS if arguments.search else REPLAY_SEEDS)
    plans = [seeds_for(mutant, kept, search=arguments.search, most=most) for mutant in mutants]
    started = time.perf_counter()
    unnoticed = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for mutant, (verdict, took_s) in zip(mutants, pool.map(verdict_on, mutants, plans), strict=True):
            line = told(mutant, verdict, kept.get(mutant.name), most)
            print(f"{mutant.name:<70} {took_s:5.1f} s  {line}", flush=True)
            if isinstance(verdict, str) or not verdict.killed:
                unnoticed += 1
            elif verdict.seed is not None:
                kept[mutant.name] = verdict.seed
            if arguments.search:
                FOUND.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
    for mutant in never:
        print(f"{mutant.name:<70} not noticed by any search so far: {mutant.mistake}")
    print(f"{len(mutants) - unnoticed} of {len(mutants)} noticed\n{time.perf_counter() - started:.1f} s")
    return 1 if unnoticed else 0


def told(mutant: Mutant, verdict: Verdict | str, kept: int | None, most: int) -> str:
    if isinstance(verdict, str):
        return f"NOT JUDGED: {verdict}"
    if not verdict.reached:
        return f"NEVER REACHED: {mutant.mistake}"
    if not verdict.killed:
        seeds = f" by {most} seeds" if isinstance(mutant.must_fail, BySimulator) else ""
        return f"NOT NOTICED{seeds}: {mutant.mistake}"
    where = "" if verdict.seed is None else f"seed {verdict.seed}"
    if where and kept is not None and kept != verdict.seed:
        where += f" (was {kept})"
    return f"{where:<20} {verdict.how[-150:]}"


if __name__ == "__main__":
    sys.exit(main())
