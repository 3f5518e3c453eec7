"""A line for each protocol event, and events of several processes in one order."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.ports.recorder import ProtocolEvent, Subject
from tidelog.values import Message
from tidelog.watch.order import Told, ordered, with_causes
from tidelog.watch.ring import Ring
from tidelog.wire import messages as m
from tidelog.wire import znodes

_DAY_MS: Final = 24 * 60 * 60 * 1000
_PATHS: Final = 1
"""Znodes that a line names."""


def merged(rings: Iterable[Ring]) -> list[Told]:
    """Merges all events that the rings keep, by time. An event stands behind its cause, whatever the clocks say."""
    found = [Told(ring.process, ring.life, event) for ring in rings for event in ring.events()]
    return ordered(found)


def lines(events: Iterable[Told]) -> list[str]:
    """Formats one aligned line for each event."""
    shown = list(events)
    width = max((len(told.process) for told in shown), default=0)
    return [f"{time_of_day(told.event.wall_ns)}  {told.process:<{width}}  {sentence(told.event)}" for told in shown]


def of_partition(events: Sequence[Told], tp: TopicPartition) -> list[Told]:
    """Returns the events of a partition, and what led to them."""
    path = znodes.state_path(*tp)
    return with_causes(events, lambda told: _is_of(told.event, tp, path))


def _is_of(event: ProtocolEvent, tp: TopicPartition, path: str) -> bool:
    if isinstance(event.fields, m.StoreWritten):
        return any(change.path == path for change in event.fields.changes)
    return event.subject == tp


def of_group(events: Sequence[Told], group_id: str) -> list[Told]:
    """Returns the events of a group and of its members, and what led to them."""
    return with_causes(
        events, lambda told: group_id in (told.event.subject, getattr(told.event.fields, "group_id", None))
    )


def sentence(event: ProtocolEvent) -> str:
    return sentence_of(event.subject, event.fields)


def sentence_of(subject: Subject, fields: Message) -> str:
    told = _SENTENCES.get(type(fields))
    return "does what this release does not know" if told is None else printable(told(subject, fields))


def printable(text: str) -> str:
    """Replaces what would move the cursor of a terminal, or begin a line: texts of events come from any client."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def time_of_day(wall_ns: int) -> str:
    """Formats the time of day, UTC."""
    seconds, ms = divmod(wall_ns // 1_000_000 % _DAY_MS, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}"


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _leader(broker_id: int) -> str:
    return "no broker" if broker_id == NO_LEADER else f"broker-{broker_id}"


def _count(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _partitions(count: int, full: bool) -> str:
    return f"{_count(count, 'partition')}{', which is all of them' if full else ''}"


def _chosen(tp: Subject, it: m.LeaderChosen) -> str:
    kept = "" if it.leader != it.leader_before else "again "
    isr = f"ISR {_ids(it.isr_before)} -> {_ids(it.isr)}" if it.isr_before else f"ISR {_ids(it.isr)}"
    return f"elects {_leader(it.leader)} {kept}for {tp}: epoch {it.leader_epoch}, {isr} ({it.why})"


def _change(change: m.ZnodeChange) -> str:
    if change.version < 0:
        return f"{change.path}: deleted"
    if change.version_before < 0:
        return f"{change.path}: created"
    return f"{change.path}: version {change.version_before} -> {change.version}"


def _written(_: Subject, it: m.StoreWritten) -> str:
    shown = ", ".join(map(_change, it.changes[:_PATHS]))
    more = it.more + max(0, len(it.changes) - _PATHS)
    rest = (f" and {_count(more, 'more znode')}" if shown else _count(more, "znode")) if more else ""
    purpose = f" ({it.purpose})" if it.purpose else ""
    return f"writes {shown}{rest}{purpose}" + ("" if it.result == "written" else f": {it.result}")


def _advanced(tp: Subject, it: m.HighWatermarkAdvanced) -> str:
    times = f" in {it.count:,} steps" if it.count > 1 else ""
    return f"high watermark of {tp}: {it.from_offset:,} -> {it.to_offset:,}{times}"


def _follows(tp: Subject, it: m.BecameFollower) -> str:
    return (
        f"{tp}: follows {_leader(it.leader)} in epoch {it.leader_epoch}, log end {it.log_end:,}, "
        f"high watermark {it.high_watermark:,}"
    )


def _leads(tp: Subject, it: m.BecameLeader) -> str:
    return f"{tp}: leads in epoch {it.leader_epoch}, log end {it.log_end:,}, high watermark {it.high_watermark:,}"


def _received(_: Subject, it: m.OrderReceived) -> str:
    of = f"controller-{it.controller_id} (epoch {it.controller_epoch})"
    return f"receives {it.order} of {of}: {_partitions(it.partitions, it.full)}"


def _answered(tp: Subject, it: m.IsrAnswered) -> str:
    if it.code:
        return f"learns that the ISR of {tp} does not change: {it.code.name}"
    return f"learns the ISR of {tp}: {_ids(it.isr)}, partition epoch {it.partition_epoch}"


def _cut(tp: Subject, it: m.LogTruncated) -> str:
    why = _CUTS.get(it.rule, "{rule}").format(rule=it.rule, epoch=it.epoch)
    if it.from_offset == it.to_offset:
        return f"{tp}: truncates nothing, its log ends at {it.to_offset:,} ({why})"
    return f"{tp}: truncates its log from {it.from_offset:,} to {it.to_offset:,} ({why})"


def _lag(tp: Subject, it: m.LagNoticed) -> str:
    where = f"it is at {it.offset:,} of {it.log_end:,}" if it.offset >= 0 else "it has not said where it is"
    return f"notices that broker-{it.broker_id} lags behind in {tp}: {where}, for {it.behind_ms:,} ms"


def _minimum(it: m.HighWatermarkFrozen | m.HighWatermarkFreed) -> str:
    return f"{_count(it.isr_size, 'replica')} in sync, min.insync.replicas is {it.min_isr}"


def _fenced(tp: Subject, it: m.RequestFenced) -> str:
    epochs = f"epoch {it.claimed_epoch} is older than {it.leader_epoch}, " if it.claimed_epoch < it.leader_epoch else ""
    return f"refuses {it.request} for {tp}: {epochs}{it.code.name}"


def _step(subject: Subject, it: m.FailoverStep) -> str:
    what = str(subject) if subject is not None else _count(it.partitions, "partition")
    return f"failover, step {it.step} ({_STEPS.get(it.step, '?')}) of {what}: {it.took_us / 1000:,.1f} ms"


def _registered(group: Subject, it: m.MemberRegistered) -> str:
    again = " again" if it.returned else ""
    return f"registers {it.consumer_id}{again} in {group}: {_count(it.members, 'member')}"


def _gone(group: Subject, it: m.MemberGone) -> str:
    how = (
        f"lets {it.consumer_id} leave"
        if it.reason == "leave"
        else f"removes {it.consumer_id}, whose lease has ended, from"
    )
    return f"{how} {group}: {_count(it.owned, 'partition')} free, {_count(it.members, 'member')} left"


def _begun(group: Subject, it: m.RebalanceBegun) -> str:
    stops = f"stops {it.stopped:,} of " if it.stopped else ""
    return f"begins a rebalance of {group}: generation {it.generation}, {stops}{_count(it.members, 'member')} ({it.reason})"


def _ended(group: Subject, it: m.RebalanceEnded) -> str:
    what = "fails to rebalance" if it.failed else "has rebalanced"
    return f"{what} {group} in {it.took_ms:,} ms: generation {it.generation}, {it.stopped:,} stopped ({it.reason})"


def _stop_sent(group: Subject, it: m.StopFetcherSent) -> str:
    which = _count(it.partitions, "partition") if it.partitions else "all that it has"
    return f"sends StopFetcher to {it.consumer_id} of {group}: generation {it.generation}, {which}"


def _start_sent(group: Subject, it: m.StartFetcherSent) -> str:
    which = _count(it.partitions, "partition")
    return f"sends StartFetcher to {it.consumer_id} of {group}: generation {it.generation}, {which}"


def _stop_answered(group: Subject, it: m.StopFetcherAnswered) -> str:
    what = "asks for time to stop" if it.finishing else "has stopped"
    return f"hears that {it.consumer_id} of {group} {what}: generation {it.generation}"


def _stop_received(group: Subject, it: m.StopFetcherReceived) -> str:
    which = _count(it.partitions, "partition") if it.partitions else "all that it has"
    return f"receives StopFetcher of {group}: generation {it.generation}, {which}"


def _fetches_no_more(tp: Subject, it: m.FetchingStopped) -> str:
    at = f" at {it.offset:,}" if it.offset >= 0 else ""
    return f"stops fetching {tp} for {it.group_id}{at} ({it.why})"


_CUTS: Final = {
    "leader epoch": "epoch {epoch} of the leader ends there",
    "common epoch": "epoch {epoch}, the last in common, ends there",
    "begun anew": "begun anew, as the leader may have dropped some of it",
    "failed sync": "a sync failed, and what follows may be lost",
    "damage": "it is damaged from there on",
}
_STEPS: Final = {1: "detect", 2: "decide", 3: "write", 4: "notify", 5: "connect", 6: "truncate"}

_SENTENCES: Final[dict[type[Any], Callable[[Subject, Any], str]]] = {
    m.BrokerRegistered: lambda _, it: f"is registered as broker-{it.broker_id}",
    m.SessionLost: lambda _, it: f"has lost its ZooKeeper session, and {it.path} with it",
    m.BrokerSeen: lambda _, it: f"sees broker-{it.broker_id}",
    m.BrokerLost: lambda _, it: f"sees that the registration of broker-{it.broker_id} is gone",
    m.BrokerSuspected: lambda _, it: f"suspects broker-{it.broker_id}: its port refuses connections",
    m.BrokerCleared: lambda _, it: f"no longer suspects broker-{it.broker_id}",
    m.ControllerElected: lambda _, it: f"is elected controller, epoch {it.controller_epoch}",
    m.ControllerLoaded: lambda _, it: f"has read {it.topics:,} topics and {it.brokers} brokers",
    m.ControllerResigned: lambda _, it: f"controller epoch {it.controller_epoch} is over: {it.reason}",
    m.LeaderChosen: _chosen,
    m.IsrChosen: lambda tp, it: f"changes the ISR of {tp}: {_ids(it.isr_before)} -> {_ids(it.isr)} ({it.why})",
    m.OrderSent: lambda _, it: f"sends {it.order} to broker-{it.broker_id}: {_partitions(it.partitions, it.full)}",
    m.OrderReceived: _received,
    m.OrderApplied: lambda _, it: f"has applied {it.order}" + (f": {it.failed:,} failed" if it.failed else ""),
    m.OrderRefused: lambda _, it: f"refuses {it.order}: {it.code.name}",
    m.BecameLeader: _leads,
    m.BecameFollower: _follows,
    m.EpochStarted: lambda tp, it: f"{tp}: epoch {it.leader_epoch} begins at {it.start:,}",
    m.LogTruncated: _cut,
    m.LogReset: lambda tp, it: (
        f"{tp}: drops its log, which ended at {it.from_offset:,}, and begins at {it.to_offset:,}"
    ),
    m.HighWatermarkAdvanced: _advanced,
    m.HighWatermarkFrozen: lambda tp, it: f"high watermark of {tp} stays at {it.high_watermark:,}: {_minimum(it)}",
    m.HighWatermarkFreed: lambda tp, it: f"high watermark of {tp} may advance again: {_minimum(it)}",
    m.RequestFenced: _fenced,
    m.LeaderDeposed: lambda tp, it: (
        f"{tp}: leads no more in epoch {it.leader_epoch}, a follower knows epoch {it.newer_epoch}"
    ),
    m.LagNoticed: _lag,
    m.FailoverStep: _step,
    m.IsrProposed: lambda tp, it: (
        f"asks the controller to change the ISR of {tp}: {_ids(it.isr_before)} -> {_ids(it.isr)}"
    ),
    m.IsrAnswered: _answered,
    m.StoreWritten: _written,
    m.CoordinatorElected: lambda _, it: f"is elected coordinator of shard {it.shard}, epoch {it.coordinator_epoch}",
    m.CoordinatorLoaded: lambda _, it: (
        f"has read {_count(it.groups, 'group')} of shard {it.shard} with {_count(it.offsets, 'offset')}"
        f" in {it.took_ms:,} ms"
    ),
    m.CoordinatorResigned: lambda _, it: (
        f"coordinator epoch {it.coordinator_epoch} of shard {it.shard} is over: {it.reason}"
    ),
    m.MemberRegistered: _registered,
    m.MemberDisconnected: lambda group, it: f"loses the stream of {it.consumer_id} of {group}",
    m.PingMissed: lambda group, it: (
        f"misses the answer of {it.consumer_id} of {group} to {'a ping' if it.misses == 1 else f'{it.misses} pings'}"
    ),
    m.AnswerMissed: lambda group, it: f"misses the answer of {it.consumer_id} of {group} to {it.request}",
    m.MemberGone: _gone,
    m.RebalanceBegun: _begun,
    m.StopFetcherSent: _stop_sent,
    m.StopFetcherAnswered: _stop_answered,
    m.StartFetcherSent: _start_sent,
    m.StartFetcherAnswered: lambda group, it: (
        f"hears that {it.consumer_id} of {group} has started: generation {it.generation}"
    ),
    m.RebalanceEnded: _ended,
    m.MemberJoined: lambda group, it: f"is a member of {group}{' again' if it.returned else ''}",
    m.CoordinatorLost: lambda group, it: f"loses the coordinator of {group}",
    m.StopFetcherReceived: _stop_received,
    m.StopFetcherObeyed: lambda group, it: (
        f"{'asks for time to stop' if it.finishing else 'has stopped'} in {group}: generation {it.generation}"
    ),
    m.StartFetcherReceived: lambda group, it: (
        f"receives StartFetcher of {group}: generation {it.generation}, {_count(it.partitions, 'partition')}"
    ),
    m.StartFetcherObeyed: lambda group, it: f"has started in {group}: generation {it.generation}",
    m.FetchingStarted: lambda tp, it: f"fetches {tp} for {it.group_id} from {it.offset:,} on",
    m.FetchingStopped: _fetches_no_more,
    m.MemberFenced: lambda group, it: f"{it.consumer_id} is refused in {group}: {it.code.name}, {it.reason}",
    m.MemberLeaving: lambda group, it: f"{it.consumer_id} leaves {group}: {it.reason}",
    m.MemberLeft: lambda group, it: (
        f"{it.consumer_id} has left {group}, its last offsets are {'stored' if it.stored else 'not known to be stored'}"
    ),
}
