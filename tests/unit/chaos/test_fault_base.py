"""Faults in general: what a scenario may ask of them, that a miss is noticed, and that whatever was begun is undone."""

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from helpers.aio import run
from helpers.chaos_bed import fake_bed
from helpers.fake_cluster import FakeCluster
from tidelog.chaos.faults.base import (
    Bed,
    Fault,
    FaultMissed,
    InForce,
    Injected,
    ends_as_interrupt,
    one_of,
    parameter,
    to_the_end,
)
from tidelog.chaos.faults.processes import Kill
from tidelog.chaos.faults.registry import FAULTS, fault_named, make, parameters_of
from tidelog.chaos.quantities import duration, rate, share, size
from tidelog.cluster.api import ClusterError, State


@dataclass(frozen=True)
class Tickle(Fault):
    name: ClassVar[str] = "tickle"
    about: ClassVar[str] = "for these tests"
    hits: ClassVar[frozenset[str]] = frozenset({"broker"})
    how: str = parameter("gently", one_of("gently", "hard"), "how it is done")
    pause: float = parameter("1s", duration, "between two times")

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        raise NotImplementedError


def test_a_fault_is_made_with_the_parameters_that_it_declares() -> None:
    assert make(Tickle, {}) == Tickle(how="gently", pause=1.0)
    assert make(Tickle, {"pause": "200ms", "how": "hard"}) == Tickle(how="hard", pause=0.2)
    assert {p.name: p.about for p in parameters_of(Tickle).values()} == {
        "how": "how it is done",
        "pause": "between two times",
    }


@pytest.mark.parametrize(
    "texts, complaint",
    [
        ({"puase": "1s"}, "'tickle' has no parameter 'puase'; did you mean 'pause'?"),
        ({"pause": "soon"}, "pause: 'soon' is not a duration like"),
        ({"how": "softly"}, "how: 'softly' is none of gently, hard"),
    ],
)
def test_a_parameter_that_is_unknown_or_wrong_is_named(texts: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError) as refused:
        make(Tickle, texts)
    assert complaint in str(refused.value)


def test_a_fault_that_is_unknown_or_the_simulators_is_named() -> None:
    assert fault_named("kill") is Kill
    with pytest.raises(ValueError, match="no fault 'kil'; did you mean 'kill'"):
        fault_named("kil")
    with pytest.raises(ValueError, match="'power-loss' is played by the simulator only"):
        fault_named("power-loss")


def test_every_fault_says_what_it_does_and_can_be_made_as_it_is() -> None:
    for name, fault in FAULTS.items():
        assert fault.name == name and fault.about and fault.hits
        assert all(each.about for each in parameters_of(fault).values())
        assert isinstance(make(fault, {}), fault)


def test_amounts_have_units() -> None:
    assert (duration("1.5s"), duration("200ms"), duration("2m")) == (1.5, 0.2, 120.0)
    assert (share("10%"), share("100%"), size("64kB"), size("7"), rate("1MiB/s")) == (0.1, 1.0, 64_000, 7, 2.0**20)
    for parse, text in ((duration, "5"), (share, "101%"), (share, "0.1"), (size, "-1"), (rate, "fast"), (duration, "")):
        with pytest.raises(ValueError):
            parse(text)


async def test_a_fault_is_in_force_until_it_is_healed_and_may_be_healed_twice() -> None:
    cluster = FakeCluster()
    bed = fake_bed(cluster)

    injected = await Kill().inject(bed, ["broker-1", "broker-2"])
    assert injected.effect == "broker-1, broker-2 killed"
    assert bed.in_force.left == [injected]
    await injected.heal()
    assert bed.in_force.left == []
    await injected.heal()

    assert cluster.done[2:] == [("start", "broker-1"), ("start", "broker-2")]


def test_a_fault_that_missed_is_undone_as_far_as_it_went() -> None:
    cluster = FakeCluster(numb_names={"broker-2"})
    bed = fake_bed(cluster)
    with pytest.raises(FaultMissed, match=r"broker-2 is running as process \d+, not stopped"):
        run(Kill().inject(bed, ["broker-1", "broker-2"]))
    assert cluster.states["broker-1"] is State.RUNNING and bed.in_force.left == []


@pytest.mark.real_loop
async def test_an_injection_that_is_cancelled_ends_what_it_is_at_and_is_undone() -> None:
    cluster = FakeCluster()
    bed = fake_bed(cluster)
    killing, go_on = threading.Event(), threading.Event()
    kill = cluster.kill

    def slow_kill(name: str) -> None:
        killing.set()
        assert go_on.wait(10.0)
        kill(name)

    cluster.kill = slow_kill  # type: ignore[method-assign]

    injecting = asyncio.create_task(Kill().inject(bed, ["broker-1"]))
    await asyncio.to_thread(killing.wait, 10.0)
    injecting.cancel()
    await asyncio.sleep(0)
    assert not injecting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await injecting

    assert cluster.done == [("kill", "broker-1"), ("start", "broker-1")]


def test_one_that_cannot_be_undone_does_not_keep_the_others_and_is_named() -> None:
    in_force = InForce()
    undone = []

    def cannot() -> None:
        raise ClusterError("stuck")

    in_force.begin("pause", ["broker-1"], lambda: undone.append("pause"))
    in_force.begin("kill", ["broker-2"], cannot)
    with pytest.raises(ClusterError, match="kill of broker-2 is still in force: stuck"):
        in_force.undo_all()
    assert undone == ["pause"]
    assert [injected.name for injected in in_force.left] == ["kill"]


def test_an_error_that_nobody_expects_does_not_keep_the_others_either() -> None:
    in_force = InForce()
    undone = []

    def cannot() -> None:
        raise KeyError("broker-9")

    in_force.begin("pause", ["broker-1"], lambda: undone.append("pause"))
    in_force.begin("kill", ["broker-9"], cannot)
    with pytest.raises(KeyError):
        in_force.undo_all()
    assert undone == ["pause"]


async def test_a_target_that_cannot_be_healed_does_not_keep_the_others_of_its_fault() -> None:
    cluster = FakeCluster()
    start = cluster.start

    def no_room(name: str) -> None:
        if name == "broker-1":
            raise ClusterError("no port for broker-1")
        start(name)

    cluster.start = no_room  # type: ignore[method-assign]

    injected = await Kill().inject(fake_bed(cluster), ["broker-1", "broker-2", "broker-3"])
    with pytest.raises(ClusterError, match="no port for broker-1"):
        await injected.heal()
    injected = injected

    assert {n: cluster.states[n] for n in injected.targets} == {
        "broker-1": State.STOPPED,
        "broker-2": State.RUNNING,
        "broker-3": State.RUNNING,
    }
    assert not injected.over, "it may be tried again"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_program_ends_it_as_ctrl_c_does_and_faults_are_undone(number: signal.Signals) -> None:
    undone, before = [], signal.signal(number, signal.SIG_DFL)  # nohup has tests begin with a hang-up ignored

    def story() -> None:
        with ends_as_interrupt(), InForce() as in_force:
            in_force.begin("pause", ["broker-1"], lambda: undone.append("pause"))
            os.kill(os.getpid(), number)
            raise AssertionError("nothing came")

    with pytest.raises(KeyboardInterrupt):
        story()
    assert undone == ["pause"] and signal.signal(number, before) is signal.SIG_DFL


async def is_terminated(undone: list[str]) -> None:
    with InForce() as in_force:
        in_force.begin("pause", ["broker-1"], lambda: undone.append("pause"))
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.sleep(10)


def test_a_program_in_the_background_of_a_script_which_has_no_ctrl_c_is_ended_all_the_same() -> None:
    undone: list[str] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), ends_as_interrupt():
            asyncio.run(is_terminated(undone))
    finally:
        signal.signal(signal.SIGINT, before)
    assert undone == ["pause"]


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ends_as_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_while_faults_are_undone_comes_through_behind_it() -> None:
    undone = []

    def undo() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        undone.append(True)

    with pytest.raises(KeyboardInterrupt), InForce() as in_force:
        in_force.begin("pause", ["broker-1"], undo)
        in_force.begin("pause", ["broker-2"], undo)
    assert undone == [True, True]
    assert in_force.left == []


def test_ctrl_c_does_not_hide_that_a_fault_is_still_in_force() -> None:
    def cannot() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise ClusterError("stuck")

    with pytest.raises(ClusterError, match="pause of broker-1 is still in force: stuck"), InForce() as in_force:
        in_force.begin("pause", ["broker-1"], cannot)


def test_what_an_act_raises_comes_out() -> None:
    def act() -> None:
        raise ClusterError("no")

    with pytest.raises(ClusterError, match="no"):
        run(to_the_end(act))
