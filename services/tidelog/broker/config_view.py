"""Settings as DescribeConfigs shows them: what is in force, where it comes from, and what else was said (KIP-226)."""

from collections.abc import Mapping
from typing import Final

from tidelog import config, topic_config
from tidelog.config import BrokerSettings
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m

DYNAMIC_TOPIC_CONFIG: Final = "DYNAMIC_TOPIC_CONFIG"
STATIC_BROKER_CONFIG: Final = "STATIC_BROKER_CONFIG"
DEFAULT_CONFIG: Final = "DEFAULT_CONFIG"

BROKER_SETTING_OF: Final[Mapping[str, str]] = {
    "min.insync.replicas": "min_insync_replicas",
    "max.message.bytes": "message_max_bytes",
    "segment.bytes": "segment_bytes",
    "segment.ms": "log_roll_ms",
    "retention.ms": "log_retention_ms",
    "retention.bytes": "log_retention_bytes",
}
"""What counts for topics that say nothing themselves."""

_LISTENERS: Final = ("listeners", "advertised_listeners")


def topic_defaults(settings: BrokerSettings) -> TopicConfig:
    """The settings of a topic that says nothing itself."""
    entries = {key: str(getattr(settings, setting)) for key, setting in BROKER_SETTING_OF.items()}
    return topic_config.parse(entries, TopicConfig())


def describe_topic(overrides: Mapping[str, str], settings: BrokerSettings) -> tuple[m.DescribedConfig, ...]:
    """Every setting that this release knows, and after them what a newer one has stored."""
    rows = {row.key: row for row in config.explain(settings)}
    built_in = topic_config.to_entries(TopicConfig())
    found = []
    for key, default in built_in.items():
        said = []
        if key in overrides:
            said.append(_synonym(key, overrides[key], DYNAMIC_TOPIC_CONFIG))
        if key in BROKER_SETTING_OF:
            said += _broker_synonyms(rows[BROKER_SETTING_OF[key]])
        else:
            said.append(_synonym(key, default, DEFAULT_CONFIG))
        found.append(_described(key, said, read_only=False))
    unknown = sorted(overrides.keys() - built_in.keys())
    found += [
        _described(key, [_synonym(key, overrides[key], DYNAMIC_TOPIC_CONFIG)], read_only=False) for key in unknown
    ]
    return tuple(found)


def describe_broker(settings: BrokerSettings, listener: str = config.INTERNAL) -> tuple[m.DescribedConfig, ...]:
    """Every setting that the process was started with; none of it changes while it runs.

    A caller that came by another listener than INTERNAL hears of the addresses of its own listener only.
    """
    rows = config.explain(settings)
    if listener != config.INTERNAL:
        rows = [_as_seen_at(listener, row) if row.key in _LISTENERS else row for row in rows]
    return tuple(_described(row.key, _broker_synonyms(row), read_only=True) for row in rows)


def _as_seen_at(listener: str, row: config.Row) -> config.Row:
    return row._replace(value=",".join(each for each in row.value.split(",") if each.startswith(f"{listener}://")))


def _broker_synonyms(row: config.Row) -> list[m.ConfigSynonym]:
    said = []
    default = config.default_text(BrokerSettings, row.key)
    if row.source != config.DEFAULT or default is None:
        said.append(_synonym(row.key, row.value, STATIC_BROKER_CONFIG, row.source))
    if default is not None:
        said.append(_synonym(row.key, default, DEFAULT_CONFIG))
    return said


def _synonym(key: str, value: str, source: str, origin: str = "") -> m.ConfigSynonym:
    return m.ConfigSynonym(key=key, value=value, source=source, origin=origin)


def _described(key: str, said: list[m.ConfigSynonym], *, read_only: bool) -> m.DescribedConfig:
    in_force = said[0]
    return m.DescribedConfig(
        key=key, value=in_force.value, source=in_force.source, read_only=read_only, synonyms=tuple(said)
    )
