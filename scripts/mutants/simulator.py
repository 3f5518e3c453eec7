"""The mistakes of reliability 10 in replication, controller and storage; MUT-n is M-n there."""

from typing import Final

from mutants.patching import ByTest, Mutant, Patch

_PARTITION: Final = "replica/partition.py"
_LEADER: Final = "replica/leader.py"
_FENCE: Final = """        if event.leader_epoch != leading.epoch:
            older"""
_CHUNK_FENCE: Final = "        if event.leader_epoch != self.leader_epoch or event.offset != self.log_end_offset:\n"

MUTANTS: Final = (
    Mutant(
        "MUT-1",
        "the high watermark counts followers of another leader epoch",
        (
            Patch(
                _PARTITION,
                _FENCE,
                """        if event.leader_epoch != leading.epoch:
            member = Member(event.replica, event.broker_epoch)
            leading.progress[event.replica] = Progress(member, event.offset, connected=False)
            self._reconsider(event.at)
            older""",
            ),
        ),
    ),
    Mutant(
        "MUT-2",
        "a follower may join the ISR below the start of the leader's epoch",
        (
            Patch(
                _LEADER,
                "progress.offset >= max(high_watermark, self.epoch_start)",
                "progress.offset >= high_watermark",
            ),
        ),
    ),
    Mutant(
        "MUT-3",
        "a follower of another leader epoch may join the ISR",
        (
            Patch(
                _PARTITION,
                _FENCE,
                """        if event.leader_epoch != leading.epoch:
            member = Member(event.replica, event.broker_epoch)
            leading.strangers[event.replica] = Progress(member, event.offset)
            older""",
            ),
            Patch(_LEADER, '        "recovering",\n    )', '        "recovering",\n        "strangers",\n    )'),
            Patch(
                _LEADER,
                "        self.progress: dict[int, Progress] = {}\n",
                "        self.progress: dict[int, Progress] = {}\n        self.strangers: dict[int, Progress] = {}\n",
            ),
            Patch(
                _LEADER,
                "        found = (self.progress.get(replica) for replica in self._outsiders)\n",
                "        found = ({**self.strangers, **self.progress}.get(replica) for replica in self._outsiders)\n",
            ),
        ),
    ),
    Mutant(
        "MUT-4",
        "positions and chunks of another leader epoch are served and taken",
        (
            Patch(
                _PARTITION,
                _FENCE,
                """        if event.leader_epoch != leading.epoch:
            return [fx.SendRecords(event.replica, event.offset)]
            older""",
            ),
            Patch(_PARTITION, _CHUNK_FENCE, "        if event.offset != self.log_end_offset:\n"),
        ),
    ),
    Mutant(
        "MUT-5",
        "a follower cuts its log by the word of a leader of another epoch",
        (
            Patch(
                _PARTITION,
                _FENCE,
                """        stray = event.leader_epoch != leading.epoch
        if stray and event.found_epoch >= 0 and event.found_end < event.offset:
            return [fx.SendDivergence(event.replica, event.offset, event.found_epoch, event.found_end)]
        if stray:
            older""",
            ),
            Patch(
                _PARTITION,
                _CHUNK_FENCE,
                """        fits = event.leader_epoch == self.leader_epoch or event.diverging_epoch >= 0
        if not fits or event.offset != self.log_end_offset:
""",
            ),
        ),
    ),
    Mutant(
        "MUT-6",
        "a leader holds itself to the ISR that it knows, although a larger one may be stored",
        (
            Patch(
                "replica/isr.py",
                """        # They count already: the controller may have stored them, and waiting for one too many loses nothing.
        return self.committed.isr | self.joining""",
                "        return self.committed.isr",
            ),
        ),
    ),
    Mutant(
        "MUT-7",
        "a leader holds itself to the smaller ISR that it has asked for",
        (
            Patch(
                "replica/isr.py",
                """        # They count until the controller agrees: it may still elect one of them (HOLE-16).
        return self.committed.isr""",
                "        return self.committed.isr - self.leaving",
            ),
        ),
    ),
    Mutant(
        "MUT-8",
        "an ISR change whose answer never came is taken for refused",
        (
            Patch(
                "broker/control_plane/alter_isr.py",
                "            if response is None or code is not ErrorCode.NONE:\n",
                """            if response is None:
                for tp, (topic_id, proposal) in proposals.items():
                    known = m.LeaderAndIsr(
                        leader=self._settings.broker_id,
                        leader_epoch=proposal.leader_epoch,
                        isr=(),
                        current_zk_version=proposal.partition_epoch,
                    )
                    self._replicas.isr_answered(tp, topic_id, proposal, ErrorCode.OPERATION_NOT_ATTEMPTED, known)
                await self._clock.sleep(ALTER_ISR.pause_s(self._rand, 1))
            elif code is not ErrorCode.NONE:
""",
            ),
        ),
    ),
    Mutant(
        "MUT-9",
        "the controller grants an ISR change that was asked for in an older version of the state",
        (
            Patch(
                "controller/alter_isr.py",
                "    if wanted.current_zk_version < state.partition_epoch:\n",
                "    if wanted.current_zk_version < 0:\n",
            ),
        ),
    ),
    Mutant(
        "MUT-10",
        "the controller's multis do not check the controller epoch",
        (
            Patch(
                "controller/store.py",
                "Check(znodes.CONTROLLER_EPOCH, epoch_version)",
                "Check(znodes.CONTROLLER_EPOCH, -1)",
            ),
        ),
    ),
    Mutant(
        "MUT-11",
        "a broker that comes back in another life is taken for the one that left",
        (
            Patch(
                "controller/election.py",
                "    return broker is not None and broker.epoch == member.broker_epoch\n",
                "    return broker is not None\n",
            ),
            Patch(
                "controller/model.py",
                "        if state is None or state.leader != broker.broker_id:\n",
                "        if state is None or True:\n",
            ),
        ),
    ),
    Mutant(
        "MUT-12",
        "AlterIsr does not look at the broker epochs of the members",
        (
            Patch(
                "controller/alter_isr.py",
                "    if broker is None or broker.epoch != member.broker_epoch:\n",
                "    if broker is None:\n",
            ),
            Patch(
                "controller/alter_isr.py",
                "frozenset(wanted.isr) == frozenset(state.isr)",
                "{x.broker_id for x in wanted.isr} == {x.broker_id for x in state.isr}",
            ),
            Patch(
                "controller/isr_desk.py",
                "                isr=proposal.wanted.isr,\n",
                """                isr=tuple(
                    m.IsrMember(
                        broker_id=x.broker_id, broker_epoch=self._state.brokers[BrokerId(x.broker_id)].epoch
                    )
                    for x in proposal.wanted.isr
                ),
""",
            ),
        ),
    ),
    Mutant(
        "MUT-13",
        "the last member of an ISR may lead again although its data directory has lost something",
        (
            Patch(
                "controller/election.py",
                "    return epoch is not None and (broker.intact_since <= epoch or only_copy)\n",
                "    return epoch is not None\n",
            ),
        ),
    ),
    Mutant(
        "MUT-14",
        "the high watermark rises below min ISR",
        (Patch(_LEADER, "            return high_watermark  # HOLE-24\n", "            pass\n"),),
    ),
    Mutant(
        "MUT-15",
        "a follower takes the leader's high watermark before it cuts what the same answer says",
        (
            Patch(
                "broker/leader_fetcher.py",
                """        positions: list[m.ReplicaPosition] = []
        for part in chunk.partitions:
""",
                """        positions: list[m.ReplicaPosition] = []
        for part in chunk.partitions:
            host = self.hosts.get(TopicPartition(part.topic, part.partition))
            if host is not None and part.leader_epoch == host.replica.leader_epoch:
                new = min(part.high_watermark, host.replica.log_end_offset)
                host.replica.high_watermark = max(host.replica.high_watermark, new)
                host.step(ev.Tick(0.0))
        await self._fetchers.clock.sleep(0)
        for part in chunk.partitions:
""",
            ),
        ),
    ),
    Mutant(
        "MUT-16",
        "a leader does not write the start of its epoch when it becomes leader",
        (
            Patch(
                "broker/partition_host.py",
                "                    self._on_disk(self.log.assign_epoch, effect.leader_epoch, effect.start)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "MUT-21",
        "a checkpoint gets its name before its bytes are durable",
        (
            Patch(
                "storage/checkpoint.py",
                """        file.append([data])
        file.sync()
""",
                "        file.append([data])\n",
            ),
        ),
    ),
    Mutant(
        "MUT-22",
        "the clean-shutdown marker is removed after loading, when nobody waits for it to be durable",
        (
            Patch(
                "storage/data_dir.py",
                """        path = f"{self._root}/{CLEAN_FILE}"
        if self._disk.kind(path) is not None:
            self._disk.remove(path)
            self._disk.sync_dir(self._root)

    def record""",
                """
    def forget_marker(self) -> None:
        path = f"{self._root}/{CLEAN_FILE}"
        if self._disk.kind(path) is not None:
            self._disk.remove(path)

    def record""",
            ),
            Patch(
                "storage/log_store.py",
                "        self._purgeable, self._deleted = self._deleted, []\n",
                "        self._purgeable, self._deleted = self._deleted, []\n        directory.forget_marker()\n",
            ),
        ),
    ),
    Mutant(
        "MUT-23",
        "a log takes appends after one has failed",
        (
            Patch(
                "storage/partition_log.py",
                """            raise self._fenced("append", error) from error
        self._tail.push""",
                """            raise TidelogError(f"append: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error
        self._tail.push""",
            ),
            Patch(
                "broker/partition_host.py",
                "                self.take_offline(error)\n",
                "                if self.log.failure is not None:\n                    self.take_offline(error)\n",
            ),
        ),
    ),
    Mutant(
        "MUT-24",
        "the children are watched by their names: one that died and came back is the same",
        (
            Patch(
                "runtime/zk_patterns.py",
                """    changed = asyncio.Event()
    while True:
        changed.clear()
        try:
            snapshot = await _read_children(meta, path, changed)
        except (OutcomeUnknown, SessionExpired) as error:
            log.debug("reading the children of %s: %r; reading again", path, error)
            continue
        yield snapshot
""",
                """    changed = asyncio.Event()
    names: set[str] | None = None
    while True:
        changed.clear()
        try:
            snapshot = await _read_children(meta, path, changed)
        except (OutcomeUnknown, SessionExpired) as error:
            log.debug("reading the children of %s: %r; reading again", path, error)
            continue
        if names != set(snapshot):
            names = set(snapshot)
            yield snapshot
""",
            ),
        ),
        ByTest("tests/unit/meta/test_patterns.py"),
    ),
    Mutant(
        "MUT-25",
        "a multi that failed is taken for done",
        (
            Patch(
                "runtime/zk.py",
                "                multi_answer(request.ops, value) if isinstance(request, Multi)",
                "                [r for r in value if not isinstance(r, int)] if isinstance(request, Multi)",
            ),
        ),
        ByTest("tests/unit/meta/test_contract.py"),
    ),
    Mutant(
        "MUT-26",
        "a lease is held until the client is told that its connection is lost",
        (
            Patch(
                "runtime/lease.py",
                "from tidelog.ports.meta import BadVersion,",
                "from tidelog.ports.meta import SessionState, BadVersion,",
            ),
            Patch(
                "runtime/lease.py",
                "        return not self._over and self.lease.valid(self._clock.now())\n",
                "        return not self._over and self._meta.state is SessionState.CONNECTED\n",
            ),
        ),
    ),
    Mutant(
        "MUT-28",
        "lag is measured by the calendar",
        (
            Patch(
                "broker/partition_host.py",
                "ev.Appended(self.log.log_end_offset, self._context.clock.now(), counts",
                "ev.Appended(self.log.log_end_offset, self._context.clock.wall_ms() / 1000, counts",
            ),
            Patch(
                "broker/replica_manager.py",
                "        self.live = live\n        now = self._clock.now()\n",
                "        self.live = live\n        now = self._clock.wall_ms() / 1000\n",
            ),
            Patch(
                "broker/replica_manager.py",
                "        self.live = dict(live)\n        now = self._clock.now()\n",
                "        self.live = dict(live)\n        now = self._clock.wall_ms() / 1000\n",
            ),
            Patch(
                "broker/replica_manager.py",
                "                at=self._clock.now(),\n",
                "                at=self._clock.wall_ms() / 1000,\n",
            ),
            Patch(
                "broker/replica_manager.py",
                """                        host.step(ev.Resumed(now))
                    host.step(ev.Tick(now))
""",
                """                        host.step(ev.Resumed(self._clock.wall_ms() / 1000))
                    host.step(ev.Tick(self._clock.wall_ms() / 1000))
""",
            ),
            Patch(
                "broker/follower_session.py",
                "                at=self._clock.now(),\n",
                "                at=self._clock.wall_ms() / 1000,\n",
            ),
        ),
    ),
    Mutant(
        "acks=all like acks=1",
        "a produce is answered when the leader has appended it",
        (
            Patch(
                "broker/partition_host.py",
                """        self.pending.add(end, settle)
        self.pending.complete_below(self.replica.high_watermark)
""",
                """        self.pending.add(end, settle)
        self.pending.complete_below(end)
""",
            ),
        ),
    ),
    Mutant(
        "unclean election",
        "whoever is alive may lead where nobody in sync is",
        (
            Patch(
                "controller/election.py",
                "    return epoch is not None and (broker.intact_since <= epoch or only_copy)\n",
                "    return True\n",
            ),
        ),
    ),
)
