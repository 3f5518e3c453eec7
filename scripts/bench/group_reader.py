"""A real consumer in a process of its own. `python -m bench.group_reader BOOTSTRAP GROUP TOPIC CONSUMER SESSION_MS`.

Says as JSON lines when it got the first record of each partition that was assigned to it, by the clock that all processes of
a machine share. A line of input makes it leave its group; when it began to is its last line.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Sequence
from typing import Final

from tidelog.client.consumer import Consumer
from tidelog.ids import TopicPartition
from tidelog.runtime import loop

POLL_S: Final = 0.05


def say(what: str, value: int) -> None:
    print(json.dumps({"at": time.perf_counter(), what: value}), flush=True)


async def read(bootstrap: str, group: str, topic: str, name: str, session_ms: str) -> None:
    fresh: set[TopicPartition] = set()

    def assigned(partitions: Sequence[TopicPartition]) -> None:
        fresh.update(partitions)

    member = Consumer(
        bootstrap,
        group=group,
        topics=[topic],
        consumer_id=name,
        session_timeout_ms=int(session_ms),
        on_assigned=assigned,
    )
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    async with member:
        while not told.done():
            for record in await member.poll(timeout_s=POLL_S):
                tp = TopicPartition(record.topic, record.partition)
                if tp in fresh:
                    fresh.discard(tp)
                    say("first", tp.partition)
        say("leaving", 1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    loop.run(read(*sys.argv[1:]))
