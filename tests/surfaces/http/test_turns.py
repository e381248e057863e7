"""Where a script that came over HTTP begins: in the call that has read it, or in a turn of its
own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from actors.node import Node
from tests.surfaces.http.raw import Raw, request, script

LONG = "FOR $x IN 0..20000 { LET $y = $x };"
"""Longer than a slice."""
DEFINES = "DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE SPACE s"


@pytest.fixture
def unanswered(node: Node) -> Iterator[dict[str, int]]:
    """From `upto` on no change is released."""
    committer = node.committer
    as_it_was, held = committer.releasable, {"upto": 1 << 62}
    committer.releasable = lambda durable: min(durable, held["upto"])
    yield held
    committer.releasable = as_it_was
    committer.release_more()


async def writes(raw: Raw, bearer: str) -> list[str]:
    """The names of the changes that wait for their release."""
    told = await raw.ask("POST", "/script", b"INFO FOR RUNNING", authorization=bearer)
    running: list[dict[str, Any]] = told.json["results"][0]["value"]
    return [one["id"] for one in running if "INFO FOR" not in one["text"]]


async def test_one_behind_a_request_that_a_script_ends_has_a_turn_of_its_own(
    raw: Raw, port: int, bearer: str, node: Node, unanswered: dict[str, int]
) -> None:
    """Who ends it answers it, in the middle of a slice, which is no other script's."""
    async with asyncio.timeout(20), await Raw.connect(port) as other:
        await raw.ask("POST", "/script", DEFINES.encode(), authorization=bearer)
        unanswered["upto"] = node.committer.commit_index
        put = request("PUT", "/kv/a/b/s/key/k", b"'v'", authorization=bearer)
        await raw.send(put + script("RETURN 'behind it'", bearer))
        while not (found := await writes(other, bearer)):
            await asyncio.sleep(0)
        await other.send(script(f"{LONG} KILL '{found[0]}'", bearer))
        ended = await raw.answer()
        assert ended.json["error"]["code"] == "UnknownOutcome"
        assert (await raw.answer()).json["results"][0]["value"] == "behind it"
