"""`--backup`, `--verify` and `--restore`: real files of real stores, made by every way."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from storeclient import Client, Position, errors
from tests.actors.backups.scripts import EVERYTHING, statements
from tests.processes import PASSWORD, USER, NodeProcess, run, serving, tree
from tests.sweeps import some_of

IN_FLIGHT = """
    USE shop.main; TAKE 2 FROM plain AS g MEMBER 'w';
    PUBLISH INTO news VALUE 'late'; LET $got = TAKE 1 FROM news AS h;
    NACK news AS h RECEIPTS [$got[0].receipt] DELAY 30d ERROR 'later';
    UPDATE `select`:1 SET age = 3; DELETE person:1
"""
RESTORED = re.compile(
    r"restored (?P<place>\S+ of )?store (?P<of>\S+) up to sequence (?P<sequence>\d+),"
    r" \w+: \d+, state (?P<hash>[0-9a-f]{64})\n"
    r"it is now store (?P<store>\S+), and its log begins at (?P<begins>\d+)\n"
)
HEALTH = re.compile(r"well: sequence (\d+), log from (\d+), state ([0-9a-f]{64})\n")


def did(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
    done = run(*map(str, words), **more)
    assert done.returncode == 0, done.stderr
    return done


def restored(directory: Path, file: Path, *words: str) -> re.Match[str]:
    """What a restore says of what it made."""
    said = did(directory, "--restore", file, *words).stdout
    found = RESTORED.match(said)
    assert found is not None, said
    return found


def health(directory: Path) -> tuple[str, str, str]:
    """Sequence, beginning of the log, hash."""
    found = HEALTH.fullmatch(did(directory, "--health").stdout)
    assert found is not None
    sequence, begins, state = found.groups()
    return sequence, begins, state


@dataclass
class Story:
    """A store with everything in it, and backups of it by every way."""

    here: Path
    snapshots: dict[str, Path] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)
    scripts: dict[str, Path] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.here / "store"

    def file(self, name: str) -> Path:
        return self.here / name

    def write(self) -> None:
        """Make the store, back it up while it serves, and again when it does not."""
        folder = self.file("folder")
        folder.mkdir()
        words = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0", "--backup-dir", str(folder))
        node = NodeProcess(self.store, words).start()
        try:
            for script in (EVERYTHING, IN_FLIGHT):
                answer = node.script(script)
                assert "error" not in answer, answer["error"]
            self._by_statement(node, folder)
            self._by_route(node)
            self.snapshots["wire"] = self.file("wire.storesnap")
            at = node.at("wire")
            did("--at", at, "--backup", self.snapshots["wire"], "--user", USER)
            assert node.stop() == 0
        finally:
            node.end()
        self._alone()

    def _by_statement(self, node: NodeProcess, folder: Path) -> None:
        for name, ways, text in (
            ("a.storesnap", self.snapshots, "BACKUP TO 'a.storesnap'"),
            ("a.storelog", self.logs, "BACKUP LOG TO 'a.storelog'"),
            ("a.storeql", self.scripts, "BACKUP SCRIPT TO 'a.storeql'"),
        ):
            assert "error" not in node.script(text)
            ways["statement"] = folder / name

    def _by_route(self, node: NodeProcess) -> None:
        for path, ways in (
            ("/backup", self.snapshots),
            ("/backup?as=log&from=1", self.logs),
            ("/backup?as=script", self.scripts),
        ):
            ways["route"] = file = self.file(f"route{len(ways)}{path[-3:]}")
            reply = node.request("GET", path)
            assert reply.status == 200
            file.write_bytes(reply.body)

    def _alone(self) -> None:
        before = health(self.store)
        for ways, name, words in (
            (self.snapshots, "alone.storesnap", ("--backup",)),
            (self.logs, "alone.storelog", ("--from=1", "--backup")),
            (self.scripts, "alone.storeql", ("--dump",)),
        ):
            ways["alone"] = self.file(name)
            did(self.store, *words, ways["alone"])
        assert health(self.store) == before, "a command that only looks has changed something"

    @property
    def log(self) -> Path:
        return self.logs["alone"]


@pytest.fixture(scope="module")
def story(shared_path: Path) -> Story:
    made = Story(Path(mkdtemp(prefix="backups-", dir=shared_path)))
    made.write()
    return made


WAYS = pytest.mark.parametrize("way", some_of(["wire", "statement", "alone", "route"], 2))


@pytest.mark.parametrize("way", some_of(["wire", "statement", "alone", "route"], 4))
def test_a_snapshot_is_the_state_that_its_log_makes(story: Story, tmp_path: Path, way: str) -> None:
    made = restored(tmp_path / "a", story.snapshots[way])
    upto = made["sequence"]
    again = restored(tmp_path / "b", story.log, "--upto", upto)
    assert again["hash"] == made["hash"] and again["sequence"] == upto
    assert health(tmp_path / "a") == (upto, str(int(upto) + 1), made["hash"])
    assert health(tmp_path / "b") == (upto, "1", made["hash"])
    assert len({made["store"], again["store"], made["of"]}) == 3
    # And the rest of the log on top of it.
    whole = restored(tmp_path / "a", story.log)
    assert (*health(story.store)[::2],) == (whole["sequence"], whole["hash"])
    assert whole["store"] == made["store"]


@pytest.mark.parametrize("way", some_of(["statement", "route", "alone"], 3))
def test_a_log_makes_the_store(story: Story, tmp_path: Path, way: str) -> None:
    made = restored(tmp_path / "a", story.logs[way])
    upto = made["sequence"]
    assert health(tmp_path / "a") == (upto, "1", made["hash"])
    assert made["hash"] == restored(tmp_path / "b", story.log, "--upto", upto)["hash"]


@pytest.mark.parametrize("way", some_of(["route", "statement", "alone"], 3))
def test_a_script_makes_what_makes_the_same_script(story: Story, tmp_path: Path, way: str) -> None:
    """Its records, that is: it is another store, with ids and times of its own."""
    file, again = story.scripts[way], tmp_path / "again.storeql"
    did(tmp_path / "a", "--restore", file)
    did(tmp_path / "a", "--dump", again)
    assert _still(statements(again.read_bytes())) == _still(statements(file.read_bytes()))


def _still(text: str) -> str:
    """A script without the times at which its messages may be taken."""
    return re.sub(r" (DELAY|KEEP|EXPIRE AT) [^;\s]+", "", text)


@WAYS
def test_what_verify_says_of_a_snapshot(story: Story, way: str) -> None:
    file = story.snapshots[way]
    [line] = did("--verify", file).stdout.splitlines()
    facts = dict(pair.split("=", 1) for pair in line.split())
    assert facts.keys() == {
        "form", "version", "store", "taken", "sequence", "records", "places", "sealed", "result",
    }  # fmt: skip
    assert (facts["form"], facts["sealed"], facts["places"]) == ("snapshot", "no", "all")
    assert facts["result"] == "whole" and int(facts["records"]) > 5


def test_what_is_not_whole(story: Story, tmp_path: Path) -> None:
    """It is said where it ends, and refused before anything is written."""
    for file in (story.snapshots["alone"], story.log):
        whole = file.read_bytes()
        for data, result in (
            (whole[: len(whole) // 2], "cut"),
            (whole[:-200] + bytes((whole[-200] ^ 1,)) + whole[-199:], "corrupt"),
        ):
            bad = tmp_path / "bad"
            bad.write_bytes(data)
            said = run("--verify", str(bad))
            assert said.returncode == 1
            assert f" result={result} at=" in said.stdout and str(bad) in said.stderr
            done = run(str(tmp_path / "new"), "--restore", str(bad))
            assert done.returncode == 1 and not (tmp_path / "new").exists()
            assert len(done.stderr.splitlines()) <= 2, done.stderr


def test_a_cut_log_is_restored_as_far_as_it_is_whole(story: Story, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    whole = story.log.read_bytes()
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    said = run(str(tmp_path / "new"), "--restore", str(cut)).stderr
    upto = re.search(r"with --upto (\d+)", said)
    assert upto is not None, said
    made = restored(tmp_path / "new", cut, "--upto", upto[1])
    assert made["hash"] == restored(tmp_path / "b", story.log, "--upto", upto[1])["hash"]


@pytest.mark.hard
def test_what_does_not_go_where_it_is_to(story: Story, tmp_path: Path) -> None:
    snapshot, tail = story.snapshots["statement"], tmp_path / "tail.storelog"
    did(story.store, "--backup", tail, "--from", int(health(story.store)[0]) - 1)
    held = tmp_path / "held"
    held.mkdir()
    (held / "mine").write_text("mine")
    other = tmp_path / "other"
    did(other, "-f", _script(tmp_path))
    early = tmp_path / "early"
    restored(early, story.log, "--upto", "5")
    for directory, file, words, says in (
        (held, snapshot, (), "holds 'mine'"),
        (story.store, snapshot, (), "holds a store"),
        (other, story.log, (), "holds a store"),
        (early, snapshot, (), "holds a store"),
        (early, tail, (), "the commits between them are missing"),
        (early, story.log, ("--upto", "4"), "ends before sequence 5"),
        (tmp_path / "new", tail, (), "holds nothing from before that"),
        (tmp_path / "new", snapshot, ("--upto", "4"), "--upto, which is for logs"),
        (tmp_path / "new", story.log, ("--upto", "99999"), "is beyond the end of the log"),
        (
            tmp_path / "new",
            story.scripts["alone"],
            ("--reading",),
            "for its statements are run one by one",
        ),
        (tmp_path / "new", tmp_path / "none", (), "No such file or directory"),
        (tmp_path / "new", _script(tmp_path), (), "signature of a backup"),
    ):
        before = tree(directory)
        done = run(str(directory), "--restore", str(file), *words)
        assert done.returncode == 1 and says in done.stderr, (says, done.stderr)
        assert _but_lock(tree(directory)) == _but_lock(before), says


def test_a_log_alone_is_no_backup_and_a_store_with_its_name_beside_it(
    story: Story, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(story.store / "log", copy / "log")
    segment = min((copy / "log").glob("*.storelog"))
    for path, what in ((segment, "a segment of a store's log"), (segment.parent, "a directory")):
        for words in (("--verify",), (str(tmp_path / "new"), "--restore")):
            done = run(*words, str(path))
            assert done.returncode == 1 and f"is {what}, not a backup: " in done.stderr
            assert "copy log/ and STORE of its data directory" in done.stderr
            assert done.stderr.count("\n") == 1 and not (tmp_path / "new").exists()
    done = run(str(copy), "--health")
    assert done.returncode == 1 and "holds data but no file STORE" in done.stderr
    shutil.copy(story.store / "STORE", copy)
    assert health(copy) == health(story.store)


def _but_lock(found: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: data for name, data in found.items() if name != "LOCK"}


def _script(folder: Path) -> Path:
    path = folder / "fill"
    path.write_text("DEFINE NAMESPACE a")
    return path


def test_nothing_is_left_of_a_backup_that_is_refused(story: Story, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for words, says in (
        (("--backup", str(taken)), "exists; choose another name"),
        (("--backup", str(tmp_path / "no" / "x")), "No such file or directory"),
        (("--backup", str(tmp_path / "x"), "--from", "99999"), "the log ends at"),
    ):
        done = run(str(story.store), *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert says in done.stderr, done.stderr
    assert tree(tmp_path) == {"taken": b"mine"}


def test_a_pruned_log_is_refused_and_a_snapshot_is_whole(tmp_path: Path) -> None:
    store = tmp_path / "store"
    restored_from = tmp_path / "first.storesnap"
    did(store, "-f", _script(tmp_path))
    did(store, "--backup", restored_from)
    again = tmp_path / "again"
    restored(again, restored_from)
    begins = health(again)[1]
    done = run(str(again), "--backup", str(tmp_path / "x"), "--from", "1")
    assert done.returncode == 1
    assert f"LogPruned: sequence 1 is no longer in the log: it begins at {begins}" in done.stderr
    assert not (tmp_path / "x").exists()
    did(again, "--backup", tmp_path / "x")
    did("--verify", tmp_path / "x")


def test_a_store_whose_log_is_damaged_is_copied_only_where_that_is_meant(
    story: Story, tmp_path: Path
) -> None:
    store, file = tmp_path / "store", tmp_path / "x"
    restored(store, story.log)
    with serving(store, "--http", "127.0.0.1:0"):
        pass  # its first commit begins another segment
    older, _ = sorted((store / "log").glob("*.storelog"))
    content = bytearray(older.read_bytes())
    content[len(content) // 2] ^= 1
    older.write_bytes(content)
    why = f"{older} is damaged at byte "
    for words in ("--health", f"--backup {file}", f"--backup {file} --from 1", f"--dump {file}"):
        done = run(str(store), *words.split())
        assert (done.returncode, done.stdout) == (1, "") and why in done.stderr, done.stderr
        assert not file.exists()
    assert why in did(store, "--dump", tmp_path / "script", "--despite-damage").stderr
    did("--verify", tmp_path / "script")
    done = did(store, "--backup", file, "--despite-damage")
    assert why in done.stderr and "writing the backup" in done.stderr
    size = file.stat().st_size
    assert f"writing the backup, bytes: {size} of {size}" in done.stderr
    assert re.findall(r"writing the backup, bytes: [0-9]+ of ", done.stderr) == [
        f"writing the backup, bytes: {size} of "
    ]
    did("--verify", file)


# --- sealed ---------------------------------------------------------------------------------------


@pytest.mark.hard
def test_a_sealed_backup_opens_with_its_key_alone(story: Story, tmp_path: Path) -> None:
    """Each form, of a store that is sealed; one with another key is made of it."""
    key, other = tmp_path / "key", tmp_path / "other"
    did("--make-key", key)
    did("--make-key", other)
    sealed = tmp_path / "sealed"
    plain = restored(sealed, story.log, "--key-file", str(key))["hash"]
    for form, words in (
        ("snapshot", ("--backup",)),
        ("log", ("--from=1", "--backup")),
        ("script", ("--dump",)),
    ):
        file = tmp_path / form
        did(sealed, *words, file, "--key-file", key)
        assert b"canary-bakery" not in file.read_bytes()
        new = tmp_path / f"new-{form}"
        for wrong in ((), ("--key-file", str(other)), ("--backup-key-file", str(other))):
            for asked in (("--verify", str(file)), (str(new), "--restore", str(file))):
                done = run(*asked, *wrong)
                assert done.returncode == 1 and "WrongKey" in done.stderr, done.stderr
        assert not new.exists()
        assert " sealed=yes result=whole" in did("--verify", file, "--key-file", key).stdout
        keys = ("--backup-key-file", str(key), "--key-file", str(other))
        if form == "script":
            did(new, "--restore", file, *keys)
            continue
        assert restored(new, file, *keys)["hash"] == plain
        cut = tmp_path / "cut"
        for size in (20, 60, file.stat().st_size - 10):
            cut.write_bytes(file.read_bytes()[:size])
            done = run("--verify", str(cut), "--key-file", str(key))
            assert done.returncode == 1 and "result=cut at=" in done.stdout


# --- another history ------------------------------------------------------------------------------


def test_who_comes_back_to_a_restored_store_is_told(tmp_path: Path) -> None:
    """A worker with its receipt, the holder of a lock, a reader with a position."""
    words = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0")
    place = {"ns": "n", "db": "d"}
    node = NodeProcess(tmp_path / "old", words).start()
    try:
        made = node.script(
            "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t; DEFINE SPACE s;"
            "DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 1s; PUBLISH INTO q VALUES ['a', 'b'];"
            "CREATE t:1 SET v = 1"
        )
        upto = str(made["seq"])
        receipt = _last(node, "TAKE 1 FROM q AS g", place)[0]["receipt"]
        lock = _last(node, "LOCK 'k' IN s HOLDER 'me' EXPIRE 1h", place)
        position = node.script("CREATE t:2 SET v = 2", **place)
        assert node.stop() == 0
    finally:
        node.end()
    log = tmp_path / "all.storelog"
    did(tmp_path / "old", "--backup", log, "--from", "1")
    restored(tmp_path / "new", log, "--upto", upto)
    node = NodeProcess(tmp_path / "new", words).start()
    try:
        # Up to where the old one was, with other commits.
        while (answer := node.script("CREATE t SET v = 0", **place))["seq"] <= position["seq"]:
            pass
        assert answer["epoch"] == position["epoch"] + 1 and answer["store"] != position["store"]
        assert _last(node, "TAKE 1 FROM q AS g", place)[0]["receipt"] != receipt
        stale = _last(node, f"ACK q AS g RECEIPTS ['{receipt}']", place)
        assert stale == {"acked": 0, "stale": 1, "stale_receipts": [receipt]}
        taken = _last(node, "LOCK 'k' IN s HOLDER 'you' EXPIRE 1h", place)
        assert taken["held"] and taken["fence"] > lock["fence"]
        assert not _last(node, "LOCK 'k' IN s HOLDER 'me' EXPIRE 1h", place)["held"]
        for store in (position["store"], answer["store"]):
            there = Position(position["seq"], store, position["epoch"])
            with Client(node.at("wire"), user=USER, password=PASSWORD) as client:
                changes = iter(client.database("n", "d").watch("t", there))
                with pytest.raises(errors.Diverged):
                    next(changes)
    finally:
        node.end()


def _last(node: NodeProcess, text: str, place: dict[str, str]) -> Any:
    answer = node.script(text, **place)
    assert "error" not in answer, answer
    return answer["results"][-1]["value"]


# --- time -----------------------------------------------------------------------------------------


def test_what_only_reads_keeps_what_time_has_brought(tmp_path: Path) -> None:
    fill = tmp_path / "fill"
    fill.write_text(
        "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE SPACE s; DEFINE TOPIC q KEEP 2s;"
        "DEFINE GROUP g ON q DEADLINE 2s; PUBLISH INTO q VALUES [1, 2, 3]; TAKE 1 FROM q AS g;"
        "SET 'k' IN s VALUE 1 EXPIRE 2s;"
        f"DEFINE USER {USER} ROLE owner PASSWORD '{PASSWORD}'"
    )
    store, file = tmp_path / "store", tmp_path / "x.storesnap"
    did(store, "-f", fill)
    did(store, "--backup", file)
    due = (
        "once it is writable, the time that has passed takes effect:\n",
        "n.d.s: expired keys are removed: 1\n",
        "n.d.q: messages older than it keeps are removed: 3",
        "it is read-only until DEFINE NODE ROLES serving, writable\n",
    )
    for number in count():
        reads = tmp_path / f"reads{number}"
        said = did(reads, "--restore", file, "--reading").stdout
        assert due[-1] in said
        if all(line in said for line in due):
            break
    first = health(reads)
    node = NodeProcess(reads, ("--http", "127.0.0.1:0")).start()
    try:
        info = node.script("INFO FOR STATE")["results"][0]["value"]
        assert (str(info["sequence"]), info["hash"]) == (first[0], first[2])
        refused = node.script("DEFINE NAMESPACE m")["error"]
        assert refused["code"] == "NotWritable"
        assert "error" not in node.script("DEFINE NODE ROLES serving, writable")
        while node.script("INFO FOR STATE")["results"][0]["value"]["hash"] == first[2]:
            pass
    finally:
        node.end()
