"""GET /watch: a table is followed over a WebSocket, on real sockets."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from actors.node import Node
from surfaces.http.surface import HttpSurface
from tests.surfaces.http import sockets
from tests.surfaces.http.conftest import PASSWORD, Serve
from tests.surfaces.http.raw import Raw
from tests.surfaces.http.sockets import Peer
from tests.tables import case

BASIC = "Basic " + b64encode(f"root:{PASSWORD}".encode()).decode()
PAGE = Path(__file__).parents[3] / "docs" / "feeds.md"
PLACE = {"ns": "a", "db": "b", "table": "t"}


class Watcher(Peer):
    async def until(self, kind: str) -> dict[str, Any]:
        """The next message of a kind; what comes before it is `heard`."""
        while True:
            said = (await self.frame()).json
            assert isinstance(said, dict)
            if said["type"] == kind:
                return said
            self.heard.append(said)

    heard: list[dict[str, Any]]


@asynccontextmanager
async def watching(
    surface: HttpSurface, query: dict[str, str] | str | None = None, **fields: str | None
) -> AsyncIterator[Watcher]:
    said = query if isinstance(query, str) else urlencode({**PLACE, **(query or {})})
    fields.setdefault("Authorization", BASIC)
    asks = sockets.asks(**fields).replace(b"/echo", b"/watch?" + said.encode(), 1)
    watcher = Watcher(await Raw.connect(surface.address[1]))
    watcher.heard = []
    async with watcher:
        await watcher.begin(asks)
        yield watcher


async def as_page(surface: HttpSurface) -> dict[str, str | None]:
    """The fields of a page that has signed in."""
    async with await Raw.connect(surface.address[1]) as raw:
        signed_in = await raw.ask("POST", "/session", authorization=BASIC)
    offered = f"store.watch.v1, store.bearer.{signed_in.json['token']}"
    return {"Authorization": None, "Sec-WebSocket-Protocol": offered}


async def script(surface: HttpSurface, text: str, **fields: Any) -> int:
    """Run a script that must succeed; the sequence that it committed."""
    return int((await answered(surface, text, **fields))["seq"])


async def answered(surface: HttpSurface, text: str, **fields: Any) -> dict[str, Any]:
    async with await Raw.connect(surface.address[1]) as raw:
        answer = await raw.run({"script": text, "ns": "a", "db": "b", **fields}, BASIC)
        assert answer.status == 200, answer.body
        assert isinstance(answer.json, dict)
        return answer.json


@pytest.fixture
async def surface(serve: Serve, node: Node) -> HttpSurface:
    found = await serve()
    await script(
        found, "DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t", ns=None, db=None
    )
    return found


async def test_a_table_is_followed_from_where_the_reader_says(
    surface: HttpSurface, node: Node
) -> None:
    first = await script(surface, "CREATE t:1 SET a = 'ä', d = 1.50dec")
    await script(surface, "CREATE t:2 SET a = 2")
    async with watching(surface, {"from": str(first)}) as watcher:
        opened = await watcher.until("open")
        assert opened == {
            "type": "open", "seq": opened["seq"], "start": first, "begins": 1, "table": "t",
            "created": opened["created"], "store": node.store.id, "epoch": 1, "start_epoch": 1,
        }  # fmt: skip
        assert opened["created"] < first < opened["seq"]
        caught_up = await watcher.until("caught_up")
        assert caught_up["seq"] >= opened["seq"] and caught_up["epoch"] == 1
        (missed,) = watcher.heard
        assert missed["seq"] == first + 1
        last = await script(surface, "UPDATE t:1 SET a = 3; DELETE t:2", reason="tidy")
        updated, deleted = await watcher.until("commit"), await watcher.until("commit")
        assert updated == {
            "type": "commit", "seq": last - 1, "epoch": 1, "at": updated["at"], "by": "root",
            "reason": "tidy", "changes": [
                {
                    "action": "update", "id": "t:1",
                    "value": {"id": {"$rec": "t:1"}, "a": 3, "d": {"$dec": "1.50"}},
                }
            ],
        }  # fmt: skip
        assert updated["at"].endswith("Z")
        assert deleted["changes"] == [{"action": "delete", "id": "t:2", "value": None}]
        assert surface.running == 0


async def test_what_was_before_and_a_filter_are_asked_for_in_the_query(
    surface: HttpSurface,
) -> None:
    await script(surface, "CREATE t:1 SET a = 1")
    query = {"where": "a > 0 AND 'x+y' = 'x+y'", "before": "1", "actions": "update,delete"}
    async with watching(surface, query) as watcher:
        await watcher.until("caught_up")
        await script(surface, "UPDATE t:1 SET a = 2; CREATE t:2 SET a = 7; UPDATE t:1 SET a = 0")
        updated, left = await watcher.until("commit"), await watcher.until("commit")
        assert [one["changes"][0]["before"]["a"] for one in (updated, left)] == [1, 2]
        assert left["changes"][0]["action"] == "delete"
        assert left["changes"][0]["value"] is None


async def test_a_filter_finds_text(surface: HttpSurface) -> None:
    """With the analyzer as it was when the feed was opened."""
    define = "DEFINE ANALYZER{} plain TOKENIZERS class{};"
    await script(
        surface,
        define.format("", " FILTERS lowercase")
        + "DEFINE INDEX text ON t FIELDS a, b.c FULLTEXT ANALYZER plain",
    )
    query = {"where": "[b.c, a] @@ 'tin -gold' AND n != 3"}
    async with watching(surface, query) as watcher:
        await watcher.until("caught_up")
        await script(surface, "CREATE t:1 SET a = 'Tin'; CREATE t:2 SET a = 'tin', b.c = 'gold'")
        await script(surface, define.format(" OVERWRITE", ""))
        await script(
            surface,
            "CREATE t:3 SET a = 'tin', n = 3; CREATE t:4 SET b.c = ['a', 'TIN'];"
            "UPDATE t:1 SET a = 'lead'",
        )
        heard = [(await watcher.until("commit"))["changes"][0] for _ in range(3)]
    assert [(one["action"], one["id"]) for one in heard] == [
        ("create", "t:1"), ("create", "t:4"), ("delete", "t:1")
    ]  # fmt: skip


async def test_what_is_wrong_with_the_request_is_its_answer(surface: HttpSurface) -> None:
    for query, status, code in [
        ("ns=a&db=b", 400, "BadRequest"),
        ("ns=a&db=b&table=t&x=1", 400, "BadRequest"),
        ("ns=a&db=b&table=t&from=-1", 400, "BadRequest"),
        ("ns=a&db=b&table=t&from=x", 400, "BadRequest"),
        ("ns=a&db=b&table=t&from=1&from=2", 400, "BadRequest"),
        ("ns=a&db=b&table=t&before=yes", 400, "BadRequest"),
        ("ns=a&db=b&table=t&epoch=1.5", 400, "BadRequest"),
    ]:
        with case(query, status, code):
            asks = sockets.asks(Authorization=BASIC).replace(
                b"/echo", b"/watch?" + query.encode(), 1
            )
            async with await Raw.connect(surface.address[1]) as raw:
                await raw.send(asks)
                answer = await raw.answer()
                assert (answer.status, answer.json["error"]["code"]) == (status, code)


WRONG = [
    ({"table": "nothing"}, 4404, "Unknown"),
    ({"db": "nowhere"}, 4404, "Unknown"),
    ({"from": "1000000"}, 4410, "Diverged"),
    ({"store": "f" * 32}, 4410, "Diverged"),
    ({"from": "1"}, 4404, "Unknown"),
    ({"where": "a >"}, 4400, "UnexpectedToken"),
    ({"where": "(SELECT * FROM t) = []"}, 4400, "BadRequest"),
    ({"where": "x @@ 'tin'"}, 4400, "BadRequest"),
    ({"where": "x NEAREST 3 TO [1, 2]"}, 4400, "BadRequest"),
    ({"where": "search::score() > 1"}, 4400, "BadRequest"),
    ({"where": "vector::distance() > 1"}, 4400, "BadRequest"),
    ({"actions": "create,rename"}, 4400, "BadRequest"),
    ({"where": "x = 1" + " OR x = 1" * 600}, 4413, "TooLarge"),
]


async def test_what_is_wrong_with_the_feed_is_told_on_the_socket_of_a_page(
    surface: HttpSurface,
) -> None:
    await script(surface, "CREATE t:1 SET x = 0")
    page = await as_page(surface)
    by_itself: dict[str, str | None] = {"Authorization": BASIC}
    late = ({"where": "6 / x > 1", "from": "0"}, 4409, "DivisionByZero")
    for (query, close, code), who in [*((wrong, page) for wrong in WRONG), (late, by_itself)]:
        with case(query, code):
            async with watching(surface, query, **who) as watcher:
                refused = await watcher.until("error")
                assert refused["error"]["code"] == code
                assert (await watcher.frame()).code == close
                assert code in documented()[close]


async def test_what_is_wrong_with_the_feed_is_the_answer_to_who_can_read_it(
    surface: HttpSurface,
) -> None:
    for query, close, code in WRONG:
        with case(query, code):
            said = urlencode({**PLACE, **query})
            asks = sockets.asks(Authorization=BASIC)
            async with await Raw.connect(surface.address[1]) as raw:
                await raw.send(asks.replace(b"/echo", b"/watch?" + said.encode(), 1))
                answer = await raw.answer()
                assert (answer.status, answer.error["code"]) == (close - 4000, code)


async def test_a_feed_that_is_killed_says_so_and_not_that_its_reader_was_slow(
    surface: HttpSurface,
) -> None:
    async with watching(surface) as watcher:
        await watcher.until("caught_up")
        running = (await answered(surface, "INFO FOR RUNNING"))["results"][0]["value"]
        (feed,) = (one["id"] for one in running if one["text"] == "WATCH t")
        await script(surface, f"KILL '{feed}'")
        assert (await watcher.until("error"))["error"]["code"] == "Cancelled"
        assert (await watcher.frame()).code == 4408
        assert "Cancelled" in documented()[4408]


def documented() -> dict[int, str]:
    """What the page about feeds says of each close code."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| 4")]
    return {int(code): said for _, code, said, *_ in rows}


async def test_a_page_brings_its_token_beside_the_protocol_and_hears_that_it_ended(
    surface: HttpSurface,
) -> None:
    async with await Raw.connect(surface.address[1]) as raw:
        page = await as_page(surface)
        _, _, token = str(page["Sec-WebSocket-Protocol"]).rpartition(".")
        async with watching(surface, **page) as watcher:
            assert watcher.answer.fields["sec-websocket-protocol"] == "store.watch.v1"
            await watcher.until("caught_up")
            await raw.ask("DELETE", "/session", authorization=f"Bearer {token}")
            refused = await watcher.until("error")
            assert refused["error"]["code"] == "SessionEnded"
            assert (await watcher.frame()).code == 4401
        async with watching(surface, **page) as again:
            assert (await again.until("error"))["error"]["code"] == "SessionEnded"
            assert (await again.frame()).code == 4401


async def test_a_reader_that_speaks_is_told_that_a_feed_takes_nothing(surface: HttpSurface) -> None:
    async with watching(surface) as watcher:
        await watcher.until("caught_up")
        await watcher.text("hello")
        assert (await watcher.until("error"))["error"]["code"] == "BadRequest"
        assert (await watcher.frame()).code == 4400


async def test_a_reader_that_has_gone_leaves_nothing_behind(
    surface: HttpSurface, node: Node
) -> None:
    async with watching(surface) as watcher:
        await watcher.until("caught_up")
        assert len(node.open_feeds) == 1
    while len(node.open_feeds):
        await asyncio.sleep(0)
    assert not node.committer.tail._followers
