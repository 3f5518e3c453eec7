"""Story files: YAML into `Story`, or a StoryError that names the file and the line."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from tidelog.chaos.checker.promise import LOSSES, Loss
from tidelog.chaos.yaml_nodes import Node, parse_file
from tidelog.lab.actions import ACTIONS, Action, settings
from tidelog.lab.cast import Cast
from tidelog.lab.cluster import TIMING
from tidelog.lab.digest import Chain
from tidelog.lab.expectation_file import expectation
from tidelog.lab.expectations import Expectation
from tidelog.lab.story import DURATION_MAX_S, VERSION, Beat, Story, StoryError, TopicPlan, simulated
from tidelog.names import suggestion
from tidelog.testing.sim_node import Timing
from tidelog.testing.stories import NAMES

SUFFIX: Final = ".yaml"
DIGESTS: Final = "digests.json"
"""Beside the lessons: the digest of the events of each."""
ACTIONS_MAX: Final = 500
EXPECTATIONS_MAX: Final = 200
STEPS_MAX: Final = 100_000_000
SEED_MAX: Final = 2**53
"""The highest seed of a run of the simulator."""
WORDS: Final = ("title", "text", "question", "answer", "mutant")
KEYS: Final = (
    *("version", "lesson", *WORDS, "seed", "cluster", "topics"),
    *("promise", "duration", "actions", "expect", "digest", "simulation"),
)
SIMULATION_KEYS: Final = ("version", "title", "text", "seed", "simulation", "digest")
BEAT_KEYS: Final = ("at", "do", "as", "say")
TIMEOUTS: Final = ("session", "lag", "request", "suspect hold", "keepalive", "preferred leaders")


def library() -> Path:
    """Returns the directory of the lessons that come with the package."""
    return Path(str(files("tidelog.lab").joinpath("lessons")))


def lessons() -> list[Path]:
    """Returns the files of all lessons in their order."""
    return sorted(library().glob(f"*{SUFFIX}"))


def find(name: str) -> Path:
    """Returns a lesson by its number or its name, or a file. StoryError."""
    path = Path(name)
    if path.is_file():
        return path
    if path.suffix == SUFFIX:
        raise StoryError(f"no file {name}")
    known = {each.stem: each for each in lessons()}
    number = f"{int(name):02}-" if name.isascii() and name.isdigit() and len(name) < 4 else ""
    for stem, each in known.items():
        if name in (stem, stem.partition("-")[2]) or (number and stem.startswith(number)):
            return each
    near = suggestion(name, [*known, *(stem.partition("-")[2] for stem in known)])
    raise StoryError(f"no lesson and no file {name}{near} (`tidelog lab lessons` lists the lessons)")


def load(path: Path) -> Story:
    """StoryError, OSError."""
    return story(parse_file(path))


def story(root: Node) -> Story:
    if "simulation" in root.mapping():
        return _simulation(root)
    found = root.fields(KEYS, needed=("version", "title", "duration", "actions", "expect"))
    _check_version(found["version"])
    duration_s = found["duration"].seconds()
    if not 0 < duration_s <= DURATION_MAX_S:
        raise found["duration"].error(f"duration: above 0 and at most {DURATION_MAX_S:g} s")
    brokers, controllers, timing = _cluster(found.get("cluster"))
    topics = _topics(found["topics"], brokers) if "topics" in found else ()
    cast = Cast(brokers, controllers, {topic.name: topic.count for topic in topics})
    beats = _beats(found["actions"], cast, duration_s)
    expectations = _expectations(found["expect"], cast, duration_s)
    lost = found["promise"].choice(LOSSES) if "promise" in found else "none"
    promise: Loss = next(loss for loss in LOSSES if loss == lost)
    return Story(
        file=root.file,
        seed=found["seed"].whole(0) if "seed" in found else 0,
        duration_s=duration_s,
        beats=beats,
        expectations=expectations,
        lesson=found["lesson"].whole(1, 99) if "lesson" in found else None,
        **_words(found),
        brokers=brokers,
        controllers=controllers,
        timing=timing,
        topics=topics,
        promise=promise,
        chain=_chain(found["digest"]) if "digest" in found else None,
    )


def _check_version(node: Node) -> None:
    if (version := node.whole(1)) > VERSION:
        raise node.error(f"version: the story has version {version}, this tidelog knows {VERSION}")


def _words(found: Mapping[str, Node]) -> dict[str, str]:
    return {word: " ".join(found[word].text().split()) for word in WORDS if word in found}


def _simulation(root: Node) -> Story:
    for key, node in root.mapping().items():
        if key in KEYS and key not in SIMULATION_KEYS:
            raise node.error(f"{key}: a story with `simulation` has none; its seed decides everything")
    found = root.fields(SIMULATION_KEYS, needed=("version", "title", "seed", "simulation"))
    _check_version(found["version"])
    words = _words(found)
    made = simulated(found["seed"].whole(0, SEED_MAX), found["simulation"].choice(NAMES))
    chain = _chain(found["digest"]) if "digest" in found else None
    return replace(made, file=root.file, title=words["title"], text=words.get("text", ""), chain=chain)


def _chain(node: Node) -> Chain:
    found = node.fields(("steps", "every", "links"), needed=("steps", "every", "links"))
    steps, every = found["steps"].whole(1, STEPS_MAX), found["every"].whole(1, STEPS_MAX)
    return found["links"].parsed(lambda text: Chain.parse(steps, every, text))


def _cluster(node: Node | None) -> tuple[int, int, Timing]:
    if node is None:
        return 3, 2, TIMING
    found = node.fields(("brokers", "controllers", "timeouts"))
    brokers = found["brokers"].whole(1, 9) if "brokers" in found else 3
    controllers = found["controllers"].whole(1, 5) if "controllers" in found else 2
    return brokers, controllers, _timing(found["timeouts"]) if "timeouts" in found else TIMING


def _timing(node: Node) -> Timing:
    found = node.fields(TIMEOUTS)

    def ms(name: str, least: float, most: float) -> dict[str, int]:
        if name not in found:
            return {}
        seconds = found[name].seconds()
        if not least <= seconds <= most:
            raise found[name].error(f"{found[name].what}: from {least:g} s to {most:g} s")
        return {TIMEOUT_FIELDS[name]: round(seconds * 1000)}

    changed = {
        **ms("session", 0.5, 60),
        **ms("lag", 0.1, 60),
        **ms("request", 0.1, 60),
        **ms("suspect hold", 0.1, 60),
        **ms("preferred leaders", 0.1, 3_600),
    }
    timing = replace(TIMING, **changed)
    return replace(timing, keepalive_s=found["keepalive"].seconds()) if "keepalive" in found else timing


TIMEOUT_FIELDS: Final = {
    "session": "session_ms",
    "lag": "lag_ms",
    "request": "request_ms",
    "suspect hold": "suspect_hold_ms",
    "preferred leaders": "rebalance_ms",
}


def _topics(node: Node, brokers: int) -> tuple[TopicPlan, ...]:
    made: dict[str, TopicPlan] = {}
    cast = Cast(brokers, 1)
    for each in node.items():
        found = each.fields(
            ("name", "partitions", "replication factor", "replicas", "min isr", "settings"), needed=("name",)
        )
        name = found["name"].text()
        if name in made:
            raise found["name"].error(f"{found['name'].what}: topic {name} is there already")
        factor = found["replication factor"].whole(1, brokers) if "replication factor" in found else min(3, brokers)
        rows = _rows(found["replicas"], cast) if "replicas" in found else ()
        copies = min(map(len, rows)) if rows else factor
        least = found["min isr"].whole(1, copies) if "min isr" in found else min(2, copies)
        wanted = settings(found["settings"], cast) if "settings" in found else {}
        made[name] = TopicPlan(
            name=name,
            partitions=found["partitions"].whole(1, 100) if "partitions" in found else 1,
            replication_factor=factor,
            replicas=rows,
            settings={"min.insync.replicas": str(least), **wanted},
        )
    return tuple(made.values())


def _rows(node: Node, cast: Cast) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(cast.broker(each) for each in row.items()) for row in node.items())


def _beats(node: Node, cast: Cast, duration_s: float) -> tuple[Beat, ...]:
    found = node.items()
    if len(found) > ACTIONS_MAX:
        raise node.error(f"actions: {len(found)}; a story has at most {ACTIONS_MAX}")
    beats: list[Beat] = []
    for each in found:
        made = beat(each, cast)
        where = each.mapping()["at"]
        if beats and made.at_s < beats[-1].at_s:
            raise where.error(f"{where.what}: {made.at_s:g} s is before the action above it, at {beats[-1].at_s:g} s")
        if made.at_s > duration_s:
            raise where.error(f"{where.what}: {made.at_s:g} s is after the end of the story, at {duration_s:g} s")
        beats.append(made)
    return tuple(beats)


def beat(node: Node, cast: Cast) -> Beat:
    """Reads one item of `actions`. StoryError."""
    keys = node.mapping()
    if "at" not in keys:
        raise node.error(f"{node.what}: at is missing")
    if ("do" in keys) == ("say" in keys):
        raise node.error(f"{node.what}: either do or say is needed: an action, or a word to the reader")
    at_s = keys["at"].seconds()
    if "say" in keys:
        found = node.fields(("at", "say"))
        return Beat(at_s, node.line, None, {"say": " ".join(found["say"].text().split())}, written=node.plain())
    action = ACTIONS[keys["do"].choice(ACTIONS)]
    values = _values(node, action, cast)
    label = ""
    if "as" in keys:
        label = keys["as"].text()
        if not action.labels:
            raise keys["as"].error(f"{keys['as'].what}: {keys['do'].written} has no result to name")
        if label in cast.labels or label in cast.processes:
            raise keys["as"].error(f"{keys['as'].what}: {label!r} is a name already")
        cast.labels[label] = action.labels
    action.tell(cast, values)
    return Beat(at_s, node.line, action, values, label, node.plain())


def _values(node: Node, action: Action, cast: Cast) -> Mapping[str, Any]:
    parameters = {**action.needs, **action.may}
    keys = [key for key in BEAT_KEYS if key != "say"]
    found = node.fields((*keys, *parameters), needed=action.needs)
    return {name: each.read(found[name], cast) for name, each in parameters.items() if name in found}


def _expectations(node: Node, cast: Cast, duration_s: float) -> tuple[Expectation, ...]:
    found = node.items()
    if not 0 < len(found) <= EXPECTATIONS_MAX:
        raise node.error(f"expect: {len(found)}; a story has from 1 to {EXPECTATIONS_MAX}")
    return tuple(expectation(each, cast, duration_s) for each in found)
