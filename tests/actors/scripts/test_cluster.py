"""The cluster by statements: what is declared, kept and shown, and what is in no place."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from actors.backups.restoring import RestoreOptions, restore
from actors.commits.committer import NODE
from actors.environment import system_environment
from protocol.errors import BadRequest, NotWritable, Refusal, SignInRefused
from protocol.values import instant
from storage.backups.state_builder import no_progress
from storage.catalog import join_tokens, replicas
from storage.catalog.replicas import Replica
from tests.callers import declare
from tests.nodes import OWNER, Running, running
from tests.surfaces.test_secrets_on_disk import held
from tests.tables import case

ROWS: Final = """
DEFINE REPLICA n1 PEER 'n1:1' ENDPOINTS 'n1:2' ROLES serving, writable COMMENT 'c';
DEFINE REPLICA n2 PEER 'n2:1' CERTIFICATE '{}';
REVOKE CERTIFICATE '{}' REASON 'lost'
""".format("ab" * 32, "cd" * 32)
ID: Final = "6f3a0000-0000-4000-8000-000000000001"


async def cluster(node: Running) -> dict[str, Any]:
    found = await node.value("INFO FOR CLUSTER")
    assert isinstance(found, dict)
    return found


async def redeem(node: Running, token: str, days: int = 20) -> Replica:
    """Use a token, as a node that attaches will."""
    expires = instant(node.node.environment.clock.wall_us()) + timedelta(days=days, minutes=1)
    with node.node.committer.begin_transaction() as tx:
        found = join_tokens.redeem(tx, node.node.store.id, token, ID, "ef" * 32, expires)
        ticket = node.node.committer.commit(tx, NODE)
    await node.node.committer.released(ticket)
    return found


# --- what is kept ---------------------------------------------------------------------------------


async def test_rows_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        await node.values(ROWS)
        own = (await node.value("INFO FOR NODE"))["id"]
        await node.values(f"DEFINE REPLICA me PEER 'me:1' NODE '{own}'")
        before = await cluster(node)
    async with running(tmp_path / "store") as node:
        assert await cluster(node) == before
        assert before["member"] == (await node.value("INFO FOR NODE"))["member"] == "me"
    assert [row["name"] for row in before["replicas"]] == ["me", "n1", "n2"]
    assert [(one["replica"], one["days_left"]) for one in before["trusted"]] == [("n2", None)]
    assert [(one["certificate"], one["reason"]) for one in before["revoked"]] == [
        ("cd" * 32, "lost")
    ]


async def test_several_are_declared_together_or_not_at_all(node: Running) -> None:
    with pytest.raises(Refusal):
        await node.values(f"BEGIN; {ROWS}; DEFINE REPLICA n3 PEER 'n1:1'; COMMIT")
    assert (await cluster(node))["replicas"] == (await cluster(node))["revoked"] == []
    await node.values(f"BEGIN; {ROWS}; COMMIT")
    assert len((await cluster(node))["replicas"]) == 2


async def test_a_node_that_takes_no_writes_declares_none(node: Running) -> None:
    await node.values(f"{ROWS}; DEFINE NODE ROLES serving")
    for statement in ("DROP REPLICA n1", "CREATE JOIN TOKEN", f"REVOKE CERTIFICATE {'12' * 32}"):
        with pytest.raises(NotWritable):
            await node.value(statement)
    assert len((await cluster(node))["replicas"]) == 2


@pytest.mark.parametrize("form", ["STATE", "LOG"])
async def test_a_backup_carries_the_rows_and_lets_nobody_in(tmp_path: Path, form: str) -> None:
    (tmp_path / "backups").mkdir()
    told = {"backup_dir": str(tmp_path / "backups")}
    async with running(tmp_path / "store", settings=told) as node:
        await node.values(f"{ROWS}; DEFINE NODE ENDPOINTS 'here:1'")
        token = (await node.value("CREATE JOIN TOKEN FOR n1"))["token"]
        before = await cluster(node)
        own = (await node.value("INFO FOR NODE"))["id"]
        await node.value(f"BACKUP {form} TO 'x'")
    environment = system_environment()
    with closing(environment.fs.open_read(str(tmp_path / "backups" / "x"))) as file:
        list(restore(environment, file, RestoreOptions(str(tmp_path / "restored")), no_progress))
    async with running(tmp_path / "restored") as node:
        after, about = await cluster(node), await node.value("INFO FOR NODE")
        assert before["replicas"][0].pop("token_expires") is not None
        assert after["replicas"][0].pop("token_expires") is None
        assert after == before
        assert (about["endpoints"], about["member"]) == ([], None) and about["id"] != own
        with pytest.raises(SignInRefused):
            await redeem(node, token)


async def test_a_script_names_what_it_does_not_carry(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    async with running(
        tmp_path / "store", settings={"backup_dir": str(tmp_path / "backups")}
    ) as node:
        await node.values(ROWS)
        await node.value("BACKUP SCRIPT TO 'x'")
    text = (tmp_path / "backups" / "x").read_text()
    assert "-- not carried: cluster topology" in text and "REPLICA" not in text


# --- join tokens ----------------------------------------------------------------------------------


async def test_a_token_is_for_who_asked_and_is_in_no_other_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "backups").mkdir()
    async with running(
        tmp_path / "store", settings={"backup_dir": str(tmp_path / "backups")}
    ) as node:
        await node.values(ROWS)
        answer = await node.value("CREATE JOIN TOKEN FOR n1 EXPIRES 10m")
        assert set(answer) == {"token", "expires"}
        told = await node.values(
            "INFO FOR CLUSTER; INFO FOR NODE; INFO FOR STATEMENTS; INFO FOR AUDIT;"
            "INFO FOR RUNNING; BACKUP TO 'a'; BACKUP LOG TO 'b'; BACKUP SCRIPT TO 'c'"
        )
        entry = next(one for one in told[2] if one["statement"].startswith("CREATE"))
        assert entry["statement"] == "CREATE JOIN TOKEN FOR n1 EXPIRES 10m"
        assert entry in told[3]
        (row, _) = told[0]["replicas"]
        assert row["waits"] and row["token_expires"] == answer["expires"]
        secret = answer["token"].removeprefix("n1.")
        assert secret not in repr(told)
        on_disk = held(tmp_path)
    said = "".join(capfd.readouterr())
    for place in (on_disk, held(tmp_path), said.encode()):
        assert secret.encode() not in place
    assert b"n1:1" in on_disk


async def test_a_token_is_used_up(node: Running) -> None:
    await node.values(ROWS)
    token = (await node.value("CREATE JOIN TOKEN"))["token"]
    await redeem(node, token)
    with pytest.raises(SignInRefused):
        await redeem(node, token)
    found = await cluster(node)
    (row, _) = found["replicas"]
    assert (row["node"], row["waits"], row["token_expires"]) == (ID, False, None)
    days = {one["replica"]: one["days_left"] for one in found["trusted"]}
    assert days == {"n1": 20, "n2": None}
    await node.values(f"REVOKE CERTIFICATE {'ef' * 32}")
    assert [one["replica"] for one in (await cluster(node))["trusted"]] == ["n2"]


async def test_no_statement_takes_the_answer(node: Running) -> None:
    await node.values(f"DEFINE TABLE t; {ROWS}")
    for script in [
        "BEGIN; CREATE JOIN TOKEN; COMMIT",
        "IF true { CREATE JOIN TOKEN }",
        "FOR $n IN [1] { CREATE JOIN TOKEN }",
        "LET $t = IF true { CREATE JOIN TOKEN }; CREATE t SET token = $t.token",
        "LET $t = CREATE JOIN TOKEN; CREATE t SET token = $t.token",
        "RETURN CREATE JOIN TOKEN",
        "CREATE t SET token = (CREATE JOIN TOKEN)",
        "EXPLAIN CREATE JOIN TOKEN",
    ]:
        with case(script):
            refusal = (await node.answer(script)).refusal
            assert refusal is not None and refusal.code in ("NotInTransaction", "UnexpectedToken")
            (row, _) = (await cluster(node))["replicas"]
            assert row["token_expires"] is None


async def test_a_row_of_the_same_node_trusts_what_was_not_revoked(node: Running) -> None:
    await node.values(ROWS)
    await redeem(node, (await node.value("CREATE JOIN TOKEN"))["token"])
    before = (await cluster(node))["trusted"]
    again = f"DEFINE REPLICA OVERWRITE n1 PEER 'n1:9' NODE '{ID}'"
    await node.values(again)
    found = await cluster(node)
    assert found["trusted"] == before
    assert (found["replicas"][0]["peer"], found["replicas"][0]["endpoints"]) == ("n1:9", [])
    await node.values(f"REVOKE CERTIFICATE {'ef' * 32}; {again}")
    found = await cluster(node)
    assert (found["replicas"][0]["node"], found["replicas"][0]["certificate"]) == (ID, None)
    assert [one["replica"] for one in found["trusted"]] == ["n2"]
    await node.values(f"DEFINE REPLICA OVERWRITE n1 PEER 'n1:9' CERTIFICATE '{'12' * 32}'")
    assert (await cluster(node))["replicas"][0]["node"] is None


@pytest.mark.parametrize("said", ["", "NODE '6f3a0000-0000-4000-8000-0000000000ff'"])
async def test_a_row_of_another_node_trusts_nothing_of_the_first(node: Running, said: str) -> None:
    await node.values(ROWS)
    await redeem(node, (await node.value("CREATE JOIN TOKEN"))["token"])
    await node.values(f"DEFINE REPLICA OVERWRITE n1 PEER 'n1:1' {said}")
    assert [one["replica"] for one in (await cluster(node))["trusted"]] == ["n2"]


# --- who meets whom -------------------------------------------------------------------------------


async def test_of_many_that_take_one_address_one_has_it(node: Running) -> None:
    answers = await asyncio.gather(
        *(node.answer(f"DEFINE REPLICA n{n} PEER 'same:1'") for n in range(20))
    )
    refused = [answer.refusal.code for answer in answers if answer.refusal is not None]
    assert refused == ["AlreadyExists"] * 19
    assert len((await cluster(node))["replicas"]) == 1


# --- failover -------------------------------------------------------------------------------------


async def test_a_password_of_etcd_is_shown_and_kept_nowhere(
    node: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    viewer = await declare(node.node, "vic", "viewer")
    script = (
        "DEFINE FAILOVER VIA 'https://root:canary9d1@etcd1' LEASE 5s ACKS 1 BEHIND 1s PROMOTE AUTO"
    )
    for caller in (viewer, OWNER):
        answer = await node.answer(script, caller=caller)
        assert isinstance(answer.refusal, BadRequest)
        assert "canary9d1" not in f"{answer.refusal} {answer.refusal.detail}"
    assert "canary9d1" not in repr(await node.values("INFO FOR STATEMENTS; INFO FOR AUDIT"))
    assert "canary9d1" not in "".join(capfd.readouterr())


# --- as many as may be ----------------------------------------------------------------------------


async def test_a_thousand_rows(node: Running) -> None:
    """More than may be are refused, and what is there is listed."""
    refused = 0
    for n in range(0, 1_000, 100):
        script = ";".join(f"DEFINE REPLICA r{m} PEER 'r{m}:1'" for m in range(n, n + 100))
        refusal = (await node.answer(script)).refusal
        refused += refusal is not None and refusal.code == "TooLarge"
    assert refused == 8
    assert len((await cluster(node))["replicas"]) == 256


async def test_as_many_revocations_as_may_be(node: Running) -> None:
    with node.node.committer.begin_transaction() as tx:
        for n in range(4_095):
            tx.put(replicas._revocation_key(f"{n:064x}"), b"\x82\xa2at\xc0\xa6reason\xc0")
        ticket = node.node.committer.commit(tx, NODE)
    await node.node.committer.released(ticket)
    await node.value(f"REVOKE CERTIFICATE '{'f' * 64}'")
    assert len((await cluster(node))["revoked"]) == 4_096
    refusal = (await node.answer(f"REVOKE CERTIFICATE '{'e' * 64}'")).refusal
    assert refusal is not None and refusal.code == "TooLarge"
    await node.value(f"REVOKE CERTIFICATE '{'f' * 64}'")
