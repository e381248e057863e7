"""Which Host names are this node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.node import Node
from surfaces.http.hosts import Hosts
from tests.surfaces.http.raw import Raw


async def test_a_declared_endpoint_is_known_from_then_on(raw: Raw, bearer: str) -> None:
    ask = b"GET /ready HTTP/1.1\r\nHost: node1.example:8000\r\n\r\n"
    await raw.send(ask)
    assert (await raw.answer()).error["code"] == "MisdirectedRequest"
    assert (await raw.run("DEFINE NODE ENDPOINTS 'node1.example:8000';", bearer)).status == 200
    await raw.send(ask)
    assert (await raw.answer()).status == 200


async def test_health_is_answered_whatever_it_is_called(raw: Raw) -> None:
    for host in ("node1.example", "10.1.2.3", "lb.internal:9"):
        await raw.send(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (await raw.answer()).json["status"] == "well"
    for path in ("/", "/ready", "/metrics", "/healthy", "/script"):
        await raw.send(f"GET {path} HTTP/1.1\r\nHost: node1.example\r\n\r\n".encode())
        assert (await raw.answer()).error["code"] == "MisdirectedRequest", path


@pytest.mark.parametrize(
    "endpoint", ["db.example", "db.example:80", "https://db.example:80/x", "DB.example:1"]
)
def test_the_host_of_an_endpoint(node: Node, endpoint: str) -> None:
    status = replace(node.status(), endpoints=(endpoint,))
    hosts = Hosts("127.0.0.1")
    assert hosts.known("db.example", lambda: status)
    assert not hosts.known("example", lambda: status)
    assert not hosts.known("db.example.evil", lambda: status)


def test_addresses_remembered_are_bounded(node: Node) -> None:
    hosts = Hosts("127.0.0.1")
    for number in range(5_000):
        assert hosts.known(f"10.0.{number // 256}.{number % 256}", node.status)
    assert len(hosts._addresses) <= 1024
