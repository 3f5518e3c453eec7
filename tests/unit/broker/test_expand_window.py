"""How long expansions wait for company: pure arithmetic over instants (OPEN-19)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.broker.control_plane.expand_window import QUIET_SHARE, ExpandWindow

LONGEST_S = 0.1
QUIET_S = LONGEST_S * QUIET_SHARE


@requirement("ISR expansions wait briefly to share one request")
def test_one_alone_waits_for_the_quiet_time() -> None:
    window = ExpandWindow(LONGEST_S)
    assert window.left_s(5.0) == 0.0
    window.add(5.0, may_wait=True)
    assert window.left_s(5.0) == pytest.approx(QUIET_S)
    assert window.left_s(5.0 + QUIET_S) == 0.0


@requirement("ISR expansions wait briefly to share one request")
def test_a_wave_is_waited_for_until_it_ends_or_the_longest_wait_is_over() -> None:
    window = ExpandWindow(LONGEST_S)
    for step in range(5):
        window.add(5.0 + step * 0.02, may_wait=True)
    assert window.left_s(5.08) == pytest.approx(0.02)  # of the longest wait
    window.taken()
    window.add(6.0, may_wait=True)
    window.add(6.01, may_wait=True)
    assert window.left_s(6.01) == pytest.approx(QUIET_S)


def test_what_may_not_wait_takes_the_others_with_it() -> None:
    window = ExpandWindow(LONGEST_S)
    window.add(5.0, may_wait=True)
    window.add(5.001, may_wait=False)
    window.add(5.002, may_wait=True)
    assert window.left_s(5.002) == 0.0
    window.taken()
    window.add(5.003, may_wait=True)
    assert window.left_s(5.003) > 0.0


@requirement("ISR expansions wait briefly to share one request")
def test_0_switches_it_off() -> None:
    window = ExpandWindow(0.0)
    window.add(5.0, may_wait=True)
    assert window.left_s(5.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 0.2), st.booleans()), min_size=1, max_size=40))
def test_nobody_waits_longer_than_the_longest_wait(gaps: list[tuple[float, bool]]) -> None:
    window = ExpandWindow(LONGEST_S)
    times = list(itertools.accumulate(gap for gap, _ in gaps))
    first = 0.0
    for number, (now, (_, may_wait)) in enumerate(zip(times, gaps, strict=True)):
        if number == 0 or window.left_s(now) == 0.0:
            window.taken()
            first = now
        window.add(now, may_wait=may_wait)
        assert 0.0 <= window.left_s(now) <= max(0.0, first + LONGEST_S - now) + 1e-9
        if not may_wait:
            assert window.left_s(now) == 0.0
