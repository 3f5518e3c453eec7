"""Model of reliability 5.2: one partition, two consumers, and a coordinator that stops one and starts the other.

The coordinator keeps its group in memory and writes it to the store with every change: owner, generation and committed offset.
A second coordinator may be elected while the first does not know that its term is over. What is sent arrives at any time
later, what a coordinator sends also again; a consumer may die, and one that does not answer a Stop is evicted.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal, NamedTuple

from tidelog.model.search import Label

CONSUMERS: Final = (0, 1)
COORDINATORS: Final = (1, 2)
"""By their epochs."""
NO_OFFSET: Final = -1


class Counts(Enum):
    ALL = auto()
    OWNERS = auto()
    """Who has not started answers without an offset, as reliability 5.2 asks.

    That is not enough: a consumer that was evicted and is made owner again may hear the next Stop before its Start, and would
    state what it held long ago.
    """
    LAST_GENERATION = auto()
    """The answer names the generation in which it had started, which must be the last one that was."""


@dataclass(frozen=True, slots=True)
class Rules:
    ack_processed: bool = True
    """The answer to Stop states what was processed, not what was fetched."""
    commit_processed: bool = True
    """So does a commit."""
    ack_counts: Counts = Counts.LAST_GENERATION
    """Whose offset counts in an answer to Stop."""
    commit_fenced: bool = True
    """A commit counts from the owner of the generation that was started last, under the same coordinator."""
    order_compared: bool = True
    """A consumer refuses a Start or Stop that is older than what it has heard."""
    epoch_compared: bool = True
    """Older by (coordinator epoch, generation); else by the generation alone."""
    repeat_ignored: bool = True
    """A Start that comes again does not begin again."""
    store_conditional: bool = True
    """Every write of a coordinator checks the coordinator epoch."""


@dataclass(frozen=True, slots=True)
class Bounds:
    records: int
    generations: int
    again: bool = False
    """Start and Stop may arrive a second time."""


class Store(NamedTuple):
    epoch: int
    generation: int
    owner: int
    committed: int


class Coordinator(NamedTuple):
    acts: bool
    """It was elected, and has not noticed that another was."""
    generation: int
    started: int
    """Generation of the last Start."""
    owner: int
    stopping: bool
    """It waits for the owner's answer to Stop."""
    known: int
    """The committed offset, as it has it in memory."""


class Consumer(NamedTuple):
    alive: bool
    heard: tuple[int, int]
    """(coordinator epoch, generation) of the newest message."""
    started: bool
    """In that generation."""
    owns: bool
    """It fetches and processes."""
    fetched: int
    processed: int
    evicted: tuple[int, int]
    """(coordinator epoch, generation) of the last Stop that it did not answer in time."""

    @property
    def zombie(self) -> bool:
        """It has been evicted and has not heard of it."""
        return self.heard < self.evicted


class Message(NamedTuple):
    kind: Literal["stop", "start", "ack", "commit"]
    epoch: int
    generation: int
    consumer: int
    offset: int
    fetched_in: int = 0
    """Of an answer to Stop: the generation that its offset is of; 0 without an offset."""
    arrived: bool = False
    """Once already; kept where it may come again."""


class State(NamedTuple):
    store: Store
    coordinators: tuple[Coordinator, Coordinator]
    consumers: tuple[Consumer, Consumer]
    messages: frozenset[Message]
    processed: int
    """Mask of the records that somebody has processed."""
    fell_from: int
    """The committed offset before a write that lowered it; 0 while none did."""


class GroupModel:
    """Properties: nothing is skipped, nobody owns what another does, the committed offset never falls.

    With `owners_only` the second alone: what lets two fetch may let an offset fall in fewer steps.
    """

    def __init__(self, rules: Rules, bounds: Bounds, *, owners_only: bool = False) -> None:
        self.rules = rules
        self.bounds = bounds
        self.owners_only = owners_only

    def initial(self) -> State:
        store = Store(epoch=1, generation=1, owner=0, committed=0)
        acting = Coordinator(acts=True, generation=1, started=1, owner=0, stopping=False, known=0)
        waiting = Coordinator(acts=False, generation=0, started=0, owner=0, stopping=False, known=0)
        owner = Consumer(True, (1, 1), started=True, owns=True, fetched=0, processed=0, evicted=(0, 0))
        member = owner._replace(started=False, owns=False)
        return State(store, (acting, waiting), (owner, member), frozenset(), 0, 0)

    def canonical(self, state: State) -> State:
        """Without what can no longer do anything when it arrives; and the consumers are alike."""
        left = frozenset(message for message in state.messages if self._matters(state, message))
        state = state._replace(messages=left)
        other = _renamed(state)
        return state if _order(state) <= _order(other) else other

    def _matters(self, state: State, message: Message) -> bool:
        if message.kind in ("stop", "start"):
            consumer = state.consumers[message.consumer]
            return consumer.alive and not self._is_void(consumer, message)
        coordinator = state.coordinators[message.epoch - 1]
        if message.kind == "ack":
            return coordinator.acts and coordinator.stopping and coordinator.generation == message.generation
        # Its sender sends no second one while this one is on its way, so it matters also where it would be refused.
        return True

    def violation(self, state: State) -> str | None:
        if all(each.owns and not each.zombie for each in state.consumers):
            return "TWO OWNERS: both consumers fetch the partition, and neither was evicted"
        if self.owners_only:
            return None
        if state.fell_from:
            return f"REWOUND: the committed offset went from {state.fell_from} back to {state.store.committed}"
        for offset in range(state.store.committed):
            if not state.processed >> offset & 1:
                return f"SKIPPED: record {offset} is below the committed offset, and nobody has processed it"
        return None

    def moves(self, state: State) -> list[tuple[Label, State]]:
        out: list[tuple[Label, State]] = []
        for c in CONSUMERS:
            if state.consumers[c].alive:
                self._consume(out, state, c, state.consumers[c])
        for k in COORDINATORS:
            coordinator = state.coordinators[k - 1]
            if coordinator.acts:
                self._coordinate(out, state, k, coordinator)
        if state.store.epoch == 1:
            out.append((("elect",), self._elected(state)))
        for message in state.messages:
            self._deliver(out, state, message)
        return out

    # -- consumers -----------------------------------------------------------------------------------------------------

    def _consume(self, out: list[tuple[Label, State]], state: State, c: int, consumer: Consumer) -> None:
        out.append((("die", c), _consumer(state, c, consumer._replace(alive=False, owns=False))))
        if not consumer.owns:
            return
        if consumer.fetched < self.bounds.records:
            out.append((("fetch", c), _consumer(state, c, consumer._replace(fetched=consumer.fetched + 1))))
        if consumer.processed < consumer.fetched:
            after = _consumer(state, c, consumer._replace(processed=consumer.processed + 1))
            mask = state.processed | 1 << consumer.processed
            out.append((("process", c, consumer.processed), after._replace(processed=mask)))
        offset = consumer.processed if self.rules.commit_processed else consumer.fetched
        commit = Message("commit", *consumer.heard, c, offset)
        # One at a time: the next one is sent when the one before was answered.
        if offset and not any(m.kind == "commit" and m[1:4] == commit[1:4] for m in state.messages):
            out.append((("commit", c, offset), _send(state, commit)))

    def _is_old(self, consumer: Consumer, message: Message) -> bool:
        if not self.rules.order_compared:
            return False
        if not self.rules.epoch_compared:
            return message.generation < consumer.heard[1]
        return (message.epoch, message.generation) < consumer.heard

    def _is_void(self, consumer: Consumer, message: Message) -> bool:
        """Old, or done already: a Stop of a generation comes before its Start."""
        done = consumer.heard == (message.epoch, message.generation) and consumer.started
        repeated = done and (message.kind == "stop" or self.rules.repeat_ignored)
        return repeated or self._is_old(consumer, message)

    def _stop(self, state: State, consumer: Consumer, message: Message) -> State:
        c, key = message.consumer, (message.epoch, message.generation)
        if self._is_void(consumer, message):
            return state
        offset = consumer.processed if self.rules.ack_processed else consumer.fetched
        ack = Message("ack", *key, c, offset, fetched_in=consumer.heard[1] if consumer.owns else 0)
        stopped = consumer._replace(heard=key, started=False, owns=False, fetched=consumer.processed)
        return _send(_consumer(state, c, stopped), ack)

    def _start(self, state: State, consumer: Consumer, message: Message) -> State:
        if self._is_void(consumer, message):
            return state
        key = (message.epoch, message.generation)
        at = message.offset
        started = consumer._replace(heard=key, started=True, owns=True, fetched=at, processed=at)
        return _consumer(state, message.consumer, started)

    # -- coordinators --------------------------------------------------------------------------------------------------

    def _elected(self, state: State) -> State:
        store = state.store._replace(epoch=2)
        loaded = Coordinator(True, store.generation, store.generation, store.owner, False, store.committed)
        return state._replace(store=store, coordinators=(state.coordinators[0], loaded))

    def _coordinate(self, out: list[tuple[Label, State]], state: State, k: int, coordinator: Coordinator) -> None:
        if coordinator.stopping:
            owner = coordinator.owner
            evicted = _consumer(state, owner, state.consumers[owner]._replace(evicted=(k, coordinator.generation)))
            after = self._assign(evicted, k, coordinator, 1 - owner)
            # A coordinator that is told in the same step that its term is over has evicted nobody.
            out.append((("evict", k, owner), after if after.coordinators[k - 1].acts else _ended(state, k)))
        elif coordinator.generation < self.bounds.generations:
            generation = coordinator.generation + 1
            after = _coordinator(state, k, coordinator._replace(generation=generation, stopping=True))
            stop = Message("stop", k, generation, coordinator.owner, NO_OFFSET)
            out.append((("rebalance", k, generation, coordinator.owner), _send(after, stop)))

    def _write(self, state: State, k: int, store: Store) -> State | None:
        """None when the store refuses it."""
        if self.rules.store_conditional and state.store.epoch != k:
            return None
        before = state.store.committed
        fell_from = before if store.committed < before else state.fell_from
        return state._replace(store=store._replace(epoch=state.store.epoch), fell_from=fell_from)

    def _assign(self, state: State, k: int, coordinator: Coordinator, owner: int) -> State:
        """The owner and where it begins are written before it is told."""
        written = self._write(state, k, Store(k, coordinator.generation, owner, coordinator.known))
        if written is None:
            return _ended(state, k)
        serving = coordinator._replace(owner=owner, started=coordinator.generation, stopping=False)
        start = Message("start", k, coordinator.generation, owner, coordinator.known)
        return _send(_coordinator(written, k, serving), start)

    def _acked(self, out: list[tuple[Label, State]], state: State, message: Message) -> None:
        if not self._matters(state, message):
            return
        k, coordinator = message.epoch, state.coordinators[message.epoch - 1]
        if self._counts(message, coordinator):
            coordinator = coordinator._replace(known=message.offset)
        out += [(("ack", *message, c), self._assign(state, k, coordinator, c)) for c in CONSUMERS]

    def _counts(self, ack: Message, coordinator: Coordinator) -> bool:
        match self.rules.ack_counts:
            case Counts.ALL:
                return True
            case Counts.OWNERS:
                return ack.fetched_in != 0
            case Counts.LAST_GENERATION:
                return ack.fetched_in == coordinator.started

    def _committed(self, state: State, message: Message) -> State:
        k, coordinator = message.epoch, state.coordinators[message.epoch - 1]
        owns = (coordinator.started, coordinator.owner) == (message.generation, message.consumer)
        if not coordinator.acts or (self.rules.commit_fenced and not owns):
            return state
        store = Store(k, state.store.generation, state.store.owner, message.offset)
        written = self._write(state, k, store)
        if written is None:
            return _ended(state, k)
        return _coordinator(written, k, coordinator._replace(known=message.offset))

    # -- what is on its way --------------------------------------------------------------------------------------------

    def _deliver(self, out: list[tuple[Label, State]], state: State, message: Message) -> None:
        left = state.messages - {message}
        from_coordinator = message.kind in ("stop", "start")
        if from_coordinator and self.bounds.again and not message.arrived:
            left |= {message._replace(arrived=True)}
        rest = state._replace(messages=left)
        consumer = state.consumers[message.consumer]
        if from_coordinator and not consumer.alive:
            return
        match message.kind:
            case "stop":
                out.append((("stop", *message), self._stop(rest, consumer, message)))
            case "start":
                out.append((("start", *message), self._start(rest, consumer, message)))
            case "ack":
                self._acked(out, rest, message)
            case "commit":
                out.append((("committed", *message), self._committed(rest, message)))

    def tell(self, label: Label, before: State, after: State) -> str:
        match label:
            case ("die", int(c)):
                return f"{_name(c)} dies."
            case ("fetch", int(c)):
                return f"{_name(c)} fetches record {after.consumers[c].fetched - 1}."
            case ("process", int(c), record):
                return f"{_name(c)} processes record {record}."
            case ("commit", int(c), offset):
                return f"{_name(c)} sends a commit of offset {offset}."
            case ("elect",):
                return f"Coordinator 2 is elected and reads the group: committed {after.store.committed}. 1 does not know it."
            case ("rebalance", k, generation, int(c)):
                return f"Coordinator {k} begins generation {generation}: it sends Stop to {_name(c)}."
            case ("evict", int(k), int(c)):
                return f"{_name(c)} has not answered: coordinator {k} evicts it. {_outcome(k, after)}"
            case _:
                return self._tell_message(label, before, after)

    def _tell_message(self, label: Label, before: State, after: State) -> str:
        what, _, epoch, generation, c, offset, *_ = label
        assert isinstance(epoch, int) and isinstance(c, int)
        named = f"of generation {generation} from coordinator {epoch}"
        match what:
            case "stop":
                if after.consumers[c] == before.consumers[c]:
                    return f"A Stop {named} reaches {_name(c)}, which has heard of a newer one."
                (ack,) = (m for m in after.messages - before.messages if m.kind == "ack")
                of = f"of generation {ack.fetched_in}" if ack.fetched_in else "though it has not started"
                return f"The Stop {named} reaches {_name(c)}, which answers with offset {ack.offset} {of}."
            case "start":
                ignored = after.consumers[c] == before.consumers[c]
                does = "which ignores it" if ignored else f"which fetches from offset {offset}"
                return f"The Start {named} reaches {_name(c)}, {does}."
            case "ack":
                return f"Coordinator {epoch} has the answer of {_name(c)}. {_outcome(epoch, after)}"
            case "committed":
                took = after.store.committed == offset and after.store != before.store
                does = f"writes offset {offset}" if took else "does not count it"
                return f"The commit of {_name(c)} {named} arrives there, which {does}."
        raise AssertionError(label)


def _outcome(k: int, after: State) -> str:
    coordinator = after.coordinators[k - 1]
    if not coordinator.acts:
        return "The store refuses its write: its term is over."
    store = after.store
    return f"It writes owner {_name(store.owner)}, committed {store.committed}, and sends Start to it."


def _name(c: int) -> str:
    return f"C{c + 1}"


def _ended(state: State, k: int) -> State:
    return _coordinator(state, k, state.coordinators[k - 1]._replace(acts=False))


def _send(state: State, message: Message) -> State:
    return state._replace(messages=state.messages | {message})


def _renamed(state: State) -> State:
    return State(
        state.store._replace(owner=1 - state.store.owner),
        (_other_owner(state.coordinators[0]), _other_owner(state.coordinators[1])),
        (state.consumers[1], state.consumers[0]),
        frozenset(message._replace(consumer=1 - message.consumer) for message in state.messages),
        state.processed,
        state.fell_from,
    )


def _other_owner(coordinator: Coordinator) -> Coordinator:
    return coordinator._replace(owner=1 - coordinator.owner)


def _order(state: State) -> tuple[object, ...]:
    return (state.store, state.coordinators, state.consumers, tuple(sorted(state.messages)))


def _consumer(state: State, c: int, consumer: Consumer) -> State:
    a, b = state.consumers
    return state._replace(consumers=(consumer, b) if c == 0 else (a, consumer))


def _coordinator(state: State, k: int, coordinator: Coordinator) -> State:
    a, b = state.coordinators
    return state._replace(coordinators=(coordinator, b) if k == 1 else (a, coordinator))
