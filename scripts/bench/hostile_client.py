"""A process that sends hostile or harmless requests at a steady rate, and reads slowly or well. `python -m bench.hostile_client`.

Each line of its input is a JSON object. The first one names the listeners, and the partitions that its readers ask for; each
other one a kind of requests, a rate and a time. It answers with a line that says what became of them.
"""

import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from grpc import aio

from bench.hostile_requests import EXTERNAL, VICTIM, Asked, harmless_requests, hostile_requests
from helpers.slow_reader import SlowReader
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address
from tidelog.ports.net import Bidi
from tidelog.runtime import loop
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.rpc_options import Limits, channel_options, target
from tidelog.values import Message
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.codec import decoder, encode

HOSTILE: Final = "hostile"
HARMLESS: Final = "harmless"
PATIENCE_S: Final = 1.0
"""After so long without an answer it leaves."""
STREAM_S: Final = 0.2
"""The same of a stream, which need not answer what is on it."""
IN_FLIGHT: Final = 100
READERS: Final = 8
"""Readers of each broker."""
READS: Final = 40
"""Requests on one connection of a reader."""
HOLD_S: Final = 4.0
"""The shortest time for which a reader stays; each of a broker's stays a second longer than the one before, and comes later."""
LATER_S: Final = 0.5
AGAIN_S: Final = 0.2
LARGE_BYTES: Final = 50 << 20
SMALL_BYTES: Final = 1_024
OK, CODE, REFUSED, UNANSWERED = "answered", "error code", "refused", "unanswered"
OUTCOMES: Final = (OK, CODE, REFUSED, UNANSWERED)


def first_error(value: object) -> ErrorCode:
    """The first code in an answer that is none of success."""
    if isinstance(value, ErrorCode):
        return value
    held: Sequence[object] = (
        value._values() if isinstance(value, Message) else value if isinstance(value, tuple) else ()
    )
    return next((code for each in held if (code := first_error(each)) is not ErrorCode.NONE), ErrorCode.NONE)


class Client:
    def __init__(self, listeners: Mapping[str, Sequence[Address]], filled: Mapping[Address, m.FetchRequest]) -> None:
        """`filled`: what readers ask each broker for."""
        self._filled = filled
        self._channels = {
            kind: itertools.cycle(
                [aio.insecure_channel(target(each), options=channel_options(Limits(), "bench")) for each in addresses]
            )
            for kind, addresses in listeners.items()
        }
        self._requests: dict[str, Iterator[Asked]] = {HOSTILE: hostile_requests(), HARMLESS: harmless_requests()}
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._said: Counter[str] = Counter()

    async def run(self, kind: str, per_s: float, seconds: float) -> dict[str, Any]:
        """Counts: by method and outcome; by what the refusals and codes were; what readers asked for."""
        self._outcomes.clear()
        self._said.clear()
        asked: Counter[str] = Counter()
        read = self._read_nothing if kind == HOSTILE else self._read_well
        async with asyncio.TaskGroup() as group:
            readers = [
                group.create_task(read(address, number, asked)) for address in self._filled for number in range(READERS)
            ]
            await self._send(self._requests[kind], per_s, seconds)
            for reader in readers:
                reader.cancel()
        outcomes = [[*key, count] for key, count in self._outcomes.items()]
        return {"outcomes": outcomes, "said": dict(self._said), "readers": dict(asked)}

    async def _send(self, requests: Iterator[Asked], per_s: float, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        room, begin = asyncio.Semaphore(IN_FLIGHT), clock()
        async with asyncio.TaskGroup() as group:
            for number in range(int(per_s * seconds)):
                if (wait_s := begin + number / per_s - clock()) > 0:
                    await asyncio.sleep(wait_s)
                elif clock() > begin + seconds:
                    break
                await room.acquire()
                group.create_task(self._ask(next(requests), room))

    async def _ask(self, asked: Asked, room: asyncio.Semaphore) -> None:
        channel = next(self._channels[asked.listener])
        ask = self._open if isinstance(asked.method, Bidi) else self._call
        try:
            answer = await ask(channel, asked)
            code = first_error(decoder(asked.method.response)(answer))
            outcome, said = (OK, "") if code is ErrorCode.NONE else (CODE, code.name)
        except TimeoutError:
            outcome, said = UNANSWERED, ""
        except aio.AioRpcError as error:
            status = error.code().name
            outcome, said = (UNANSWERED, "") if status == "DEADLINE_EXCEEDED" else (REFUSED, status)
            if status in ("INTERNAL", "UNKNOWN"):
                print(f"{asked.method.path}: {status} {error.details()}", file=sys.stderr, flush=True)
        finally:
            room.release()
        self._outcomes[asked.method.path, outcome] += 1
        if said:
            self._said[said] += 1

    async def _call(self, channel: aio.Channel, asked: Asked) -> bytes:
        answer: bytes = await channel.unary_unary(asked.method.path)(asked.data, timeout=PATIENCE_S)
        return answer

    async def _open(self, channel: aio.Channel, asked: Asked) -> bytes:
        call: Any = channel.stream_stream(asked.method.path)()
        try:
            async with asyncio.timeout(STREAM_S):
                await call.write(asked.data)
                answer = await call.read()
                if answer is aio.EOF:
                    raise TimeoutError  # it has ended without an answer
                return bytes(answer)
        except asyncio.InvalidStateError:  # it was refused while the request was written
            raise aio.AioRpcError(
                await call.code(), await call.initial_metadata(), await call.trailing_metadata()
            ) from None
        finally:
            call.cancel()

    async def _read_nothing(self, broker: Address, number: int, asked: Counter[str]) -> None:
        """Asks for everything, reads nothing and comes again, until it is cancelled."""
        large = encode(self._filled[broker])
        await asyncio.sleep(LATER_S * number)
        while True:
            try:
                async with SlowReader.connected(broker) as reader:
                    asked["connections"] += 1
                    for _ in range(READS):
                        reader.ask(s.REPLICA_SERVICE_FETCH.path, large)
                        asked["requests"] += 1
                    await asyncio.sleep(HOLD_S + number)
                    asked["refused"] += len(reader.ended)
            except OSError:
                asked["connections that failed"] += 1
                await asyncio.sleep(AGAIN_S)

    async def _read_well(self, broker: Address, number: int, asked: Counter[str]) -> None:
        """The same with small requests, whose answers it reads."""
        small = _fetch(VICTIM, 0, SMALL_BYTES)
        await asyncio.sleep(LATER_S * number)
        while True:
            channel = GrpcNet().channel(broker, purpose="bench")
            try:
                asked["connections"] += 1
                for _ in range(READS):
                    asked["requests"] += 1
                    await channel.call(s.REPLICA_SERVICE_FETCH, small, PATIENCE_S)
                await asyncio.sleep(HOLD_S + number)
            except (TidelogError, TransportError):
                asked["refused"] += 1
                await asyncio.sleep(AGAIN_S)
            finally:
                await channel.close()


def _fetch(topic: str, partition: int, size_bytes: int) -> m.FetchRequest:
    part = m.FetchPartition(
        topic=topic, partition=partition, leader_epoch=-1, offset=0, last_fetched_epoch=-1, max_bytes=size_bytes
    )
    return m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=size_bytes, partitions=(part,))


async def main() -> None:
    async def line() -> Any:
        text = await asyncio.to_thread(sys.stdin.readline)
        return json.loads(text) if text else None

    told = await line()
    listeners = {kind: [Address(*each) for each in addresses] for kind, addresses in told["listeners"].items()}
    brokers = listeners[EXTERNAL]
    filled = {brokers[broker]: _fetch(told["filled"], int(p), LARGE_BYTES) for p, broker in told["leaders"].items()}
    client = Client(listeners, filled)
    while (wanted := await line()) is not None:
        print(json.dumps(await client.run(**wanted)), flush=True)


if __name__ == "__main__":
    loop.run(main())
