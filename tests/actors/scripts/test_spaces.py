"""Statements on cache spaces, over a whole node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import (
    AlreadyExists,
    BadRequest,
    Draining,
    ExpireRefused,
    NotAllowed,
    NotANumber,
    NotWritable,
    Refusal,
    TypeRefused,
    UnexpectedToken,
    Unknown,
)
from protocol.rights import Verb
from protocol.values import NONE
from tests.callers import Granted, declare
from tests.nodes import Running, running

WRITTEN = {"written": True}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "store") as here:
        await here.values("DEFINE TABLE thing; DEFINE SPACE c")
        yield here


async def refused(node: Running, script: str, **parameters: Any) -> type[Refusal]:
    answer = await node.answer(script, parameters)
    assert answer.refusal is not None, answer.results
    return type(answer.refusal)


async def test_every_statement_and_its_answer(node: Running) -> None:
    for script, answer in (
        ("GET 'k' FROM c", NONE),
        ("SET 'k' IN c VALUE 1", WRITTEN),
        ("GET 'k' FROM c", {"value": 1, "ttl": None}),
        ("SET 'k' IN c VALUE 2 IF ABSENT", {"written": False}),
        ("SET 'k' IN c VALUE 2 IF PRESENT", WRITTEN),
        ("SWAP 'k' IN c EXPECT 1 VALUE 3", {"written": False}),
        ("SWAP 'k' IN c EXPECT 2 VALUE 3", WRITTEN),
        ("INCR 'k' IN c", {"value": 4}),
        ("INCR 'k' IN c BY -2", {"value": 2}),
        ("KEYS FROM c", {"keys": ["k"]}),
        ("KEYS FROM c PREFIX 'x'", {"keys": []}),
        ("KEYS FROM c PREFIX 'k' AFTER 'a' LIMIT 1", {"keys": ["k"]}),
        ("EXPIRE 'k' IN c 5m", {"found": True}),
        ("PERSIST 'k' IN c", {"found": True}),
        ("DELETE 'k' FROM c", {"deleted": True}),
        ("DELETE 'k' FROM c", {"deleted": False}),
        ("EXPIRE 'k' IN c 5m", {"found": False}),
        ("PERSIST 'k' IN c", {"found": False}),
        ("UNLOCK 'l' IN c HOLDER 'a'", {"released": False}),
        ("DROP KEYS IN c PREFIX '' REASON 'none'", {"deleted": 0}),
    ):
        assert await node.value(script) == answer, script


async def test_a_lock_s_fence_is_the_log_time_of_its_commit(node: Running) -> None:
    ledger = node.node.committer.ledger
    before_us = ledger.log_time()
    answer = await node.answer("LOCK 'l' IN c HOLDER 'a' EXPIRE 1h")
    held = answer.results[0].value
    assert isinstance(held, dict)
    assert held["held"] and before_us <= held["fence"] <= ledger.log_time()
    first = held["fence"]
    assert held["until"] - datetime.now(UTC) < timedelta(hours=1)
    again = await node.value("LOCK 'l' IN c HOLDER 'a' EXPIRE 2h")
    assert again["fence"] == held["fence"] and again["until"] > held["until"]
    other = await node.value("LOCK 'l' IN c HOLDER 'b' EXPIRE 1h")
    assert other == {"held": False, "fence": None, "until": again["until"]}
    assert await node.value("UNLOCK 'l' IN c HOLDER 'b'") == {"released": False}
    assert await node.value("UNLOCK 'l' IN c HOLDER 'a'") == {"released": True}
    answer = await node.answer("BEGIN; LOCK 'l' IN c HOLDER 'b' EXPIRE 1h; CREATE thing:1; COMMIT")
    held = answer.results[1].value
    assert isinstance(held, dict) and first < held["fence"] <= ledger.log_time()
    # What it is in the state too, and in a large transaction, whose changes are encoded ahead.
    assert (await node.value("LOCK 'l' IN c HOLDER 'b' EXPIRE 1h"))["fence"] == held["fence"]
    script = "BEGIN; LOCK 'm' IN c HOLDER 'a' EXPIRE 1h; INSERT INTO thing $rows; COMMIT"
    rows = [{"id": n, "text": "x" * 1_000} for n in range(10, 3_000)]
    large = await node.answer(script, {"rows": rows})
    assert large.refusal is None
    held = large.results[1].value
    again = await node.value("LOCK 'm' IN c HOLDER 'a' EXPIRE 1h")
    assert isinstance(held, dict) and before_us < held["fence"] == again["fence"]


async def test_expiry_and_keep(node: Running) -> None:
    await node.values("SET 'k' IN c VALUE 1 EXPIRE 1h; SET 'k' IN c VALUE 2 KEEP")
    assert timedelta(minutes=59) < (await node.value("GET 'k' FROM c"))["ttl"] <= timedelta(hours=1)
    await node.values("SET 'k' IN c VALUE 3")
    assert (await node.value("GET 'k' FROM c"))["ttl"] is None
    await node.values("SET 'k' IN c VALUE 1 EXPIRE 1us")
    assert await node.value("GET 'k' FROM c") is NONE


async def test_a_script_that_passes_over_expired_keys_removes_them_in_one_commit(
    node: Running,
) -> None:
    """Each of its statements made a commit of its own, all of them in one go."""
    await node.values("DEFINE SPACE d")
    at = await node.value("RETURN time::now() + 1h")
    for name in "cd":
        put = f"SET type::string($i) IN {name} VALUE $i EXPIRE AT $at"
        await node.values(f"FOR $i IN 0..300 {{ {put} }}", {"at": at})
    node.node.spaces.sweepers.end_actors()  # nobody sweeps
    ledger: Any = node.node.committer.ledger
    ledger._log_time.reaches(ledger.log_time() + 3_600_000_000)
    assert await node.value("RETURN time::now()") >= at
    before = node.node.committer.committed
    gets = "; ".join(f"LET ${name} = GET type::string($i) FROM {name}" for name in "cd")
    answer = await node.answer(f"FOR $i IN 0..300 {{ {gets} }}; RETURN [$c, $d]", {})
    assert answer.refusal is None and answer.results[-1].value == [NONE, NONE]
    assert node.node.committer.committed == before + 1
    assert node.node.committer.commit_index == before + 1, "and that it has gone lasts"
    left = [(await node.value(f"INFO FOR SPACE {name}"))["keys"] for name in "cd"]
    assert left == [0, 0]


async def test_keys_and_values_may_be_parameters_or_computed(node: Running) -> None:
    parameters = {"k": "user:1", "v": {"at": Decimal("1.50")}, "ttl": timedelta(minutes=1)}
    await node.values("SET $k IN c VALUE $v EXPIRE $ttl", parameters)
    assert (await node.value("GET $k FROM c", parameters))["value"] == parameters["v"]
    await node.values("FOR $i IN 1..4 { SET ('n:' + type::string($i)) IN c VALUE $i * 2 }")
    assert await node.value("KEYS FROM c PREFIX 'n:'") == {"keys": ["n:1", "n:2", "n:3"]}
    assert (await node.value("GET 'n:3' FROM c"))["value"] == 6
    await node.values("LET $o = { k: 'n:1' }; DELETE $o.k FROM c; CREATE thing:1; DELETE thing:1")
    assert await node.value("KEYS FROM c PREFIX $p", {"p": "n:"}) == {"keys": ["n:2", "n:3"]}


async def test_a_transaction_takes_records_and_keys_together(node: Running) -> None:
    both = "CREATE thing:1; SET 'k' IN c VALUE 1; INCR 'n' IN c"
    await node.answer(f"BEGIN; {both}; THROW 'no'; COMMIT")
    await node.answer(f"BEGIN; {both}; CANCEL")
    assert await node.value("SELECT * FROM thing") == []
    assert await node.value("KEYS FROM c") == {"keys": []}
    before = (await node.value("INFO FOR STATE"))["sequence"]
    answer = await node.answer(f"BEGIN; {both}; GET 'k' FROM c; COMMIT")
    assert answer.results[4].value == {"value": 1, "ttl": None}, "it sees its own"
    assert answer.sequence == before + 1, "one commit"
    assert await node.value("KEYS FROM c") == {"keys": ["k", "n"]}


async def test_what_is_refused(node: Running) -> None:
    for script, refusal in (
        ("GET 'k' FROM nothing", Unknown),
        ("GET 'k' FROM thing", Unknown),
        ("GET k FROM c", UnexpectedToken),
        ("DELETE k FROM c", UnexpectedToken),
        ("SET 'k' IN c", UnexpectedToken),
        ("SET 'k' IN c VALUE 1 EXPIRE 1s KEEP", UnexpectedToken),
        ("SET 'k' IN c VALUE 1 IF MISSING", UnexpectedToken),
        ("LOCK 'k' IN c HOLDER 'a'", UnexpectedToken),
        ("DEFINE SPACE d EXPIRE 5", UnexpectedToken),
        ("DEFINE SPACE d EXPIRE 0s", ExpireRefused),
        ("DEFINE SPACE c", AlreadyExists),
        ("SET '' IN c VALUE 1", BadRequest),
        ("SET 5 IN c VALUE 1", TypeRefused),
        ("SET 'k' IN c VALUE NONE", TypeRefused),
        ("SET 'k' IN c VALUE 1 EXPIRE 0s", ExpireRefused),
        ("SET 'k' IN c VALUE 1 EXPIRE -5s", ExpireRefused),
        ("SET 'k' IN c VALUE 1 EXPIRE 5", TypeRefused),
        ("SET 's' IN c VALUE 's'; INCR 's' IN c", NotANumber),
        ("INCR 'k' IN c BY 1.5", TypeRefused),
        ("LOCK 'k' IN c HOLDER '' EXPIRE 1s", BadRequest),
        ("LOCK 'k' IN c HOLDER 5 EXPIRE 1s", TypeRefused),
        ("KEYS FROM c LIMIT 1001", BadRequest),
        ("KEYS FROM c LIMIT -1", BadRequest),
        ("KEYS FROM c PREFIX 5", TypeRefused),
    ):
        assert await refused(node, script) is refusal, script
    assert await node.value("KEYS FROM c") == {"keys": ["s"]}


async def test_a_space_is_declared_shown_and_dropped(node: Running) -> None:
    await node.values(
        "DEFINE SPACE IF NOT EXISTS c EXPIRE 1h; DEFINE SPACE d EXPIRE 5m COMMENT 'd'"
    )
    await node.values("SET 'k' IN d VALUE 1; SET 'gone' IN d VALUE 1 EXPIRE 1us")
    info = {"name": "d", "comment": "d", "expire": timedelta(minutes=5)}
    assert await node.value("INFO FOR SPACE d") == {**info, "keys": 1}
    database = await node.value("INFO FOR DATABASE")
    assert database["spaces"] == [{"name": "c", "comment": None, "expire": None}, info]
    assert (await node.value("GET 'k' FROM d"))["ttl"] <= timedelta(minutes=5)
    await node.values("DEFINE SPACE OVERWRITE d")
    assert (await node.value("INFO FOR SPACE d"))["expire"] is None
    assert (await node.value("GET 'k' FROM d"))["value"] == 1
    await node.values("DROP SPACE d REASON 'over'; DEFINE SPACE d")
    assert await node.value("KEYS FROM d") == {"keys": []}
    assert await refused(node, "DROP SPACE nothing") is Unknown
    await node.values("DROP DATABASE main; DEFINE DATABASE main; DEFINE SPACE c")
    assert await node.value("KEYS FROM c") == {"keys": []}


async def test_drop_keys(node: Running) -> None:
    await node.values("FOR $i IN 0..1000 { SET ('a:' + type::string($i)) IN c VALUE $i }")
    await node.values("SET 'b' IN c VALUE 1")
    assert await node.value("DROP KEYS IN c PREFIX 'a:' REASON 'over'") == {"deleted": 1000}
    assert await node.value("KEYS FROM c") == {"keys": ["b"]}
    assert (await node.value("INFO FOR SPACE c"))["keys"] == 1


async def test_roles_and_rights(node: Running) -> None:
    await node.values("SET 'k' IN c VALUE 1; DEFINE NODE ROLES serving")
    assert (await node.value("GET 'k' FROM c"))["value"] == 1
    for script in (
        "SET 'k' IN c VALUE 2", "SWAP 'k' IN c EXPECT 1 VALUE 2", "INCR 'k' IN c",
        "DELETE 'k' FROM c", "EXPIRE 'k' IN c 1s", "PERSIST 'k' IN c",
        "LOCK 'l' IN c HOLDER 'a' EXPIRE 1s", "UNLOCK 'l' IN c HOLDER 'a'",
        "DROP KEYS IN c PREFIX ''", "DEFINE SPACE d", "DROP SPACE c",
    ):  # fmt: skip
        assert await refused(node, script) is NotWritable, script
    await node.values("DEFINE NODE ROLES NONE")
    assert await refused(node, "GET 'k' FROM c") is Draining
    await node.values("DEFINE NODE ROLES serving, writable")
    stranger = await declare(node.node, "bob", "member")
    for script in ("GET 'k' FROM c", "SET 'k' IN c VALUE 2", "KEYS FROM c", "INFO FOR SPACE c"):
        answer = await node.answer(script, caller=stranger)
        assert isinstance(answer.refusal, Unknown), script
    Granted(node.node).grant("bob", Verb.CONSUME, "shop")
    for script in ("GET 'k' FROM c", "SET 'k' IN c VALUE 2", "KEYS FROM c", "INFO FOR SPACE c"):
        answer = await node.answer(script, caller=stranger)
        assert isinstance(answer.refusal, NotAllowed), script


async def test_the_statement_log_has_the_statement_and_its_reason(node: Running) -> None:
    ledger = node.node.committer.ledger
    await node.values("SET 'k' IN c VALUE $v", {"v": "a secret"})
    frames = list(node.node.store.parts.log.reader.read(ledger.state.committed))
    assert b"SET 'k' IN c VALUE $v" in frames[-1].body
