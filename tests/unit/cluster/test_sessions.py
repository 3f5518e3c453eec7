"""What ZooKeeper's `dump` says of sessions and of the znodes that they hold: from the server that decides about their end."""

import pytest

from tidelog.cluster import sessions
from tidelog.cluster.api import ClusterError, Sessions
from tidelog.cluster.sessions import parse_dump, sessions_at
from tidelog.ids import Address

REST = """\
ephemeral nodes dump:
Sessions with Ephemerals (2):
0x200001acc8e0015:
	/brokers/ids/1
0x300001ae5940010:
	/consumers/shards/1/coordinator
	/consumers/shards/6/coordinator
Connections dump:
Connections Sets (2)/(3):
0 expire at Sun Nov 22 14:42:11 UTC 2026:
3 expire at Sun Nov 22 14:42:21 UTC 2026:
	ip: /172.23.0.8:48798 sessionId: 0x300001ae5940010
	ip: /172.23.0.1:35572 sessionId: 0x0
"""
SETS = """\
Session Sets (3)/(3):
0 expire at Sun Nov 22 14:42:07 UTC 2026:
1 expire at Sun Nov 22 14:42:12 UTC 2026:
	0x200001acc8e0015
2 expire at Sun Nov 22 14:42:13 UTC 2026:
	0x300001ae5940007
	0x300001ae5940010
"""
LEADER = f"SessionTracker dump:\n{SETS}{REST}"
WITH_LOCAL_SESSIONS = f"SessionTracker dump:\nLocal Session Sets (0)/(0):\nGlobal {SETS}{REST}"
FOLLOWER = f"SessionTracker dump:\nGlobal Sessions(2):\n0x200001acc8e0015\t6000ms\n0x300001ae5940010\t6000ms\n{REST}"
REFUSAL = "dump is not executed because it is not in the whitelist.\n"
SEEN = Sessions(
    frozenset({0x200001ACC8E0015, 0x300001AE5940007, 0x300001AE5940010}),
    {
        "/brokers/ids/1": 0x200001ACC8E0015,
        "/consumers/shards/1/coordinator": 0x300001AE5940010,
        "/consumers/shards/6/coordinator": 0x300001AE5940010,
    },
)
SERVERS = [Address("z", port) for port in (1, 2, 3)]


@pytest.mark.parametrize("answer", [LEADER, WITH_LOCAL_SESSIONS], ids=["plain", "with local sessions"])
def test_the_server_that_decides_tells_of_sessions_and_of_what_they_hold(answer: str) -> None:
    assert parse_dump(answer) == SEEN


@pytest.mark.parametrize(
    "answer", [FOLLOWER, REFUSAL, "", "This ZooKeeper instance is not currently serving requests\n"]
)
def test_who_does_not_decide_says_nothing_of_use(answer: str) -> None:
    assert parse_dump(answer) is None


def test_servers_are_asked_until_one_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[int, str | OSError] = {1: ConnectionRefusedError("refused"), 2: FOLLOWER, 3: LEADER}

    def asked(address: Address, word: str, timeout_s: float) -> str:
        answer = answers[address.port]
        if word != "dump" or isinstance(answer, OSError):
            raise answer if isinstance(answer, OSError) else OSError(word)
        return answer

    monkeypatch.setattr(sessions, "four_letter_word", asked)
    assert sessions_at(SERVERS) == SEEN
    answers[3] = REFUSAL
    with pytest.raises(ClusterError, match=r"z:1: refused; z:2: SessionTracker dump:; z:3: dump is not executed"):
        sessions_at(SERVERS)
