"""The client's vaults, on a real node: both twins."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storeclient import Client, Revealed, Written, errors
from tests.clients.real import real_node
from tests.nodes import PASSPHRASE, PASSWORD

OTHER = "another passphrase"


async def test_a_passphrase_of_its_own_and_the_blocking_twin(tmp_path: Path) -> None:
    async with real_node(tmp_path / "store") as node:
        await node.here.values("DEFINE VAULT own PASSPHRASE $p", {"p": OTHER})
        await asyncio.to_thread(blocking, node.address)


def blocking(address: str) -> None:
    with Client(address, user="root", password=PASSWORD) as client:
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
