"""Vaults in backups: what was sealed opens where it is restored, with its passphrase of then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from actors.runtime import ask
from protocol.vaults import ChangePassphrase, Unseal
from tests.nodes import OWNER, running
from tests.processes import NodeProcess, run, serving

OLD, NEW, OTHER = "the old passphrase", "the new passphrase", "a passphrase of its own"
CANARY = "canary of a value"
WORDS = ("--http", "127.0.0.1:0")


def asked(node: NodeProcess, path: str, body: Any = None) -> Any:
    reply = node.request("POST", path, {} if body is None else body)
    assert reply.status == 200, reply.body
    return reply.json


def code(node: NodeProcess, path: str, body: Any) -> str:
    return str(node.request("POST", path, body).json["error"]["code"])


def revealed(node: NodeProcess, vault: str) -> Any:
    return asked(node, f"/vault/{vault}/reveal", {"id": "k"})["value"]


async def fill(store: Path, folder: Path) -> None:
    """Make a store with a vault that hangs on it in `a.one`, and one of its own in `a.two`, and its
    backups: before its passphrase was changed, but for the log."""
    async with running(store, settings={"backup_dir": str(folder)}) as here:
        await here.values(
            "DEFINE NAMESPACE a; DEFINE DATABASE a.one; DEFINE DATABASE a.two; USE a.one;"
            "DEFINE VAULT v; USE a.two; DEFINE VAULT own PASSPHRASE $p",
            {"p": OTHER},
        )
        vaults, own = here.node.vaults, ("a", "two", "own")
        await ask(vaults, ChangePassphrase(OWNER, None, None, OLD))
        await ask(vaults, Unseal(OWNER, None, OLD))
        await ask(vaults, Unseal(OWNER, own, OTHER))
        for place, vault in (("one", "v"), ("two", "own")):
            await here.value(f"USE a.{place}; WRITE 'k' IN VAULT {vault} VALUE $v", {"v": CANARY})
        for name, text in (("all", ""), ("one", " OF a.one"), ("two", " OF a.two")):
            await here.value(f"BACKUP STATE{text} TO '{name}'")
        await ask(vaults, ChangePassphrase(OWNER, None, OLD, NEW))
        await here.value("BACKUP LOG TO 'log'")


@pytest.fixture(scope="module")
def backups(shared_path: Path) -> dict[str, Path]:
    folder = shared_path / "vault-backups"
    folder.mkdir()
    asyncio.run(fill(shared_path / "vault-store", folder))
    return {name: folder / name for name in ("all", "one", "two", "log")}


@pytest.mark.parametrize(
    ("name", "passphrase", "wrong"), [("all", OLD, NEW), ("log", NEW, OLD), ("one", OLD, NEW)]
)
def test_what_hangs_on_the_store_opens_again(
    backups: dict[str, Path], tmp_path: Path, name: str, passphrase: str, wrong: str
) -> None:
    done = run(str(tmp_path / "new"), "--restore", str(backups[name]))
    assert done.returncode == 0, done.stderr
    assert CANARY.encode() not in backups[name].read_bytes()
    with serving(tmp_path / "new", *WORDS) as node:
        assert code(node, "/vault/a/one/v/reveal", {"id": "k"}) == "Sealed"
        assert code(node, "/vault/unseal", {"passphrase": wrong}) == "WrongKey"
        asked(node, "/vault/unseal", {"passphrase": passphrase})
        assert revealed(node, "a/one/v") == CANARY
        trail = node.script("USE a.one; INFO FOR AUDIT OF VAULT v LIMIT 1000")["results"][-1][
            "value"
        ]
        assert trail[-1]["action"] == "define" and all(one["intact"] for one in trail)
        if name == "one":  # the other is declared there, and came without its keys
            assert code(node, "/vault/a/two/own/unseal", {"passphrase": OTHER}) == "Sealed"


def test_of_a_place_without_it_no_key_of_the_store_comes(
    backups: dict[str, Path], tmp_path: Path
) -> None:
    assert run(str(tmp_path / "new"), "--restore", str(backups["two"])).returncode == 0
    with serving(tmp_path / "new", *WORDS) as node:
        assert code(node, "/vault/unseal", {"passphrase": OLD}) == "Sealed"
        assert node.request("GET", "/vault").json["store"]["set"] is False
        asked(node, "/vault/a/two/own/unseal", {"passphrase": OTHER})
        assert revealed(node, "a/two/own") == CANARY


async def give_passphrase(store: Path) -> None:
    async with running(store) as here:
        await ask(here.node.vaults, ChangePassphrase(OWNER, None, None, OLD))


def test_the_flag_and_the_variable(tmp_path: Path) -> None:
    asyncio.run(give_passphrase(tmp_path / "store"))
    for more, variable in ((("--unseal-for", "100ms"), {}), ((), {"STORE_UNSEAL_FOR": "100ms"})):
        with serving(tmp_path / "store", *WORDS, *more, **variable) as node:
            asked(node, "/vault/unseal", {"passphrase": OLD})
            while not node.request("GET", "/vault").json["store"]["sealed"]:
                pass  # it ends by itself, or the test by its timeout
            assert node.process is not None
            limits = Path(f"/proc/{node.process.pid}/limits").read_text()
            assert limits.split("Max core file size")[1].split()[:2] == ["0", "0"]
