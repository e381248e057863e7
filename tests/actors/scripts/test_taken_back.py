"""Scripts that are under way while a full disk takes commits back that they have seen or made."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import storage.engine.memory
import storage.txn.ledger
from actors.execution.scheduler import FiberScheduler
from actors.node import Node
from protocol.errors import DiskFull, NotAllowed, Unknown
from protocol.requests import Caller
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.formats import keys
from tests.actors.live import running_scripts
from tests.actors.nodes import prepare, run, running, simulated_environment, value
from tests.actors.parts import Played, outcome, until
from tests.logbook import Logbook
from tests.nodes import CHECKED_NOW
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.environment import LoopClock

SLOW = "FOR $i IN 1..=3000 { LET $x = $i; };"


@pytest.fixture(autouse=True)
def gives_way(logbook: Logbook) -> None:
    """A full disk drops old log before it refuses anything."""
    logbook.allow("the disk is full: old log was dropped")


@asynccontextmanager
async def whole(_kind: str) -> AsyncIterator[tuple[Node, SimulatedDisk]]:
    """Run a test on a node where computing takes time."""
    disk = SimulatedDisk()
    clock = LoopClock(asyncio.get_running_loop(), tick_us=20)
    async with running(simulated_environment("stepped", disk, MemoryEngine(), clock=clock)) as node:
        await prepare(node)
        try:
            yield node, disk
        finally:
            disk.plan = None  # or a node whose test fails would never stop


played = Played(whole).stepped


def full(operation: str, path: str) -> Fault | None:
    return Fault(errno.ENOSPC) if operation == "append" and "/log/" in path else None


async def taken_back(node: Node, disk: SimulatedDisk, script: str) -> None:
    """Let the disk be full for one script."""
    disk.plan = full
    assert isinstance(await outcome(value(node, script)), DiskFull)
    disk.plan = None


@contextmanager
def stalled(node: Node, disk: SimulatedDisk) -> Iterator[None]:
    """Let the log wait for the disk, and find it full in the end."""
    batches: Any = node.committer._batches
    held: list[Any] = []
    send = batches._send
    batches._send = held.append
    try:
        yield
    finally:
        disk.plan, batches._send = full, send
        for batch in held:
            send(batch)


@played
async def test_a_script_that_outlasts_a_full_disk_is_answered_with_what_it_did(
    node: Node, disk: SimulatedDisk, /
) -> None:
    slow = asyncio.ensure_future(value(node, f"{SLOW} UPSERT t:1 SET a = 1;"))
    await until(lambda: node.registry.unfinished == 1)
    await taken_back(node, disk, "CREATE t:2;")
    assert not slow.done()
    assert len(await slow) == 1
    assert await value(node, "SELECT VALUE a FROM t") == [1]


@played
async def test_one_whose_own_commit_was_taken_back_does_nothing_more(
    node: Node, disk: SimulatedDisk, /
) -> None:
    disk.plan = full
    script = f"CREATE t:1 SET a = 1; {SLOW} CREATE t:2 SET a = 2;"
    assert isinstance(await outcome(run(node, script)), DiskFull)
    disk.plan = None
    assert await value(node, "SELECT * FROM t") == []


@played
async def test_a_read_of_what_was_taken_back_is_run_again(
    node: Node, disk: SimulatedDisk, /
) -> None:
    disk.plan = full
    refused = asyncio.ensure_future(outcome(value(node, "CREATE t:1 SET a = 1;")))
    await asyncio.sleep(0)  # it is committed, and in flight
    reading = asyncio.ensure_future(
        value(node, f"BEGIN; LET $seen = (SELECT VALUE a FROM t); {SLOW} RETURN $seen; COMMIT")
    )
    assert isinstance(await refused, DiskFull)
    disk.plan = None
    assert not reading.done()
    assert await reading == []


@played
async def test_a_write_that_changes_nothing_rests_on_what_it_found(
    node: Node, disk: SimulatedDisk, /
) -> None:
    """It makes no commit that could be taken back with that."""
    same, committer = "UPDATE t:1 SET a = 1", node.committer
    with stalled(node, disk):
        refused = asyncio.ensure_future(outcome(value(node, "CREATE t:1 SET a = 1;")))
        await until(lambda: committer.committed > committer.commit_index)
        committed = committer.committed
        short = asyncio.ensure_future(outcome(value(node, same)))
        long = asyncio.ensure_future(run(node, f"BEGIN; {SLOW} {same}; COMMIT"))
        await until(lambda: node.registry.unfinished == 1)  # the long one: the short one has ended
        assert committer.committed == committed and not short.done()
    assert isinstance(await refused, DiskFull)
    assert isinstance(await short, DiskFull)
    disk.plan = None
    assert not long.done()
    assert (await long).results[-2].value == []
    assert await value(node, same) == []


@played
async def test_a_declaration_that_was_taken_back_is_not_remembered(
    node: Node, disk: SimulatedDisk, /
) -> None:
    """By a script that began on it, looks it up only after that, and shares what it found."""
    disk.plan = full
    refused = asyncio.ensure_future(outcome(value(node, "DEFINE TABLE x;")))
    await asyncio.sleep(0)
    late = asyncio.ensure_future(outcome(value(node, f"BEGIN; {SLOW} CREATE x:1; COMMIT")))
    assert isinstance(await refused, DiskFull)
    disk.plan = None
    assert isinstance(await late, Unknown)
    assert isinstance(await outcome(value(node, "SELECT * FROM x")), Unknown)
    await value(node, "DEFINE TABLE x; CREATE x:1;")


BOB = Caller("bob", "member", None, None, "wire", "192.0.2.1:5000")


async def told(node: Node, script: str, place: tuple[str, str]) -> Any:
    """What bob is refused with in a place; None: he is not."""
    found = await outcome(run(node, script, None, BOB, place))
    return found if isinstance(found, BaseException) else found.refusal


@played
async def test_rights_on_what_was_taken_back_are_not_those_on_what_has_its_id_next(
    node: Node, disk: SimulatedDisk, /
) -> None:
    """What is declared next is somebody else's."""
    await value(
        node,
        "DEFINE DATABASE a.prod; USE a.prod; DEFINE TABLE pub;"
        " DEFINE USER bob ROLE member PASSWORD 'hunter2hunter2';"
        " GRANT DEFINE, READ, WRITE ON DATABASE a.b TO bob;"
        " GRANT READ ON TABLE a.prod.pub TO bob",
    )
    disk.plan = full
    refused = await told(node, "DEFINE TABLE x; SELECT * FROM x", ("a", "b"))
    assert isinstance(refused, DiskFull)
    disk.plan = None
    await value(node, "USE a.prod; DEFINE TABLE hers; CREATE hers:1 SET card = 4111")
    for script in ("SELECT * FROM hers", "UPDATE hers:1 SET card = 0", "INFO FOR TABLE hers"):
        assert isinstance(await told(node, script, ("a", "prod")), Unknown), script
    assert await value(node, "USE a.prod; SELECT VALUE card FROM hers") == [4111]


@pytest.mark.parametrize("settled_at_once", [2, 100_000])
def test_the_hash_of_a_node_is_that_of_one_commit(
    settled_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though large commits reach the state engine in parts."""
    monkeypatch.setattr(storage.txn.ledger, "APPLY_KEYS", settled_at_once)

    async def main(node: Node, disk: SimulatedDisk) -> None:
        rows = [{"id": id, "n": id} for id in range(300)]
        writing = asyncio.ensure_future(value(node, "INSERT INTO t $rows", {"rows": rows}))
        told = []
        while not writing.done():
            told.append(await value(node, "INFO FOR STATE"))
        for _ in range(20):
            told.append(await value(node, "INFO FOR STATE"))
        ledger = node.committer.ledger
        await until(lambda: not ledger.state.flight.write_sets)
        wanted = {"sequence": ledger.synced_seq, "hash": state_hash(ledger.state.engine)}
        assert wanted in told
        assert len({state["hash"] for state in told}) == len({s["sequence"] for s in told})

    played.run(main)


SPACES = (
    "DEFINE SPACE x; SET 'k' IN x VALUE 1 EXPIRE 1h",
    "DEFINE SPACE y; SET 'k' IN y VALUE 1 EXPIRE 3s",
    keys.ENTRY,
)
TOPICS = (
    "DEFINE TOPIC x KEEP 2s; PUBLISH INTO x VALUE 1",
    "DEFINE TOPIC y KEEP 5s; PUBLISH INTO y VALUE 1",
    keys.MESSAGE,
)
"""A declaration that is rolled back, with what time brings to it; one behind it; and what is there
of that until its time has come."""
both = pytest.mark.parametrize(("gone", "stays", "tag"), [SPACES, TOPICS], ids=["space", "topic"])


@both
@played
async def test_time_comes_to_what_is_declared_behind_what_was_taken_back(
    node: Node, disk: SimulatedDisk, /, gone: str, stays: str, tag: int
) -> None:
    await taken_back(node, disk, gone)
    await value(node, stays)
    assert held(node, tag) == 1
    await asyncio.sleep(20)
    assert held(node, tag) == 0


async def waiting(node: Node, count: int) -> None:
    """Until so many scripts wait; no time passes meanwhile."""
    while sum(run.waiting for run in running_scripts(node)) != count:
        await asyncio.sleep(0)


WAITS = "TAKE FROM q AS g WAIT 1m"


@played
async def test_who_waits_for_messages_gets_those_whose_take_was_taken_back(
    node: Node, disk: SimulatedDisk, /
) -> None:
    """Whether they had seen that take or not."""
    await value(node, "DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 1h;")
    await value(node, "PUBLISH INTO q VALUES [1, 2];")
    disk.plan = full
    refused = asyncio.ensure_future(outcome(value(node, "TAKE 2 FROM q AS g")))
    await asyncio.sleep(0)  # it is committed, and in flight
    waits = [asyncio.ensure_future(value(node, WAITS)) for _ in range(2)]
    await waiting(node, 2)
    assert not refused.done()
    assert isinstance(await refused, DiskFull)
    disk.plan = None
    began = asyncio.get_running_loop().time()
    assert [[m["position"] for m in await each] for each in waits] == [[1], [2]]
    assert asyncio.get_running_loop().time() - began < 60, "nobody said that they are back"


@played
async def test_what_time_brings_is_not_forgotten_for_what_was_taken_back(
    node: Node, disk: SimulatedDisk, /
) -> None:
    """A topic's actor that has seen nothing to do, because of a commit that never happened."""
    await value(node, "DEFINE TOPIC dead; DEFINE TOPIC q;")
    await value(
        node, "DEFINE GROUP g ON q DEADLINE 10s DELIVERIES 1 DEAD LETTER dead;"
        "PUBLISH INTO q VALUE 1"
    )  # fmt: skip
    (taken,) = await value(node, "TAKE FROM q AS g")
    with stalled(node, disk):
        ack = value(node, "ACK q AS g RECEIPTS $r", {"r": [taken["receipt"]]})
        refused = asyncio.ensure_future(outcome(ack))
        await asyncio.sleep(11)
        assert node.topics.schedules.begun == 1, "it has looked"
    assert isinstance(await refused, DiskFull)
    disk.plan = None
    await asyncio.sleep(5)
    assert (await value(node, "INFO FOR GROUP g ON q"))["dead_lettered"] == 1
    assert len(await value(node, "READ FROM dead AFTER 0")) == 1


def held(node: Node, tag: int) -> int:
    """How many keys of a kind the state holds."""
    with node.committer.begin_transaction() as tx:
        found = [key for pairs in tx.scan(b"\x00\x01", b"\xff") for key, _ in pairs]
    return sum(key[keys.TAG_AT] == tag for key in found)


@played
async def test_a_key_expires_though_its_delete_was_taken_back(
    node: Node, disk: SimulatedDisk, /
) -> None:
    await value(node, "DEFINE SPACE s; SET 'a' IN s VALUE 1 EXPIRE 1s")
    await value(node, "SET 'k' IN s VALUE 1 EXPIRE 10s")
    await value(node, "DELETE 'a' FROM s")  # the timer stays, and looks ahead then
    with stalled(node, disk):
        refused = asyncio.ensure_future(outcome(value(node, "DELETE 'k' FROM s")))
        await asyncio.sleep(3)
    assert isinstance(await refused, DiskFull)
    disk.plan = None
    await asyncio.sleep(20)
    assert held(node, keys.ENTRY) == 0


@pytest.mark.parametrize("left_over", [False, True])
@played
async def test_what_is_kept_of_a_refusal_is_kept_later_where_it_was_taken_back(
    node: Node, disk: SimulatedDisk, /, left_over: bool
) -> None:
    """It had been taken into a commit by then. What a full disk does not let go of is likewise
    nothing that is there, as long as the node runs."""

    def stuck(operation: str, path: str) -> Fault | None:
        refused = operation in ("append", "truncate") and path.endswith(".storelog")
        return Fault(errno.EDQUOT, after_bytes=40) if refused else None

    await value(node, "DEFINE USER bob ROLE viewer ON DATABASE a.b PASSWORD 'correct horse'")
    bob = Caller("bob", "viewer", "a.b", None, "wire", "192.0.2.9:1", CHECKED_NOW)
    disk.plan = stuck if left_over else full
    for number in range(3):
        answer = await run(node, f"CREATE t:{number}", caller=bob)
        assert isinstance(answer.refusal, NotAllowed)
        await asyncio.sleep(0.01)
    assert len(node.statements.backlog) == 3
    disk.plan = None
    await until(lambda: not node.statements.backlog)
    kept = await value(node, "INFO FOR AUDIT OF bob")
    assert [one["statement"] for one in kept] == [f"CREATE t:{n}" for n in (2, 1, 0)]
    assert {one["node"] for one in kept} == {node.roles.node_id}


def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scripts give the loop its turn at each tick, and scans give few rows at a time."""
    monkeypatch.setattr(FiberScheduler, "slice_us", 0)
    monkeypatch.setattr(storage.engine.memory, "CHUNK_KEYS", 2)


async def reads_beside(node: Node, statement: str) -> None:
    """Wait until a statement of a script is in the midst of its own transaction."""

    def slices() -> int:
        """Of the script that has come to it."""
        return sum(
            run.fiber.slices
            for run in running_scripts(node)
            if (run.at_statement() or (0, ""))[1].startswith(statement)
        )

    while not slices():
        await asyncio.sleep(0)
    before = slices()
    while slices() <= before + 3:
        await asyncio.sleep(0)


@played
async def test_a_commit_that_was_taken_back_is_not_answered_as_done(
    node: Node, disk: SimulatedDisk, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the script has seen a newer one since, in a transaction beside its own."""
    in_small_parts(monkeypatch)
    for number in range(40):
        await value(node, f"DEFINE TABLE t{number}")
    with stalled(node, disk):
        before = node.committer.committed
        script = asyncio.ensure_future(
            outcome(run(node, f"CREATE t:1; {SLOW} INFO FOR STATEMENTS LIMIT 150"))
        )
        await until(lambda: node.committer.committed > before)
        other = asyncio.ensure_future(outcome(value(node, "DEFINE TABLE other")))
        await until(lambda: node.committer.committed > before + 1)
        await reads_beside(node, "INFO FOR STATEMENTS")
    assert isinstance(await other, DiskFull)
    disk.plan = None
    for number in range(4):  # others get the sequences
        await value(node, f"CREATE v:{number}")
    answer = await script
    assert isinstance(getattr(answer, "refusal", answer), DiskFull)
    assert await value(node, "SELECT * FROM t:1") == []


@played
async def test_the_sequence_of_a_store_is_one_that_stays(
    node: Node, disk: SimulatedDisk, /
) -> None:
    with stalled(node, disk):
        before = node.committer.committed
        lost = asyncio.ensure_future(outcome(value(node, "CREATE t:1")))
        await until(lambda: node.committer.committed > before)
        assert (await value(node, "INFO FOR STORE"))["sequence"] == before
    assert isinstance(await lost, DiskFull)
    disk.plan = None
    answer = await run(node, "CREATE t:1; INFO FOR STORE")
    told: Any = answer.results[-1].value
    assert told["sequence"] == answer.sequence == before + 1, "its own commit counts"
