"""The known holes of the protocol, each opened again in the real code. docs/rules.md has the rules."""

from typing import Final

from mutants.patching import ByTest, Mutant, Patch

_PARTITION: Final = "replica/partition.py"
_LEADER: Final = "replica/leader.py"
_ELECTION: Final = "controller/election.py"
_ALTER_ISR: Final = "controller/alter_isr.py"
_CONTROL: Final = "broker/control_service.py"
_MANAGER: Final = "broker/replica_manager.py"
_MEMBERS: Final = "coordinator/members.py"
_REBALANCE: Final = "coordinator/rebalance.py"

_OF_FOLLOWERS: Final = "replica/test_follower.py"
_OF_LEADERS: Final = "replica/test_leader.py"
_OF_ELECTIONS: Final = "controller/test_election.py"
_OF_ISR_CHANGES: Final = "controller/test_machine_isr.py"
_OF_MEMBERS: Final = "coordinator/test_members.py"
_OF_REBALANCES: Final = "coordinator/test_rebalance.py"


def _hole(number: int, mistake: str, file: str, test: str, *patches: Patch) -> Mutant:
    return Mutant(f"HOLE-{number:02}", mistake, patches, ByTest(f"tests/unit/{file}::test_{test}"))


MUTANTS: Final = (
    _hole(
        1,
        "who becomes a follower cuts its log to its own high watermark",
        _OF_FOLLOWERS,
        "becoming_follower_fetches_in_the_new_epoch_and_truncates_nothing_by_itself",
        Patch(
            _PARTITION,
            "        self.partition_epoch = event.partition_epoch\n        if event.leader >= 0:\n",
            """        self.partition_epoch = event.partition_epoch
        self._cut_to(self.high_watermark)
        out.append(fx.TruncateTo(self.high_watermark))
        if event.leader >= 0:
""",
        ),
    ),
    _hole(
        2,
        "a diverging log is cut to its own high watermark, wherever the histories part",
        _OF_FOLLOWERS,
        "divergence_cuts_to_the_end_of_the_common_epoch",
        Patch(
            _PARTITION, "        cut = max(0, min(cut, self.log_end_offset))\n", "        cut = self.high_watermark\n"
        ),
    ),
    _hole(
        3,
        "a follower cuts to the end that it is told, although the epoch found is another one than it asked for",
        _OF_FOLLOWERS,
        "an_epoch_unknown_here_cuts_to_the_end_of_the_next_smaller_one",
        Patch(
            _PARTITION,
            """        cut = event.own_end
        if event.own_epoch == event.diverging_epoch:
            cut = min(event.diverging_end, event.own_end)
""",
            "        cut = event.diverging_end\n",
        ),
    ),
    _hole(
        4,
        "a position of an earlier leader epoch counts",
        _OF_LEADERS,
        "mut_04_positions_of_another_epoch_are_refused",
        Patch(
            _PARTITION,
            "        if event.leader_epoch != leading.epoch:\n            older",
            "        if event.leader_epoch > leading.epoch:\n            older",
        ),
    ),
    _hole(
        5,
        "a follower may join the ISR below the start of the leader's epoch",
        _OF_LEADERS,
        "mut_02_joining_needs_the_start_of_this_epoch",
        Patch(_LEADER, "progress.offset >= max(high_watermark, self.epoch_start)", "progress.offset >= high_watermark"),
    ),
    _hole(
        6,
        "a new epoch of the same leader is no news for its follower",
        _OF_FOLLOWERS,
        "the_same_leader_in_a_new_epoch_runs_the_check_again",
        Patch(
            _PARTITION,
            "            return self._on_same_epoch(event)\n        return self._become_leader",
            """            return self._on_same_epoch(event)
        if self.role is Role.FOLLOWER and event.leader == self.leader:
            self.leader_epoch, self.partition_epoch = event.leader_epoch, event.partition_epoch
            return []
        return self._become_leader""",
        ),
    ),
    _hole(
        7,
        "a broker that comes back in another life is taken for the one that left",
        _OF_ELECTIONS,
        "a_bounced_leader_is_failure_plus_start",
        Patch(
            _ELECTION,
            "    return broker is not None and broker.epoch == member.broker_epoch\n",
            "    return broker is not None\n",
        ),
    ),
    _hole(
        8,
        "a broker begins its life with a partial list",
        "broker/test_control_service.py",
        "the_first_request_of_a_life_must_be_full",
        Patch(_CONTROL, "        if not request.full and not self.ready:\n", "        if False:\n"),
    ),
    _hole(
        9,
        "a late StopReplica stops what was started since",
        "broker/test_control_service.py",
        "stop_replica_is_fenced_by_leader_epoch",
        Patch(_MANAGER, " and leader_epoch <= host.replica.leader_epoch:\n", " and leader_epoch < 0:\n"),
    ),
    _hole(
        10,
        "a topic that is made again gets the records of the one before",
        "broker/test_control_service.py",
        "a_topic_made_again_does_not_inherit_the_old_records",
        Patch(_MANAGER, "        if host is not None and host.topic_id != state.topic_id:\n", "        if False:\n"),
    ),
    _hole(
        11,
        "the controller's multis do not check the controller epoch",
        "controller/test_store.py",
        "mut_10_i12_a_raised_controller_epoch_fences_every_write",
        Patch(
            "controller/store.py", "Check(znodes.CONTROLLER_EPOCH, epoch_version)", "Check(znodes.CONTROLLER_EPOCH, -1)"
        ),
    ),
    _hole(
        12,
        "the ISR of a deposed leader is written whatever was decided since",
        _OF_ISR_CHANGES,
        "an_election_in_flight_fences_the_old_leaders_proposal",
        Patch(
            _ALTER_ISR,
            "    if wanted.leader_epoch < state.leader_epoch:\n        return ErrorCode.FENCED_LEADER_EPOCH\n",
            "",
        ),
        Patch(_ALTER_ISR, "    if asker != state.leader or wanted.leader != state.leader:\n", "    if False:\n"),
        Patch(_ALTER_ISR, "    if wanted.current_zk_version < state.partition_epoch:\n", "    if False:\n"),
        Patch(_ALTER_ISR, "    if state.leader not in members or len", "    if len"),
        Patch(_ALTER_ISR, "    if not all(_eligible(member, state, brokers, ineligible)", "    if not all(True"),
    ),
    _hole(
        13,
        "a write of unknown outcome is taken for one that was not applied",
        "controller/test_machine_brokers.py",
        "an_unknown_outcome_that_was_applied_is_adopted",
        Patch(
            "controller/machine.py",
            """            self._resign(f"the store refuses the state of {tp}")
        else:
            self._out.examine(group)
""",
            """            self._resign(f"the store refuses the state of {tp}")
        else:
            self._unblock(self._writer_of(tp))
""",
        ),
    ),
    _hole(
        14,
        "nobody sees for how long a leader has waited for the answer to its ISR change",
        "broker/test_replica_manager.py",
        "how_long_a_change_has_waited_for_its_answer_is_measured",
        Patch(
            _LEADER,
            "        return 0.0 if isinstance(self.isr, Committed) else at - self.pending_since\n",
            "        return 0.0\n",
        ),
    ),
    _hole(
        15,
        "a controlled shutdown does not see the expansion that is being written",
        "controller/test_shutdown.py",
        "an_expansion_that_is_being_written_is_seen",
        Patch(
            "controller/shutdown.py",
            "        members = writing.isr if state is None else (*state.isr, *writing.isr)\n",
            "        members = () if state is None else state.isr\n",
        ),
    ),
    _hole(
        16,
        "a leader holds itself to the smaller ISR that it has asked for",
        _OF_LEADERS,
        "mut_07_a_shrink_counts_only_when_confirmed",
        Patch(
            "replica/isr.py",
            """        # They count until the controller agrees: it may still elect one of them (HOLE-16).
        return self.committed.isr""",
            "        return self.committed.isr - self.leaving",
        ),
    ),
    _hole(
        17,
        "an AlterIsr that comes again is judged by its old version",
        _OF_ISR_CHANGES,
        "a_repeated_request_is_success_once_the_first_is_written",
        Patch(
            _ALTER_ISR,
            "    if same_set and not state.recovering:\n",
            "    if same_set and not state.recovering and wanted.current_zk_version == state.partition_epoch:\n",
        ),
    ),
    _hole(
        18,
        "a controller that is behind judges who is ahead of it",
        _OF_ISR_CHANGES,
        "f05_8_checks_in_order",
        Patch(
            _ALTER_ISR,
            """    if wanted.leader_epoch > state.leader_epoch or wanted.current_zk_version > state.partition_epoch:
""",
            "    if False:\n",
        ),
    ),
    _hole(
        19,
        "the answer to an earlier proposal is taken for that of the pending one",
        _OF_LEADERS,
        "an_answer_to_an_earlier_proposal_does_not_settle_the_pending_one",
        Patch(
            _PARTITION,
            "        if event.proposal != fx.ProposeIsr(leading.epoch, leading.partition_epoch, pending.proposed):\n",
            "        if False:\n",
        ),
    ),
    _hole(
        20,
        "the controller lets a broker back into the ISR that shuts down",
        "controller/test_shutdown.py",
        "who_leaves_is_not_let_back_in",
        Patch(
            _ALTER_ISR,
            "    return member.broker_id not in ineligible or member.broker_id == state.leader\n",
            "    return True\n",
        ),
    ),
    _hole(
        21,
        "the controller does not look at the broker epochs of an ISR's members",
        _OF_ISR_CHANGES,
        "a_life_that_has_ended_is_refused_even_if_the_request_was_on_its_way",
        Patch(
            _ALTER_ISR,
            "    if broker is None or broker.epoch != member.broker_epoch:\n",
            "    if broker is None:\n",
        ),
    ),
    _hole(
        22,
        "an ISR that is empty or lacks its leader is written",
        _OF_ISR_CHANGES,
        "f05_8_checks_in_order",
        Patch(_ALTER_ISR, "    if state.leader not in members or len", "    if len"),
    ),
    _hole(
        23,
        "acks=all is taken below min ISR",
        _OF_LEADERS,
        "acks_all_is_refused_below_min_isr_and_acks_1_is_not",
        Patch(_PARTITION, "        if acks == -1 and self.leading.under_min_isr:\n", "        if False:\n"),
    ),
    _hole(
        24,
        "the high watermark rises below min ISR",
        _OF_LEADERS,
        "mut_14_the_high_watermark_stands_still_below_min_isr",
        Patch(_LEADER, "            return high_watermark  # HOLE-24\n", "            pass\n"),
    ),
    _hole(
        25,
        "whoever is alive may lead where nobody in sync is",
        _OF_ELECTIONS,
        "a_live_replica_outside_the_isr_is_not_elected",
        Patch(
            _ELECTION,
            "    return epoch is not None and (broker.intact_since <= epoch or only_copy)\n",
            "    return True\n",
        ),
    ),
    _hole(
        26,
        "a leader that was elected uncleanly goes on as if nothing had happened",
        "replica/test_recovering.py",
        "nobody_is_proposed_before_the_report_is_answered",
        Patch(_LEADER, "        if self.recovering:\n            return PendingRecovery(self.isr)\n", ""),
    ),
    _hole(
        27,
        "a loss of power is forgotten with the next start",
        "storage/test_log_store.py",
        "intact_since_rule",
        Patch(
            "storage/data_dir.py",
            "    return previous if (was_clean or same_boot) and not damaged else None\n",
            "    return previous\n",
        ),
    ),
    _hole(
        28,
        "a batch that comes again is appended again",
        "storage/test_producer_state.py",
        "a_repeated_batch_is_found_with_its_offset",
        Patch("storage/producer_state.py", "                return seen\n", "                return None\n"),
    ),
    _hole(
        29,
        "the next replica goes to the next broker, whichever rack that is in",
        "controller/test_placement.py",
        "every_first_part_of_the_replicas_is_in_as_many_racks_as_can_be",
        Patch(
            "controller/racks.py",
            "(self._of[broker_id] not in covered or len(covered) == len(self._members))",
            "True",
        ),
    ),
    _hole(
        30,
        "a new leader names an end of the log that is before what was readable already",
        "broker/test_fetch.py",
        "kip_207_offsets_are_not_available_until_the_high_watermark_reaches_the_epochs_start",
        Patch(
            "broker/fetch.py",
            "    if found is None and replica.leading is not None and end < replica.leading.epoch_start:\n",
            "    if False:\n",
        ),
    ),
    _hole(
        31,
        "a follower lags for as long as the log has not grown",
        _OF_LEADERS,
        "an_idle_partition_never_shrinks",
        Patch(
            _LEADER,
            "            if self.lags(offset, log_end, at):\n",
            "            if max((since for _, since in self.marks._marks), default=0.0) + self._lag_max_s < at:\n",
        ),
        Patch(_LEADER, "        if self.marks.older_than(self._lag_max_s, at) and (leaving", "        if (leaving"),
    ),
    _hole(
        32,
        "a move ends when one of its targets is in sync",
        "controller/test_machine_reassignment.py",
        "one_target_in_the_isr_is_not_enough",
        Patch(
            "controller/reassignment.py",
            "    elif not led or len(staying) < len(move.target):\n",
            "    elif not led or not staying:\n",
        ),
    ),
    _hole(
        33,
        "who shuts down stays in sync and is elected like everybody else",
        "controller/test_shutdown.py",
        "who_leaves_is_not_elected_while_another_can_be",
        Patch(
            _ELECTION,
            "    isr = [member for member in unbroken if member.broker_id not in ineligible] or unbroken\n",
            "    isr = unbroken\n",
        ),
    ),
    _hole(
        34,
        "a follower takes the leader's high watermark beyond its own end",
        _OF_FOLLOWERS,
        "the_high_watermark_is_the_leaders_capped_at_the_own_end",
        Patch(
            _PARTITION,
            "min(event.end, max(event.log_start, event.leader_high_watermark))",
            "event.leader_high_watermark",
        ),
    ),
    _hole(
        35,
        "the high watermark begins at the end of the log",
        "broker/test_replica_manager.py",
        "a_follower_starts_with_the_checkpointed_high_watermark",
        Patch(
            "storage/partition_log.py",
            "        hw = min(opening.high_watermark, self.log_end_offset)\n",
            "        hw = self.log_end_offset\n",
        ),
    ),
    _hole(
        36,
        "a new leader takes the end of its log for committed",
        _OF_LEADERS,
        "a_new_leader_keeps_its_own_high_watermark",
        Patch(
            _PARTITION,
            "        out.append(fx.StartEpoch(event.leader_epoch, self.log_end_offset))\n",
            """        out.append(fx.StartEpoch(event.leader_epoch, self.log_end_offset))
        self.high_watermark = self.log_end_offset
""",
        ),
    ),
    _hole(
        37,
        "a control request is dropped when its call breaks",
        "controller/test_channels.py",
        "a_broken_call_is_repeated_and_what_follows_it_waits",
        Patch(
            "controller/channels.py",
            "[*requests[position:], *self._pending]",
            "[*requests[position + 1 :], *self._pending]",
        ),
    ),
    _hole(
        39,
        "the znode of leader and ISR does not hold their epoch",
        "wire/test_znodes.py",
        "leader_isr_and_epoch_live_in_one_znode",
        Patch(
            "wire/znodes.py",
            '"leader":{state.leader},"leader_epoch":{state.leader_epoch}',
            '"leader":{state.leader},"leader_epoch":0',
        ),
    ),
    _hole(
        40,
        "a registration that somebody else holds is taken for one's own",
        "meta/test_patterns.py",
        "a_znode_of_an_unknown_session_is_waited_for",
        Patch(
            "runtime/zk_patterns.py",
            "            if stat.ephemeral_owner == meta.session_id:\n                if data == payload:\n",
            "            if stat.ephemeral_owner:\n                if data == payload or True:\n",
        ),
    ),
    _hole(
        41,
        "children are read again only when the watch fires",
        "meta/test_patterns.py",
        "a_full_reconcile_comes_by_the_clock_too",
        Patch("runtime/zk_patterns.py", "asyncio.timeout(reconcile_s)", "asyncio.timeout(None)"),
    ),
    _hole(
        42,
        "a consumer is dead when its answer is late, though it may still fetch",
        _OF_MEMBERS,
        "a_broken_stream_alone_moves_nothing_before_the_lease_is_out",
        Patch(
            "coordinator/group.py",
            "        return self.answered_at + self.session_s * (1 + DRIFT) + DRIFT_MIN_S\n",
            "        return self.answered_at + self.session_s * 2 / 3\n",
        ),
    ),
    _hole(
        43,
        "offsets count whichever generation they are of",
        "coordinator/test_commits.py",
        "find_10_mut_17_offsets_count_from_the_owner_in_its_generation_only",
        Patch(
            _MEMBERS,
            "        if (response.coordinator_epoch, response.generation) == (self._desk.epoch, member.generation):\n",
            "        if response.coordinator_epoch == self._desk.epoch:\n",
        ),
    ),
    _hole(
        44,
        "a coordinator's writes do not check its epoch",
        "coordinator/test_store.py",
        "a_deposed_coordinator_writes_nothing",
        Patch("coordinator/store.py", "        return [self._fence]\n", "        return []\n"),
    ),
    _hole(
        45,
        "an id is taken as long as its registration is there, also for the consumer that registered it",
        _OF_MEMBERS,
        "the_same_consumer_comes_back_at_once_and_goes_on",
        Patch(
            _MEMBERS,
            "        if known is None or known.incarnation == request.incarnation:\n",
            "        if known is None:\n",
        ),
    ),
    _hole(
        46,
        "ownership is stored after its owners have been started",
        _OF_REBALANCES,
        "owners_and_generation_are_stored_before_anybody_is_started",
        Patch(
            _REBALANCE,
            "self._write(group, offsets, attempt.owners, attempt.generation, Phase.STARTING)",
            "self._write(group, offsets, {}, attempt.generation, Phase.STARTING)",
        ),
        Patch(
            _REBALANCE,
            "self._write(group, {}, {}, attempt.generation, Phase.STABLE)",
            "self._write(group, {}, attempt.owners, attempt.generation, Phase.STABLE)",
        ),
    ),
    _hole(
        47,
        "a member that answers pings and no stop is kept for ever",
        _OF_REBALANCES,
        "coord_07_a_member_that_does_not_answer_stop_is_removed_when_its_lease_is_out_and_the_others_go_on",
        Patch(_MEMBERS, "        member.silent = True\n        self.pings.clear(watcher.member)\n", ""),
    ),
    _hole(
        48,
        "groups without members are kept for ever",
        _OF_MEMBERS,
        "an_empty_group_is_deleted_after_its_retention",
        Patch(
            "coordinator/machine.py",
            "            if not group.members and desk.wall_ms - group.empty_since_ms >= desk.limits.retention_s * 1000:\n",
            "            if False:\n",
        ),
    ),
    _hole(
        49,
        "who leaves waits for the answer, however long",
        "client/test_membership.py",
        "leaving_is_bounded_by_a_session_for_a_member_that_owns_nothing",
        Patch("client/membership.py", "_Leaving(now + self.session_s, ", '_Leaving(float("inf"), '),
    ),
    _hole(
        50,
        "the last leader is named although it is dead",
        _OF_ELECTIONS,
        "without_a_live_member_the_leader_is_none_and_the_isr_is_kept",
        Patch(
            _ELECTION, "        return _next(state, NO_LEADER, state.isr, controller_epoch)\n", "        return None\n"
        ),
    ),
    _hole(
        51,
        "what waits at a leader for its followers is acknowledged when the leader is deposed",
        "broker/test_produce.py",
        "a_deposed_leader_answers_parked_produces_with_not_leader",
        Patch(
            _PARTITION,
            "            return [fx.FailPending(ErrorCode.NOT_LEADER_OR_FOLLOWER)]\n",
            "            return [fx.FailPending(ErrorCode.NONE)]\n",
        ),
    ),
    _hole(
        52,
        "an ISR change whose answer never came is taken back",
        _OF_LEADERS,
        "a_member_whose_admission_is_in_doubt_counts_even_when_it_has_gone",
        Patch(
            _PARTITION,
            "            case _After.RESEND:\n                return [event.proposal]\n",
            """            case _After.RESEND:
                leading.isr = pending.committed
                return []
""",
        ),
    ),
    Mutant(
        "REPEATED",
        "what was refused under a suspicion is granted when the request comes again after it has passed",
        (
            Patch(
                _ALTER_ISR, "        if asker in self._newest and turn <= self._newest[asker]:\n", "        if False:\n"
            ),
        ),
        ByTest(
            f"tests/unit/{_OF_ISR_CHANGES}::test_what_was_refused_once_is_not_granted_by_a_late_copy_of_the_request"
        ),
    ),
    Mutant(
        "REPEATED-TERM",
        "a new controller, which knows no numbers, judges what was sent to the one before it",
        (Patch(_ALTER_ISR, "        if request.controller_epoch < controller_epoch:\n", "        if False:\n"),),
        ByTest(f"tests/unit/{_OF_ISR_CHANGES}::test_a_new_controller_hears_no_request_that_was_sent_to_another"),
    ),
)
