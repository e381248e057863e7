"""Clients that write to a real node over both surfaces, and what a store may hold after it died.

Each `Writer` sends one script at a time. A script has a mark of its own, which its records and so
its frame carry, and is in one of three states: acknowledged, refused, or *open*, when no answer
came. `Promises` keeps them over any number of nodes' lives, and compares:

- every record, cache key and message is what the last acknowledged script left, or what an open one
  would have left;
- the positions of messages are dense;
- of an open script all is there, or nothing;
- an index names the records that there are;
- the log holds the mark of every acknowledged script once, of no refused one, and no mark of
  something that was never sent.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from actors.environment import SystemClock, SystemRng
from storage.files.directory import StoreDirectory
from storage.files.disk import Disk
from storage.log.log import Log
from storeclient import Client, OutcomeUnknown, Refused, StoreError
from tests.processes import PASSWORD, START_SECONDS, USER, NodeProcess, run

PLACE: Final = {"ns": "kept", "db": "kept"}
TABLES: Final = ("one", "two", "tally")
SETUP: Final = (
    "DEFINE NAMESPACE IF NOT EXISTS kept",
    "DEFINE DATABASE IF NOT EXISTS kept.kept",
    *(f"USE kept.kept; DEFINE TABLE IF NOT EXISTS {table}" for table in TABLES),
    "USE kept.kept; DEFINE SPACE IF NOT EXISTS keys",
    "USE kept.kept; DEFINE TOPIC IF NOT EXISTS news",
)
"""Each makes one commit at most."""
SETUP_INDEX: Final = "USE kept.kept; DEFINE INDEX IF NOT EXISTS by_writer ON one FIELDS writer"
"""Apart from the others: the node goes on by itself to build it."""
READ_TABLES: Final = "; ".join(f"SELECT * FROM {table}" for table in TABLES)
READ_BY_INDEX: Final = "SELECT * FROM one WHERE writer >= 0"
READ_KEYS: Final = "KEYS FROM keys"
KEYS_EACH: Final = 4
"""Cache keys of a writer."""
COLUMN_ROWS: Final = 150
"""Records of a script that inserts by columns."""
MARK: Final = re.compile(rb"mark-\d+-end")

Records = dict[str, str]
"""`table:id`, `keys:key`, `news:key` of a message → the mark of the script that wrote it last."""


class Broken(AssertionError):
    """A promise that was not kept."""


@dataclass(eq=False)
class Script:
    """One script, and what it leaves."""

    mark: str
    text: str
    after: dict[str, str | None]
    """What each record it touches is after it; None: not there."""
    params: dict[str, Any] = field(default_factory=dict)


class Promises:
    """What was sent and what was answered. Writers on several threads tell it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self.records: Records = {}
        """As acknowledged."""
        self.open: list[Script] = []
        self.acknowledged: dict[str, int] = {}
        """Mark → the sequence that was answered."""
        self.sent: set[str] = set()
        self.refused: dict[str, str] = {}
        """Mark → the code of the refusal."""
        self._deaf = False

    def next_mark(self) -> str:
        """A mark that no other script has."""
        return f"mark-{next(self._numbers)}-end"

    def send(self, script: Script) -> None:
        with self._lock:
            self.sent.add(script.mark)
            self.open.append(script)

    def hear_nothing(self) -> None:
        """Until the next `compare` no answer counts: the power is about to go."""
        with self._lock:
            self._deaf = True

    def acknowledge(self, script: Script, sequence: int) -> bool:
        """The node said that it is done. Answers whether that was heard."""
        with self._lock:
            if self._deaf:
                return False
            self.open.remove(script)
            self.acknowledged[script.mark] = sequence
            self._apply(script)
            return True

    def refuse(self, script: Script, code: str) -> None:
        """The node said that it left nothing."""
        with self._lock:
            self.open.remove(script)
            self.refused[script.mark] = code

    def _apply(self, script: Script) -> None:
        for name, mark in script.after.items():
            if mark is None:
                self.records.pop(name, None)
            else:
                self.records[name] = mark

    def copy(self) -> Promises:
        made = Promises()
        assert not self.open, "compare first"
        made._numbers = itertools.count(next(self._numbers))
        made.records, made.acknowledged = dict(self.records), dict(self.acknowledged)
        made.sent, made.refused = set(self.sent), dict(self.refused)
        return made

    def compare(self, found: Records) -> int:
        """Check the records of a node that came back, and take open scripts as it has them.

        :returns: how many open scripts turned out to have happened
        :raises Broken:
        """
        with self._lock:
            happened = 0
            for script in self.open:
                shown = {name: found.get(name) for name in script.after}
                before = {name: self.records.get(name) for name in script.after}
                if shown == script.after:
                    self._apply(script)
                    happened += 1
                elif shown != before:
                    raise Broken(f"lost or half done: {shown}, neither {before} nor {script}")
            self.open.clear()
            self._deaf = False
            lost = {n: m for n, m in self.records.items() if found.get(n) != m}
            ghosts = {n: m for n, m in found.items() if n not in self.records}
            if lost:
                shown = {name: found.get(name) for name in lost}
                raise Broken(f"acknowledged and lost: {lost}; instead: {shown}")
            if ghosts:
                raise Broken(f"never acknowledged, nor open: {ghosts}")
            return happened

    def compare_log(self, first: int, bodies: Mapping[int, bytes]) -> None:
        """Check the frames of a log, by sequence.

        :param first: where it begins, by what it says: it may have been pruned, down to nothing
        :raises Broken:
        """
        seen: dict[str, int] = {}
        for sequence, body in bodies.items():
            for mark in {found.decode() for found in MARK.findall(body)}:
                if mark in seen:
                    raise Broken(f"{mark} stands in frames {seen[mark]} and {sequence}")
                seen[mark] = sequence
        wrong = {
            mark: (sequence, seen.get(mark))
            for mark, sequence in self.acknowledged.items()
            if sequence >= first and seen.get(mark) != sequence
        }
        if wrong:
            raise Broken(f"acknowledged at a sequence, and where the log has it: {wrong}")
        if ghosts := seen.keys() - (self.sent - self.refused.keys()):
            raise Broken(f"in the log, though refused or never sent: {ghosts}")
        if list(bodies) != list(range(first, first + len(bodies))):
            raise Broken("the sequences are not dense")


class Line(Protocol):
    """A connection to a node over one surface."""

    def run(self, script: Script) -> int:
        """Run it and answer the sequence.

        :raises Refused: by name
        :raises StoreError: | OSError | HTTPException: no answer came
        """

    def close(self) -> None:
        """End it."""


class WireLine:
    """Over the wire, with the client that users have."""

    def __init__(self, node: NodeProcess, token: str) -> None:
        host, port = node.address("wire")
        self._client = Client(
            f"{host}:{port}", token=token, ns=PLACE["ns"], db=PLACE["db"], connect_timeout=0.2
        )

    def run(self, script: Script) -> int:
        return self._client.run(script.text, script.params).seq

    def close(self) -> None:
        self._client.close()


class HttpLine:
    """Over HTTP, one connection for all requests."""

    def __init__(self, node: NodeProcess, token: str) -> None:
        host, port = node.address("http")
        self._connection = http.client.HTTPConnection(host, port, timeout=START_SECONDS)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def run(self, script: Script) -> int:
        body = json.dumps({"script": script.text, "params": script.params, **PLACE})
        self._connection.request("POST", "/script", body, self._headers)
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        if "error" in found:
            raise Refused(found["error"])
        sequence: int = found["seq"]
        return sequence

    def close(self) -> None:
        self._connection.close()


LINES: Final = (WireLine, HttpLine)


class Writer(threading.Thread):
    """One client that writes until it is told to stop, or no answer comes.

    :param scripts: how many at most
    :param padding: bytes put into each record, beside its mark
    :param patient: go on after a refusal by name, unless it says that the node has failed
    """

    def __init__(
        self,
        node: NodeProcess,
        promises: Promises,
        token: str,
        number: int,
        *,
        seed: int = 0,
        scripts: int = 1_000_000,
        padding: int = 0,
        patient: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self._line = LINES[number % 2](node, token)
        self._promises = promises
        self._number = number
        self._rng = random.Random(f"{seed} {number}")
        self._scripts = scripts
        self._padding = padding
        self._patient = patient
        self._own: list[str] = [
            name for name in promises.records if name.startswith(f"one:w{number}_")
        ]
        self.enough = threading.Event()
        self.codes: list[str] = []
        """Of the refusals it heard that it did not ask for."""

    def run(self) -> None:
        try:
            for _ in range(self._scripts):
                if self.enough.is_set() or not self._one(self._draw()):
                    return
        finally:
            self._line.close()

    def _one(self, script: Script) -> bool:
        self._promises.send(script)
        try:
            sequence = self._line.run(script)
        except Refused as refusal:
            if refusal.code == "UnknownOutcome":
                self.codes.append(refusal.code)
                return False
            self._promises.refuse(script, refusal.code)
            if refusal.code != "AlreadyExists":
                self.codes.append(refusal.code)
                return self._patient and refusal.code != "Failed"
        except (OutcomeUnknown, OSError, http.client.HTTPException, ValueError):
            return False
        except StoreError as error:  # it was never sent
            self._promises.refuse(script, type(error).__name__)
            return False
        else:
            if not self._promises.acknowledge(script, sequence):
                return False
            self._own = [n for n in self._own if script.after.get(n, "") is not None]
            self._own += [n for n, m in script.after.items() if m and n.startswith("one:")]
        return True

    def _draw(self) -> Script:
        mark = self._promises.next_mark()
        name = f"w{self._number}_{mark.split('-')[1]}"
        params: dict[str, Any] = {"m": mark}
        pad = ""
        if self._padding:
            pad, params["p"] = ", pad = $p", "x" * self._padding
        create = f"CREATE one:{name} SET mark = $m, writer = {self._number}{pad}"
        if self._rng.randrange(4) == 0:
            return self._draw_key(mark, name, create, params)
        if self._rng.randrange(4) == 0:
            return self._draw_message(mark, name, create, params)
        kind = self._rng.randrange(10)
        if kind == 3 and self._rng.randrange(4) == 0:
            return self._draw_columns(mark, name)
        if kind < 4 or not self._own:
            return Script(mark, create, {f"one:{name}": mark}, params)
        if kind < 6:
            tally = f"tally:t{self._number}"
            return Script(mark, f"UPSERT {tally} SET mark = $m{pad}", {tally: mark}, params)
        if kind < 8:
            text = f"BEGIN; {create}; CREATE two:{name} SET mark = $m; COMMIT"
            return Script(mark, text, {f"one:{name}": mark, f"two:{name}": mark}, params)
        other = self._rng.choice(self._own)
        if kind < 9:
            text = f"BEGIN; DELETE {other}; CREATE two:{name} SET mark = $m; COMMIT"
            return Script(mark, text, {other: None, f"two:{name}": mark}, params)
        text = f"BEGIN; {create}; CREATE {other} SET mark = $m; COMMIT"
        return Script(mark, text, {f"one:{name}": None}, params)

    def _draw_columns(self, mark: str, name: str) -> Script:
        """Many records by columns, in more than one step of the statement."""
        ids = [f"{name}_{number}" for number in range(COLUMN_ROWS)]
        columns = {
            "id": ids, "mark": [mark] * COLUMN_ROWS, "writer": [self._number] * COLUMN_ROWS,
        }  # fmt: skip
        after: dict[str, str | None] = {f"one:{id}": mark for id in ids}
        return Script(mark, "INSERT INTO one COLUMNS $c RETURN NONE", after, {"c": columns})

    def _draw_key(self, mark: str, name: str, create: str, params: dict[str, Any]) -> Script:
        """One with a cache key in it, alone or beside a record."""
        key = f"k{self._number}_{self._rng.randrange(KEYS_EACH)}"
        kept = {f"keys:{key}": mark}
        put = f"SET '{key}' IN keys VALUE $m"
        kind = self._rng.randrange(4)
        if kind == 0:
            return Script(mark, put, {**kept}, params)
        if kind == 1:
            text = f"BEGIN; {put}; {create}; COMMIT"
            return Script(mark, text, {**kept, f"one:{name}": mark}, params)
        if kind == 2:
            text = f"BEGIN; DELETE '{key}' FROM keys; {create}; COMMIT"
            return Script(mark, text, {f"keys:{key}": None, f"one:{name}": mark}, params)
        text = f"BEGIN; {put} EXPIRE 1h; {create}; {put} KEEP; COMMIT"
        return Script(mark, text, {**kept, f"one:{name}": mark}, params)

    def _draw_message(self, mark: str, name: str, create: str, params: dict[str, Any]) -> Script:
        """One that publishes, alone or beside a record and a key."""
        key = f"k{self._number}_{self._rng.randrange(KEYS_EACH)}"
        publish = f"PUBLISH INTO news VALUE $m KEY '{name}'"
        sent = {f"news:{name}": mark}
        kind = self._rng.randrange(4)
        if kind == 0:
            return Script(mark, publish, {**sent}, params)
        if kind == 1:
            text = f"BEGIN; {create}; {publish}; COMMIT"
            return Script(mark, text, {**sent, f"one:{name}": mark}, params)
        if kind == 2:
            text = f"BEGIN; {publish}; SET '{key}' IN keys VALUE $m; {create}; COMMIT"
            after = {**sent, f"one:{name}": mark, f"keys:{key}": mark}
            return Script(mark, text, {**after}, params)
        text = f"BEGIN; {publish}; {create}; {create}; COMMIT"
        return Script(mark, text, {f"news:{name}": None, f"one:{name}": None}, params)


def token(node: NodeProcess) -> str:
    """A session, opened over HTTP."""
    reply = node.request("POST", "/session", {"user": USER, "password": PASSWORD}, user=None)
    found: str = reply.json["token"]
    return found


@contextmanager
def writing(
    node: NodeProcess,
    promises: Promises,
    clients: int = 4,
    **more: Any,
) -> Iterator[list[Writer]]:
    """Writers on a node that is ready, until the block ends: by then it has to be dead, or the
    writers are told to stop."""
    session = token(node)
    writers = [Writer(node, promises, session, number, **more) for number in range(clients)]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.enough.set()
        for writer in writers:
            writer.join(START_SECONDS)
        assert not any(writer.is_alive() for writer in writers), "a writer hangs"


def setup(node: NodeProcess) -> None:
    """The tables. :raises Broken: the node does not make them"""
    answer = node.script("; ".join((*SETUP, SETUP_INDEX)))
    if "error" in answer:
        raise Broken(f"no tables: {answer}")


def records(node: NodeProcess) -> Records:
    found = _records(_read(node, READ_TABLES))
    by_index = _records(_read(node, READ_BY_INDEX))
    if by_index != {name: mark for name, mark in found.items() if name.startswith("one:")}:
        raise Broken(f"the index of one names other records: {by_index}, not {found}")
    keys = _read(node, READ_KEYS)[0]["keys"]
    values = _read(node, "; ".join(f"GET '{key}' FROM keys" for key in keys)) if keys else []
    for key, value in zip(keys, values, strict=True):
        found[f"keys:{key}"] = value["value"]
    return found | _messages(node)


def _messages(node: NodeProcess) -> Records:
    found: Records = {}
    last = 0
    while page := _read(node, f"READ FROM news AFTER {last} LIMIT 1000")[0]:
        positions = [message["position"] for message in page]
        if positions != list(range(last + 1, last + 1 + len(page))):
            raise Broken(f"positions after {last} are not dense: {positions}")
        for message in page:
            name = f"news:{message['key']}"
            if name in found:
                raise Broken(f"{name} was published twice")
            found[name] = message["value"]
        last += len(page)
    return found


def _read(node: NodeProcess, script: str) -> list[Any]:
    """What each statement answers."""
    answer = node.script(script, **PLACE)
    if "error" in answer:
        raise Broken(f"{script} can't be read: {answer['error']}")
    return [result["value"] for result in answer["results"]]


def _records(tables: list[Any]) -> Records:
    return {row["id"]["$rec"]: row["mark"] for table in tables for row in table}


def state_hash(node: NodeProcess) -> str:
    """Of a node that serves."""
    answer = node.script("INFO FOR STATE")
    if "error" in answer:
        raise Broken(f"no state hash: {answer['error']}")
    found: str = answer["results"][0]["value"]["hash"]
    return found


def offline_hash(directory: Path) -> str:
    """Of a store that nobody serves; reads its whole log. :raises Broken: it is not well"""
    health = run(str(directory), "--health")
    if health.returncode != 0 or not health.stdout.startswith("well"):
        raise Broken(f"not well: {health.stdout}{health.stderr}")
    return health.stdout.split()[-1]


def replayed_hash(directory: Path, scratch: Path) -> str:
    """Of a copy of the store whose state was thrown away."""
    shutil.copytree(directory, scratch, dirs_exist_ok=False)
    shutil.rmtree(scratch / "state")
    try:
        return offline_hash(scratch)
    finally:
        shutil.rmtree(scratch)


def log_bodies(directory: Path) -> tuple[int, dict[int, bytes]]:
    """Where the log of a store that nobody serves begins, and its frames by sequence."""
    opened = StoreDirectory.open(str(directory), Disk(), SystemClock(), SystemRng())
    try:
        log = Log.open(opened)
        try:
            bodies = {frame.sequence: frame.body for frame in log.reader.read(log.state.first)}
            return log.state.first, bodies
        finally:
            log.close(clean=False)
    finally:
        opened.close()


def settle(promises: Promises, directory: Path, scratch: Path | None) -> None:
    """The end of a rig: everything that can be held against the promises, once more.

    :param scratch: where the log is replayed into a fresh state, whose hash must be that of the
        live one; None: not, for instance since the log was pruned
    :raises Broken:
    """
    node = NodeProcess(directory).start()
    try:
        setup(node)
        promises.compare(records(node))
        live = state_hash(node)
    finally:
        code = node.stop()
    if code != 0:
        raise Broken(f"the node left with {code}: {node.lines[-5:]}")
    if scratch is not None:
        hashes = {live, offline_hash(directory), replayed_hash(directory, scratch)}
        if len(hashes) != 1:
            raise Broken(f"live, stopped and replayed state differ: {hashes}")
    promises.compare_log(*log_bodies(directory))


def side_by_side(work: Any, cases: Sequence[Any], lanes: int = 4) -> list[Any]:
    """Results of `work` for each case, some at a time; the first failure is raised."""
    with ThreadPoolExecutor(lanes) as pool:
        return list(pool.map(work, cases))
