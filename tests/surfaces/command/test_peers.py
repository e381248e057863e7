"""A process that listens for other nodes: what it shows them, by itself or given."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from protocol.links import VERSION, LinkClosed, Redeem, Redeemed
from storage.catalog import join_tokens
from storage.files.peer_file import Identity
from surfaces.command import peers
from surfaces.command.addresses import Address
from surfaces.command.arguments import Peers
from surfaces.command.certificates import CertificateRefused
from tests.logbook import Logbook
from tests.processes import PASSWORD, USER, NodeProcess, StartFailed, serving
from tests.surfaces.peers.parts import FakePeering, identity, listening

HERE = ("--http", "127.0.0.1:0", "--peer", "127.0.0.1:0")
OWNER = {"STORE_USER": USER, "STORE_PASSWORD": PASSWORD}
ID = "6f3a0000-0000-4000-8000-000000000001"


def written(folder: Path, one: Identity) -> Peers:
    (folder / "peer.pem").write_text(one.certificate)
    (folder / "peer.key").touch(0o600)
    (folder / "peer.key").write_text(one.key)
    address = Address("127.0.0.1", 0)
    return Peers(address, str(folder / "peer.pem"), str(folder / "peer.key"))


def value(node: NodeProcess, text: str) -> Any:
    answer = node.script(text)
    assert "error" not in answer, answer
    return answer["results"][-1]["value"] if "results" in answer else answer


def token(node: NodeProcess) -> join_tokens.JoinToken:
    value(node, "DEFINE REPLICA IF NOT EXISTS n2 PEER 'n2.example:8002'")
    return join_tokens.read(value(node, "CREATE JOIN TOKEN FOR n2")["token"])


async def bring(invitation: join_tokens.JoinToken) -> Redeemed:
    """Redeem it as a process that has nothing else."""
    who = FakePeering(ID, identity("a"), store="")
    async with listening(who) as surface:
        (address,), pin = invitation.where
        asked = Redeem(VERSION, invitation.secret, who.name)
        found = await surface.redeem(address, pin, asked)
        link = await surface.connect(address, [pin])
        assert link.peer.store == found.store
        link.close()
        return found


def test_a_node_joins_a_process(tmp_path: Path, logbook: Logbook) -> None:
    with serving(tmp_path / "x", *HERE, **OWNER) as node:
        shown = next(
            one for one in value(node, "INFO FOR NODE")["surfaces"] if one["surface"] == "peer"
        )
        assert shown["tls"] and shown["certificate_expires"] is not None
        found = asyncio.run(bring(token(node)))
        assert found.row == "n2"
        row = value(node, "INFO FOR CLUSTER")["replicas"][0]
        assert row["node"] == ID and row["certificate"] is not None
        assert node.stop() == 0
    assert (tmp_path / "x" / "PEER").stat().st_mode & 0o077 == 0


def test_without_the_flag_nobody_listens_and_nothing_is_made(tmp_path: Path) -> None:
    with serving(tmp_path / "x", **OWNER) as node:
        value(node, "DEFINE REPLICA n2 PEER 'n2.example:8002'")
        said = value(node, "CREATE JOIN TOKEN FOR n2")["token"]
        with pytest.raises(Exception, match="without --peer"):
            join_tokens.read(said)
        assert node.stop() == 0
    assert not (tmp_path / "x" / "PEER").exists()


def test_what_is_given_is_shown_and_the_next_one_once_the_row_has_it(
    tmp_path: Path, logbook: Logbook
) -> None:
    logbook.allow("another node")
    first, second = identity("first"), identity("second")
    given = written(tmp_path, first)
    assert given.cert is not None and given.key is not None
    words = (*HERE, "--peer-cert", given.cert, "--peer-key", given.key)
    with serving(tmp_path / "x", *words, **OWNER) as node:
        assert token(node).where.fingerprint == first.fingerprint
        written(tmp_path, second)
        node.signal(signal.SIGHUP)
        assert node.wait_line("the certificate for other nodes was reloaded") is not None
        assert token(node).where.fingerprint == first.fingerprint, "no row has it yet"
        own = value(node, "INFO FOR NODE")["id"]
        at = node.address("peer")
        value(node, f"DEFINE REPLICA n1 PEER '{at[0]}:{at[1]}' NODE '{own}'")
        assert node.wait_line("another certificate is shown to other nodes") is not None
        assert token(node).where.fingerprint == second.fingerprint
        (trusted,) = value(node, "INFO FOR CLUSTER")["trusted"]
        assert trusted["certificate"] == second.fingerprint
        assert asyncio.run(bring(token(node))).row == "n2"
        assert node.stop() == 0
    assert not (tmp_path / "x" / "PEER").exists()


def test_what_can_not_be_shown_stops_the_start(tmp_path: Path) -> None:
    given = written(tmp_path, identity("a"))
    (tmp_path / "peer.key").write_text(identity("b").key)
    words = (*HERE, "--peer-cert", str(given.cert), "--peer-key", str(given.key))
    with pytest.raises(StartFailed, match="does not belong"), serving(tmp_path / "x", *words):
        raise LinkClosed("never")
    assert not (tmp_path / "x").exists()


def test_refused_files_are_named(tmp_path: Path) -> None:
    given = written(tmp_path, identity("a"))
    now = datetime.now(UTC)
    found = peers.identity(given, now)
    assert found is not None
    with pytest.raises(CertificateRefused, match=r"peer\.pem: the certificate expired"):
        peers.identity(given, now + timedelta(days=60))
    with pytest.raises(CertificateRefused, match="not valid before"):
        peers.identity(given, now - timedelta(days=60))
    (tmp_path / "peer.key").unlink()
    with pytest.raises(CertificateRefused, match=r"--peer-key: .*peer\.key"):
        peers.identity(given, now)
    assert peers.identity(Peers(given.address), now) is None
