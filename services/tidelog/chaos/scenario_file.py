"""Scenario files: YAML into `Scenario`, or a ScenarioError that names the line."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final

from tidelog import topic_config
from tidelog.chaos import expect
from tidelog.chaos.checker.promise import LOSSES, Loss
from tidelog.chaos.faults.base import Fault, On
from tidelog.chaos.faults.registry import fault_named, make
from tidelog.chaos.quantities import share
from tidelog.chaos.scenario import (
    ClusterShape,
    Column,
    ConsumerPlan,
    Expected,
    OtherColumn,
    PlannedFault,
    ProducerPlan,
    Promised,
    RandomPlan,
    Scenario,
    TopicShape,
    Unavailable,
    Workload,
)
from tidelog.chaos.targets import check_hits
from tidelog.chaos.targets import parse as parse_target
from tidelog.chaos.yaml_nodes import Node, ScenarioError, parse_file
from tidelog.cluster.api import BROKER, CONTROLLER, kind_of
from tidelog.config import BrokerSettings, ControllerSettings, Settings, keys
from tidelog.errors import TidelogError
from tidelog.names import suggestion

SUFFIX: Final = ".yaml"
_ROW: Final = re.compile(r"^row-(\d)(?=-|$)")
LOSS_EXPECTED: Final = "expected"
UNTIL_MOVED: Final = "moved"
DURATION_MAX_S: Final = 24 * 3600.0
SETTINGS: Final[Mapping[str, type[Settings]]] = {BROKER: BrokerSettings, CONTROLLER: ControllerSettings}
FAULT_KEYS: Final = ("at", "fault", "target", "for", "until")
"""Whatever else stands there is a parameter of the fault."""


def library() -> Path:
    """Where the scenarios that come with the package are."""
    return Path(str(files("tidelog.chaos").joinpath("scenarios")))


def names() -> list[str]:
    return sorted(path.stem for path in library().glob(f"*{SUFFIX}"))


def find(name: str) -> Path:
    """A scenario by its name, by the part of it that tells it from others (`row-01`, `row-1`), or a file. ScenarioError."""
    path = Path(name)
    if path.is_file():
        return path
    if path.suffix == SUFFIX:
        raise ScenarioError(f"no file {name}")
    known, typed = names(), name
    name = _ROW.sub(r"row-0\1", name)
    matching = [name] if name in known else [each for each in known if each.startswith(f"{name}-")]
    if len(matching) == 1:
        return library() / f"{matching[0]}{SUFFIX}"
    if matching:
        raise ScenarioError(f"{name} may be {', '.join(matching)}")
    parts = typed.count("-") + 1
    beginnings = dict.fromkeys("-".join(each.split("-")[:parts]) for each in known)
    near = suggestion(typed, known) or suggestion(typed, beginnings, most=3)
    raise ScenarioError(f"no scenario {typed}{near} (`tidelog chaos list` shows them all)")


def load(path: Path) -> Scenario:
    """ScenarioError, OSError."""
    return scenario(parse_file(path))


def scenario(root: Node) -> Scenario:
    found = root.fields(
        (
            *(
                "name",
                "row",
                "title",
                "about",
                "runs_in",
                "simulator",
                "duration",
                "cluster",
                "topic",
                "aim",
                "workload",
            ),
            *("faults", "random", "promise", "expect", Column.ALL_1),
        ),
        needed=("name", "title", "about"),
    )
    if ("runs_in" in found) == ("simulator" in found):
        raise root.error(
            "either runs_in or simulator is needed: where it runs, or why nothing but the simulator shows it"
        )
    name, title, about = (found[key].text() for key in ("name", "title", "about"))
    row = found["row"].whole(1, 37) if "row" in found else None
    if "simulator" in found:
        for key in ("duration", "faults", "random", "promise", "expect", Column.ALL_1):
            if key in found:
                raise found[key].error(f"{key}: what only the simulator plays has none here")
        return Scenario(name, title, about, row, runs_in=(), simulator=found["simulator"].text())
    if "duration" not in found:
        raise root.error("duration is missing")
    duration_s = found["duration"].seconds()
    if not 0 < duration_s <= DURATION_MAX_S:
        raise found["duration"].error("duration: above 0 and at most a day")
    runs_in = _runs_in(found["runs_in"])
    cluster = _cluster(found["cluster"]) if "cluster" in found else ClusterShape()
    faults = [_fault(node, duration_s) for node in found["faults"].items()] if "faults" in found else []
    drawn = _random(found["random"]) if "random" in found else None
    for node, planned, to_draw in _with_nodes(found, faults, drawn):
        _check_place(node, planned, runs_in, cluster, to_draw)
    workload = _workload(found["workload"]) if "workload" in found else Workload()
    for node, planned, _ in _with_nodes(found, faults, drawn):
        _check_part(node, planned, workload)
    return Scenario(
        name,
        title,
        about,
        row,
        runs_in=runs_in,
        simulator="",
        duration_s=duration_s,
        cluster=cluster,
        topic=_topic(found["topic"], cluster) if "topic" in found else TopicShape(),
        aim=found["aim"].text() if "aim" in found else None,
        workload=workload,
        faults=tuple(sorted(faults, key=lambda fault: (fault.at_s, fault.at_part or 0.0))),
        random=drawn,
        promise=_promise(found["promise"]) if "promise" in found else Promised(),
        expect=_expectations(found["expect"]) if "expect" in found else (),
        all_1=_other_column(found[Column.ALL_1]) if Column.ALL_1 in found else OtherColumn(),
    )


def _runs_in(node: Node) -> tuple[On, ...]:
    if not node.items():
        raise node.error("runs_in: name at least one of local, compose")
    return tuple(On(each.choice(On)) for each in node.items())


def _cluster(node: Node) -> ClusterShape:
    found = node.fields(("brokers", "controllers", "zookeepers", "proxy", "settings"))
    known = ClusterShape()
    return ClusterShape(
        brokers=found["brokers"].whole(1, 9) if "brokers" in found else known.brokers,
        controllers=found["controllers"].whole(1, 5) if "controllers" in found else known.controllers,
        zookeepers=found["zookeepers"].whole(1, 5) if "zookeepers" in found else known.zookeepers,
        proxy=found["proxy"].flag() if "proxy" in found else known.proxy,
        settings={name: _settings(name, each) for name, each in found["settings"].mapping().items()}
        if "settings" in found
        else {},
    )


def _settings(process: str, node: Node) -> Mapping[str, str]:
    kind = kind_of(process) or process
    if kind not in SETTINGS:
        raise node.error(f"{node.what}: settings are of a {' or a '.join(SETTINGS)}, like broker or broker-1")
    return {key: each.written for key, each in node.fields(keys(SETTINGS[kind])).items()}


def _topic(node: Node, cluster: ClusterShape) -> TopicShape:
    found = node.fields(("name", "partitions", "replication_factor", "min_isr", "configs"))
    known = TopicShape()
    replicas = known.replication_factor
    if "replication_factor" in found:
        replicas = found["replication_factor"].whole(1, cluster.brokers)
    configs = found["configs"].mapping() if "configs" in found else {}
    for key, each in configs.items():
        each.parsed(partial(_topic_config, key))
    return TopicShape(
        name=found["name"].text() if "name" in found else known.name,
        partitions=found["partitions"].whole(1, 100) if "partitions" in found else known.partitions,
        replication_factor=replicas,
        min_isr=found["min_isr"].whole(1, replicas) if "min_isr" in found else min(known.min_isr, replicas),
        configs={key: each.written for key, each in configs.items()},
    )


def _topic_config(key: str, text: str) -> None:
    try:
        config = topic_config.parse({key: text}, topic_config.TopicConfig())
    except TidelogError as error:
        raise ValueError(error.message) from None
    if config.compacts:
        raise ValueError(
            f"{text!r} removes records on purpose, and the checker holds every one of them against the run"
        )


def _workload(node: Node) -> Workload:
    found = node.fields(("rate", "keys", "value_bytes", "orders", "lines", "producers", "consumers"))
    known = Workload()
    ends = "orders" in found or "lines" in found
    if "orders" in found and "lines" in found:
        raise found["lines"].error("workload: either orders or lines")
    if ends and "producers" in found and len(found["producers"].items()) > 1:
        raise found["producers"].error("workload.producers: one sends the orders or the lines")
    return Workload(
        rate=found["rate"].number(0.1, 20_000) if "rate" in found else None if ends else known.rate,
        orders=found["orders"].whole(1, 100_000_000) if "orders" in found else None,
        lines=Path(found["lines"].text()) if "lines" in found else None,
        keys=found["keys"].whole(1, 100_000) if "keys" in found else known.keys,
        value_bytes=found["value_bytes"].whole(0, 100_000) if "value_bytes" in found else known.value_bytes,
        producers=_some(found["producers"], _producer) if "producers" in found else known.producers,
        consumers=_consumers(found["consumers"]) if "consumers" in found else known.consumers,
    )


def _some(node: Node, make_one: Callable[[Node], ProducerPlan]) -> Sequence[ProducerPlan]:
    if not node.items():
        raise node.error(f"{node.what}: name at least one")
    return tuple(make_one(each) for each in node.items())


def _producer(node: Node) -> ProducerPlan:
    found = node.fields(("acks", "count", "delivery_timeout"), needed=("acks",))
    known = ProducerPlan()
    return ProducerPlan(
        acks=found["acks"].choice(("all", "1", "0")),
        count=found["count"].whole(1, 100) if "count" in found else known.count,
        delivery_timeout_s=found["delivery_timeout"].seconds()
        if "delivery_timeout" in found
        else known.delivery_timeout_s,
    )


def _consumers(node: Node) -> ConsumerPlan:
    found = node.fields(("assigned", "group", "agents", "spark", "session", "crash_every"))
    known = ConsumerPlan()
    return ConsumerPlan(
        assigned=found["assigned"].whole(0, 50) if "assigned" in found else known.assigned,
        group=found["group"].whole(0, 50) if "group" in found else known.group,
        agents=found["agents"].whole(0, 9) if "agents" in found else known.agents,
        spark=found["spark"].flag() if "spark" in found else known.spark,
        session_s=found["session"].seconds() if "session" in found else known.session_s,
        crash_every_s=found["crash_every"].seconds() if "crash_every" in found else None,
    )


def _fault(node: Node, duration_s: float) -> PlannedFault:
    found = node.mapping()
    for key in ("at", "fault", "target"):
        if key not in found:
            raise node.error(f"{node.what}: {key} is missing")
    if found["at"].written.endswith("%"):
        return _at_part(node)
    at_s = found["at"].seconds()
    for_s = found["for"].seconds() if "for" in found else None
    if "until" in found:
        raise found["until"].error(f"{found['until'].what}: of a fault whose `at` is a part of the load, like 50%")
    if at_s + (for_s or 0.0) > duration_s:
        last = found["for"] if for_s else found["at"]
        raise last.error(f"{last.what}: {at_s + (for_s or 0.0):g}s is beyond the duration of {duration_s:g}s")
    return _aimed(node, at_s, for_s)


def _at_part(node: Node) -> PlannedFault:
    """At a part of a load that ends by itself."""
    found = node.mapping()
    planned = _aimed(node, 0.0, found["for"].seconds() if "for" in found else None)
    planned = replace(planned, at_part=found["at"].parsed(share))
    if "until" not in found:
        return planned
    if "for" in found:
        raise found["until"].error(f"{found['until'].what}: either for or until")
    if found["until"].written == UNTIL_MOVED:
        return replace(planned, until_moved=True)
    return replace(planned, until_part=found["until"].parsed(share))


def _aimed(node: Node, at_s: float, for_s: float | None) -> PlannedFault:
    found = node.mapping()
    kind = found["fault"].parsed(fault_named)
    target = found["target"].parsed(parse_target)
    others = {key: each for key, each in found.items() if key not in FAULT_KEYS}
    for key, each in others.items():
        each.parsed(partial(_make_with, kind, key))
    found["target"].parsed(lambda _: check_hits(kind, target))
    return PlannedFault(at_s, make(kind, {key: each.written for key, each in others.items()}), target, for_s)


def _make_with(kind: type[Fault], key: str, text: str) -> Fault:
    return make(kind, {key: text})


def _random(node: Node) -> RandomPlan:
    found = node.fields(("every", "quiet", "at_most", "faults"), needed=("every", "faults"))
    every_s = found["every"].seconds()
    if every_s < 1:
        raise found["every"].error("random.every: at least 1s")
    choices = []
    for each in found["faults"].items():
        for key in ("fault", "target"):
            if key not in each.mapping():
                raise each.error(f"{each.what}: {key} is missing")
        for key in ("at", "for"):
            if key in each.mapping():
                raise each.mapping()[key].error(f"{each.what}.{key}: it is drawn, not given")
        choices.append(_aimed(each, 0.0, None))
    if not choices:
        raise found["faults"].error("random.faults: name at least one")
    return RandomPlan(
        every_s=every_s,
        quiet=found["quiet"].number(0.0, 1.0) if "quiet" in found else 0.25,
        at_most=found["at_most"].whole(1, 10) if "at_most" in found else 2,
        faults=tuple(choices),
    )


def _with_nodes(
    found: Mapping[str, Node], faults: Sequence[PlannedFault], drawn: RandomPlan | None
) -> Iterator[tuple[Node, PlannedFault, bool]]:
    """And whether it is one of those to draw."""
    if faults:
        for node, planned in zip(found["faults"].items(), faults, strict=True):
            yield node, planned, False
    if drawn is not None:
        for node, planned in zip(found["random"].mapping()["faults"].items(), drawn.faults, strict=True):
            yield node, planned, True


def _check_place(
    node: Node, planned: PlannedFault, runs_in: Sequence[On], cluster: ClusterShape, to_draw: bool
) -> None:
    kind = type(planned.fault)
    where = node.mapping()["fault"]
    reasons = [(on, why) for on in runs_in if (why := planned.fault.why_not(on))]
    if reasons and (
        len(reasons) == len(runs_in) or not to_draw
    ):  # one of many to draw is left out where it cannot be played
        on, why = reasons[0]
        raise where.error(f"{where.what}: {kind.name} cannot be played on {on}: {why}")
    if On.LOCAL in runs_in and kind.needs_proxy and not cluster.proxy:
        raise where.error(f"{where.what}: {kind.name} needs a cluster whose links can be cut: cluster.proxy: true")


def _check_part(node: Node, planned: PlannedFault, workload: Workload) -> None:
    if planned.at_part is not None and workload.orders is None and workload.lines is None:
        raise node.error(f"{node.what}.at: only a load of orders or lines has parts")
    if planned.until_moved and not workload.consumers.agents:
        raise node.error(f"{node.what}.until: nothing moves without agents")


def _other_column(node: Node) -> OtherColumn:
    found = node.fields(("promise", "expect"))
    if not found:
        raise node.error(f"{node.what}: promise, expect or both; what is left out is as without it")
    return OtherColumn(
        promise=_promise(found["promise"]) if "promise" in found else None,
        expect=_expectations(found["expect"]) if "expect" in found else None,
    )


def _promise(node: Node) -> Promised:
    found = node.fields(("lost", "unavailable"))
    wanted = found["lost"].choice((*LOSSES, LOSS_EXPECTED)) if "lost" in found else "none"
    lost: Loss = next((loss for loss in LOSSES if loss == wanted), "allowed")
    unavailable: Sequence[Node] = ()
    if "unavailable" in found:
        unavailable = (
            found["unavailable"].items() if isinstance(found["unavailable"].value, list) else [found["unavailable"]]
        )
    return Promised(
        lost=lost,
        loss_expected=wanted == LOSS_EXPECTED,
        unavailable=tuple(_unavailable(each) for each in unavailable),
    )


def _unavailable(node: Node) -> Unavailable:
    found = node.fields(("at_most", "others", "acks"), needed=("at_most",))
    return Unavailable(
        at_most_s=found["at_most"].seconds(),
        others_s=found["others"].seconds() if "others" in found else None,
        acks=found["acks"].choice(("all", "1")) if "acks" in found else None,
    )


def _expectations(node: Node) -> tuple[Expected, ...]:
    return tuple(_expected(each) for each in node.items())


def _expected(node: Node) -> Expected:
    """`no elections`, or with an argument `elections at most: 2`."""
    if isinstance(node.value, dict):
        if len(node.value) != 1:
            raise node.error(f"{node.what}: one predicate each")
        ((name, argument),) = node.value.items()
        text = argument.written
    else:
        name, argument, text = node.text(), node, ""
    try:
        return expect.check(name, text)
    except ValueError as error:
        raise argument.error(f"{node.what}: {error}") from None
