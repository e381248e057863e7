"""A sealed store on a real node."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from storage.files.metadata_file import read_facts, write_facts
from storage.formats.sealing import FRAME_SEAL_BYTES, FrameSealer, Sealer
from tests.nodes import Running, running
from tests.processes import NodeProcess, StartFailed, run, said, tree
from tests.storage.backups.held import KEY
from tests.sweeps import some_of

CANARY = b"canary"
WORK = """
DEFINE NAMESPACE canaryspace COMMENT 'canary'; DEFINE DATABASE canaryspace.main;
USE canaryspace.main;
DEFINE TABLE canarytable COMMENT 'canary'; DEFINE FIELD canaryfield ON canarytable TYPE string;
DEFINE INDEX canaryindex ON canarytable FIELDS canaryfield;
CREATE canarytable:canaryid SET canaryfield = 'canary value';
UPDATE canarytable:canaryid SET canaryfield = 'canary again';
DEFINE ANALYZER canaryanalyzer TOKENIZERS class FILTERS stop(['canary']) COMMENT 'canary';
DEFINE FUNCTION canaryfunction($canary: int) -> int { $canary + 1 };
DEFINE TOPIC canarytopic DEDUP 1h; DEFINE TOPIC canarydead;
PUBLISH INTO canarytopic VALUE { canary: 1 } KEY 'canary' ID 'canary' HEADERS { canary: 'c' };
PUBLISH INTO canarytopic VALUES ['canary', 'canary 2'];
DEFINE READER canaryreader ON canarytopic;
DEFINE GROUP canarygroup ON canarytopic DEADLINE 30s DEAD LETTER canarydead;
TAKE 1 FROM canarytopic AS canarygroup;
DEFINE SPACE canarykeys; SET 'canary' IN canarykeys VALUE 'canary' EXPIRE 1h;
INCR 'canarycount' IN canarykeys; LOCK 'canarylock' IN canarykeys HOLDER 'canary' EXPIRE 1h;
DEFINE USER canaryuser ROLE member PASSWORD 'canary password' COMMENT 'canary';
GRANT READ ON DATABASE canaryspace.main TO canaryuser;
"""


def seen(folder: Path) -> dict[str, bytes]:
    """All files below a folder, and those that this process has open there without a name."""
    found = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for descriptor in os.listdir("/proc/self/fd"):
        link = f"/proc/self/fd/{descriptor}"
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)) and target.endswith("(deleted)"):
            with open(link, "rb") as file:
                found[target] = file.read()
    return found


def leaks(folder: Path) -> list[str]:
    """Files that show something of the store: its names, its values, its language."""
    words = (CANARY, b"DEFINE", b"CREATE", b"argon2id", b"roles", b"username")
    return sorted(
        path
        for path, content in seen(folder).items()
        if any(word in content or word in path.encode() for word in words)
    )


@dataclass
class Sweep:
    """A node, and what is done with it."""

    folder: Path

    def __post_init__(self) -> None:
        self.store, self.backups = self.folder / "store", self.folder / "backups"
        self.backups.mkdir()
        self.swept = 0

    @property
    def settings(self) -> dict[str, Any]:
        keys = {"key": KEY, "opening_keys": (KEY,)}
        return {**keys, "backup_dir": str(self.backups)}

    def sweep(self, found: set[str]) -> None:
        """Look at every file now."""
        self.swept += len(seen(self.folder))
        found |= set(leaks(self.folder))

    async def work(self, node: Running, found: set[str]) -> None:
        """Some of everything that a store holds, looked at in between."""
        answer = await node.answer(WORK, reason="the canary sings")
        assert answer.refusal is None, answer.refusal
        self.sweep(found)
        refused = await node.answer("CREATE canaryspace:1")
        assert refused.refusal is not None
        endpoints = "DEFINE NODE ENDPOINTS 'canary.example:8001'"
        assert (await node.answer(endpoints)).refusal is None
        await node.values("BACKUP TO 'snapshot'")
        await node.values("BACKUP LOG TO 'log'")
        await node.values("BACKUP SCRIPT OF canaryspace.main TO 'script'")
        kept = await node.answer("BACKUP SCRIPT", hands_over=("SCRIPT",))
        assert kept.file is not None
        self.sweep(found)
        kept.file.close()
        await node.values("INFO FOR BACKUPS")
        await node.values("DROP DATABASE canaryspace.main; RESTORE SCRIPT FROM 'script'")
        self.sweep(found)


async def swept(folder: Path) -> tuple[set[str], int]:
    """Which files of a sealed store showed something, over several lives; and how many were looked
    at."""
    sweep, found = Sweep(folder), set[str]()
    async with running(sweep.store, settings=sweep.settings) as node:
        await sweep.work(node, found)
    sweep.sweep(found)
    async with running(sweep.store, settings=sweep.settings) as node:
        texts = await node.values("INFO FOR STATEMENTS")
        assert "canary" in str(texts), "the statement log has it"
    sweep.sweep(found)
    return found, sweep.swept


async def test_no_file_shows_anything(tmp_path: Path, figure: Any) -> None:
    found, count = await swept(tmp_path)
    assert not found
    figure("sealed store: files swept for canaries", f"{count}, 0 show any")


def _frames_in_clear(patched: pytest.MonkeyPatch) -> None:
    seals = FrameSealer.seal

    def seal(self: FrameSealer, data: bytes, beside: bytes) -> bytes:
        count = seals(self, data, beside)[:8]
        return count + data + bytes(FRAME_SEAL_BYTES - 8)

    def opened(self: FrameSealer, data: bytes, beside: bytes) -> tuple[int, bytes]:
        return int.from_bytes(data[:8], "big"), data[8 : 8 - FRAME_SEAL_BYTES]

    patched.setattr(FrameSealer, "seal", seal)
    patched.setattr(FrameSealer, "open", opened)


def _chunks_in_clear(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(Sealer, "seal", lambda self, number, last, data, beside: data + bytes(16))
    patched.setattr(Sealer, "open", lambda self, number, last, data, beside: data[:-16])


def _facts_in_clear(patched: pytest.MonkeyPatch) -> None:
    writes, reads = write_facts, read_facts
    patched.setattr("storage.files.directory.write_facts", lambda *told: writes(*told[:4]))
    patched.setattr("storage.files.directory.read_facts", lambda fs, path, *_more: reads(fs, path))


@pytest.mark.parametrize("leak", [_frames_in_clear, _chunks_in_clear, _facts_in_clear])
async def test_what_is_in_clear_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leak: Any
) -> None:
    leak(monkeypatch)
    found, _ = await swept(tmp_path)
    assert found


# --- processes ------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    paths = {name: str(tmp_path / name) for name in ("key", "other")}
    for path in paths.values():
        assert run("--make-key", path).returncode == 0
    return paths


def serve(store: Path, *words: str) -> NodeProcess:
    return NodeProcess(store, ("--http", "127.0.0.1:0", *words))


def test_what_was_acknowledged_is_there_after_any_end(tmp_path: Path, keys: dict[str, str]) -> None:
    store, count = tmp_path / "store", 0
    words = ("--key-file", keys["key"])
    for life in range(4):
        node = serve(store, *words).start()
        try:
            if life == 0:
                node.script("DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t")
            answer = node.script("SELECT VALUE count() FROM t GROUP ALL", ns="n", db="d")
            assert sum(answer["results"][0]["value"]) == count
            for _ in range(20):
                node.script(f"CREATE t:{count}", ns="n", db="d")
                count += 1
        finally:
            node.stop() if life % 2 else node.kill()
    assert not leaks(store)
    health = run(str(store), "--health", *words)
    assert health.returncode == 0, health.stderr


@pytest.mark.parametrize("every", some_of([False, True], 2))
def test_a_store_is_opened_with_its_key_alone(
    tmp_path: Path, keys: dict[str, str], every: bool
) -> None:
    """:param every: by every command, and not each by another"""
    sealed, plain, fill = tmp_path / "sealed", tmp_path / "plain", tmp_path / "fill"
    fill.write_text("DEFINE NAMESPACE n;")
    assert run(str(sealed), "-f", str(fill), "--key-file", keys["key"]).returncode == 0
    assert run(str(plain), "-f", str(fill)).returncode == 0
    refusals = (
        (sealed, (), "WrongKey: "),
        (sealed, ("--key-file", keys["other"]), "WrongKey: "),
        (plain, ("--key-file", keys["key"]), "is not sealed"),
    )
    commands = (("--http", "127.0.0.1:0"), ("--health",), ("-f", str(fill)))
    for number, (store, words, says) in enumerate(refusals):
        before = _held(store)
        for form in commands if every else commands[number : number + 1]:
            ended = run(str(store), *form, *words)
            assert ended.returncode == 1
            assert says in said(ended.stderr), ended.stderr
        assert _held(store) == before
    assert run(str(sealed), "--health", STORE_KEY_FILE=keys["key"]).returncode == 0


def _held(store: Path) -> dict[str, bytes | None]:
    return {name: content for name, content in tree(store).items() if name != "LOCK"}


def test_no_password_is_kept_in_a_file(tmp_path: Path, keys: dict[str, str]) -> None:
    node = serve(tmp_path / "store", "--key-file", keys["key"])
    node.more = {"STORE_USER": "", "STORE_PASSWORD": ""}
    with pytest.raises(StartFailed, match="a sealed store writes no password to a file"):
        node.start()
    assert not list(tmp_path.rglob("FIRST-PASSWORD"))


def test_a_state_that_is_damaged_is_made_anew_from_the_log(
    tmp_path: Path, keys: dict[str, str]
) -> None:
    store, words = tmp_path / "store", ("--key-file", keys["key"])
    node = serve(store, *words).start()
    node.script("DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t; CREATE t:1")
    assert node.stop() == 0
    image = store / "state" / "IMAGE"
    data = bytearray(image.read_bytes())
    data[len(data) // 2] ^= 1
    image.write_bytes(data)
    node = serve(store, *words).start()
    try:
        answer = node.script("SELECT * FROM t", ns="n", db="d")
        assert len(answer["results"][0]["value"]) == 1
        assert "the state is made anew from the log" in node.events()
    finally:
        assert node.stop() == 0
    assert run(str(store), "--health", *words).returncode == 0


def _hash(store: Path, *words: str) -> str:
    health = run(str(store), "--health", *words)
    assert health.returncode == 0, health.stderr
    return health.stdout.rpartition("state ")[2]


@pytest.mark.hard
@pytest.mark.parametrize(
    "form", [(), pytest.param(("--from", "1"), marks=pytest.mark.hard)], ids=["snapshot", "log"]
)
def test_from_plain_to_sealed_and_back_and_to_another_key(
    tmp_path: Path, keys: dict[str, str], form: tuple[str, ...]
) -> None:
    """The same state each time, by the commands alone."""
    fill = tmp_path / "fill"
    fill.write_text(
        "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t;"
        "DEFINE INDEX i ON t FIELDS text; CREATE t:1 SET text = 'canary'; CREATE t:2 SET text = 'b'"
    )
    plain, sealed, other, again = (tmp_path / name for name in ("plain", "sealed", "new", "again"))
    assert run(str(plain), "-f", str(fill)).returncode == 0
    own, new = ("--key-file", keys["key"]), ("--key-file", keys["other"])
    old = ("--backup-key-file", keys["key"])
    files = [str(tmp_path / f"backup-{number}") for number in range(2)]
    assert run(str(plain), "--backup", files[0], *form).returncode == 0
    made = run(str(sealed), "--restore", files[0], *own)
    assert made.returncode == 0, made.stderr
    assert "origin not proven" in made.stdout
    assert run(str(sealed), "--backup", files[1], *form, *own).returncode == 0
    assert CANARY not in Path(files[1]).read_bytes()
    for words in ((), new):
        refused = run(str(again), "--restore", files[1], *words)
        assert refused.returncode == 1
        assert "WrongKey: " in refused.stderr
        assert not again.exists()
        assert "WrongKey: " in run("--verify", files[1], *words).stderr
    assert run("--verify", files[1], *old).returncode == 0
    made = run(str(other), "--restore", files[1], *new, *old)
    assert made.returncode == 0, made.stderr
    assert "origin not proven" not in made.stdout
    assert run(str(again), "--restore", files[1], *old).returncode == 0
    hashes = {_hash(sealed, *own), _hash(other, *new), _hash(again)}
    assert hashes == {_hash(plain)}
    assert not leaks(sealed) + leaks(other)
