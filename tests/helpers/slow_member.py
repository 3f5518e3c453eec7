"""A member of a group as a process that can be killed and paused: works 20 ms on each record, and says what happens to it.

`python slow_member.py SERVERS TOPIC GROUP SESSION_MS`; a line is `assigned`, `revoked` or `lost`, or partition and value of a
record that it is done with.
"""

import asyncio
import sys

from tidelog.client.consumer import Consumer
from tidelog.client.groups import Listener

WORK_S = 0.02


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(servers: str, topic: str, group: str, session_timeout_ms: int) -> None:
    def saying(what: str) -> Listener:
        return lambda _: say(what)

    async with Consumer(
        servers,
        group=group,
        topics=[topic],
        consumer_id="slow",
        session_timeout_ms=session_timeout_ms,
        on_assigned=saying("assigned"),
        on_revoked=saying("revoked"),
        on_lost=saying("lost"),
    ) as consumer:
        async for record in consumer:
            await asyncio.sleep(WORK_S)
            say(f"{record.partition} {(record.value or b'').decode()}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
