"""Containers grow from three brokers to five by one command, and shrink back by another (issue 7)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from helpers.cluster import unique_topic
from helpers.compose import ComposeProject
from helpers.loads import Load
from helpers.requirements import requirement
from helpers.scripts import ROOT
from tidelog.client.admin import Admin
from tidelog.cluster.api import BROKER, CONTROLLER, State, broker_name, process_name
from tidelog.cluster.wait import until

THREE, ADDED = (1, 2, 3), (4, 5)
FIVE = (*THREE, *ADDED)
PARTITIONS = 12
LIMIT_S = 400.0
WITHIN_S = 90.0
"""For one step on a busy machine."""
LOG_SIZES = "sum by (instance) (tidelog_log_size_bytes)"
"""As a board asks for them."""


@asynccontextmanager
async def resizing(project: ComposeProject, action: str, *says: str) -> AsyncIterator[None]:
    """The script of `make grow` and `make shrink` works meanwhile, ends well within a while, and has said all this."""
    pipe, joined = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    command, environment = (ROOT / "scripts/resize.sh", action), project.environment()
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=joined)
    said = asyncio.create_task(process.communicate())
    try:
        yield
        async with asyncio.timeout(WITHIN_S):
            text, _ = await asyncio.shield(said)
        assert process.returncode == 0 and all(each in text.decode() for each in says), text.decode()
    finally:
        if process.returncode is None:
            process.terminate()
        await said


@pytest.fixture
def grown(project: ComposeProject) -> Iterator[ComposeProject]:
    """It has three brokers before and afterwards, whatever became of the test."""
    yield project
    faults = project.faults
    faults.heal()
    for row in faults.status():
        if row.state is State.PAUSED:
            faults.resume(row.name)
        elif row.state is State.STOPPED:
            faults.start(row.name)
    if {broker_name(each) for each in ADDED} & {*faults.names(BROKER)}:
        asyncio.run(shrunk(project))
    for name in (*faults.names(BROKER), *faults.names(CONTROLLER)):
        project.wait_health(name)


async def shrunk(project: ComposeProject) -> None:
    async with resizing(project, "shrink"):
        pass


class Scene:
    def __init__(self, project: ComposeProject, admin: Admin) -> None:
        self._project = project
        self._faults = project.faults
        self._admin = admin

    async def grow(self) -> None:
        """A broker and the controller die while nothing that is on its way to broker 5 arrives."""
        async with resizing(self._project, "grow"):
            # It is given replicas once it is healthy, which the engine finds out only seconds after its start.
            await self._cut(5)
            await self._one_and_the_controller_die(2, while_moving_to=5)

    async def shrink(self) -> None:
        """So do they while nothing arrives at broker 1, to which replicas return."""
        await self._cut(1)
        empty = [f"Broker {each} is drained: it holds nothing and is safe to stop" for each in ADDED]
        async with resizing(self._project, "shrink", *empty):
            await self._one_and_the_controller_die(1, while_moving_to=1)

    async def _cut(self, broker: int) -> None:
        """From the other brokers, not from the controllers."""
        names = [broker_name(each) for each in FIVE]

        def running() -> bool:
            return {*names} <= {row.name for row in self._faults.status() if row.state is State.RUNNING}

        await self._do(until, running, "five brokers", timeout_s=WITHIN_S)
        await self._do(self._faults.isolate, broker_name(broker), names)

    async def _one_and_the_controller_die(self, broker: int, *, while_moving_to: int) -> None:
        await self._until(lambda: self._moving_to(while_moving_to), "moves")
        first = await self._active()
        await self._do(self._faults.kill, broker_name(broker))
        await self._do(self._faults.kill, process_name(CONTROLLER, first))
        await self._until(lambda: self._another_than(first), "the other controller")
        assert await self._moving_to(while_moving_to), "the next controller has the same moves to end"
        await self._do(self._faults.start, broker_name(broker))
        await self._do(self._faults.start, process_name(CONTROLLER, first))
        await self._do(self._faults.heal)

    async def _moving_to(self, broker: int) -> bool:
        return any(broker in each.adding_replicas for each in (await self._admin.reassignments.list()).values())

    async def _active(self) -> int:
        return (await self._admin.describe_cluster()).controller_id

    async def _another_than(self, first: int) -> bool:
        return await self._active() not in (first, -1)

    async def even(self, brokers: Collection[int]) -> None:
        """Within one replica and one leader, over all topics together, as soon as all replicas are in sync."""
        await self._until(self._all_in_sync, "every ISR full")
        await self._admin.elect_leaders()
        topics = await self._admin.describe_topics()
        rows = [partition for topic in topics for partition in topic.partitions]
        for counted in (
            Counter(each for row in rows for each in row.replicas),
            Counter(row.replicas[0] for row in rows),
            Counter(row.leader for row in rows),
        ):
            assert counted.keys() <= {*brokers}, counted
            assert max(counted[each] for each in brokers) - min(counted[each] for each in brokers) <= 1, counted

    async def _all_in_sync(self) -> bool:
        return (await self._admin.describe_cluster()).under_replicated_partitions == 0

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + WITHIN_S
        while not await condition():
            assert asyncio.get_running_loop().time() < deadline, f"{what} did not come in {WITHIN_S} s"
            await asyncio.sleep(0.1)

    async def _do(self, act: Callable[..., object], *arguments: object, **options: object) -> None:
        await asyncio.to_thread(act, *arguments, **options)


def brokers_on_boards(project: ComposeProject) -> set[str]:
    found = project.prometheus("/api/v1/query", query=LOG_SIZES)["result"]
    return {each["metric"]["instance"] for each in found}


def wait_for_boards(project: ComposeProject, brokers: Collection[int]) -> None:
    wanted = {f"{broker_name(each)}:9101" for each in brokers}
    until(lambda: brokers_on_boards(project) == wanted, f"{sorted(wanted)} in Prometheus", timeout_s=WITHIN_S)


@requirement("Added brokers get an even share by the fewest moves")
@requirement("A reassignment survives a failure at each of its steps")
async def test_three_brokers_become_five_and_three_again_under_load(grown: ComposeProject, tmp_path: Path) -> None:
    project, servers = grown, grown.bootstrap_servers
    load = Load(unique_topic("growth"), PARTITIONS, "all", tmp_path)

    async with Admin(servers, request_timeout_ms=int(WITHIN_S * 1000)) as admin:
        await admin.create_topic(load.topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
        await admin.wait_until_led(load.topic, in_sync=True, timeout_s=WITHIN_S)
        scene = Scene(project, admin)
        async with load.running(servers):
            await scene.grow()
            await scene.even(FIVE)
            await asyncio.to_thread(wait_for_boards, project, FIVE)
            await scene.shrink()
            await scene.even(THREE)
        assert {*project.faults.names(BROKER)} == {broker_name(each) for each in THREE}
        await asyncio.to_thread(wait_for_boards, project, THREE)
    found = await load.read_back(servers)
    assert found.sound and found.read >= load.sent > 1000, found
