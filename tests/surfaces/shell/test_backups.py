"""`storenode --at host:port --backup <file>`: a snapshot of a node that runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.backups.verify import verify
from storage.files.disk import Disk
from surfaces.command.flags import UsageRefused
from surfaces.shell import backups
from surfaces.shell.arguments import Help
from surfaces.shell.backups import BackUp
from tests.processes import PASSWORD, USER
from tests.surfaces.shell.conftest import Here

ENVIRONMENT = {"STORE_USER": USER, "STORE_PASSWORD": PASSWORD}


def take(here: Here, path: Path, *words: str) -> tuple[int, str, str]:
    return here.run("--at", here.address, "--backup", str(path), *words)


def test_a_snapshot(here: Here, tmp_path: Path) -> None:
    here.script("DEFINE TABLE t; CREATE t")
    path = tmp_path / "all.storesnap"
    code, out, err = take(here, path)
    assert (code, out.startswith(f"{path}: snapshot of {path.stat().st_size} bytes")) == (0, True)
    assert f"taking {path}, bytes: {path.stat().st_size} of {path.stat().st_size}" in err
    file = Disk().open_read(str(path))
    assert verify(file).result == "whole"
    file.close()
    code, _, err = take(here, path)
    assert (code, err.count(str(path)), "exists; choose another name" in err) == (1, 1, True)
    assert os.listdir(tmp_path) == ["all.storesnap"]


def test_words_in_any_order(here: Here, tmp_path: Path) -> None:
    code, _, _ = here.run(f"--backup={tmp_path / 'x'}", "--snapshot", f"--at={here.address}")
    assert code == 0
    code, _, _ = here.run("backup", "--at", here.address, str(tmp_path / "y"))
    assert code == 0
    assert set(os.listdir(tmp_path)) == {"x", "y"}


def test_who_may_not(here: Here, tmp_path: Path) -> None:
    here.environment["STORE_PASSWORD"] = "a wrong password"
    code, _, err = take(here, tmp_path / "x")
    assert (code, "do not match" in err) == (3, True)
    here.environment["STORE_PASSWORD"] = PASSWORD
    here.script(f"DEFINE USER {here.database} ROLE viewer PASSWORD '{PASSWORD}'")
    code, _, err = take(here, tmp_path / "x", "--user", here.database)
    assert (code, "OWNER OF STORE" in err) == (1, True)
    code, _, err = take(here, tmp_path / "none" / "x")
    assert (code, "No such file" in err) == (1, True)
    here.patch.setattr("surfaces.shell.connecting.CONNECT_SECONDS", 0.05)
    code, _, err = here.run("--at", "127.0.0.1:1", "--backup", str(tmp_path / "x"))
    assert code == 3
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--at :1 --backup x --from 3", "--from contradicts --at"),
        ("--at :1 --dump x", "--dump contradicts --at"),
        ("--at :1 --dump=x --backup y", "--dump contradicts --at"),
        ("--at :1", "expected a node and a file"),
        ("--at :1 --backup", "--backup needs a value"),
        ("store --at :1 --backup x", "store contradicts --at"),
        ("--at :1 --backup x --http :2", "unknown flag --http"),
        ("--at :1 --at :2 --backup x", "is given twice"),
        ("backup --at :1", "expected a node and a file: storenode backup --at <host:port> <file>"),
        ("backup --at :1 store x", "store contradicts --at"),
        ("backup --at :1 -", "unknown flag -"),
    ],
)
def test_usage(words: str, says: str) -> None:
    with pytest.raises(UsageRefused, match=says):
        backups.understand(words.split(), ENVIRONMENT)


def test_help() -> None:
    asked = backups.understand(["--at", ":1", "--help"], ENVIRONMENT)
    assert isinstance(asked, Help)
    assert "--backup <file>" in asked.text


def test_access() -> None:
    asked = backups.understand(
        ["--at", "db:1", "--backup", "x", "--user", "eve", "--tls"], ENVIRONMENT
    )
    assert isinstance(asked, BackUp)
    assert (asked.access.address, asked.access.user, asked.access.tls) == ("db:1", "eve", True)
