"""A disk that stalls: a deadline of TAKE counts from when its answer is released; and who waits for
the disk is bounded by its time, is seen, and can be ended."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

import pytest

from actors.commits.tickets import Stall as NothingReleased
from actors.execution.late_answers import waiting_answers
from actors.node import Node
from actors.runtime import ask
from protocol import limits
from protocol.errors import Cancelled, StatementTimeout, UnknownOutcome
from protocol.requests import CancelScript, RunScript, ScriptAnswer, SignIn, SignOut
from protocol.spaces import GetKey, IncrKey, KeyOperation, SetKey
from protocol.values import NONE
from storage.engine.memory import MemoryEngine
from tests.actors.live import running_scripts
from tests.actors.nodes import ANA, OWNER, prepare, running, simulated_environment, value
from tests.actors.parts import Played, code, outcome
from tests.keys import ask_keys
from tests.simulation.disk import Fault, SimulatedDisk

DECLARED = (
    "DEFINE TOPIC dead; DEFINE TOPIC q;"
    "DEFINE GROUP g ON q DEADLINE 10s DELIVERIES 2 DEAD LETTER dead; PUBLISH INTO q VALUE 1"
)


class Stall:
    """Holds what the log is given, as a disk does that does not answer."""

    under_way: ClassVar[list[Stall]] = []

    def __init__(self, node: Node) -> None:
        self.under_way.append(self)
        self._batches: Any = node.committer._batches
        self._send = self._batches._send
        self._held: list[Any] = []
        self._batches._send = self._held.append

    def pass_one(self) -> None:
        """The disk takes the oldest batch, and none behind it."""
        self._send(self._held.pop(0))

    def end(self) -> None:
        """The disk answers again."""
        if self in self.under_way:
            self.under_way.remove(self)
        self._batches._send = self._send
        held, self._held = self._held, []
        for batch in held:
            self._send(batch)


@asynccontextmanager
async def whole(kind: str) -> AsyncIterator[tuple[Node, SimulatedDisk]]:
    disk = SimulatedDisk()
    async with running(simulated_environment(kind, disk, MemoryEngine())) as node:
        await prepare(node)
        await value(node, DECLARED)
        try:
            yield node, disk
        finally:
            for stall in list(Stall.under_way):  # or a test that fails would never stop
                stall.end()


played = Played(whole).stepped


def log_time(node: Node) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        microseconds=node.committer.ledger.log_time()
    )


async def acked(node: Node, message: Any) -> int:
    answer = await value(node, "ACK q AS g RECEIPTS $r", {"r": [message["receipt"]]})
    return int(answer["acked"])


@played
async def test_a_disk_that_stalls_for_longer_than_a_deadline_spends_no_attempt(
    node: Node, /
) -> None:
    stall = Stall(node)
    taking = asyncio.ensure_future(value(node, "TAKE FROM q AS g"))
    other = asyncio.ensure_future(value(node, "TAKE FROM q AS g WAIT 2m"))
    await asyncio.sleep(25)
    assert not taking.done() and not other.done(), "to nobody else meanwhile"
    stall.end()
    (taken,) = await taking
    assert (taken["attempt"], taken["position"]) == (1, 1)
    left = taken["deadline"] - log_time(node)
    assert timedelta(seconds=9) < left <= timedelta(seconds=10), "all of it is left"
    await asyncio.sleep(9)
    figures = await value(node, "INFO FOR GROUP g ON q")
    assert (figures["in_flight"], figures["redelivered"], figures["dead_lettered"]) == (1, 0, 0)
    assert not other.done()
    await asyncio.sleep(2)
    (again,) = await other
    assert again["attempt"] == 2, "it lapses in its time"
    assert await acked(node, taken) == 0
    assert await acked(node, again) == 1


@played
async def test_a_disk_that_is_full_then_leaves_the_deadline_that_is_logged(
    node: Node, disk: SimulatedDisk, /
) -> None:
    stall = Stall(node)
    began = log_time(node)
    taking = asyncio.ensure_future(value(node, "TAKE FROM q AS g"))
    await asyncio.sleep(6)
    upto = node.committer.committed
    stall.end()
    while node.committer.committed == upto:
        await asyncio.sleep(0)
    # For the commit that counts it anew.
    disk.plan = lambda kind, path: Fault(errno.ENOSPC) if kind == "append" else None
    (taken,) = await taking
    disk.plan = None
    assert taken["deadline"] - began < timedelta(seconds=10.1)
    assert await acked(node, taken) == 1


@played
async def test_a_disk_that_stays_slow_is_answered_in_the_end(node: Node, /) -> None:
    taking: asyncio.Task[Any] | None = None
    stall = Stall(node)
    taking = asyncio.ensure_future(value(node, "TAKE FROM q AS g"))
    stalls = 0
    while not taking.done():
        await asyncio.sleep(11)
        stall.end()
        stall = Stall(node)
        for _ in range(50):
            await asyncio.sleep(0)
        stalls += 1
    stall.end()
    assert stalls == 4
    assert taking.result()[0]["attempt"] == 1


@played
async def test_a_script_that_acknowledges_what_it_takes_has_nothing_prolonged(
    node: Node, /
) -> None:
    stall = Stall(node)
    script = "LET $m = TAKE FROM q AS g; ACK q AS g RECEIPTS [$m[0].receipt]"
    running_ = asyncio.ensure_future(value(node, script))
    await asyncio.sleep(25)
    stall.end()
    assert (await running_)["acked"] == 1
    figures = await value(node, "INFO FOR GROUP g ON q")
    assert (figures["in_flight"], figures["committed"]) == (0, 1)


@pytest.mark.parametrize(
    "wakes", ["PUBLISH INTO empty VALUE 2", "DEFINE NODE ROLES serving, writable"]
)
def test_a_read_that_waits_is_woken_while_nothing_is_released(wakes: str) -> None:
    """It looked at what was released, which was older than what had woken it, and looked again at
    once, with no turn for anybody, until its time was over."""

    async def main(node: Node, _disk: SimulatedDisk) -> None:
        committer = node.committer
        await value(node, "DEFINE TOPIC empty")
        reading = asked(node, "READ FROM empty AFTER 0 WAIT 10s")
        while not any(run.waiting for run in running_scripts(node)):
            await asyncio.sleep(0)
        stall = Stall(node)
        writing = [asked(node, "PUBLISH INTO q VALUE 1")]
        while committer.committed == committer.commit_index:
            await asyncio.sleep(0)
        committer.stall = NothingReleased(shows_all=True)
        for script in dict.fromkeys((wakes, "PUBLISH INTO empty VALUE 2")):
            before = committer.committed
            writing.append(asked(node, script))
            while committer.committed == before:
                await asyncio.sleep(0)
            for _ in range(10):  # turns in which it looks
                await asyncio.sleep(0)
        committer.stall = None
        stall.end()
        answer = await reading
        (found,) = cast(list[dict[str, Any]], answer.results[-1].value)
        assert found["value"] == 2
        await asyncio.gather(*writing)

    played.run(main, "real")


# --- who waits for the disk -----------------------------------------------------------------------


def asked(node: Node, script: str, **fields: Any) -> asyncio.Future[ScriptAnswer]:
    """A script under way; what it came to is `outcome`'s."""
    request = RunScript(
        fields.pop("caller", ANA), script, fields.pop("request", script), {}, "a", "b", **fields
    )
    return asyncio.ensure_future(ask(node.scripts, request))


async def keys(node: Node, request: str, *operations: KeyOperation) -> Any:
    return await ask_keys(node, ANA, ("a", "b", "c"), *operations, request=request)


async def shown(node: Node) -> dict[str, dict[str, Any]]:
    """INFO FOR RUNNING by the names of the requests, itself left out."""
    found = await value(node, "INFO FOR RUNNING")
    return {one["id"]: one for one in found if one["text"] != "INFO FOR RUNNING"}


@played
async def test_the_time_of_a_request_bounds_its_wait_for_the_disk(node: Node, /) -> None:
    for script, timeout_us in (
        ("CREATE t:1", 5_000_000),
        ("CREATE t:2 TIMEOUT 5s", None),
        ("CREATE t:3 TIMEOUT 5s", 60_000_000),
        ("BEGIN; CREATE t:4; COMMIT; RETURN 1", 5_000_000),
    ):
        stall = Stall(node)
        began = asyncio.get_running_loop().time()
        found = await outcome(asked(node, script, timeout_us=timeout_us))
        assert type(found) is UnknownOutcome, (script, found)
        assert found.detail["sequence"] == node.committer.committed
        assert 5 <= asyncio.get_running_loop().time() - began < 5.1, script
        stall.end()
    assert len(await value(node, "SELECT * FROM t")) == 4, "they have happened after all"


@played
async def test_who_has_only_read_hears_that_the_time_is_over_and_nothing_else(
    node: Node, /
) -> None:
    stall = Stall(node)
    writing = asked(node, "CREATE t:1")
    found = await outcome(asked(node, "SELECT * FROM t", timeout_us=1_000_000))
    assert type(found) is StatementTimeout
    assert not writing.done()
    stall.end()
    assert (await writing).refusal is None


@played
async def test_who_is_ended_while_waiting_hears_what_stands_of_the_script(
    node: Node, disk: SimulatedDisk, /
) -> None:
    async def main(node: Node, _disk: SimulatedDisk) -> None:
        for script, ended in (
            ("CREATE t:1; TAKE FROM empty AS g WAIT 1s; CREATE t:2", UnknownOutcome),
            ("CREATE t:3; TAKE FROM empty AS g WAIT 1s; SELECT * FROM u", StatementTimeout),
        ):
            running_ = asked(node, script, timeout_us=5_000_000)
            while not any(run.waiting for run in running_scripts(node)):
                await asyncio.sleep(0)
            stands = node.committer.committed
            await node.committer.released(node.committer.ticket(stands))
            stall = Stall(node)
            other = asked(node, f"UPSERT u:1 SET n = {stands}")
            found = await outcome(running_)
            assert type(found) is ended, (script, found)
            assert found.detail["committed"] == stands
            stall.end()
            assert (await other).refusal is None

    await value(node, "DEFINE TOPIC empty; DEFINE GROUP g ON empty DEADLINE 10s")
    await main(node, disk)


@played
async def test_who_waits_is_listed_and_can_be_killed(node: Node, /) -> None:
    await value(node, "DEFINE SPACE c; CREATE t:0")
    before = node.committer.committed
    stall = Stall(node)
    waiting = {
        "wrote": asked(node, "CREATE t:1", request="wrote", timeout_us=60_000_000),
        "read": asked(node, "LET $a = 1; SELECT * FROM t", request="read"),
        "keys": asyncio.ensure_future(keys(node, "keys", SetKey("k", 1), IncrKey("n"))),
        "get": asyncio.ensure_future(keys(node, "get", GetKey("k"))),
    }
    await asyncio.sleep(2)
    found = await shown(node)
    assert list(found) == list(waiting), "longest first"
    told = {
        id: (one["text"], one["statement"], one["commit"] - before) for id, one in found.items()
    }
    assert told == {
        "wrote": ("CREATE t:1", 1, 1),
        "read": ("SELECT * FROM t", 2, 1),
        "keys": ("SET 'k' IN c VALUE $value; INCR 'n' IN c BY 1", None, 2),
        "get": ("GET 'k' FROM c", None, 2),
    }
    for one in found.values():
        assert one["waiting"] and not one["barrier"] and one["user"] == "ana"
        assert timedelta(seconds=2) <= one["since"] < timedelta(seconds=2.1)
        assert (one["namespace"], one["database"], one["surface"]) == ("a", "b", "wire")
    assert found["wrote"]["left"] == timedelta(seconds=58)
    kinds = [UnknownOutcome, Cancelled, UnknownOutcome, Cancelled]
    for (id, future), kind in zip(waiting.items(), kinds, strict=True):
        assert not future.done()
        await value(node, f"KILL '{id}'")
        killed = await outcome(future)
        assert type(killed) is kind, (id, killed)
        assert "the script was killed by ana" in killed.message
        assert code(await outcome(value(node, f"KILL '{id}'"))) == "Unknown", "only once"
    assert await shown(node) == {}
    stall.end()
    assert await value(node, "SELECT VALUE n FROM t") == [NONE, NONE]
    assert await keys(node, "get", GetKey("k")) == ({"value": 1, "ttl": None},)


@played
async def test_a_client_that_goes_leaves_nobody_waiting(node: Node, /) -> None:
    stall = Stall(node)
    writing = asked(node, "CREATE t:1", request="gone")
    await asyncio.sleep(1)
    assert await ask(node.scripts, CancelScript("gone"))
    assert type(await outcome(writing)) is UnknownOutcome
    assert list(waiting_answers(node.committer)) == []
    stall.end()


@pytest.mark.parametrize("stalls", [False, True])
def test_a_script_that_was_ended_waits_a_moment_for_what_it_had_committed(
    monkeypatch: pytest.MonkeyPatch, stalls: bool
) -> None:
    monkeypatch.setattr("protocol.limits.ENDED_SECONDS", 0 if stalls else 3600)

    async def main(node: Node, _disk: SimulatedDisk) -> None:
        stall = Stall(node)
        script = "CREATE t:1; FOR $x IN 0..9000000 { LET $y = $x }"
        running_ = asked(node, script, request="long")
        while "long" not in await shown(node):
            await asyncio.sleep(0)
        assert (await shown(node))["long"]["commit"] is None, "it runs, and waits for nothing"
        await value(node, "KILL 'long'")
        if stalls:
            found = await outcome(running_)
            assert type(found) is UnknownOutcome and "killed by ana" in found.message
        else:
            while (await shown(node))["long"]["commit"] is None:
                await asyncio.sleep(0)
            stall.end()
            answer = await running_
            assert type(answer.refusal) is Cancelled and len(answer.results) == 1
        stall.end()

    played.run(main, "real")


@pytest.mark.parametrize("by", ["kill", "time", "session"])
@played
async def test_a_script_that_is_ended_while_its_own_commit_is_in_flight_may_have_happened(
    node: Node, /, by: str
) -> None:
    await value(node, "DEFINE GROUP h ON dead DEADLINE 1m")
    session = await ask(node.sessions, SignIn(OWNER.name, OWNER.password, "wire", "192.0.2.1:1"))
    stall = Stall(node)
    waiting = asked(
        node,
        "CREATE t:1; TAKE FROM dead AS h WAIT 1m",
        caller=session.caller,
        request="waits",
        timeout_us=2_000_000 if by == "time" else None,
    )
    await asyncio.sleep(1)
    if by == "kill":
        await value(node, "KILL 'waits'")
    elif by == "session":
        await ask(node.sessions, SignOut(session.token))
    await asyncio.sleep(limits.ENDED_SECONDS + 1.5)
    assert waiting.done(), "a disk that stalls keeps no answer"
    assert type(await outcome(waiting)) is UnknownOutcome
    stall.end()
