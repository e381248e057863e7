"""The client's vaults, on a real node: both twins."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storeclient import Client, Revealed, Written, errors
from surfaces.wire.gate import NodeGate
from tests.nodes import PASSPHRASE, PASSWORD, running
from tests.surfaces.wire.peers import serving

OTHER = "another passphrase"


async def test_a_passphrase_of_its_own_and_the_blocking_twin(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node, serving(NodeGate(node.node)) as surface:
        await node.values("DEFINE VAULT own PASSPHRASE $p", {"p": OTHER})
        await asyncio.to_thread(blocking, *surface.address)


def blocking(host: str, port: int) -> None:
    with Client(f"{host}:{port}", user="root", password=PASSWORD) as client:
        vault = client.vault("shop", "main", "own")
        assert repr(vault) == "<Vault shop.main.own>"
        assert vault.unseal(OTHER) > datetime.now(UTC)
        assert vault.write("k", "x") == Written(True, 1)
        assert isinstance(vault.reveal("k"), Revealed)
        assert client.database("shop", "main").vault("own").list() == ["k"]
        assert vault.change_passphrase(OTHER, PASSPHRASE, rekey=True) == 2
        assert vault.reveal("k").value == "x"
        assert vault.info()["own"]
        assert vault.audit(limit=1)[0]["action"] in ("reveal", "rotated")
        assert vault.erase("k")
        vault.seal()
        with pytest.raises(errors.Sealed):
            vault.list()
        with pytest.raises(errors.Sealed):
            client.store_seal().unseal(PASSPHRASE)
