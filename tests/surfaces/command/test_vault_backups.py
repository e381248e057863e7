"""Vaults in backups: what was sealed opens where it is restored, with its passphrase of then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of a store with a vault that hangs on it in `a.one`, and one of its own in `a.two`; taken
    before its passphrase was changed, but for the log."""
    here = tmp_path_factory.mktemp("vaults")
    folder = here / "backups"
    folder.mkdir()
    with serving(here / "store", *WORDS, "--backup-dir", str(folder)) as node:
        node.script(
            "DEFINE NAMESPACE a; DEFINE DATABASE a.one; DEFINE DATABASE a.two; USE a.one;"
            "DEFINE VAULT v; USE a.two; DEFINE VAULT own PASSPHRASE $p",
            params={"p": OTHER},
        )
        asked(node, "/vault/passphrase", {"new": OLD})
        asked(node, "/vault/unseal", {"passphrase": OLD})
        asked(node, "/vault/a/two/own/unseal", {"passphrase": OTHER})
        for vault in ("a/one/v", "a/two/own"):
            asked(node, f"/vault/{vault}/write", {"id": "k", "value": CANARY})
        for name, text in (("all", ""), ("one", " OF a.one"), ("two", " OF a.two")):
            assert "error" not in node.script(f"BACKUP STATE{text} TO '{name}'")
        asked(node, "/vault/passphrase", {"old": OLD, "new": NEW})
        assert "error" not in node.script("BACKUP LOG TO 'log'")
    return {name: folder / name for name in ("all", "one", "two", "log")}


@pytest.mark.parametrize(
    ("name", "passphrase", "wrong"),
    [("all", OLD, NEW), ("log", NEW, OLD), ("one", OLD, NEW)],
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


def test_the_flag_and_the_variable(tmp_path: Path) -> None:
    for more, variable in ((("--unseal-for", "1s"), {}), ((), {"STORE_UNSEAL_FOR": "1s"})):
        with serving(tmp_path / "store", *WORDS, *more, **variable) as node:
            if not node.request("GET", "/vault").json["store"]["set"]:
                asked(node, "/vault/passphrase", {"new": OLD})
            asked(node, "/vault/unseal", {"passphrase": OLD})
            while not node.request("GET", "/vault").json["store"]["sealed"]:
                pass  # it ends by itself, or the test by its timeout
            assert node.process is not None
            limits = Path(f"/proc/{node.process.pid}/limits").read_text()
            assert limits.split("Max core file size")[1].split()[:2] == ["0", "0"]
