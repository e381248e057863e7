"""The client's vaults, on a real node: both twins."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storeclient import AsyncClient, Client, Revealed, Written, errors
from surfaces.wire.gate import NodeGate
from tests.nodes import PASSPHRASE, PASSWORD, running
from tests.surfaces.wire.peers import serving

OTHER = "another passphrase"


async def test_a_life(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node, serving(NodeGate(node.node)) as surface:
        host, port = surface.address
        async with AsyncClient(f"{host}:{port}", user="root", password=PASSWORD) as client:
            store = client.store_seal()
            assert await store.change_passphrase(None, PASSPHRASE) == 1
            await client.run("DEFINE VAULT v VERSIONS 2", ns="shop", db="main")
            vault = client.vault("shop", "main", "v")
            with pytest.raises(errors.Sealed):
                await vault.write("k", 1)
            with pytest.raises(errors.WrongKey):
                await store.unseal(OTHER)
            assert await store.unseal(PASSPHRASE) > datetime.now(UTC)
            assert await vault.write("a/k", {"n": 1}, reason="new") == Written(True, 1)
            assert await vault.write("a/k", 2, if_absent=True) == Written(False, 1)
            assert await vault.write("a/k", 2, expect=1) == Written(True, 2)
            found = await vault.reveal("a/k", reason="to see")
            assert (found.id, found.value, found.version) == ("a/k", 2, 2)
            assert "value" not in repr(found)
            assert (await vault.reveal("a/k", version=1)).value == {"n": 1}
            same = client.database("shop", "main").vault("v")
            assert await same.list("a/") == ["a/k"] == await same.list(limit=1)
            assert await same.list(after="a/k") == []
            assert (await vault.info())["records"] == 1
            newest, *_ = entries = await vault.audit()
            assert newest["action"] == "list"
            assert [one["seq"] for one in await vault.audit(before=3, limit=1)] == [2]
            assert all(one["intact"] for one in entries)
            assert await vault.erase("a/k", reason="done")
            assert not await vault.erase("a/k")
            with pytest.raises(errors.Unknown):
                await vault.reveal("a/k")
            await store.seal()
            with pytest.raises(errors.Sealed):
                await vault.list()


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
