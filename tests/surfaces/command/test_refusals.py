"""Bad input: one clear line on standard error, the right exit code, nothing changed on disk."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from actors.environment import SystemClock
from storage.files.directory import StoreDirectory
from storage.files.disk import Disk
from tests.certificates import self_signed
from tests.processes import PASSWORD, begin, environment, run, said, serving, tree
from tests.simulation.environment import ManualClock, SeededRng

SERVE = ("--http", "127.0.0.1:0")


@pytest.fixture(scope="module")
def filled(shared_path: Path) -> Path:
    directory = shared_path / "filled"
    script = shared_path / "fill.storeql"
    script.write_text(
        "DEFINE NAMESPACE a; USE NAMESPACE a; DEFINE DATABASE b; USE a.b; DEFINE TABLE t;"
        + "".join(f"CREATE t:{number} SET text = '{'x' * 100}';" for number in range(20))
    )
    ended = run(str(directory), "-f", str(script))
    assert (ended.returncode, ended.stderr) == (0, "")
    return directory


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "store")
    return tmp_path / "store"


def refused(*words: str, code: int, says: str) -> None:
    ended = run(*words)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    line = said(ended.stderr)
    assert line.startswith("storenode: ")
    assert says in line


def held(store: Path) -> dict[str, bytes | None]:
    return {name: content for name, content in tree(store).items() if name != "LOCK"}


def test_usage(tmp_path: Path) -> None:
    refused(str(tmp_path / "store"), "--nonsense", code=2, says="unknown flag --nonsense")
    refused("restore", str(tmp_path / "store"), code=2, says="restore: the following arguments")
    assert tree(tmp_path) == {}


def test_taken_port(tmp_path: Path, store: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        before = tree(store)
        refused(str(tmp_path / "new"), "--http", taken, code=1, says=f"{taken}: the port is in use")
        refused(str(store), "--serve", taken, code=1, says=f"{taken}: the port is in use")
    assert tree(store) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("flags", "hosts"),
    [
        (("--http", "--serve"), ("127.0.0.1", "localhost")),
        (("--serve", "--peer"), ("0.0.0.0", "127.0.0.1")),
    ],
)
def test_addresses_that_overlap(
    tmp_path: Path, flags: tuple[str, str], hosts: tuple[str, str]
) -> None:
    with socket.socket() as other:  # its port is free, and nobody else's meanwhile
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        one, another = (f"{host}:{other.getsockname()[1]}" for host in hosts)
        says = f"{flags[0]} contradicts {flags[1]}: {one} and {another} overlap"
        words = (flags[0], one, flags[1], another)
        refused(str(tmp_path / "new"), *words, code=1, says=says)
    assert tree(tmp_path) == {}


def test_address_of_another_machine(tmp_path: Path) -> None:
    says = "192.0.2.1:80: the address does not belong to this machine"
    refused(str(tmp_path / "new"), "--http", "192.0.2.1:80", code=1, says=says)
    assert tree(tmp_path) == {}


def test_directory_that_is_no_store(tmp_path: Path) -> None:
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "holiday.jpg").write_bytes(b"x")
    file = tmp_path / "file"
    file.write_bytes(b"x")
    before = tree(tmp_path)
    refused(str(foreign), *SERVE, code=1, says=f"{foreign} is not a store and holds 'holiday.jpg'")
    refused(str(file), "--health", code=1, says=f"{file} is not a directory")
    refused(str(file / "below"), *SERVE, code=1, says=str(file))
    assert tree(tmp_path) == before


def test_health_makes_no_store(tmp_path: Path) -> None:
    refused(str(tmp_path / "none"), "--health", code=1, says="none does not exist")
    (tmp_path / "empty").mkdir()
    refused(str(tmp_path / "empty"), "--health", code=1, says="empty holds no store")
    assert tree(tmp_path) == {"empty": None}


def test_unreadable_directory(store: Path) -> None:
    # Root reads everything, unless it gives that up.
    bare = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()
    streams: dict[str, Any] = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    store.chmod(0)
    try:
        both = [
            begin(str(store), *form, more={}, under=bare, cold=True, **streams)
            for form in (SERVE, ("--health",))
        ]
        for ended in both:
            with ended:
                line = said(ended.communicate(timeout=60)[1])
            assert ended.returncode == 1
            assert line.startswith(f"storenode: {store}")
            assert "Permission denied" in line
    finally:
        store.chmod(0o700)


@pytest.mark.parametrize("form", [SERVE, ("--health",)], ids=lambda f: f[0])
def test_damaged_log(store: Path, form: tuple[str, ...]) -> None:
    segment = max((store / "log").glob("*.storelog"))
    content = bytearray(segment.read_bytes())
    at = len(content) // 2
    content[at] ^= 1
    segment.write_bytes(content)
    before = held(store)
    refused(str(store), *form, code=1, says=f"{segment} is damaged at byte ")
    assert held(store) == before


def test_newer_format(store: Path) -> None:
    facts = json.loads((store / "STORE").read_bytes().splitlines()[0])
    line = json.dumps({**facts, "format": facts["format"] + 1}, sort_keys=True).encode()
    checksum = blake2b(line, digest_size=8).hexdigest().encode()
    (store / "STORE").write_bytes(line + b"\n" + checksum + b"\n")
    before = tree(store)
    says = f"STORE has format {facts['format'] + 1}; this version reads {facts['format']}"
    refused(str(store), *SERVE, code=1, says=says)
    assert tree(store) == before


def test_certificates(tmp_path: Path) -> None:
    missing, not_pem = tmp_path / "missing", tmp_path / "not-pem"
    not_pem.touch(0o600)
    not_pem.write_text("x")
    old, key = self_signed(tmp_path, "old", datetime(2025, 3, 1, 12, tzinfo=UTC))
    before = tree(tmp_path)
    expired = (
        f"--cert: {old}: the certificate expired on 2025-03-01 12:00:00 UTC; the clock says 20"
    )
    for chain, key_given, says in (
        (missing, missing, "--cert: "),
        (not_pem, not_pem, "not a certificate in PEM"),
        (old, key, expired),
    ):
        words = ("--cert", str(chain), "--cert-key", str(key_given))
        refused(str(tmp_path / "store"), *SERVE, *words, code=1, says=says)
        assert tree(tmp_path) == before


def test_backup_folder_that_is_none(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    says = f"--backup-dir: {missing} is not a directory"
    refused(str(tmp_path / "store"), *SERVE, "--backup-dir", missing, code=1, says=says)
    assert tree(tmp_path) == {}


def test_backup_folder_in_the_data_directory(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "tmp").mkdir(parents=True)
    (tmp_path / "link").symlink_to("store/tmp")
    before = tree(tmp_path)
    for folder in (tmp_path / "link", tmp_path / "store" / ".." / "store"):
        says = f"--backup-dir: {folder} is in the data directory, {store}"
        refused(str(store), *SERVE, "--backup-dir", str(folder), code=1, says=says)
    assert tree(tmp_path) == before


def test_backup_folder_that_holds_the_data_directory(tmp_path: Path, store: Path) -> None:
    """By a name as `store/tmp/b.storesnap` a backup would be where the store removes its own."""
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    before = held(store)
    for folder in (tmp_path.parent, tmp_path / "link"):
        for directory in (store, tmp_path / "new"):
            says = f"--backup-dir: {folder} holds the data directory, {directory}"
            refused(str(directory), *SERVE, "--backup-dir", str(folder), code=1, says=says)
    assert held(store) == before and not (tmp_path / "new").exists()


def test_short_first_password_is_not_shown(tmp_path: Path) -> None:
    ended = run(str(tmp_path / "store"), *SERVE, STORE_USER="ana", STORE_PASSWORD="canary")
    assert ended.returncode == 2
    assert "canary" not in ended.stderr
    assert tree(tmp_path) == {}


def test_a_store_without_users_wants_a_whole_first_owner(store: Path) -> None:
    """Its file of what it is does not say whether it has users."""
    for user, password, says in (
        ("ana", "", "a password has 8"),
        ("", "12345678", "invalid user name"),
    ):
        ended = run(str(store), *SERVE, STORE_USER=user, STORE_PASSWORD=password)
        assert ended.returncode == 1
        assert says in json.loads(ended.stderr.splitlines()[-1])["event"]
    with serving(store, STORE_USER="ana") as node:
        body = {"user": "ana", "password": PASSWORD}
        assert node.request("POST", "/session", body, user=None).status == 200


def test_what_ends_a_node_by_surprise_is_told_as_all_it_says(tmp_path: Path) -> None:
    """As one object of JSON with the trace, where programs read it; and as the interpreter shows
    it otherwise."""
    planted = (
        "import sys\nfrom surfaces.command import main\n"
        "def bug(*_):\n    raise RuntimeError('planted')\n"
        "main._run = bug\nsys.exit(main.main(sys.argv[1:]))"
    )

    def ended(*words: str) -> str:
        found = subprocess.run(
            [sys.executable, "-c", planted, str(tmp_path / "store"), *words],
            env=environment(), capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert found.returncode == 1
        return found.stderr

    (line,) = ended(*SERVE).splitlines()
    told = json.loads(line)
    assert told["level"] == "critical"
    assert "in bug" in told["event"] and "RuntimeError: planted" in told["event"]
    assert ended("--health").endswith("RuntimeError: planted\n")


def test_honest_start_on_the_same_store(store: Path) -> None:
    """The rig's own check: without the fault each test plants, the store opens."""
    with serving(store) as node:
        assert node.stop() == 0


def test_a_clock_far_ahead_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    """A store that was made, and written to last, as it says, two years ago."""
    directory, script = tmp_path / "store", tmp_path / "s"
    script.write_text("DEFINE NAMESPACE a; RETURN time::now()")
    clock = ManualClock(SystemClock().wall_us() - 2 * 366 * 86_400_000_000)
    StoreDirectory.open(str(directory), Disk(), clock, SeededRng(1), create=True).close()
    for form in (SERVE, ("-f", str(script))):
        refused(
            str(directory),
            *form,
            code=1,
            says="or start with --accept-clock-jump if the clock is right",
        )
    health = run(str(directory), "--health")
    assert (health.returncode, health.stderr) == (0, ""), "it only looks"
    ran = run(str(directory), "-f", str(script), "--accept-clock-jump")
    assert ran.returncode == 0, ran.stderr
    assert run(str(directory), "--health").returncode == 0
    with serving(directory) as node:  # the log has caught up
        assert "a jump of the clock was accepted" not in node.events()


def test_a_directory_open_to_others_is_closed_and_said(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir(mode=0o755)
    with serving(directory) as node:
        assert (
            "the data directory was open to other users: its access was restricted" in node.events()
        )
    assert directory.stat().st_mode & 0o777 == 0o700
