"""A picture of a cluster for a notebook: brokers as columns, partitions as rows."""

from html import escape
from typing import Final

from tidelog.lab.view import UP, Partition, View

ROWS_MAX: Final = 40


def html(view: View) -> str:
    """Returns a table, in each cell log end and high watermark of a replica. Every text in it is escaped."""
    states = view.processes()
    brokers = {int(name.partition("-")[2]): name for name in states if name.startswith("broker")}
    partitions = view.partitions()
    head = "".join(f"<th>{escape(name)}{_unless_up(states[name])}</th>" for name in brokers.values())
    rows = "".join(_row(each, brokers) for each in partitions[:ROWS_MAX])
    left = len(partitions) - ROWS_MAX
    more = f"<p>and {left:,} more partitions</p>" if left > 0 else ""
    others = ", ".join(
        escape(f"{name}{' (acts)' if name == view.controller else ''}") + _unless_up(state)
        for name, state in states.items()
        if name not in brokers.values()
    )
    return (
        f"<p>{view.time:.3f} s; {others}</p>"
        f"<table><thead><tr><th>partition</th><th>epoch</th><th>ISR</th>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"
        "<p>In each cell: log end (high watermark). * leads; [ ] is out of the ISR.</p>"
    )


def _unless_up(state: str) -> str:
    return "" if state == UP else f" ({escape(state)})"


def _row(partition: Partition, brokers: dict[int, str]) -> str:
    cells = "".join(f"<td>{_cell(partition, broker)}</td>" for broker in brokers)
    isr = ",".join(map(str, partition.isr))
    name = escape(f"{partition.topic}-{partition.number}")
    return f"<tr><td>{name}</td><td>{partition.epoch}</td><td>{isr}</td>{cells}</tr>"


def _cell(partition: Partition, broker: int) -> str:
    replica = partition.at.get(broker)
    if broker not in partition.replicas and replica is None:
        return ""
    text = "&ndash;" if replica is None else f"{replica.log_end} ({replica.high_watermark})"
    if broker not in partition.isr:
        text = f"[{text}]"
    return f"*{text}" if broker == partition.leader else text
