"""Both ends of a wire connection, for tests: a node that does what the test says, a raw peer."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from actors.environment import SystemClock
from actors.execution.request import Requester
from actors.execution.scheduler import FiberScheduler
from actors.feeds.feed import Feed
from actors.feeds.request import OpenFeed
from actors.messages.request import TakeRoom
from actors.sessions import token_digest
from actors.spaces import Answers, Names
from protocol.errors import (
    Cancelled,
    NotWritable,
    Refusal,
    Sealed,
    SessionEnded,
    SignInRefused,
    Unknown,
)
from protocol.frames import FrameReader, MessageKind, WireMessage, encode
from protocol.messages import MessageOperation, TakeMessages
from protocol.requests import (
    Caller,
    NodeStatus,
    Result,
    RunScript,
    ScriptAnswer,
    Session,
    stays,
)
from protocol.spaces import GetKey, KeyAnswer, KeyOperation, Room
from surfaces.wire import WireSettings, WireSurface
from surfaces.wire.gate import Gate
from tests import canaries

USER, PASSWORD, OTHER = "ana", "a long password", "ben"
STORE = "0b9f3a62-7c1e-4e0b-9d4e-3f3a5f0d9f11"


class FakeOperation:
    """One on messages, told what came of it once."""

    def __init__(self, told: Callable[[Any, Refusal | None], None]) -> None:
        self.told = told
        self.over = False
        self.sequence = 0

    def tell(self, answer: Any, refusal: Refusal | None = None) -> None:
        if not self.over:
            self.over = True
            self.told(answer, refusal)

    def end(self, why: Refusal) -> bool:
        ended = not self.over
        self.tell(None, why)
        return ended


class FakeNode:
    """Answers scripts by their first word: `RETURN` its parameter `v`, `HOLD` until released or
    cancelled, `REFUSE` with an error after one result, `BREAK` with a bug, `BIG` with n bytes."""

    def __init__(self) -> None:
        self.sessions: dict[str, Caller] = {}
        self.ended: list[str] = []
        self.held: dict[str, asyncio.Future[None]] = {}
        self.cancelled: list[str] = []
        self.requests: list[RunScript] = []
        self.asked: list[tuple[str, Names, tuple[KeyOperation, ...]]] = []
        self.operations: list[tuple[str, tuple[str, str], MessageOperation]] = []
        self.values: dict[str, bytes] = {}
        """Of keys."""
        self.keys_held: asyncio.Future[None] | None = None
        """Answers on keys wait for this, as for a slow disk."""
        self.questions = 0
        self.made = 0

    @property
    def scheduler(self) -> FiberScheduler:
        return FiberScheduler(asyncio.get_running_loop(), SystemClock())

    async def sign_in(
        self, user: str, password: str, address: str, is_gone: Callable[[], bool] = stays
    ) -> Session:
        await asyncio.sleep(0)
        if user not in (USER, OTHER) or password != PASSWORD:
            raise SignInRefused("user and password do not match")
        self.made += 1
        token = f"token-{self.made}"
        caller = Caller(user, "owner", None, token[-1], "wire", address)
        self.sessions[token] = caller
        return Session(token, datetime.now(UTC), 3600, caller)

    def caller(self, token: str, who: bytes, address: str) -> asyncio.Future[Caller]:
        return asyncio.ensure_future(self._caller(token, address))

    async def _caller(self, token: str, address: str) -> Caller:
        self.questions += 1
        await asyncio.sleep(0)
        if token not in self.sessions:
            raise SessionEnded("the session has ended")
        return self.sessions[token]

    async def sign_out(self, token: str) -> None:
        self.ended.append(token)
        self.sessions.pop(token, None)

    def keys(
        self,
        asker: Requester[Answers],
        who: bytes,
        names: Names,
        operations: Sequence[KeyOperation],
        room: Room,
    ) -> Answers | None:
        task = asyncio.ensure_future(self._keys(who, names, operations, room))
        task.add_done_callback(partial(self._tell, asker))
        return None

    @staticmethod
    def _tell(asker: Requester[Answers], task: asyncio.Task[Answers]) -> None:
        error = task.exception()
        asker.on_result(None if error is not None else task.result(), error)

    async def _keys(
        self, who: bytes, names: Names, operations: Sequence[KeyOperation], room: Room
    ) -> Answers:
        token = next((one for one in self.sessions if token_digest(one) == who), "")
        caller = await self._caller(token, "")
        answers: list[KeyAnswer] = []
        for operation in operations:
            if room.left <= 0:
                break
            answer: dict[str, Any] = {"op": type(operation).__name__}
            if isinstance(operation, GetKey):
                answer["value"] = self.values.get(operation.key)
                room.left -= len(answer["value"] or b"")
            answers.append(answer)
        if answers:
            self.asked.append((caller.user, names, tuple(operations[: len(answers)])))
        if self.keys_held is not None:
            await self.keys_held
        return tuple(answers)

    def messages(
        self,
        request: str,
        caller: Caller,
        place: tuple[str, str],
        operation: MessageOperation,
        told: Callable[[Any, Refusal | None], None],
        timeout_us: int | None,
        room: TakeRoom,
    ) -> FakeOperation:
        """Answers at once, but a TAKE with a WAIT only when it is ended."""
        asked = FakeOperation(told)
        self.operations.append((caller.user, place, operation))
        if not isinstance(operation, TakeMessages):
            asyncio.get_running_loop().call_soon(asked.tell, self.answer_of(operation))
        elif operation.wait_us is None:
            asyncio.get_running_loop().call_soon(asked.tell, [])
        return asked

    def answer_of(self, operation: MessageOperation) -> dict[str, Any]:
        return {"op": type(operation).__name__}

    def call_after_each_release(self, call: Callable[[], None]) -> None:
        """Nobody waits for a disk here."""

    def on_turn_end(self) -> None:
        """Nothing waits for the end of a turn."""

    async def vaults(self, asked: Any) -> Any:
        raise Sealed("the store is sealed")

    async def feed(self, asked: OpenFeed) -> Feed:
        raise Unknown(f"table {asked.table} is not defined", kind="table", name=asked.table)

    def run(self, request: RunScript, now: bool) -> asyncio.Future[ScriptAnswer]:
        return asyncio.ensure_future(self._run(request))

    async def _run(self, request: RunScript) -> ScriptAnswer:
        self.requests.append(request)
        word = request.script.split()[0]
        value: Any = request.parameters.get("v")
        if word == "HOLD":
            self.held[request.request] = asyncio.get_running_loop().create_future()
            await self.held[request.request]
            if request.request in self.cancelled:
                return ScriptAnswer((), 7, STORE, 1, None, None, Cancelled("cancelled"))
        if word == "REFUSE":
            refusal: Refusal = SignInRefused("no", statement=2)
            return ScriptAnswer((Result(1, "value", 0, 5, 3),), 7, STORE, 1, None, None, refusal)
        if word == "BREAK":
            raise RuntimeError("a bug of the node")
        if word == "BIG":
            value = bytes(value)
        namespace, database = request.namespace, request.database
        results = (Result(value, "value", 0, 1500),)
        return ScriptAnswer(results, 8123, STORE, 1, namespace, database)

    def cancel(self, request: str) -> None:
        self.cancelled.append(request)
        self.release(request)

    def release(self, request: str) -> None:
        held = self.held.get(request)
        if held is not None and not held.done():
            held.set_result(None)

    def release_all(self) -> None:
        for request in list(self.held):
            self.release(request)

    def waiting(self) -> int:
        return 0

    def waiting_of(self, user: str) -> int:
        return 0

    def status(self) -> NodeStatus:
        return NodeStatus(
            health="well",
            reason=None,
            held_up=None,
            roles=("serving", "writable"),
            version="0.1.0-test",
            store_id="store",
            node_id="node-1",
            sequence=1,
            log_begins=1,
            uptime_seconds=1.0,
        )

    def not_writable(self) -> NotWritable | None:
        return None


class Peer:
    """A client made of nothing but the codec and a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader()

    def say(self, kind: MessageKind, id: int = 0, body: dict[str, Any] | None = None) -> None:
        self.writer.write(encode(kind, id, body))

    async def hear(self) -> WireMessage | None:
        """The next message; None once the node has closed."""
        while True:
            message = self._frames.next()
            if message is not None:
                canaries.heard_message(message.body, f"a message {message.kind.name}")
                return message
            async with asyncio.timeout(20):
                data = await self.reader.read(1 << 20)
            if not data:
                return None
            self._frames.feed(data)

    async def must_hear(self, kind: MessageKind, id: int = 0) -> dict[str, Any]:
        message = await self.hear()
        assert message is not None, f"closed instead of {kind.name}"
        assert (message.kind, message.id) == (kind, id), message
        return message.body or {}

    async def greet(self, **more: Any) -> dict[str, Any]:
        body = {"magic": "STORE", "major": 1, "minor": [0, 5], "client": "raw/1", **more}
        self.say(MessageKind.HELLO, 0, body)
        return await self.must_hear(MessageKind.WELCOME)

    async def sign_in(self, user: str = USER) -> dict[str, Any]:
        return await self.greet(user=user, password=PASSWORD)

    async def run(self, id: int, script: str, **more: Any) -> WireMessage:
        self.say(MessageKind.RUN, id, {"script": script, **more})
        message = await self.hear()
        assert message is not None, "closed instead of an answer"
        return message

    async def closed(self) -> bool:
        return await self.hear() is None

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def connected(surface: WireSurface, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    host, port = surface.address
    name = None if tls is None else "localhost"
    peer = Peer(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=name))
    try:
        yield peer
    finally:
        await peer.close()


@contextlib.asynccontextmanager
async def serving(
    node: Gate, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[WireSurface]:
    surface = WireSurface(node, WireSettings("127.0.0.1", port, tls))
    await surface.start()
    try:
        yield surface
    finally:
        await surface.close()
        assert not surface._wire.requests.total
        assert not surface._wire.answers.total


async def until(condition: Any, seconds: float = 20) -> None:
    """Wait for a condition of the real world."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)
