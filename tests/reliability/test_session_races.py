"""Races of sign-ins on a real node, over both surfaces: they are being hashed while their user is
dropped, changed or declared anew. `test_rights_races.py` has tokens that are used while they are
deleted.

One rule: what is begun after a change was acknowledged is not done with a credential of before it.
What overlaps the change may go either way. All clients live on one loop here, so that "after" is
what its clock says.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from protocol.frames import FrameReader, MessageKind, WireMessage, encode
from tests.processes import PASSWORD, USER, NodeProcess
from tests.reliability import faulty

Figure = Callable[[str, object], None]

PLACE: Final = {"ns": "shop", "db": "main"}
DEFINED: Final = "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main"
OLD: Final = "the old horse"
NEW: Final = "another horse"
CHANGES: Final = {
    "dropped": "DROP USER {user}",
    "another password": f"ALTER USER {{user}} SET PASSWORD '{NEW}'",
    "declared anew": f"DROP USER {{user}}; DEFINE USER {{user}} ROLE owner PASSWORD '{NEW}'",
}
OVER: Final = frozenset({"SignInRefused", "SessionEnded"})
"""What a credential hears that is none any more."""
ROUNDS: Final = 15
MORE: Final = 4
"""Times as many at most, where too few of them raced."""
LANES: Final = 3
"""Rounds at once, each with a user of its own."""
SIGN_INS: Final = 2
"""On each surface, in one round: they are hashed one after the other, while the user changes."""


class Gone(Exception):
    """The node closed the connection."""


class Http:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, method: str, path: str, body: str, credential: str) -> Any:
        data = body.encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {credential}\r\n"
        kind = "application/json" if body[:1] == "{" else "text/plain"
        head += f"Content-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        try:
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        except asyncio.IncompleteReadError as error:
            raise Gone from error
        length = int(lines.partition("content-length: ")[2].partition("\r\n")[0] or 0)
        return json.loads(await self._reader.readexactly(length) or b"{}")


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._id = 0

    async def greet(self, **credential: str) -> WireMessage:
        hello = {"magic": "STORE", "major": 1, "minor": [0, 0], **credential}
        self._writer.write(encode(MessageKind.HELLO, 0, hello))
        return await self._hear()

    async def ask(self, kind: MessageKind, body: dict[str, Any]) -> WireMessage:
        self._id += 1
        self._writer.write(encode(kind, self._id, {**PLACE, **body}))
        return await self._hear()

    async def _hear(self) -> WireMessage:
        while (message := self._frames.next()) is None:
            data = await self._reader.read(65_536)
            if not data:
                raise Gone
            self._frames.feed(data)
        return message


def code(answer: Any) -> str:
    """The code of an error, or `done`."""
    if isinstance(answer, WireMessage):
        body = answer.body if answer.kind in (MessageKind.ERROR, MessageKind.REFUSED) else None
    else:
        body = answer
    return str(body["error"]["code"]) if body and "error" in body else "done"


Use = Callable[[], Awaitable[str]]
"""Does something as whoever signed in; what came of it."""


class Races:
    """All of it on one node.

    :ivar violations: what the node did that it may not
    :ivar counts: what it did
    """

    def __init__(self, node: NodeProcess, seed: int) -> None:
        self._node = node
        self._random = Random(seed)
        self._open: AsyncExitStack
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()

    async def run(self, rounds: int) -> None:
        """So many of each kind, and more while they say too little; or as many as it takes until a
        violation is found."""

        def goes_on(number: int) -> bool:
            return number < rounds or (number < MORE * rounds and not self.says_enough)

        numbers = itertools.takewhile(goes_on, itertools.count())
        async with AsyncExitStack() as self._open:
            await asyncio.gather(*(self._lane(numbers) for _ in range(LANES)))

    @property
    def says_enough(self) -> bool:
        """Whether enough sign-ins were granted, and refused, to have raced with a change."""
        heard = "sign-ins granted", "sign-ins refused, beside or before"
        return all(self.counts[each] > ROUNDS / 2 for each in heard)

    async def _lane(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            await self._sign_ins(number)
            if self.violations:
                return

    # --- sign-ins, while their user changes -------------------------------------------------------

    async def _sign_ins(self, number: int) -> None:
        user, (name, change) = f"u{number}", list(CHANGES.items())[number % len(CHANGES)]
        self._script(await self._owner(f"DEFINE USER {user} ROLE owner PASSWORD '{OLD}'"))
        changed = asyncio.get_running_loop().create_future()
        granted = asyncio.Semaphore(0)
        asked = [
            asyncio.create_task(self._sign_in(way, user, name, changed, granted))
            for way in [self._over_http, self._over_wire] * SIGN_INS
        ]
        # Somewhere between the first and the last of them, however fast the machine hashes.
        for _ in range(self._random.randrange(2 * SIGN_INS)):
            await granted.acquire()
        await asyncio.sleep(self._random.random() * 0.05)
        self._script(await self._owner(change.format(user=user)))
        changed.set_result(time.monotonic())
        await asyncio.gather(*asked)

    async def _sign_in(
        self, way: Callable[[str], Awaitable[Use | str]], user: str, change: str,
        changed: asyncio.Future[float], granted: asyncio.Semaphore,
    ) -> None:  # fmt: skip
        began = time.monotonic()
        late = changed.done()
        use = await way(user)
        if isinstance(use, str):
            self.counts[f"sign-ins refused, {'after' if late else 'beside or before'}"] += 1
            assert use in OVER, use
            return
        self.counts["sign-ins granted"] += 1
        granted.release()
        if late:
            self.violations.append(f"{change}: signed in {began - changed.result():.3f} s after")
        while not changed.done() and await use() not in OVER:
            await asyncio.sleep(0.01)
        await changed
        found = await use()
        if found not in OVER:
            self.violations.append(f"{change}: a session of before is {found} after it")

    async def _over_http(self, user: str) -> Use | str:
        http = await self._http()
        found = await http.ask("POST", "/session", "", _basic(user, OLD))
        if "token" not in found:
            return code(found)
        bearer = f"Bearer {found['token']}"

        async def use() -> str:
            return code(await http.ask("POST", "/script", "RETURN 1", bearer))

        return use

    async def _over_wire(self, user: str) -> Use | str:
        wire = await self._wire()
        found = await wire.greet(user=user, password=OLD)
        if found.kind is not MessageKind.WELCOME:
            return code(found)

        async def use() -> str:
            return code(await wire.ask(MessageKind.RUN, {"script": "RETURN 1"}))

        return use

    # --- to the node ------------------------------------------------------------------------------

    async def _owner(self, script: str) -> Any:
        http = await self._http()
        return await http.ask("POST", "/script", script, _basic(USER, PASSWORD))

    def _script(self, answer: Any) -> None:
        assert "error" not in answer, answer

    async def _http(self) -> Http:
        return Http(*await self._open.enter_async_context(_connected(self._node.address("http"))))

    async def _wire(self) -> Wire:
        return Wire(*await self._open.enter_async_context(_connected(self._node.address("wire"))))


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@asynccontextmanager
async def _connected(
    address: tuple[str, int],
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


def raced(folder: Path, rounds: int, *faults: str, seed: int = 1) -> Races:
    """The races on a node of their own."""
    more = {faulty.FAULTS: ",".join(faults)}
    node = NodeProcess(folder / "store", more=more, module=faulty.MODULE).start()
    try:
        assert "error" not in node.script(DEFINED)
        races = Races(node, seed)
        asyncio.run(races.run(rounds))
        return races
    finally:
        assert node.stop() == 0


@pytest.mark.hard
def test_no_credential_of_before_does_anything_after(tmp_path: Path, figure: Figure) -> None:
    races = raced(tmp_path, ROUNDS)
    figure("races of sessions", dict(sorted(races.counts.items())))
    assert not races.violations
    assert races.says_enough


@pytest.mark.hard
def test_a_node_that_lets_them_is_caught(tmp_path: Path) -> None:
    assert raced(tmp_path, ROUNDS, "sign-ins-see-what-was-first").violations
