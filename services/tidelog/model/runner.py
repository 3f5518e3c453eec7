"""Runs checks in as many processes as asked for; the longest first."""

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import SimpleQueue, get_context
from multiprocessing.context import SpawnContext
from typing import Final

from tidelog.model.catalogue import Check, all_checks
from tidelog.model.report import Finished
from tidelog.model.search import Outcome, Progress, search

POLL_S: Final = 0.5
Clock = Callable[[], float]
News = tuple[int, Progress, float]
"""Index in `all_checks()`, how far it is, seconds since it began."""

_news: "SimpleQueue[News] | None" = None


def _join_pool(news: "SimpleQueue[News]") -> None:
    global _news
    _news = news
    # Millions of integers without one circle among them: the collector would only walk over them again and again.
    gc.disable()


def execute(index: int, clock: Clock) -> tuple[Outcome, float]:
    """In a process of the pool: one check from beginning to end, and the seconds it took."""
    began = clock()
    check = all_checks()[index]

    def report(progress: Progress) -> None:
        if _news is not None:
            _news.put((index, progress, clock() - began))

    outcome = search(check.model, check.depth_max, report)
    return outcome, clock() - began


def run(
    checks: Sequence[Check], jobs: int, clock: Clock, show: Callable[[Sequence[tuple[Check, Progress, float]]], None]
) -> Iterator[Finished]:
    """Yields each check as it ends; `show` gets the state of those that run, about twice a second."""
    everything = all_checks()
    order = sorted((everything.index(check) for check in checks), key=lambda index: -everything[index].weight)
    context: SpawnContext = get_context("spawn")
    news: SimpleQueue[News] = context.SimpleQueue()
    # One check a process: what a search has allocated goes back to the system with it.
    with ProcessPoolExecutor(jobs, context, _join_pool, (news,), max_tasks_per_child=1) as pool:
        waiting: dict[Future[tuple[Outcome, float]], int] = {pool.submit(execute, i, clock): i for i in order}
        last: dict[int, tuple[Progress, float]] = {}
        while waiting:
            done, _ = wait(waiting, POLL_S, FIRST_COMPLETED)
            while not news.empty():
                index, progress, took_s = news.get()
                last[index] = (progress, took_s)
            for future in done:
                index = waiting.pop(future)
                last.pop(index, None)
                outcome, took_s = future.result()
                yield Finished(everything[index], outcome, took_s)
            running = [index for index in last if index in waiting.values()]
            show([(everything[index], *last[index]) for index in running])
