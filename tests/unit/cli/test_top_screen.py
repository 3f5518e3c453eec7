"""`tidelog top` on terminals of several sizes, recorded: nothing wraps, nothing overflows, the worst is on the screen."""

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console, Group

from helpers.overviews import AT, broker, described, group, overview, partition, topic
from tidelog.cli.top_keys import HELP, Keys
from tidelog.cli.top_rows import View, view_of
from tidelog.cli.top_screen import lines_of, partitions_shown

SIZES = [(80, 24), (200, 60), (100, 30), (80, 8), (40, 12), (20, 5)]


def recorded(view: View, width: int, height: int, first: int = 0) -> tuple[list[str], str]:
    """What stands on the screen, line by line, and the same with its colours."""
    console = Console(
        record=True, width=width, height=height, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Group(*lines_of(view, width, height, first)), crop=False)
    styled = console.export_text(styles=True, clear=False)
    return console.export_text().splitlines(), styled


def wounded(partitions: int = 12, groups: int = 2, brokers: int = 3, name: str = "events") -> View:
    """Broker 1 is dead: a third of the partitions has just been given to another, one has none."""
    live = [number for number in range(brokers) if number != 1]
    parts = [partition(p, leader=live[p % len(live)], isr=(0, 2), leader_epoch=12) for p in range(partitions)]
    if parts:
        parts[-1] = partition(partitions - 1, leader=-1, isr=(1,))
    t = topic(name, *parts)
    ends = {(name, p): 1_234_567_890 + p for p in range(partitions)}
    seen = [
        broker(number, ends)
        if number != 1
        else replace(broker(1, ends), problem="not in the cluster", answered_at=AT - 7)
        for number in range(brokers)
    ]
    return view_of(
        None,
        overview(
            t,
            brokers=seen,
            high_watermarks={tp: end - 3 for tp, end in ends.items()},
            groups=[
                group(f"readers-of-everything-{number}", {(name, 0): 1_234_000_000}, owned=[(name, 0)])
                for number in range(groups)
            ],
            cluster=described([t], live),
        ),
    )


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize(
    "view",
    [
        wounded(),
        wounded(1000, 300, 9),
        wounded(40, 40, 30, "a-topic-whose-name-is-as-long-as-" + "x" * 200),
        wounded(0, 0),
        replace(wounded(), problems=("a sentence that is far too long for any screen " * 9,) * 4),
    ],
    ids=["small", "large", "long", "empty", "problems"],
)
def test_nothing_wraps_and_nothing_overflows(view: View, width: int, height: int) -> None:
    lines, _ = recorded(view, width, height)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    plain = lines_of(view, width, height)
    assert [line.plain.rstrip() for line in plain] == [line.rstrip() for line in lines], (
        "a line stays one line, and whole"
    )


def test_80_by_24() -> None:
    lines, styled = recorded(wounded(), 80, 24)
    assert lines[0].startswith("tidelog top  ")
    assert lines[1:15] == [
        "controller 1 (epoch 3)  2 of 3 brokers up  1 topic  12 partitions",
        "offline 1  under min ISR 1  under-replicated 12  - records/s",
        "no answer from broker 1",
        "",
        "BROKER  ADDRESS          STATE  LEADERS  REPLICAS  OUT  BEHIND  REC/S  GROUPS",
        "     1  localhost:19093  down         0        12   11       0      -       0",
        "     0  localhost:19092  alive        6        12    1       0      0       2",
        "     2  localhost:19094  alive        5        12    1       0      0       0",
        "",
        "TOPIC   PART  LEADER  ISR              HW         LEO  LAG  STATUS",
        "events    11    none  1/3 1    1234567898           -    -  offline",
        "events     0       0  2/3 0,2  1234567887  1234567890    0  under-replicated",
        "events     1       2  2/3 0,2  1234567888  1234567891    0  under-replicated",
        "events     2       0  2/3 0,2  1234567889  1234567892    0  under-replicated",
    ]
    assert lines[-5:] == [
        "... 4 more",
        "",
        "GROUP                    STATE   COORDINATOR  MEMBERS      LAG  COMMITS/S",
        "readers-of-everything-0  Stable            0        1  567,887          -",
        "readers-of-everything-1  Stable            0        1  567,887          -",
    ]
    assert "\x1b[1;31mevents    11" in styled, "what is bad is red"
    assert "\x1b[33mevents     0" in styled, "what is not well is yellow"


def test_200_by_60_has_every_column_and_every_row() -> None:
    lines, _ = recorded(wounded(), 200, 60)
    assert "TOPIC   PART  LEADER  EPOCH  REPLICAS  ISR              HW         LEO  LAG  BEHIND  REC/S  STATUS" in lines
    assert sum(line.startswith("events ") for line in lines) == 12
    assert not [line for line in lines if line.endswith("more")]


def test_80_by_24_of_a_large_cluster_is_filled_and_says_how_much_more_there_is() -> None:
    lines, _ = recorded(wounded(1000, 300, 9), 80, 24)
    assert len(lines) == 24
    assert [line for line in lines if line.endswith("more")] == ["... 7 more", "... 993 more", "... 298 more"]
    assert lines[6].split()[2] == "down", "the dead one is not among those left out"
    assert lines[11].split()[-1] == "offline"


def test_without_a_terminal_nothing_is_cut() -> None:
    view = wounded(1000, 300, 9, "t" * 249)
    lines = [line.plain for line in lines_of(view)]
    assert sum(line.startswith("t" * 249 + " ") for line in lines) == 1000
    assert not [line for line in lines if "…" in line or line.endswith("more")]


def test_keys_reach_every_partition_on_a_small_terminal() -> None:
    view, keys = wounded(partitions=30), Keys()
    page = partitions_shown(view, 20)
    seen: set[str] = set()
    for _ in range(30):
        lines, _ = recorded(view, 60, 20, keys.first)
        seen |= {line.split()[1] for line in lines if line.startswith("events")}
        keys.press(b" ", page, 30)
    assert seen == {str(number) for number in range(30)}
    assert keys.first == 29
    lines, _ = recorded(view, 60, 20, keys.first)
    assert "... 29 above" in lines and len(lines) <= 20
    keys.press(b"k", page, 30)
    lines, _ = recorded(view, 60, 20, keys.first - 20)
    assert "... 8 above, " in next(line for line in lines if line.startswith("..."))
    keys.press(b"g", page, 30)
    assert (keys.first, partitions_shown(wounded(partitions=2), 40)) == (0, 2)


def test_a_question_mark_shows_the_help_and_q_ends_it() -> None:
    keys = Keys()
    keys.press(b"jj\x1b[Bk\x1b[A?", 5, 30)
    assert (keys.first, keys.helps) == (1, True)
    keys.press(b"j", 5, 30)
    assert (keys.first, keys.helps, keys.quits) == (1, False, False)
    keys.press(b"\x1b[6~", 5, 3)
    assert keys.first == 2
    keys.press(b"?q", 5, 30)
    assert keys.quits
    assert len(HELP) <= 20 and max(map(len, HELP)) <= 60
    closed = Keys()
    closed.press(b"", 5, 30)
    assert closed.quits


def test_without_utf_8_what_is_cut_ends_in_a_tilde() -> None:
    view = wounded(name="events-of-a-very-long-name-that-no-terminal-of-sixty-columns-shows")
    for ascii_only, mark in ((False, "…"), (True, "~")):
        text = "\n".join(line.plain for line in lines_of(view, 60, 20, ascii_only=ascii_only))
        assert mark in text and text.isascii() is ascii_only
