"""Members that are not of this project's client: they answer with error codes, and report what they said they would not."""

from collections.abc import Callable
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.coordinator import effects as fx
from tidelog.errors import ErrorCode
from tidelog.wire import messages as m
from unit.coordinator.scene import Consumer, Scene, tps

E = ErrorCode
ALL = tps("t", 0, 1, 2, 3)


def refuse_start(consumer: Consumer) -> Callable[[], None]:
    """It says that it cannot start; call what is returned when it can."""
    consumer.answers.discard("start")
    hear = consumer.hear

    def answer(message: m.CoordinatorMessage) -> None:
        hear(message)
        if message.start is not None and "start" not in consumer.answers:
            response = m.StartFetcherResponse(
                error_code=E.UNKNOWN_SERVER_ERROR,
                coordinator_epoch=message.start.coordinator_epoch,
                generation=message.start.generation,
            )
            consumer.send(started=response)

    consumer.hear = answer  # type: ignore[method-assign]
    return lambda: consumer.answers.add("start")


def test_a_member_that_cannot_start_has_not_started() -> None:
    scene = Scene()
    a = scene.consumer("a").register()
    b = scene.consumer("b")
    works = refuse_start(b)
    b.register()
    scene.run(5.0)
    assert scene.state() != "Stable" and len(b.bodies(m.StartFetcherRequest)) > 2
    assert scene.of(fx.Alarm), "its group does not become stable"
    works()
    scene.run(5.0, lambda: scene.state() == "Stable")
    assert a.owned | b.owned == ALL and len(b.owned) == 2


@requirement("A rebalance that would change nothing is skipped")
def test_a_returning_member_that_cannot_start_is_started_again() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    b.lose_connection()
    works = refuse_start(b)
    b.owned.clear()
    b.reconnect()
    scene.run(1.0)
    assert scene.state() != "Stable"
    works()
    scene.run(5.0, lambda: scene.state() == "Stable")
    assert a.owned | b.owned == ALL and len(b.owned) == 2


def test_a_member_that_cannot_stop_has_not_stopped() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.answers.discard("stop")
    b = scene.consumer("b").register()
    scene.run(5.0, lambda: bool(a.bodies(m.StopFetcherRequest)))
    a.positions = dict.fromkeys(a.owned, 5)
    a.answer_stop(a.bodies(m.StopFetcherRequest)[-1], error_code=E.UNKNOWN_SERVER_ERROR)
    a.owned = set(ALL)
    scene.run(0.1)
    assert not b.owned and scene.machine.groups["g"].attempt is None, "nothing is given away"
    assert scene.machine.groups["g"].reported == {}, "what it says of its offsets does not count"
    a.answers.add("stop")
    scene.run(5.0, lambda: scene.state() == "Stable")
    assert a.owned | b.owned == ALL and len(b.owned) == 2


def test_a_ping_answered_with_an_error_fails_the_attempt() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.answers -= {"stop", "ping"}
    scene.consumer("b").register()
    scene.run(5.0, lambda: scene.machine.groups["g"].attempt is not None)
    ping = m.PingResponse(error_code=E.UNKNOWN_SERVER_ERROR, coordinator_epoch=a.epoch, generation=a.generation)
    a.send(ping=ping)
    assert scene.machine.groups["g"].attempt is None and scene.machine.groups["g"].failures == 1


@pytest.mark.parametrize("by", ["ping", "stop", "leave"])
def test_only_members_with_auto_commit_report_offsets(by: str) -> None:
    scene = Scene()
    (a,) = scene.join("a", auto_commit=False)
    a.positions = dict.fromkeys(a.owned, 5)
    if by == "ping":
        a.answer_ping()
    elif by == "leave":
        a.leave()
    else:
        scene.join("b")
    scene.run(10.0)
    assert scene.offsets.get("g", {}) == {} and any(each.what == by for each in scene.of(fx.Refused))


@requirement("A registration is answered with success or an error code")
@pytest.mark.parametrize("empties", [True, False])
def test_a_member_alone_chooses_the_assignor(empties: bool) -> None:
    """A static member keeps its place over a restart, so that its group is never empty."""
    scene = Scene()
    (a,) = scene.join("a", static_member=not empties)
    assert scene.machine.groups["g"].assignor == "range"
    a.leave()
    fields: dict[str, Any] = {"assignor": "roundrobin", "static_member": not empties}
    scene.join("a", **fields)
    assert scene.machine.groups["g"].assignor == "roundrobin"
    b = scene.consumer("b").register(**fields)
    assert b.error is None
    refused = scene.consumer("c").register(assignor="range")
    assert refused.error is not None and refused.error.error_code is E.INCONSISTENT_GROUP_PROTOCOL
