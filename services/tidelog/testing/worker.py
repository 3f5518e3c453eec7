"""The Worker port in memory: work is done on the simulated disk, one result at a time, beside the event loop."""

from collections.abc import AsyncGenerator
from typing import TypeVar

from tidelog.ports.disk import Disk
from tidelog.ports.worker import Work

R = TypeVar("R")


class SimWorker:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def run(self, work: Work[R]) -> AsyncGenerator[R, None]:
        begun = work.run(self._disk)

        def go_on() -> list[R]:
            for result in begun:
                return [result]
            return []

        try:
            while found := await self._disk.in_background(go_on):
                yield found[0]
        finally:
            begun.close()

    def close(self) -> None: ...
