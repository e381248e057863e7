"""GET /health and /ready."""

from __future__ import annotations

import asyncio

from actors.node import Node
from protocol.version import BUILD, VERSION
from surfaces.command.stopping import drain
from surfaces.http.surface import HttpSurface
from tests.surfaces.http.raw import Raw


async def test_health_of_a_node_that_is_well(raw: Raw, node: Node) -> None:
    answer = await raw.ask("GET", "/health")
    assert answer.status == 200
    assert answer.json["status"] == "well"
    assert answer.json["version"] == VERSION
    assert answer.json["sequence"] == node.status().sequence
    assert answer.json["uptime"] >= 0
    assert answer.json["build"] == BUILD
    assert set(answer.json) == {"status", "version", "build", "sequence", "uptime"}


async def test_ready_node_says_its_roles(raw: Raw) -> None:
    answer = await raw.ask("GET", "/ready")
    assert answer.status == 200
    roles = ["serving", "writable"]
    assert answer.json == {"ready": True, "reason": None, "roles": roles, "held_up": None}


async def test_draining_node_is_alive_but_not_ready(raw: Raw, node: Node) -> None:
    node.not_ready()
    health = await raw.ask("GET", "/health")
    ready = await raw.ask("GET", "/ready")
    assert (health.status, health.json["status"]) == (200, "closing")
    assert (ready.status, ready.json["reason"]) == (503, "draining")
    assert ready.fields["retry-after"] == "1"


async def test_who_connects_at_the_end_sees_that_the_node_is_not_ready(
    raw: Raw, node: Node, surface: HttpSurface
) -> None:
    assert (await raw.ask("GET", "/ready")).status == 200
    ending = asyncio.create_task(drain(node, [surface]))
    while node.status().reason is None:
        await asyncio.sleep(0)
    async with await Raw.connect(surface.address[1]) as new:
        assert (await new.ask("GET", "/ready")).json["reason"] == "draining"
    await ending


async def test_probes_of_a_surface_that_stops_still_answer(raw: Raw, surface: HttpSurface) -> None:
    assert (await raw.ask("GET", "/ready")).status == 200
    surface.stop_accepting()
    assert (await raw.ask("GET", "/health")).status == 200
    assert (await raw.ask("GET", "/ready")).json["reason"] == "draining"
    assert (await raw.ask("GET", "/metrics")).status == 200
    refused = await raw.ask("GET", "/")
    assert (refused.status, refused.error["code"]) == (503, "Draining")
    assert refused.fields["retry-after"] == "1"
    assert await raw.rest() == b""


async def test_any_role_answers_clients_and_only_serving_asks_for_them(
    raw: Raw, bearer: str
) -> None:
    """Cache keys have a way of their own to be answered, which asks the roles by itself."""
    key = "/kv/shop/main/c/key/k"

    async def roles(words: str) -> tuple[int, object, int, int]:
        assert (await raw.run(f"DEFINE NODE ROLES {words}", bearer)).status == 200
        ready = await raw.ask("GET", "/ready")
        read = await raw.ask("GET", key, authorization=bearer)
        return (
            ready.status,
            ready.json["reason"],
            read.status,
            (await raw.run("RETURN 1", bearer)).status,
        )

    define = "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE SPACE c"
    assert (await raw.run(f"{define}; SET 'k' IN c VALUE 1", bearer)).status == 200
    assert (await raw.ask("GET", key, authorization=bearer)).status == 200
    assert await roles("writable") == (503, "not_serving", 200, 200)
    assert await roles("coordinating") == (503, "not_serving", 200, 200)
    assert await roles("NONE") == (503, "no_roles", 503, 503)
    assert await roles("serving") == (200, None, 200, 200)


async def test_head_of_a_probe_has_no_body(raw: Raw) -> None:
    for path in ("/health", "/ready"):
        head = await raw.ask("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert int(head.fields["content-length"]) > 0
        assert (await raw.ask("GET", path)).status == 200  # the connection is in step
