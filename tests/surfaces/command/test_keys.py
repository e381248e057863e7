"""Key files: made, named on the command line, and what they are refused for."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from storage.files.disk import Disk
from storage.formats.container import HEADER_BYTES, Header
from storage.formats.sealing import KEY_BYTES, key_of, read_key
from surfaces.command.arguments import CheckHealth, MakeKey, Serve, understand
from surfaces.command.flags import UsageRefused
from surfaces.command.keys import KeyFiles
from tests.processes import NodeProcess, run, said, tree


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = run("--make-key", str(path))
    assert (made.returncode, made.stderr) == (0, "")
    assert path.stat().st_mode & 0o777 == 0o600
    secret = base64.b64decode(path.read_text().strip(), validate=True)
    assert len(secret) == KEY_BYTES
    assert key_of(secret).id.hex() in made.stdout
    assert "without it, all data sealed with it is lost" in made.stdout
    assert path.read_text().strip() not in made.stdout
    before = tree(tmp_path)
    again = run("--make-key", str(path))
    assert (again.returncode, again.stdout) == (1, "")
    assert "exists, and is not replaced" in said(again.stderr)
    assert tree(tmp_path) == before
    other = tmp_path / "other"
    assert run("--make-key", str(other)).returncode == 0
    assert read_key(Disk(), str(other)).id != key_of(secret).id


def test_a_key_that_can_t_be_written(tmp_path: Path) -> None:
    refused = run("--make-key", str(tmp_path / "none" / "key"))
    assert refused.returncode == 1
    assert "No such file or directory" in said(refused.stderr)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("line", ["d --make-key k", "--make-key k --health", "--make-key"])
def test_a_key_is_made_by_itself(line: str) -> None:
    with pytest.raises(UsageRefused, match="--make-key"):
        understand(line.split(), {})
    assert understand(["--make-key", "k"], {"STORE_KEY_FILE": "x"}) == MakeKey("k")


def test_which_files_are_named() -> None:
    environment = {"STORE_KEY_FILE": "/env"}
    checked = understand(["d", "--health"], environment)
    assert isinstance(checked, CheckHealth)
    assert checked.opening.keys == KeyFiles("/env")
    flags = ["--key-file", "/flag", "--backup-key-file", "/other"]
    serving = understand(["d", "--http", ":1", *flags], environment)
    assert isinstance(serving, Serve)
    assert serving.opening.keys == KeyFiles("/flag", "/other")
    plain = understand(["d", "--health"], {})
    assert isinstance(plain, CheckHealth)
    assert plain.opening.keys == KeyFiles()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file or directory"),
        (b"", "holds no key"),
        (b"canary", "holds no key"),
        (base64.b64encode(bytes(31)), "holds no key"),
        (bytes(33), "holds no key"),
    ],
)
def test_what_holds_no_key_is_refused_before_anything_is_opened(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    before = tree(tmp_path)
    for flag in ("--key-file", "--backup-key-file"):
        ended = run(str(tmp_path / "store"), "--http", "127.0.0.1:0", flag, str(path))
        assert ended.returncode == 1
        line = said(ended.stderr)
        assert flag in line and str(path) in line and says in line
        assert "canary" not in ended.stderr
    assert tree(tmp_path) == before


def test_a_key_that_other_users_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    path.chmod(0o666)
    for words in (("--key-file", str(path)), ("--backup-key-file", str(path))):
        ended = run(str(tmp_path / "store"), "--health", *words)
        assert ended.returncode == 1
        assert f"{words[0]}: {path}: other users may read or write it" in said(ended.stderr)


def test_raw_bytes_are_a_key_too(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    assert read_key(Disk(), str(path)) == key_of(bytes(range(32)))
    path.write_bytes(b"  " + base64.b64encode(bytes(range(32))) + b"\r\n\n")
    assert read_key(Disk(), str(path)) == key_of(bytes(range(32)))


def test_a_node_seals_what_it_backs_up(tmp_path: Path) -> None:
    folder, path = tmp_path / "backups", tmp_path / "key"
    folder.mkdir()
    assert run("--make-key", str(path)).returncode == 0
    words = ("--http", "127.0.0.1:0", "--backup-dir", str(folder), "--key-file", str(path))
    node = NodeProcess(tmp_path / "store", words).start()
    try:
        node.script("DEFINE NAMESPACE canary; BACKUP TO 's'; BACKUP LOG FROM 1 TO 'l'")
    finally:
        assert node.stop() == 0
    for name in ("s", "l"):
        data = (folder / name).read_bytes()
        header = Header.decode(data[:HEADER_BYTES])
        assert header.sealed and header.key_id == read_key(Disk(), str(path)).id
        assert b"canary" not in data


def test_a_script_goes_from_store_to_store_sealed(tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("key", "other", "fill", "script")}
    for name in ("key", "other"):
        assert run("--make-key", paths[name]).returncode == 0
    Path(paths["fill"]).write_text(
        "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t; CREATE t:canary;"
    )
    filled = run(str(tmp_path / "from"), "-f", paths["fill"], "--key-file", paths["key"])
    assert filled.returncode == 0
    dumped = run(str(tmp_path / "from"), "--dump", paths["script"], "--key-file", paths["key"])
    assert dumped.returncode == 0, dumped.stderr
    data = Path(paths["script"]).read_bytes()
    assert Header.decode(data[:HEADER_BYTES]).sealed and b"canary" not in data
    assert f"{len(data)} bytes" in dumped.stdout
    closed = [(), ("--key-file", paths["other"])]
    for words in closed:
        refused = run(str(tmp_path / "to"), "-f", paths["script"], *words)
        assert refused.returncode == 1
        assert "WrongKey: " in said(refused.stderr)
        assert not (tmp_path / "to").exists()
    ways = [
        ("--key-file", paths["key"]),
        ("--backup-key-file", paths["key"]),
        ("--key-file", paths["other"], "--backup-key-file", paths["key"]),
    ]
    for number, words in enumerate(ways):
        ran = run(str(tmp_path / f"to{number}"), "-f", paths["script"], *words)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("ran ")
