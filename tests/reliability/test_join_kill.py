"""R23: a node joins, and is killed at any moment."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from tests.processes import NodeProcess, StartFailed, begin, run, said
from tests.reliability.rigs import killed_at_line

FILL = """
    DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t; DEFINE INDEX i ON t FIELDS v;
    FOR $at IN 0..ROWS { CREATE t SET v = $at, text = 'TEXT' };
""".replace("TEXT", "x" * 400)
JOINED = re.compile(
    r"joined store ([0-9a-f-]{36}) as node ([0-9a-f-]{36}): copied up to sequence (\d+),"
    r" records: (\d+), state ([0-9a-f]{64})"
)
ROWS = 500


class Leader:
    """A node that others join."""

    def __init__(self, folder: Path, *words: str, rows: int = ROWS) -> None:
        self.peer = f"127.0.0.1:{free_port()}"
        serves = ("--http", "127.0.0.1:0", "--peer", self.peer, *words)
        self.node = NodeProcess(folder / "leader", serves).start()
        self._rows = 0
        answer = self.node.script(FILL.replace("ROWS", str(rows)))
        assert "error" not in answer, answer

    def token(self, folder: Path) -> Path:
        """A new row, and the file with its token."""
        self._rows += 1
        name = f"n{self._rows}"
        answer = self.node.script(
            f"DEFINE REPLICA {name} PEER 'n.example:{8_000 + self._rows}'",
        )
        assert "error" not in answer, answer
        made = self.node.script(f"CREATE JOIN TOKEN FOR {name}")["results"][0]["value"]
        file = folder / f"{name}.token"
        file.write_text(f"{made['token']}\n")
        return file

    @property
    def state(self) -> tuple[int, str]:
        found = self.node.script("INFO FOR STATE")["results"][0]["value"]
        return found["sequence"], found["hash"]


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leader]:
    found = Leader(tmp_path_factory.mktemp("leads"))
    try:
        yield found
    finally:
        found.node.end()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Leader]:
    found = Leader(tmp_path)
    try:
        yield found
    finally:
        found.node.end()


def joined(directory: Path, token: Path, *words: str) -> tuple[int, str]:
    """A join that comes to its end; what it made, as `Leader.state`."""
    done = run(str(directory), "--join", str(token), *words)
    found = JOINED.search(done.stdout)
    assert done.returncode == 0 and found is not None, done.stderr
    return int(found[3]), found[5]


def state_of(directory: Path, *words: str) -> tuple[int, str]:
    """That of a store that nobody serves, likewise."""
    done = run(str(directory), "--health", *words)
    found = re.search(r"sequence (\d+), .*state ([0-9a-f]{64})", done.stdout)
    assert done.returncode == 0 and found is not None, done.stderr
    return int(found[1]), found[2]


def test_a_node_joins(tmp_path: Path, leader: Leader) -> None:
    """By itself, or where it is served then."""
    token, new = leader.token(tmp_path), tmp_path / "new"
    assert joined(new, token) == state_of(new) == leader.state
    again = run(str(new), "--join", str(token))
    assert again.returncode == 0 and "has already joined" in again.stdout
    other = leader.token(tmp_path).read_text()
    served = NodeProcess(
        tmp_path / "served", ("--http", "127.0.0.1:0"), {"STORE_JOIN_TOKEN": other}
    ).start()
    try:
        line = next(line for line in served.lines if "joined store" in line["event"])
        assert JOINED.match(line["event"])
    finally:
        served.end()


def test_a_node_that_has_joined_follows(tmp_path: Path, leader: Leader) -> None:
    """From the commit on that its copy shows, and again after it was away."""
    words = ("--http", "127.0.0.1:0", "--peer", f"127.0.0.1:{free_port()}")
    token = leader.token(tmp_path)
    node = NodeProcess(tmp_path / "new", (*words, "--join", str(token))).start()
    try:
        for value in (7_777, 8_888):
            answer = leader.node.script(f"USE n.d; CREATE t SET v = {value}")
            assert "error" not in answer
            await_equal(leader, node)
            node.stop()
            said = str(node.lines)
            assert "joined store" in said or value > 7_777
            assert "with --peer" not in said and "unclean stop" not in said
            node = NodeProcess(tmp_path / "new", words).start()
    finally:
        node.end()


def await_equal(leader: Leader, node: NodeProcess) -> None:
    """Wait until a node stands where its leader does, with the same state."""
    there = leader.state
    while True:
        found = node.script("INFO FOR STATE")["results"][0]["value"]
        if found["sequence"] >= there[0]:
            break
    if found["sequence"] == there[0]:
        assert found["hash"] == there[1]


def test_probes_are_answered_while_who_gives_the_copy_is_away(
    tmp_path: Path, mortal: Leader
) -> None:
    token, port = mortal.token(tmp_path), free_port()
    mortal.node.stop()
    words = ("--http", f"127.0.0.1:{port}", "--peer", f"127.0.0.1:{free_port()}")
    node = NodeProcess(tmp_path / "new", (*words, "--join", str(token)))
    node.spawn()
    try:
        while (found := _probed(port, "/health")) is None:
            assert node.process.poll() is None, "it has ended"
        assert (found[0], found[1]["status"]) == (200, "copying")
        ready = _probed(port, "/ready")
        assert ready is not None and (ready[0], ready[1]["reason"]) == (503, "copying")
        mortal.node.start()
        node.wait_ready()
        while (ready := _probed(port, "/ready")) is None or ready[0] != 200:
            assert node.process.poll() is None, "it has ended"
    finally:
        node.end()


def _probed(port: int, path: str) -> tuple[int, dict[str, Any]] | None:
    """The status and body of an answer; None: nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)
    except urllib.error.URLError:
        return None


def test_alone_it_follows_nobody(tmp_path: Path, leader: Leader) -> None:
    """Without --peer: it says so, and answers nobody, for it is told nothing."""
    token = leader.token(tmp_path)
    words = ("--http", "127.0.0.1:0", "--join", str(token))
    node = NodeProcess(tmp_path / "new", words).start()
    try:
        assert "the node is in a cluster but follows no node: start it with --peer" in node.events()
        assert node.script("SELECT * FROM t", ns="n", db="d")["error"]["code"] == "Busy"
    finally:
        node.end()


def test_two_join_at_once(tmp_path: Path, leader: Leader) -> None:
    tokens = [leader.token(tmp_path) for _ in range(2)]
    both = [
        begin(
            str(tmp_path / token.stem),
            "--join",
            str(token),
            more={},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for token in tokens
    ]
    told = [JOINED.search(one.communicate()[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    for found, token in zip(told, tokens, strict=True):
        assert found is not None
        assert state_of(tmp_path / token.stem) == (int(found[3]), found[5])


def test_what_is_refused(tmp_path: Path, leader: Leader) -> None:
    token, new = leader.token(tmp_path), tmp_path / "new"
    (tmp_path / "bad").write_text("nothing that opens anything")
    assert "not a join token" in said(run(str(new), "--join", str(tmp_path / "bad")).stderr)
    assert "No such file" in said(run(str(new), "--join", str(tmp_path / "none")).stderr)
    assert not new.exists()
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes").touch()
    assert "holds 'notes'" in said(run(str(full), "--join", str(token)).stderr)
    store = tmp_path / "store"
    assert run(str(store), "--restore", str(_backup(tmp_path))).returncode == 0
    assert "holds a store" in said(run(str(store), "--join", str(token)).stderr)
    assert joined(new, token)
    used = run(str(tmp_path / "late"), "--join", str(token))
    assert used.returncode == 1 and "SignInRefused" in used.stderr
    with pytest.raises(StartFailed, match="SignInRefused"):
        NodeProcess(tmp_path / "late", ("--http", "127.0.0.1:0", "--join", str(token))).start()


def _backup(folder: Path) -> Path:
    store, file = folder / "other", folder / "x.storesnap"
    (folder / "fill").write_text("DEFINE NAMESPACE n")
    assert run(str(store), "-f", str(folder / "fill")).returncode == 0
    assert run(str(store), "--backup", str(file)).returncode == 0
    return file


def test_a_sealed_store_wants_its_key(tmp_path: Path) -> None:
    """Who comes without it, or with another, has used no token up, and comes again with it."""
    key, other = tmp_path / "key", tmp_path / "other-key"
    for path in (key, other):
        assert run("--make-key", str(path)).returncode == 0
    leader = Leader(tmp_path, "--key-file", str(key), rows=50)
    try:
        new, token = tmp_path / "new", leader.token(tmp_path)
        for words in (("--key-file", str(other)), (), ("--key-file", str(other))):
            refused = run(str(new), "--join", str(token), *words)
            assert "with the key file of the other nodes" in said(refused.stderr)
        words = ("--key-file", str(key))
        assert joined(new, token, *words) == state_of(new, *words) == leader.state
    finally:
        leader.node.end()


def test_a_store_in_clear_wants_none(tmp_path: Path, leader: Leader) -> None:
    key, new, token = tmp_path / "key", tmp_path / "new", leader.token(tmp_path)
    assert run("--make-key", str(key)).returncode == 0
    refused = run(str(new), "--join", str(token), "--key-file", str(key))
    assert "join without --key-file" in said(refused.stderr)
    assert joined(new, token) == state_of(new) == leader.state


@pytest.mark.hard
def test_who_joins_is_killed(tmp_path: Path) -> None:
    """Killed whenever it says how far it is."""
    leader = Leader(tmp_path, rows=40 * ROWS)
    unfinished = compared = 0
    try:
        for lines in range(1, 60):
            new, token = tmp_path / f"new{lines}", leader.token(tmp_path)
            if not killed_at_line(lines, str(new), "--join", str(token)):
                break
            if (new / "JOINING").exists():
                unfinished += 1
                looked = run(str(new), "--health")
                assert looked.returncode == 1 and "holds an unfinished copy" in looked.stderr
                joined(new, token)
            made, there = state_of(new), leader.state
            if made[0] == there[0]:  # else somebody's coming was noted meanwhile
                assert made[1] == there[1], lines
                compared += 1
    finally:
        leader.node.end()
    assert unfinished > 10 and compared > 10


def test_the_leader_is_killed(tmp_path: Path, mortal: Leader) -> None:
    """Whoever copies waits for it, and begins anew: its copies ended with it."""
    token, new = mortal.token(tmp_path), tmp_path / "new"
    words, pipe = (str(new), "--join", str(token)), subprocess.PIPE
    joins = begin(*words, more={}, stdout=pipe, stderr=pipe)
    assert joins.stderr is not None and joins.stdout is not None
    with joins.stdout, joins.stderr as stderr:
        while b"copying the store" not in (line := stderr.readline()):
            assert line, "it ended too early"
        mortal.node.kill()
        mortal.node = NodeProcess(mortal.node.directory, mortal.node.words).start()
        told = joins.stdout.read().decode()
        rest = stderr.read().decode()
        assert joins.wait() == 0, rest
    found = JOINED.search(told)
    assert found is not None
    assert state_of(new) == (int(found[3]), found[5])
