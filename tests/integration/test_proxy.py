"""The TCP proxy between plain sockets: what passes, what a cut holds back, what a reset ends."""

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelog.cluster.api import Traffic
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.proxy import Proxy
from tidelog.ids import Address

pytestmark = pytest.mark.integration

HELD_S = 0.3
ARRIVES_S = 5.0


class EchoServer:
    """Answers every chunk with itself, in threads."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self.address = Address(*self._socket.getsockname())
        self._accepted: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._accepted.append(connection)
                threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._accepted:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    running = Proxy()
    running.start()
    yield running
    running.stop()


def dial(address: Address) -> socket.socket:
    connection = socket.create_connection(address, timeout=ARRIVES_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return receive(connection, len(data))


def receive(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count and (chunk := connection.recv(count - len(got))):
        got += chunk
    return got


def hears_nothing(connection: socket.socket) -> bool:
    connection.settimeout(HELD_S)
    try:
        return connection.recv(1) is None
    except TimeoutError:
        return True
    finally:
        connection.settimeout(ARRIVES_S)


def test_bytes_pass_unchanged_in_both_directions_and_so_does_the_end(proxy: Proxy, echo: EchoServer) -> None:
    listen = proxy.add_link("a", "b", echo.address, free_ports(1)[0])
    payload = bytes(range(256)) * 8192
    with dial(listen) as connection:
        sender = threading.Thread(target=connection.sendall, args=(payload,))
        sender.start()
        assert receive(connection, len(payload)) == payload
        sender.join()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


@pytest.mark.parametrize("sender, receiver", [("a", "b"), ("b", "a")])
def test_a_cut_one_way_holds_bytes_back_until_it_is_healed(
    proxy: Proxy, echo: EchoServer, sender: str, receiver: str
) -> None:
    listen = proxy.add_link("a", "b", echo.address, free_ports(1)[0])
    with dial(listen) as connection:
        assert ask(connection, b"before") == b"before"
        proxy.cut(sender, receiver)
        assert proxy.cuts() == [(sender, receiver)]
        connection.sendall(b"during")
        assert hears_nothing(connection)
        proxy.heal_all()
        assert receive(connection, 6) == b"during"
        assert proxy.cuts() == []


def test_a_cut_is_one_way_only(proxy: Proxy) -> None:
    """Bytes still flow against the direction of the cut."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = proxy.add_link("a", "b", Address(*server.getsockname()), free_ports(1)[0])
        with dial(listen) as near:
            far, _ = server.accept()
            with far:
                far.settimeout(ARRIVES_S)
                proxy.cut("a", "b")
                near.sendall(b"lost for now")
                assert hears_nothing(far)
                far.sendall(b"heard")
                assert receive(near, 5) == b"heard"
                proxy.heal("a", "b")
                assert receive(far, 12) == b"lost for now"


def test_the_end_of_a_connection_does_not_cross_a_cut(proxy: Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = proxy.add_link("a", "b", Address(*server.getsockname()), free_ports(1)[0])
        near = dial(listen)
        far, _ = server.accept()
        with far:
            far.settimeout(ARRIVES_S)
            proxy.cut("a", "b")
            near.close()
            assert hears_nothing(far)
            proxy.heal("a", "b")
            assert far.recv(1) == b""


def test_other_links_do_not_notice(proxy: Proxy, echo: EchoServer) -> None:
    one, two = free_ports(2)
    cut = proxy.add_link("a", "b", echo.address, one)
    open_ = proxy.add_link("c", "b", echo.address, two)
    proxy.cut("a", "b")
    with dial(cut) as held, dial(open_) as free:
        held.sendall(b"x")
        assert ask(free, b"hello") == b"hello"
        assert hears_nothing(held)


def test_what_is_throttled_arrives_as_slowly_as_that_and_nothing_else_does(proxy: Proxy, echo: EchoServer) -> None:
    listen, other = (
        proxy.add_link("a", name, echo.address, port) for name, port in zip("bc", free_ports(2), strict=True)
    )
    proxy.shape("a", "b", Traffic(bytes_per_s=10_000.0))
    with dial(listen) as connection:
        began = time.monotonic()
        connection.sendall(bytes(4_000))
        with dial(other) as unthrottled:
            assert len(ask(unthrottled, bytes(100_000))) == 100_000  # ten seconds at that rate
        assert len(receive(connection, 4_000)) == 4_000
        assert time.monotonic() - began >= 0.4
        proxy.heal_all()
        assert len(ask(connection, bytes(100_000))) == 100_000


def test_a_connection_opened_across_a_cut_hears_nothing_until_it_is_healed(proxy: Proxy, echo: EchoServer) -> None:
    listen = proxy.add_link("a", "b", echo.address, free_ports(1)[0])
    proxy.cut("b", "a")
    with dial(listen) as connection:
        connection.sendall(b"hello?")
        assert hears_nothing(connection)
        proxy.heal("b", "a")
        assert receive(connection, 6) == b"hello?"


def test_a_reset_ends_the_connection_and_the_next_one_works(proxy: Proxy, echo: EchoServer) -> None:
    listen = proxy.add_link("a", "b", echo.address, free_ports(1)[0])
    with dial(listen) as connection:
        assert ask(connection, b"x") == b"x"
        assert proxy.reset("b", "a") == 2  # both ends, whichever way round they are named
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with dial(listen) as connection:
        assert ask(connection, b"again") == b"again"


def test_refuse_is_what_a_dead_process_looks_like(proxy: Proxy, echo: EchoServer) -> None:
    listen = proxy.add_link("a", "b", echo.address, free_ports(1)[0])
    with dial(listen) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.refuse("b")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(ConnectionRefusedError):
        dial(listen)
    proxy.accept("b")
    with dial(listen) as connection:
        assert ask(connection, b"back") == b"back"


def test_two_refuse_one_process_and_take_it_back_at_a_time(proxy: Proxy, echo: EchoServer) -> None:
    listen = proxy.add_link("a", "b", echo.address, free_ports(1)[0])
    for _ in range(20):
        for act in (proxy.refuse, proxy.accept):
            with ThreadPoolExecutor(2) as both:
                for done in [both.submit(act, "b") for _ in range(2)]:
                    done.result()
    with dial(listen) as connection:
        assert ask(connection, b"x") == b"x"


def test_callers_that_dial_while_a_target_dies_and_returns_are_all_answered(proxy: Proxy, echo: EchoServer) -> None:
    """Served, reset or refused, and nothing is left unclosed behind them, which would fail this test."""
    listen = proxy.add_link("a", "b", echo.address, free_ports(1)[0])
    done = threading.Event()

    def dials() -> None:
        while not done.is_set():
            with contextlib.suppress(ConnectionError), dial(listen) as connection:
                ask(connection, b"x")

    callers = [threading.Thread(target=dials) for _ in range(4)]
    for caller in callers:
        caller.start()
    for _ in range(100):
        proxy.refuse("b")
        proxy.accept("b")
    done.set()
    for caller in callers:
        caller.join(ARRIVES_S)
        assert not caller.is_alive()
    gc.collect()


def test_a_target_that_does_not_listen_resets_the_caller(proxy: Proxy) -> None:
    listen = proxy.add_link("a", "b", Address("127.0.0.1", free_ports(1)[0]), free_ports(1)[0])
    with pytest.raises(ConnectionResetError), dial(listen) as connection:
        connection.recv(1)


def test_stop_resets_what_is_open(echo: EchoServer) -> None:
    proxy = Proxy()
    proxy.start()
    listen = proxy.add_link("a", "b", echo.address, free_ports(1)[0])
    with dial(listen) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.stop()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(ConnectionRefusedError):
        dial(listen)


def test_a_stop_with_open_connections_prints_no_traceback(echo: EchoServer, caplog: pytest.LogCaptureFixture) -> None:
    """CPython 3.11 reports each connection whose handler was cancelled as the loop ended."""
    for held in (False, True):
        proxy = Proxy()
        proxy.start()
        port = free_ports(1)[0]
        link = proxy.add_link("client", "broker-0", echo.address, port)
        with dial(link) as connection:
            assert ask(connection, b"hello") == b"hello"
            if held:
                proxy.cut("client", "broker-0")
                connection.sendall(b"held")
            proxy.stop()
    assert [record.getMessage() for record in caplog.records] == []
