"""One process with a home: found again by pid and creation time, paused, killed, and never mistaken for another."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tidelog.cluster.api import ClusterError, State
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.os_process import OsProcess, kill_unrecorded, tail, unrecorded_below
from tidelog.cluster.process_life import life_of
from tidelog.cluster.wait import until

SLEEPER = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OsProcess]:
    made = OsProcess("sleeper-1", tmp_path / "sleeper-1")
    yield made
    if made.find() is not None:
        made.kill()


def test_it_is_found_again_by_another_program(process: OsProcess) -> None:
    process.start(SLEEPER, os.environ)
    later = OsProcess(process.name, process.home)
    found = later.find()
    assert found is not None and found.pid == process.find().pid
    later.kill()
    assert (later.state(), process.state()) == (State.STOPPED, State.STOPPED)


def test_a_stranger_with_the_same_pid_is_left_alone(process: OsProcess) -> None:
    stranger = subprocess.Popen(SLEEPER, stdout=subprocess.DEVNULL)
    try:
        pid, began_s, boot = life_of(stranger.pid).split()
        process.home.mkdir()
        process.pid_file.write_text(f"{pid} {float(began_s) - 60:.2f} {boot}\n")
        assert process.find() is None
        with pytest.raises(ClusterError, match="does not run"):
            process.kill()
        process.terminate()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_changes_nothing(
    process: OsProcess, step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.start(SLEEPER, os.environ)
    running = process.find()
    boot_time = psutil._pslinux.boot_time  # type: ignore[attr-defined]
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_time() + step_s)
    assert process.state() is State.RUNNING
    assert process.find().pid == running.pid
    with pytest.raises(ClusterError, match="already runs"):
        process.start(SLEEPER, os.environ)


def test_pause_and_resume_are_seen(process: OsProcess) -> None:
    process.start(SLEEPER, os.environ)
    process.signal(signal.SIGSTOP)
    process.wait_state(State.PAUSED)
    process.signal(signal.SIGCONT)
    process.wait_state(State.RUNNING)


def test_a_paused_process_can_be_asked_to_end(process: OsProcess) -> None:
    process.start(SLEEPER, os.environ)
    process.signal(signal.SIGSTOP)
    process.wait_state(State.PAUSED)
    process.terminate()
    process.wait_gone(5.0)


def test_kill_takes_what_it_started_along(process: OsProcess) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    process.start([sys.executable, "-c", code], os.environ)
    parent = process.find()
    until(lambda: bool(parent.children()), "the worker", timeout_s=10.0)
    (worker,) = parent.children()
    process.kill()
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, "its end", timeout_s=5.0)


def test_two_at_a_time_are_refused_and_one_after_the_other_works(process: OsProcess) -> None:
    process.start(SLEEPER, os.environ)
    with pytest.raises(ClusterError, match="already runs"):
        process.start(SLEEPER, os.environ)
    until(lambda: tail(process.log_file, 10) == "up", "its first line", timeout_s=10.0)
    process.kill()
    process.start(SLEEPER, os.environ)
    until(lambda: tail(process.log_file, 10) == "up\nup", "its second life's line", timeout_s=10.0)


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(ClusterError, match=r"gave up after 0.1 s of waiting for godot"):
        until(lambda: False, "godot", timeout_s=0.1)


def test_free_ports_are_distinct_and_below_the_ephemeral_range() -> None:
    ports = free_ports(50)
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 50 and all(1024 < port < low for port in ports)


def test_a_process_that_no_pid_file_names_is_found_by_what_it_runs_and_where(tmp_path: Path) -> None:
    """Its owner was interrupted between its start and the writing of the file."""
    home = tmp_path / "broker-1"
    home.mkdir()
    ours, stranger = (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", word], cwd=home)
        for word in ("tidelog.broker", "somebody's shell")
    )
    try:
        assert [process.pid for process in unrecorded_below(tmp_path)] == [ours.pid]
        kill_unrecorded(tmp_path)
        assert ours.wait(10.0) != 0
        assert stranger.poll() is None
    finally:
        for process in (ours, stranger):
            process.kill()
            process.wait()


def test_another_program_is_told_by_which_signal_it_has_ended(process: OsProcess) -> None:
    process.start(SLEEPER, os.environ)
    later = OsProcess(process.name, process.home)
    later.kill()
    assert (process.why_stopped(), later.why_stopped()) == ("SIGKILL", "SIGKILL")
    process.start(SLEEPER, os.environ)
    assert later.why_stopped() == ""
    process.terminate()
    process.wait_gone(5.0)
    assert later.why_stopped() == "SIGTERM"
    process.start([sys.executable, "-c", "raise SystemExit(3)"], os.environ)
    process.wait_gone(5.0)
    assert process.why_stopped() == "exit code 3"
