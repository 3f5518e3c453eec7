"""Mistakes where requests are hostile, oversized or forged, and where answers wait for slow readers."""

import contextlib
import dataclasses
import functools
from typing import Any, Final

from mutants.patching import ByTest, Code, Table, around
from tidelog import names
from tidelog.broker import control_service, fetch, follower_session
from tidelog.broker.control_service import ControlService
from tidelog.broker.fetch import FetchHandler
from tidelog.broker.follower_session import FollowerSessions
from tidelog.broker.readers import Places, Readers, Wakeup
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.broker.turns import Turns
from tidelog.controller.channels import BrokerChannel
from tidelog.errors import TidelogError
from tidelog.runtime import bell, loop_watch, responses, rpc_server, tasks, zk
from tidelog.runtime.responses import ResponseBudget
from tidelog.storage import handles
from tidelog.storage.log_store import LogStore
from tidelog.wire import codec, limits
from tidelog.wire import messages as m
from tidelog.wire import records as wire_records
from tidelog.wire.limits import ListCounter
from tidelog.wire.outline import Outline

MUTANTS: Final = Table(__name__)

_CONTROL: Final = "tests/unit/broker/test_control_service.py::"
_CHANNELS: Final = "tests/unit/controller/test_channels.py::"
_WAITING: Final = "tests/unit/broker/test_waiting_fetches.py::"
_GRPC: Final = "tests/unit/net/test_grpc_net.py::"
_DESCRIPTORS: Final = "tests/unit/storage/test_descriptors.py::"
_TURNS: Final = "tests/unit/broker/test_turns.py::"
_LIMITS: Final = "tests/unit/wire/test_limits.py::"
_REPLICATION: Final = "tests/unit/broker/test_replication.py::"
_HOSTILE: Final = "tests/unit/testing/test_hostile_requests.py::test_hostile_requests_are_small_work"
_SHELL: Final = "tests/unit/controller/test_shell.py::"
_STORE: Final = "tests/unit/storage/test_log_store.py::"


@MUTANTS.mutant("LARGE-READS-AT-ONCE", ByTest(f"{_WAITING}test_large_reads_let_others_run_in_between"))
def large_reads_go_on(code: Code) -> None:
    """All large fetches that are due are answered in one turn of the event loop."""
    code.replace(fetch, "TURN_BYTES", 1 << 40)


@MUTANTS.mutant("FORGED-EPOCH", ByTest(f"{_CONTROL}test_a_forged_controller_epoch_deposes_no_controller[LeaderAndIsr]"))
@around(ControlService, "_is_confirmed")
async def any_higher_epoch_counts(_: Any, _self: Any, _epoch: int) -> bool:
    """A broker believes each higher controller epoch."""
    return True


@MUTANTS.mutant("FOREIGN-NUMBERS", ByTest(f"{_CHANNELS}test_numbers_of_another_sender_hold_up_no_controller"))
@around(BrokerChannel, "_skip")
def numbers_go_on_one_by_one(_: Any, _self: Any) -> None:
    """A controller does not get behind a number that another sender has used."""


@MUTANTS.mutant("UNCHECKED-ORDER", ByTest(f"{_CONTROL}test_a_name_that_no_topic_has_refuses_the_order"))
@around(control_service, "check_stop")
def stops_name_anything(_: Any, _request: Any) -> None:
    """A broker stops and deletes partitions by whatever name an order has."""


@MUTANTS.mutant("PATH-OUTSIDE", ByTest(f"{_STORE}test_no_log_lies_outside_the_data_directory"))
@around(LogStore, "_folder")
def any_name_is_a_folder(_: Any, self: Any, tp: Any) -> str:
    """The name of a topic leads out of the data directory."""
    return f"{self._root}/{tp.topic}-{tp.partition}"


@MUTANTS.mutant("READ-TO-WAIT", ByTest(f"{_WAITING}test_appends_beside_waiting_fetches_read_nothing"))
@around(Readers, "committed")
def each_commit_wakes_each_fetch(_: Any, self: Any, _high_watermark: int) -> None:
    """A fetch that waits reads each time something is committed, to find out how much."""
    self.fire()


@MUTANTS.mutant("MIN-ABOVE-MAX", ByTest(f"{_WAITING}test_no_fetch_waits_for_more_than_it_takes"))
@around(Wakeup, "__init__")
def waits_for_more_than_it_takes(original: Any, self: Any, _least: int) -> None:
    """A fetch waits for more bytes than it would take."""
    original(self, 2**31 - 1)


@MUTANTS.mutant("UNBOUNDED-WAITS", ByTest(f"{_WAITING}test_too_many_waiting_fetches_are_refused"))
@around(Places, "taken")
def any_number_may_wait(_: Any, _self: Any, _caller: str, _partitions: int) -> Any:
    """Any number of fetches waits."""
    return contextlib.nullcontext()


@MUTANTS.mutant("UNCOUNTED-RESPONSES", ByTest(f"{_GRPC}test_what_a_slow_reader_asks_for_has_a_limit"))
@around(ResponseBudget, "hold")
def responses_are_not_counted(_: Any, _self: Any, *_given: Any, **_named: Any) -> Any:
    """Responses that a slow reader has not read are not counted."""
    return lambda: None


@MUTANTS.mutant("SLOW-FOR-EVER", ByTest(f"{_GRPC}test_readers_that_do_not_read_lose_their_connections"))
@around(ResponseBudget, "_cut_slowest")
def slow_readers_keep_the_room(_: Any, _self: Any) -> None:
    """Readers that do not read keep the room of all others."""


@MUTANTS.mutant("FREED-LATE", ByTest(f"{_GRPC}test_what_a_lost_connection_has_not_read_is_freed_at_once"))
@around(rpc_server, "_unary_handler")
def calls_are_kept_until_the_collector_comes(original: Any, *given: Any) -> Any:
    """A call is in a cycle with its context, and its response stays in memory until the collector comes."""
    handler = original(*given)

    async def run(data: bytes, context: Any) -> bytes:
        context.add_done_callback(lambda _: None)
        answer: bytes = await handler(data, context)
        return answer

    return run


@MUTANTS.mutant("REFUSED-IS-KEPT", ByTest(f"{_GRPC}test_what_is_refused_is_freed_at_once"))
@around(rpc_server, "_abort")
async def refused_calls_are_kept(_: Any, context: Any, answer: Any) -> None:
    """A call that is refused is in a cycle with its refusal, and its request stays in memory until the collector comes."""
    await context.abort(rpc_server.grpc.StatusCode[answer.status], answer.detail)


@MUTANTS.mutant(
    "READ-FAR-AHEAD", ByTest("tests/unit/runtime/test_responses.py::test_one_connection_takes_no_more_than_its_share")
)
def a_reader_has_the_whole_part_of_its_connection(code: Code) -> None:
    """A broker reads ahead for a connection until its part is full."""
    code.replace(responses, "AHEAD", 1)


@MUTANTS.mutant(
    "LARGE-STEPS", ByTest("tests/unit/runtime/test_responses.py::test_a_response_counts_until_it_is_released")
)
def one_response_takes_all_that_is_read_ahead(code: Code) -> None:
    """One response of several batches holds all that a broker reads ahead for a connection."""
    code.replace(responses, "FITTED", 1)


@MUTANTS.mutant("WAKES-ALL", ByTest("tests/unit/runtime/test_responses.py::test_a_small_response_wakes_no_crowd"))
@around(responses, "_wake")
def every_response_wakes_all_that_wait(original: Any, waiting: Any, _freed_bytes: int) -> None:
    """Each response that ends wakes all that wait for room, whatever it has freed."""
    original(waiting, 1 << 60)


@MUTANTS.mutant("ANY-CONNECTION", ByTest(f"{_GRPC}test_a_listener_closes_what_is_above_its_limit"))
@around(rpc_server, "server_options")
def any_number_of_connections(original: Any, limits: Any) -> Any:
    """A listener accepts any number of connections."""
    return original(dataclasses.replace(limits, connections=1_000))


@MUTANTS.mutant(
    "EMFILE-IS-DAMAGE",
    ByTest(f"{_DESCRIPTORS}test_what_finds_no_descriptor_is_refused_for_now"),
)
def too_few_descriptors_are_a_failed_disk(code: Code) -> None:
    """A log that finds no free file descriptor counts as failed."""
    code.replace(handles, "NO_DESCRIPTORS", frozenset())


@MUTANTS.mutant("PINGS-GO-ON", ByTest("tests/unit/runtime/test_zk_pings.py::test_a_ping_waits_until_the_loop_turns"))
@around(zk.Connection, "_send_ping")
def pings_go_on_without_the_loop(_: Any, self: Any, connect_timeout: float) -> None:
    """The session of a process whose event loop stands still is kept alive."""
    super(zk.Connection, self)._send_ping(connect_timeout)


@MUTANTS.mutant(
    "STOP-IS-A-STEP", ByTest("tests/unit/runtime/test_loop_watch.py::test_a_stop_of_the_whole_process_is_no_step")
)
def a_stop_is_a_step(code: Code) -> None:
    """A stop of the whole process counts as a step of its event loop."""
    code.replace(loop_watch, "PERIOD_S", 100.0)


@MUTANTS.mutant("ONE-FOR-ALL", ByTest(f"{_TURNS}test_a_good_batch_waits_for_one_of_each_other_caller"))
@around(Turns, "turn")
def callers_share_their_turns(original: Any, self: Any, _caller: str) -> Any:
    """Batches of all callers are looked at one after the other."""
    return original(self, "")


@MUTANTS.mutant("LEFT-TO-RUN", ByTest(f"{_TURNS}test_a_caller_that_leaves_ends_its_turn_with_its_work"))
def work_outlives_its_turn(code: Code) -> None:
    """A caller that leaves gives its turn to others, while its work goes on."""

    async def cut_short(work: Any) -> Any:
        return await work

    code.replace(tasks, "to_its_end", cut_short)


@MUTANTS.mutant("ANY-COUNT", ByTest(f"{_TURNS}test_too_many_records_to_look_at_are_refused[full]"))
@around(wire_records, "_check_count")
def any_number_is_looked_at(_: Any, _headers: Any) -> None:
    """Any number of records in one batch is looked at."""


@MUTANTS.mutant(
    "UNWALKED", ByTest(f"{_LIMITS}test_a_request_full_of_empty_items_is_one_refusal[FetchRequest-partitions]")
)
@around(Outline, "check")
def large_requests_are_parsed_first(*_: Any) -> None:
    """The items of a large request are counted when protobuf has parsed it."""


@MUTANTS.mutant(
    "UNCOUNTED-REPLICAS",
    ByTest(f"{_LIMITS}test_lists_of_known_states_have_limits[LeaderAndIsrRequest-replicas]"),
)
@around(codec, "_known_state")
def states_hold_any_number(original: Any, data: bytes) -> Any:
    """The ISR alone is counted of the lists in a known partition state."""
    state, members, _ = original(data)
    return state, members, 0


@MUTANTS.mutant(
    "COUNTED-APART",
    ByTest(f"{_LIMITS}test_states_in_several_places_count_together[LeaderAndIsrRequest]"),
)
@around(codec, "_recognising")
def states_are_counted_by_place(_: Any, decode_all: Any) -> Any:
    """Partition states in several places of a request are counted for each place."""

    def run(data: bytes) -> Any:
        states, rest = codec._split_states(data)
        message = decode_all(rest)
        return dataclasses.replace(message, partition_states=(*states, *message.partition_states))

    return run


@MUTANTS.mutant("EMPTY-FETCH", ByTest(f"{_HOSTILE}[Fetch]"))
@around(FetchHandler, "fetch")
async def a_fetch_of_nothing_holds_the_loop(original: Any, self: Any, request: Any, caller: Any) -> Any:
    """A fetch of no partition looks again and again until its time is over."""
    deadline = self._clock.now() + request.max_wait_ms / 1000
    while not request.partitions and self._clock.now() < deadline:
        pass
    return await original(self, request, caller)


@MUTANTS.mutant("ANY-ITEMS", ByTest(f"{_HOSTILE}[ListOffsets]"))
def a_request_holds_any_number(code: Code) -> None:
    """A request is decoded whatever number of items it holds."""
    for counter in (ListCounter, Outline):
        code.replace(counter, "check", lambda *_: None)


@MUTANTS.mutant("LONG-ANSWER", ByTest(f"{_HOSTILE}[DescribeConfigs]"))
@around(names, "shown")
def a_long_name_is_told_whole(_: Any, text: str) -> str:
    """An error message repeats a long name in full."""
    return ascii(text)


@MUTANTS.mutant("NAME-PER-PARTITION", ByTest(f"{_SHELL}test_requests_are_checked_where_they_enter"))
@around(names, "check_lengths")
def a_long_name_is_answered_per_partition(*_: Any) -> None:
    """A request for partitions of a topic is answered for each of them with its name, however long."""


@MUTANTS.mutant("MANY-PROPOSALS", ByTest(f"{_HOSTILE}[AlterIsr]"))
def a_proposal_names_many_partitions(code: Code) -> None:
    """A request for new ISRs may hold fifteen times the partitions that a broker sends in one."""
    many = dict.fromkeys(limits.LIMITS[m.AlterIsrRequest], 15 * limits.PARTITIONS)
    code.replace(limits, "LIMITS", {**limits.LIMITS, m.AlterIsrRequest: many})


@MUTANTS.mutant("DECODED-AT-ONCE", ByTest(f"{_HOSTILE}[CommitOffsets]"))
def a_server_decodes_at_once(code: Code) -> None:
    """A server decodes a large request in one turn of the event loop."""
    code.replace(rpc_server, "step_decoder", lambda kind: None)


@MUTANTS.mutant("POSITIONS-AT-ONCE", ByTest(f"{_HOSTILE}[ReplicaFetch]"))
def a_leader_takes_all_positions_at_once(code: Code) -> None:
    """A leader looks at all positions of a request, and answers them, in one turn of the event loop."""
    code.replace(bell, "AT_ONCE", 1 << 60)
    code.replace(follower_session, "ANSWERS_MAX", 1 << 60)


@MUTANTS.mutant("FORMER-FOLLOWER", ByTest(f"{_REPLICATION}test_a_former_life_of_a_follower_is_refused"))
@around(FollowerSessions, "_introduced")
def a_former_life_takes_over(_: Any, self: Any, session: Any) -> None:
    """A stream of an earlier life of a follower ends that of the living one."""
    for other in self._sessions:
        if other is not session and other.replica == session.replica:
            other.end()


@MUTANTS.mutant("LONG-ID", ByTest(f"{_HOSTILE}[Produce]"))
@around(ReplicaManager, "host")
def a_long_id_is_told_whole(
    original: Any, self: Any, topic: str, partition: int, topic_id: bytes = b"", *rest: Any
) -> Any:
    """The error for a topic_id of another topic repeats it in full."""
    try:
        return original(self, topic, partition, topic_id, *rest)
    except TidelogError as error:
        raise TidelogError(f"{error.message} {topic_id.hex()}", error.code) from None


@MUTANTS.mutant("WIDE-STATES", ByTest(f"{_LIMITS}test_a_state_with_long_lists_is_not_kept[replicas]"))
def wide_states_are_kept(code: Code) -> None:
    """A partition state is kept however many replicas it names."""
    code.replace(codec, "_known_state", functools.lru_cache(lambda data: (codec.decode(m.PartitionState, data), 0)))
