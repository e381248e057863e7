"""A node that copies the store of others answers probes, and nothing else."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from actors.environment import SystemClock
from bench.ports import free_port
from surfaces.command import copying
from surfaces.command.addresses import Address
from surfaces.command.copying import AddressTaken, probed
from tests.certificates import self_signed

SECONDS = 30


def told(port: int, request: bytes) -> bytes:
    """All that is answered to some bytes. Nothing of this thread's loop runs meanwhile."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.sendall(request)
        found = b""
        with suppress(ConnectionResetError):  # it was closed with something unread
            while part := connection.recv(65_536):
                found += part
        return found


def asked(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    head, _, body = told(port, f"{method} {path} HTTP/1.1\r\nHost: n\r\n\r\n".encode()).partition(
        b"\r\n\r\n"
    )
    assert f"Content-Length: {len(body)}".encode() in head
    return int(head.split(b" ")[1]), json.loads(body)


def test_it_says_that_it_lives_and_how_far_it_is() -> None:
    port = free_port()
    with probed(Address("127.0.0.1", port), None, SystemClock()) as tick:
        status, health = asked(port, "/health")
        assert (status, health["status"], health["sequence"]) == (200, "copying", 0)
        tick("copying the store", 3, 7)
        status, ready = asked(port, "/ready?x=1")
        assert (status, ready["ready"], ready["reason"]) == (503, False, "copying")
        assert ready["copied"] == {"stage": "copying the store", "done": 3, "of": 7}
        for path, method in (("/", "GET"), ("/script", "POST"), ("/health", "DELETE")):
            status, refused = asked(port, path, method)
            assert (status, refused["error"]["code"]) == (503, "Busy")
            assert "copying the store: 3 of 7" in refused["error"]["message"]
    with pytest.raises(ConnectionRefusedError):
        told(port, b"")
    with probed(Address("127.0.0.1", port), None, SystemClock()):
        assert asked(port, "/health")[0] == 200, "the address was free again"


def test_a_head_is_answered_without_a_body() -> None:
    port = free_port()
    with probed(Address("127.0.0.1", port), None, SystemClock()):
        found = told(port, b"HEAD /health HTTP/1.1\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200 ") and found.endswith(b"\r\n\r\n")


def test_an_address_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(AddressTaken, match="the port is in use"),
            probed(address, None, SystemClock()),
        ):
            raise AssertionError("it listens where another does")


@pytest.mark.parametrize("address", [None, Address("127.0.0.1", 0)])
def test_nobody_asks_where_no_port_is_given(address: Address | None) -> None:
    with probed(address, None, SystemClock()) as tick:
        tick("copying the store", 1, 2)


def test_who_sends_no_request_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "HEAD_SECONDS", 0.1)
    port = free_port()
    with probed(Address("127.0.0.1", port), None, SystemClock()):
        assert told(port, b"GET /health") == b""
        monkeypatch.undo()
        assert asked(port, "/health")[0] == 200


def test_who_greets_nobody_over_tls_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*(files := self_signed(tmp_path, "node")))
    port = free_port()
    monkeypatch.setattr(copying, "HEAD_SECONDS", 0.1)
    with probed(Address("127.0.0.1", port), tls, SystemClock()):
        assert told(port, b"") == b""
    monkeypatch.undo()
    with probed(Address("127.0.0.1", port), tls, SystemClock()):
        trust = ssl.create_default_context(cafile=files[0])
        with trust.wrap_socket(
            socket.create_connection(("127.0.0.1", port), SECONDS), server_hostname="localhost"
        ) as sent:
            sent.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            assert sent.recv(12) == b"HTTP/1.1 200"


def test_what_is_no_request_is_told_nothing_of() -> None:
    port = free_port()
    with probed(Address("127.0.0.1", port), None, SystemClock()):
        assert b" 503 " in told(port, b"\xff\xfe\r\n\r\n")[:20]
        assert told(port, b"GET /health\r\nx: " + b"y" * 2 * copying.HEAD_BYTES)[:20] == b""
        assert asked(port, "/health")[0] == 200
