"""Nodes of one store as its clients see them: the real wire surface, before nodes that say what the
test has them say. One of them leads; what it commits the others show when the test lets them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from actors.messages.request import TakeRoom
from actors.spaces import Answers, Names
from protocol.errors import NotWritable, Refusal, StatementTimeout
from protocol.messages import MessageOperation, PublishMessages
from protocol.requests import Caller, NodeStatus, Result, RunScript, ScriptAnswer
from protocol.spaces import GetKey, KeyOperation, Room
from surfaces.wire import WireSettings, WireSurface
from tests.surfaces.wire.peers import STORE, FakeNode, FakeOperation

WRITES = ("CREATE", "UPSERT")


class FakeMember(FakeNode):
    """One node. `CREATE …` is a commit of the store, `SELECT` answers the node's name, everything
    else is as with `FakeNode`; what it does not do stands in `turned_away`."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        super().__init__()
        self.cluster = cluster
        self.name = name
        self.shows = 10
        """The newest sequence that it shows."""
        self.store = STORE
        self.done: list[str] = []
        """What it has done that changes something."""
        self.refuses: Refusal | None = None
        """What it says to every script, once."""
        self.loses: Refusal | None = None
        """What it says to an operation on messages that it has done, once."""
        self.surface: WireSurface
        self.address = ""

    def listens(self, surface: WireSurface) -> None:
        self.surface = surface
        self.address = "{}:{}".format(*surface.address)

    @property
    def leads(self) -> bool:
        return self.cluster.leader is self

    def refusal(self) -> NotWritable:
        return NotWritable("the node is not writable: reads only", **self.cluster.detail())

    def status(self) -> NodeStatus:
        return replace(super().status(), node_id=self.name)

    def not_writable(self) -> NotWritable | None:
        return None if self.leads else self.refusal()

    async def _run(self, request: RunScript) -> ScriptAnswer:
        word = (request.script.split() or [""])[0]
        self.requests.append(request)
        if self.refuses is not None:
            refusal, self.refuses = self.refuses, None
            return self._answer(request, refusal=refusal)
        if request.after is not None and request.after > self.shows:
            late = StatementTimeout("not yet", after=request.after, seq=self.shows)
            return self._answer(request, refusal=late)
        if word in WRITES or "CREATE" in request.script:
            if not self.leads:
                return self._answer(request, refusal=self.refusal())
            self.shows = self.cluster.seq = self.cluster.seq + 1
            self.done.append(request.script)
        if word == "HOLD":
            self.requests.pop()
            return await super()._run(request)
        return self._answer(request, self.name)

    def _answer(
        self, request: RunScript, value: Any = None, refusal: Refusal | None = None
    ) -> ScriptAnswer:
        results = () if refusal is not None else (Result(value, "value", 0, 1500),)
        place = request.namespace, request.database
        moment = None if request.moment is None else f"m-of-{self.name}"
        committed = 0
        if refusal is not None:
            committed = int(refusal.detail.get("committed", 0))  # type: ignore[call-overload]
        return ScriptAnswer(
            results, self.shows, self.store, self.cluster.epoch, *place, refusal, committed, moment
        )

    async def _keys(
        self, who: bytes, names: Names, operations: Sequence[KeyOperation], room: Room
    ) -> Answers:
        if not self.leads and not all(isinstance(one, GetKey) for one in operations):
            raise self.refusal()
        self.done += [type(one).__name__ for one in operations]
        answers = await super()._keys(who, names, operations, room)
        if self.leads and not all(isinstance(one, GetKey) for one in operations):
            self.shows = self.cluster.seq = self.cluster.seq + 1
            for answer in answers:
                assert type(answer) is dict
                answer["seq"] = self.cluster.seq
        return answers

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
        if self.leads:
            self.done.append(type(operation).__name__)
            if self.loses is not None:
                lost, self.loses = self.loses, None
                self.answer_of(operation)
                asked = FakeOperation(told)
                asyncio.get_running_loop().call_soon(asked.tell, None, lost)
                return asked
            asked = super().messages(request, caller, place, operation, told, timeout_us, room)
            self.shows = self.cluster.seq = asked.sequence = self.cluster.seq + 1
            return asked
        self.cluster.turned_away += 1
        if self.cluster.turned_away == self.cluster.turns_away:
            self.cluster.leader = self  # from the next one on
        asked = FakeOperation(told)
        asyncio.get_running_loop().call_soon(asked.tell, None, self.refusal())
        return asked

    def answer_of(self, operation: MessageOperation) -> dict[str, Any]:
        if not isinstance(operation, PublishMessages):
            return super().answer_of(operation)
        first = len(self.cluster.published) + 1
        self.cluster.published += operation.values
        if len(self.cluster.published) == self.cluster.moves_at:
            self.cluster.leader = self.cluster.members[1]
        if operation.many:
            return {"first": first, "last": len(self.cluster.published)}
        return {"position": first, "duplicate": False}

    async def vaults(self, asked: Any) -> Any:
        if not self.leads:
            raise self.refusal()
        self.done.append(type(asked).__name__)
        return await super().vaults(asked)


class FakeCluster:
    """Several of them, of which the first leads.

    :param says: whether those that don't lead name who does, as nodes in a cluster do
    """

    def __init__(self, count: int, says: bool = True) -> None:
        self.says = says
        self.seq = 10
        self.epoch = 1
        self.members = [FakeMember(self, f"n{number}") for number in range(count)]
        self.leader: FakeMember | None = self.members[0]
        self.named: FakeMember | None = None
        """Whom the others take for the leader, where that is another."""
        self.published: list[Any] = []
        self.moves_at: int | None = None
        """Once so many are published the second member leads."""
        self.turned_away = 0
        """Operations on messages that were asked of one who does not lead."""
        self.turns_away: int | None = None
        """Who turns this one away leads then."""

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    @property
    def done(self) -> list[str]:
        return [one for member in self.members for one in member.done]

    def detail(self) -> dict[str, Any]:
        if not self.says:
            return {}
        named = self.named or self.leader
        return {"leader": [] if named is None else [named.address]}

    def catch_up(self) -> None:
        for member in self.members:
            member.shows = self.seq


@contextlib.asynccontextmanager
async def cluster(count: int, says: bool = True) -> AsyncIterator[FakeCluster]:
    found = FakeCluster(count, says)
    async with contextlib.AsyncExitStack() as stack:
        for member in found.members:
            surface = WireSurface(member, WireSettings("127.0.0.1", 0))
            await surface.start()
            stack.push_async_callback(surface.close)
            member.listens(surface)
        yield found
