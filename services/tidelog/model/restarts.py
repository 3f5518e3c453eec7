"""Model of reliability 3.6: brokers that die, come back and may have lost their log; three replicas, min ISR 2.

A broker lives several lives, each under a broker epoch of its own. Its registration outlives its process until the session
expires, or until the next life replaces it. The controller's rules are those of `controller/election.py` (`settle`) and
`controller/alter_isr.py` (`judge`), the leader's those of `replica/leader.py`. Truncation by epoch history is taken to be right:
a follower keeps what it shares with its leader (3.3 takes that apart).
"""

from dataclasses import dataclass
from itertools import permutations
from typing import Final, NamedTuple

from tidelog.model.search import Label

REPLICAS: Final = (0, 1, 2)
NAMES: Final = "ABC"
NOBODY: Final = -1
MIN_ISR: Final = 2
EPOCH: Final = 10
"""A record is the leader epoch that wrote it times this, and its number."""
ORDERS: Final = tuple(permutations(REPLICAS))

Isr = tuple[int, int, int]
"""Broker epoch under which each replica is a member; 0 is none."""
NO_ISR: Final[Isr] = (0, 0, 0)
Positions = tuple[tuple[int, int], ...]
"""Of each replica as the leader last heard: (broker epoch, end of log)."""
UNHEARD: Final[Positions] = ((0, 0),) * 3


@dataclass(frozen=True, slots=True)
class Rules:
    bounces_seen: bool = True
    """Another broker epoch than the one in the ISR is failure and start, and a request for an earlier life is refused."""
    life_checked: bool = True
    """AlterIsr names (broker, broker epoch), and the controller grants only members in their present life (KIP-903)."""
    veto: bool = True
    """The last members of an ISR lead again only if they have lost nothing since they were admitted."""
    frozen_under_min_isr: bool = True
    """The high watermark stands still while the committed ISR is smaller than min.insync.replicas."""
    pending_counted: bool = True
    """The high watermark counts those who may have joined already."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Faults are bounded, healing is not."""

    records: int
    lossy: int
    """Crashes with loss of the whole log."""
    kills: int
    departures: int
    """Members that a leader asks to drop."""


class Broker(NamedTuple):
    up: bool
    registered: int
    """Broker epoch of its registration, 0 if it has none."""
    life: int
    """Broker epoch of the process that runs or ran last."""
    intact_since: int
    """First broker epoch since which it has lost nothing."""
    log: tuple[int, ...]
    hw: int
    epoch: int
    """Leader epoch that it obeys; 0 is none."""
    leads: bool
    fresh: bool
    """A leader that knows the stored state of its epoch, not an earlier one."""
    isr: Isr
    pending: Isr
    """What a leader has asked for; NO_ISR if nothing."""
    positions: Positions


class State(NamedTuple):
    brokers: tuple[Broker, Broker, Broker]
    leader: int
    epoch: int
    isr: Isr
    asker: int
    """Who sent the AlterIsr that is on its way, on the state that is stored now; NOBODY if there is none."""
    asked: Isr
    shown: tuple[int, ...]
    """Records that were below a high watermark of a leader, and so acknowledged and readable."""
    written: int
    lossy: int
    kills: int
    departures: int


class RestartModel:
    """Property: whoever leads holds every record that was ever shown; after one lossy crash somebody does."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules = rules
        self.bounds = bounds

    def initial(self) -> State:
        """A leads epoch 1, the others follow, all in the ISR."""
        follower = Broker(True, 1, 1, 1, (), 0, 1, False, False, NO_ISR, NO_ISR, UNHEARD)
        leader = follower._replace(leads=True, fresh=True, isr=(1, 1, 1))
        bounds = self.bounds
        brokers = (leader, follower, follower)
        return State(brokers, 0, 1, (1, 1, 1), NOBODY, NO_ISR, (), 0, bounds.lossy, bounds.kills, bounds.departures)

    # -- symmetry ----------------------------------------------------------------------------------------------------

    def canonical(self, state: State) -> State:
        keys = [
            (
                b.up,
                b.registered,
                b.life,
                b.intact_since,
                b.log,
                b.hw,
                b.epoch,
                b.leads,
                state.isr[i],
                state.asked[i],
                i == state.leader,
            )
            for i, b in enumerate(state.brokers)
        ]
        a, b, c = keys
        if a != b and b != c and a != c:
            return _renamed(state, tuple(sorted(REPLICAS, key=keys.__getitem__)))
        best = sorted(keys)
        return min(_renamed(state, order) for order in ORDERS if [keys[i] for i in order] == best)

    # -- property ----------------------------------------------------------------------------------------------------

    def violation(self, state: State) -> str | None:
        shown = state.shown
        if not shown:
            return None
        for name, broker in zip(NAMES, state.brokers, strict=True):
            if broker.leads and broker.epoch == state.epoch and broker.log[: len(shown)] != shown:
                return f"LOST: {name} leads epoch {state.epoch} with {log_text(broker.log)}, and {log_text(shown)} was shown"
        if self.bounds.lossy < MIN_ISR and all(broker.log[: len(shown)] != shown for broker in state.brokers):
            return f"LOST: {log_text(shown)} was shown, {MIN_ISR - 1} broker lost its log, and nobody holds it any more"
        return None

    # -- moves -------------------------------------------------------------------------------------------------------

    def moves(self, state: State) -> list[tuple[Label, State]]:
        out: list[tuple[Label, State]] = []
        for i in REPLICAS:
            broker = state.brokers[i]
            if broker.up:
                self._faults(out, state, i, broker)
                self._deliver(out, state, i, broker)
                if broker.leads:
                    self._lead(out, state, i, broker)
            else:
                if broker.registered:
                    out.append((("expire", i), _with(state, i, broker._replace(registered=0))))
                life = broker.life + 1
                out.append((("return", i), _with(state, i, broker._replace(up=True, life=life, registered=life))))
        self._settle(out, state)
        self._judge(out, state)
        return out

    def _faults(self, out: list[tuple[Label, State]], state: State, i: int, broker: Broker) -> None:
        dead = broker._replace(
            up=False, epoch=0, leads=False, fresh=False, isr=NO_ISR, pending=NO_ISR, positions=UNHEARD
        )
        if state.kills:
            out.append((("kill", i), _with(state, i, dead)._replace(kills=state.kills - 1)))
        if state.lossy:
            empty = dead._replace(log=(), hw=0, intact_since=broker.life + 1)
            out.append((("power", i), _with(state, i, empty)._replace(lossy=state.lossy - 1)))

    def _deliver(self, out: list[tuple[Label, State]], state: State, i: int, broker: Broker) -> None:
        """The stored state reaches broker i, as LeaderAndIsr or as the answer to its AlterIsr."""
        if state.epoch == broker.epoch and (not broker.leads or broker.fresh):
            return
        if state.leader != i:
            after = broker._replace(
                epoch=state.epoch, leads=False, fresh=False, isr=NO_ISR, pending=NO_ISR, positions=UNHEARD
            )
            out.append((("follow", i), _with(state, i, after)))
            return
        if self.rules.bounces_seen and state.isr[i] != broker.life:
            return  # it was meant for an earlier life (HOLE-07)
        positions = broker.positions if state.epoch == broker.epoch else UNHEARD
        after = broker._replace(
            epoch=state.epoch, leads=True, fresh=True, isr=state.isr, pending=NO_ISR, positions=positions
        )
        out.append((("lead", i), _with(state, i, after)))

    def _lead(self, out: list[tuple[Label, State]], state: State, i: int, broker: Broker) -> None:
        if state.written < self.bounds.records:
            number = state.written + 1
            after = _with(state, i, broker._replace(log=(*broker.log, broker.epoch * EPOCH + number)))
            out.append((("write", i), after._replace(written=number)))
        for j in REPLICAS:
            if j != i:
                self._fetch(out, state, i, broker, j)
        if self._may_advance(broker, i):
            hw = broker.hw + 1
            shown = broker.log[:hw] if hw > len(state.shown) else state.shown
            out.append((("advance", i), _with(state, i, broker._replace(hw=hw))._replace(shown=shown)))
        if broker.pending == NO_ISR and broker.fresh and broker.epoch == state.epoch:
            self._propose(out, state, i, broker)

    def _fetch(self, out: list[tuple[Label, State]], state: State, i: int, leader: Broker, j: int) -> None:
        """Follower j names its position, and gets what comes next or the place where the two logs part."""
        follower = state.brokers[j]
        if not follower.up or follower.leads or follower.epoch != leader.epoch:
            return
        end = len(follower.log)
        if follower.log != leader.log[:end]:
            kept = next(k for k in range(end) if follower.log[: k + 1] != leader.log[: k + 1])
            cut = follower._replace(log=follower.log[:kept], hw=min(follower.hw, kept))
            out.append((("cut", j, i), _with(state, j, cut)))
            return
        positions = tuple((follower.life, end) if k == j else leader.positions[k] for k in REPLICAS)
        after = _with(state, i, leader._replace(positions=positions))
        if end < len(leader.log):
            log = leader.log[: end + 1]
            after = _with(after, j, follower._replace(log=log, hw=max(follower.hw, min(leader.hw, end + 1))))
        if after != state:
            out.append((("fetch", j, i), after))

    def _may_advance(self, leader: Broker, i: int) -> bool:
        if leader.hw >= len(leader.log):
            return False
        if self.rules.frozen_under_min_isr and sum(life > 0 for life in leader.isr) < MIN_ISR:
            return False
        for j in REPLICAS:
            life = leader.isr[j] or (leader.pending[j] if self.rules.pending_counted else 0)
            if j != i and life:
                heard, end = leader.positions[j]
                if heard != life or end <= leader.hw:
                    return False  # another life of that broker says nothing about what this one holds
        return True

    def _propose(self, out: list[tuple[Label, State]], state: State, i: int, leader: Broker) -> None:
        start = next((k for k, record in enumerate(leader.log) if record // EPOCH == leader.epoch), len(leader.log))
        for j in REPLICAS:
            if j == i:
                continue
            life, end = leader.positions[j]
            departures = state.departures
            if leader.isr[j] and departures:
                asked, departures = _member(leader.isr, j, 0), departures - 1
            elif not leader.isr[j] and life and end >= max(leader.hw, start):
                asked = _member(leader.isr, j, life)
            else:
                continue
            after = _with(state, i, leader._replace(pending=asked))
            out.append((("ask", i), after._replace(asker=i, asked=asked, departures=departures)))

    # -- controller --------------------------------------------------------------------------------------------------

    def _settle(self, out: list[tuple[Label, State]], state: State) -> None:
        """What ought to follow from who is registered now (`election.settle`)."""
        brokers, isr = state.brokers, state.isr
        unbroken = [i for i in REPLICAS if isr[i] and self._same_life(brokers[i], isr[i])]
        if unbroken:
            kept = _members({i: isr[i] for i in unbroken})
            leaders = [state.leader] if state.leader in unbroken else unbroken
            out += [(("settle", i), _stored(state, i, kept)) for i in leaders if (i, kept) != (state.leader, isr)]
            return
        returned = [
            i
            for i in REPLICAS
            if isr[i] and brokers[i].registered and (not self.rules.veto or brokers[i].intact_since <= isr[i])
        ]
        out += [(("settle", i), _stored(state, i, _members({i: brokers[i].registered}))) for i in returned]
        if not returned and state.leader != NOBODY:
            out.append((("offline",), _stored(state, NOBODY, isr)))

    def _same_life(self, broker: Broker, life: int) -> bool:
        return broker.registered == life if self.rules.bounces_seen else broker.registered > 0

    def _judge(self, out: list[tuple[Label, State]], state: State) -> None:
        """AlterIsr, made on the state that is stored: an older one would be refused by its version (3.5)."""
        i = state.asker
        if i == NOBODY:
            return
        members = {j: state.asked[j] for j in REPLICAS if state.asked[j]}
        brokers = state.brokers
        if self.rules.life_checked:
            eligible = all(brokers[j].registered == life for j, life in members.items())
        else:
            # Its sender's broker epoch an AlterIsr has always named; the other members are mere numbers.
            eligible = brokers[i].registered == members[i] and all(brokers[j].registered for j in members)
            members = {j: brokers[j].registered for j in members}
        if eligible:
            out.append((("grant", i), _stored(state, i, _members(members), same_epoch=True)))
            return
        after = state._replace(asker=NOBODY, asked=NO_ISR)
        leader = brokers[i]
        if leader.leads and leader.epoch == state.epoch:
            after = _with(after, i, leader._replace(pending=NO_ISR))
        out.append((("refuse", i), after))

    # -- story -------------------------------------------------------------------------------------------------------

    def tell(self, label: Label, before: State, after: State) -> str:
        kind = label[0]
        i = label[1] if len(label) > 1 else 0
        assert isinstance(i, int)
        name, old, new = NAMES[i], before.brokers[i], after.brokers[i]
        match label:
            case ("kill", _):
                return f"{name} is killed; its log {log_text(new.log)} stays on its disk."
            case ("power", _):
                return f"{name} loses power, and with it its log {log_text(old.log)}."
            case ("expire", _):
                return f"The session of {name} expires."
            case ("return", _):
                seen = ", before its session expired" if old.registered else ""
                return f"{name} is back in life {new.life} with log {log_text(new.log)}{seen}."
            case ("lead", _):
                again = (
                    "learns that the ISR is"
                    if old.leads and old.epoch == new.epoch
                    else f"leads epoch {new.epoch} with ISR"
                )
                return f"{name} {again} {isr_text(new.isr)}, log {log_text(new.log)}."
            case ("follow", _):
                whom = "nobody" if after.leader == NOBODY else NAMES[after.leader]
                return f"{name} hears of epoch {new.epoch}: it follows {whom}."
            case ("write", _):
                return f"{name} appends m{after.written}: log {log_text(new.log)}."
            case ("fetch", _, int(leader)):
                got = f" and gets m{new.log[-1] % EPOCH}" if new.log != old.log else ""
                return f"{name} in life {new.life} tells {NAMES[leader]} that it holds {log_text(old.log)}{got}."
            case ("cut", _, int(leader)):
                return f"{name} cuts its log from {log_text(old.log)} to {log_text(new.log)}: so far {NAMES[leader]} agrees."
            case ("advance", _):
                return f"{name} advances its high watermark with ISR {isr_text(new.isr)}: {log_text(after.shown)} is shown."
            case ("ask", _):
                return f"{name} asks the controller for ISR {isr_text(after.asked)} in place of {isr_text(new.isr)}."
            case ("grant", _):
                return f"The controller grants it: ISR {isr_text(after.isr)}."
            case ("refuse", _):
                return f"The controller refuses {isr_text(before.asked)}: INELIGIBLE_REPLICA."
            case ("settle", _):
                return f"The controller stores leader {name}, epoch {after.epoch}, ISR {isr_text(after.isr)}."
            case ("offline",):
                return f"The controller finds nobody who may lead: epoch {after.epoch} has no leader, ISR {isr_text(after.isr)}."
        raise AssertionError(kind)


def log_text(log: tuple[int, ...]) -> str:
    return "[" + " ".join(f"m{record % EPOCH}" for record in log) + "]"


def isr_text(isr: Isr) -> str:
    """Members with the number of the life under which they were admitted."""
    return "{" + ", ".join(f"{NAMES[i]}/{isr[i]}" for i in REPLICAS if isr[i]) + "}"


def _members(lives: dict[int, int]) -> Isr:
    return lives.get(0, 0), lives.get(1, 0), lives.get(2, 0)


def _member(isr: Isr, i: int, life: int) -> Isr:
    return _members({**dict(enumerate(isr)), i: life})


def _with(state: State, i: int, broker: Broker) -> State:
    a, b, c = state.brokers
    return state._replace(brokers=(broker, b, c) if i == 0 else (a, broker, c) if i == 1 else (a, b, broker))


def _stored(state: State, leader: int, isr: Isr, *, same_epoch: bool = False) -> State:
    """A new stored state: what was asked on the old one is void, and no leader knows the new one yet.

    Only another leader, or the same in another life, raises the leader epoch.
    """
    same = same_epoch or (leader == state.leader and isr[leader] == state.isr[leader])
    a, b, c = (broker._replace(fresh=False) if broker.fresh else broker for broker in state.brokers)
    epoch = state.epoch if same else state.epoch + 1
    return state._replace(brokers=(a, b, c), leader=leader, epoch=epoch, isr=isr, asker=NOBODY, asked=NO_ISR)


def _renamed(state: State, order: tuple[int, ...]) -> State:
    """The replica order[i] becomes replica i."""
    if order == REPLICAS:
        return state
    x, y, z = order

    def broker(i: int) -> Broker:
        b = state.brokers[i]
        if not b.leads:
            return b
        isr, pending, positions = b.isr, b.pending, b.positions
        return b._replace(
            isr=(isr[x], isr[y], isr[z]),
            pending=(pending[x], pending[y], pending[z]),
            positions=(positions[x], positions[y], positions[z]),
        )

    isr, asked = state.isr, state.asked
    return state._replace(
        brokers=(broker(x), broker(y), broker(z)),
        leader=state.leader if state.leader == NOBODY else order.index(state.leader),
        isr=(isr[x], isr[y], isr[z]),
        asker=state.asker if state.asker == NOBODY else order.index(state.asker),
        asked=(asked[x], asked[y], asked[z]),
    )
