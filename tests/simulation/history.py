"""Checker of a store's history: is every answer consistent with the log (strict serializability)?

The commits of the log decide the order. Each commit names its script (its reason), so its effect on
the state before it is known. Each answer names its sequence, so its content is known. From that
follows strict serializability: every transaction is whole, alone in its place in one order, and
that place lies between its request and its answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, islice, pairwise, product
from typing import Any
from uuid import UUID

from actors.scripts.plans import Plan
from language.parser import parse
from protocol.binary import unpack, unpack_object
from protocol.requests import ScriptAnswer
from protocol.values import RecordId, unpaced
from storage.audit import forwarded
from storage.catalog import places
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.formats import effects, keys
from storage.formats.frames import Frame
from storage.formats.positions import LogEnd
from storage.indexes import derived
from storage.topics import topics
from storage.txn import trail_rows
from storage.txn.applied_position import Lineage
from storage.txn.ledger import Ledger
from tests.simulation.answers import ANYTHING, AtLeast
from tests.simulation.environment import ManualClock, SeededRng
from tests.simulation.expiring import KEY as EXPIRING_KEY
from tests.simulation.expiring import overdue
from tests.simulation.feed_readers import TABLE as FED
from tests.simulation.feed_readers import FeedReader
from tests.simulation.inspecting import Inspected, told
from tests.simulation.queues import EXTENDED, QUEUE, QueueState, folded, hand_out, message_value
from tests.simulation.scripts import (
    SPACE,
    STATE,
    TOPIC,
    UNSEEN,
    ClientScript,
    Draft,
    ExpectedRefusal,
    Rows,
    ScriptTransaction,
    StoreState,
)
from tests.storage.queue_story import check_topic

ITS_OWN = ("index build", "expired", "due")
"""Reasons of the node's own commits: index builds, sweeps of cache keys, expiry on topics."""
MESSAGE_HEAD = struct.Struct(">QQQHHI")
"""Head of a stored message: time, total, due time, and the lengths of key, id and headers."""
STANDING = struct.Struct(">QQQQQQQQIII")
"""Head of a group: epoch, cursor, delivered, committed, … deliveries, of these out, parked."""
ANSWERS = tuple(f"{word} {TOPIC}" for word in ("ACK", "EXTEND", "UP", "BEFORE"))
"""Statements that may end deliveries of the topic before their deadline."""
LOOKED_EACH = 12
"""Commits between two checks of the topics' indexes, which take a while."""
OUT, PARKED = 1, 3
"""States of a delivery: the first byte of its row."""
FIRST_OWNER = "first owner of the store"
OWNER = "ana"


class GuaranteeViolated(AssertionError):
    """A guarantee of the node is violated."""


@dataclass(eq=False)
class SentScript:
    name: str
    script: ClientScript
    after: int
    """Newest sequence that any client had seen when the script was sent."""
    may: set[str] = field(default_factory=set)
    """Codes of errors that concurrent work may cause."""
    answer: ScriptAnswer | None = None
    error: str | None = None
    """Code of an error that came in place of an answer."""
    until: int = 0
    """The newest durable sequence when the answer came."""

    def refusal(self) -> str | None:
        if self.answer is None or self.answer.refusal is None:
            return None
        return self.answer.refusal.code


class Fold:
    """State of a store, folded from its frames by code that is independent of the node's."""

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes] = {}
        self.sequence = 0
        self.time = 0
        self._names: dict[str, bytes] = {}
        self._rows: dict[bytes, Rows] = {}
        self.entries: dict[str, Any] = {}
        self.topics: dict[bytes, dict[int, bytes]] = {}
        """The rows of each topic's messages, by position."""
        self._topic = b""
        """Namespace, database and number of TOPIC."""
        self._puts: list[tuple[bytes, Any]] = []
        self._set_keys: set[tuple[str, Any]] = set()
        self._queue = b""
        """Namespace, database and number of QUEUE."""
        self.taken_back: list[bytes] = []
        """Rows of deliveries that were ended by the last frame, before their deadline and without a
        trim. Those of the queue are predicted exactly anyhow."""
        self.handed_out = False
        """True if the last frame delivers a message."""
        self.changes = False
        """True if the last frame changes the state; other frames hold statement entries only."""
        self.sent = set[str]()
        """Messages of the last frame whose values are names of the requests that sent them."""
        self.kept_late = False
        """True if the last frame only keeps a statement entry that was refused before."""

    def apply(self, frame: Frame) -> tuple[effects.Attribution, list[UUID]]:
        """Apply one more frame. Return its request and the ids that it generated, in order."""
        commit = effects.decode(frame.body)
        self._puts, self._set_keys, self.sent = [], set(), set()
        self.changes = bool(commit.effects)
        self.kept_late = self._is_kept_late(commit)
        self.handed_out = any(map(self._is_handed_out, commit.effects))
        before = {
            effect[1]: self.pairs[effect[1]]
            for effect in commit.effects
            if effect[1][keys.TAG_AT] == keys.HAND_OUT and effect[1] in self.pairs
        }
        self.sequence += 1
        _hold(frame.sequence == self.sequence, "the log has a gap")
        _hold(frame.time >= self.time, f"log time fell at {frame.sequence}")
        self.time = frame.time
        self.pairs |= trail_rows.rows(frame.sequence, frame.time, commit.attribution)
        made: list[UUID] = []
        for effect in commit.effects:
            key = effect[1]
            if effect[0] == effects.PUT:
                self.pairs[key] = effect[2]
                if key[keys.TAG_AT] == keys.TABLE:
                    number = unpack_object(effect[2])["id"].to_bytes(4, "big")
                    self._names[key[11:].decode()] = key[3:11] + number
                elif key[keys.TAG_AT] == keys.TOPIC and key[11:] == TOPIC.encode():
                    self._topic = key[3:11] + unpack_object(effect[2])["id"].to_bytes(4, "big")
                elif key[keys.TAG_AT] == keys.TOPIC and key[11:] == QUEUE.encode():
                    self._queue = key[3:11] + unpack_object(effect[2])["id"].to_bytes(4, "big")
                elif key[keys.TAG_AT] == keys.MESSAGE:
                    at = int.from_bytes(effect[2][:8], "big")
                    _hold(at == frame.time, f"a message of {self.sequence} has another time")
                    position = int.from_bytes(key[15:], "big")
                    self.topics.setdefault(key[3:15], {})[position] = effect[2]
                    if isinstance(value := message_value(effect[2]), str):
                        self.sent.add(value)
                    if key[3:15] == self._queue:
                        self._set_keys.add((QUEUE, position))
            elif effect[0] == effects.PUT_RECORD:
                self._check_previous(key, effect[3])
                self.pairs[key] = self.sequence.to_bytes(8, "big") + effect[2]
                if key[keys.TAG_AT] == keys.ENTRY:
                    self._set(key, effect[2])
                    continue
                if key[keys.TAG_AT] != keys.RECORD:
                    continue  # which commit declared a table: no user's record
                rows, id = self._rows.setdefault(key[3:15], {}), keys.record_id(key)
                if isinstance(id, UUID) and id not in rows:
                    made.append(id)
                rows[id] = unpack_object(effect[2])
                self._puts.append((key[3:15], id))
            elif effect[0] == effects.DERIVE:
                continue  # what indexes hold is compared with the records elsewhere
            elif effect[0] == effects.DELETE_RANGE:
                for gone in [k for k in self.pairs if key <= k < effect[2]]:
                    self._remove(gone)
            else:
                if effect[0] == effects.DELETE_RECORD:
                    self._check_previous(key, effect[2])
                self._remove(key)
        self._look_at(before)
        return commit.attribution, made

    def _look_at(self, hand_outs: dict[bytes, bytes]) -> None:
        """Record deliveries that were extended or taken back, given their rows before the frame."""
        for key in self.pairs.keys() & hand_outs.keys():
            row, now = hand_outs[key], self.pairs[key]
            same = key[3:15] == self._queue and hand_out(row) == hand_out(now)
            if same and row[6:14] != now[6:14]:
                self._set_keys.add((EXTENDED, int.from_bytes(key[19:], "big")))
        self.taken_back = [row for key, row in hand_outs.items() if self._early(key, row)]

    def _is_kept_late(self, commit: effects.FrameBody) -> bool:
        """True if the frame keeps a late entry. Each is kept once, in their order."""
        if {effect[1][keys.TAG_AT] for effect in commit.effects} != {keys.CARRIED}:
            return False
        ((_, key, noted),) = commit.effects
        life, number = noted[: forwarded.LIFE_BYTES], noted[forwarded.LIFE_BYTES :]
        before = self.pairs.get(key, b"")
        last = before[len(life) :] if before[: len(life)] == life else b""
        follows = int.from_bytes(number, "big") == int.from_bytes(last, "big") + 1
        who = commit.attribution
        told = who.entry is not None and who.how.split(" ")[1:2] == [
            key[keys.TAG_AT + 1 :].decode()
        ]
        _hold(follows and told, f"{self.sequence + 1} keeps an entry that was kept, or none")
        return True

    def _is_handed_out(self, effect: effects.Effect) -> bool:
        if effect[0] != effects.PUT or effect[1][keys.TAG_AT] != keys.HAND_OUT:
            return False
        row, before = effect[2], self.pairs.get(effect[1], b"")
        return row[0] == OUT and (before[:1], before[2:6]) != (row[:1], row[2:6])

    def _early(self, key: bytes, row: bytes) -> bool:
        position = int.from_bytes(key[19:], "big")
        held = position in self.topics.get(key[3:15], {})
        now = self.pairs.get(key, b"")
        # The state (1), flags of the index of deadlines (1), the attempt (4).
        changed = (now[:1], now[2:6]) != (row[:1], row[2:6])
        out = row[0] == OUT and hand_out(row).due > self.time
        return key[3:15] != self._queue and out and held and changed

    def _set(self, key: bytes, entry: bytes) -> None:
        """Store an entry: expiry (8), flags (1), then the value."""
        name = key[keys.ENTRY_PREFIX_BYTES :].decode()
        if not name.startswith(EXPIRING_KEY):
            _hold(not any(entry[:9]), f"at {self.sequence} {name} has an expiry, or is a lock")
            self.entries[name] = unpack(entry[9:])
            self._set_keys.add((SPACE, name))

    def _check_previous(self, key: bytes, previous: int) -> None:
        before = self.pairs.get(key)
        sequence = 0 if before is None else int.from_bytes(before[:8], "big")
        _hold(previous == sequence, f"{self.sequence} says {previous} before it, not {sequence}")

    def _remove(self, key: bytes) -> None:
        self.pairs.pop(key, None)
        if key[keys.TAG_AT] == keys.TABLE:
            self._names.pop(key[11:].decode(), None)
        elif key[keys.TAG_AT] == keys.RECORD:
            self._rows.get(key[3:15], {}).pop(keys.record_id(key), None)
        elif key[keys.TAG_AT] == keys.MESSAGE:
            self.topics.get(key[3:15], {}).pop(int.from_bytes(key[15:], "big"), None)
        elif key[keys.TAG_AT] == keys.ENTRY:
            self.entries.pop(key[keys.ENTRY_PREFIX_BYTES :].decode(), None)

    def tables(self) -> dict[str, Rows]:
        return {name: self._rows.get(at, {}) for name, at in self._names.items()}

    def puts(self) -> set[tuple[str, Any]]:
        """Return the keys written by the last frame: table and id of records, and keys that do not
        expire."""
        names = {at: name for name, at in self._names.items()}
        return {(names[at], id) for at, id in self._puts} | self._set_keys

    def users(self) -> frozenset[str]:
        low, high = keys.users()
        return frozenset(key[len(low) :].decode() for key in self.pairs if low <= key < high)

    def indexes(self) -> frozenset[str]:
        at = keys.TAG_AT
        return frozenset(key[at + 13 :].decode() for key in self.pairs if key[at] == keys.INDEX)

    def messages(self) -> tuple[tuple[Any, ...], int]:
        """Return the messages of TOPIC, and the last position before them."""
        found = []
        for _, row in sorted(self.topics.get(self._topic, {}).items()):
            head = MESSAGE_HEAD.unpack_from(row)
            found.append(unpack(row[MESSAGE_HEAD.size + sum(head[3:]) :]))
        return tuple(found), self._last(self._topic) - len(found)

    def _last(self, topic: bytes) -> int:
        row = self.pairs.get(keys.STORE_RANGE + bytes((keys.TOPIC_LAST,)) + topic)
        return 0 if row is None else int.from_bytes(row[:8], "big")

    def _check_topics(self) -> None:
        for topic, rows in self.topics.items():
            last, positions = self._last(topic), sorted(rows)
            dense = list(range(last - len(rows) + 1, last + 1))
            _hold(positions == dense, f"at {self.sequence} positions are {positions}, of {last}")
            heads = [MESSAGE_HEAD.unpack_from(rows[position])[:2] for position in positions]
            _hold(heads == sorted(heads), f"at {self.sequence} time or total of messages fell")
            sizes = [len(rows[position]) for position in positions[1:]]
            totals = [after[1] - before[1] for before, after in pairwise(heads)]
            _hold(sizes == totals, f"at {self.sequence} the totals of messages are {totals}")

    def _check_groups(self) -> None:
        """Check that a group's counts match its deliveries."""
        states: dict[bytes, list[int]] = {}
        for key, value in self.pairs.items():
            if key[keys.TAG_AT] == keys.GROUP_STATE:
                states[key[3:19]] = []
            elif key[keys.TAG_AT] == keys.HAND_OUT:
                states.setdefault(key[3:19], []).append(value[0])
                position = int.from_bytes(key[19:], "big")
                _, cursor, _, committed, *_ = self._standing(key[3:19])
                _hold(committed < position <= cursor, f"at {self.sequence} {position} is out")
        for group, found in states.items():
            *_, hand_outs, out, parked = self._standing(group)
            wanted = len(found), found.count(OUT), found.count(PARKED)
            _hold((hand_outs, out, parked) == wanted, f"at {self.sequence} {wanted} are out")

    def _standing(self, group: bytes) -> tuple[int, ...]:
        return STANDING.unpack(self.pairs[keys.STORE_RANGE + bytes((keys.GROUP_STATE,)) + group])

    def check_counts(self) -> None:
        for name, at in self._names.items():
            key = keys.STORE_RANGE + bytes((keys.COUNT,)) + at
            count, rows = keys.unpack_counter(self.pairs.get(key)), len(self._rows.get(at, {}))
            _hold(count == rows, f"at {self.sequence} {name} counts {count} and holds {rows}")
        counts = [v for k, v in self.pairs.items() if k[keys.TAG_AT] == keys.ENTRY_COUNT]
        count = sum(map(keys.unpack_counter, counts))
        self._check_topics()
        self._check_groups()
        held = sum(key[keys.TAG_AT] == keys.ENTRY for key in self.pairs)
        _hold(count == held, f"at {self.sequence} spaces count {count} and hold {held}")

    def queue(self) -> QueueState:
        return folded(self.pairs)

    def check_indexes_of_topics(self) -> None:
        """Check that the stored rows of topics are consistent with each other."""
        tail = LogEnd(self.sequence, 1, self.time)
        ledger = Ledger(
            self.engine(), tail, ManualClock(), SeededRng(0), lambda frame: None, derived.kept
        )
        with ledger.begin_transaction() as tx:
            for namespace in places.namespaces(tx, unpaced):
                for database in places.databases(tx, namespace, unpaced):
                    for topic in topics.each_topic(tx, database, unpaced):
                        check_topic(tx, topic)

    def hash(self) -> str:
        return state_hash(self.engine())

    def overdue(self, now_us: int) -> list[str]:
        """Yield entries of the state that should have expired at a log time."""
        return list(overdue(self.pairs, now_us))

    def engine(self) -> MemoryEngine:
        engine = MemoryEngine()
        batch = engine.batch()
        for key, value in self.pairs.items():
            batch.put(key, value)
        Lineage(bytes(16), self.sequence).note(batch)
        engine.write(batch, self.sequence)
        return engine


class StoreHistory:
    """All frames and requests of a store, and the checks of both."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.requests: dict[str, SentScript] = {}
        self.shown = 0
        """The newest sequence that any answer has shown."""
        self.told = 0
        """Number of answers with a hash of the state."""
        self.owners: dict[int, tuple[SentScript, int, list[Any]]] = {}
        """By commit: its request, the part of it, and the expected answer of that part."""
        self.guests: dict[str, str] = {}
        """By request, the revocable credential that let it in: a token or a password."""
        self.readers: list[FeedReader] = []
        """Readers of a table's feed."""
        self.passwords: list[str] = []
        """Every password that was ever set."""
        self._cuts: dict[str, int] = {}
        """Revoked credentials, and the last commit before each revocation was answered."""
        self._of_password: dict[str, list[str]] = {}
        """Tokens issued for a password."""
        self.waited: set[int] = set()
        """Commits of TAKEs that found no message and waited."""

    def hand_over(self, frame: Frame) -> None:
        """Record a commit of the node. It replaces an earlier commit with the same sequence."""
        self.cut(frame.sequence - 1)
        _hold(len(self.frames) == frame.sequence - 1, f"commit {frame.sequence} leaves a gap")
        self.frames.append(frame)

    def cut(self, last: int) -> None:
        """Forget the frames after `last`. None of them may have been shown."""
        _hold(last >= self.shown, f"{self.shown} was shown, and the store is back at {last}")
        del self.frames[last:]

    def let_in(self, token: str, password: str) -> None:
        """Record a token issued for a password: it is revoked with the password."""
        self._of_password.setdefault(password, []).append(token)

    def is_cut(self, let_in_by: str, committed: int) -> None:
        """Record that the revocation of a token or password was answered.

        :param committed: the last commit by then
        """
        for each in (let_in_by, *self._of_password.get(let_in_by, ())):
            self._cuts.setdefault(each, committed)

    def recovered(self, last: int, frames: Iterator[Frame]) -> None:
        """Check the log that a start has found: it ends at `last`, with these frames."""
        _hold(last <= len(self.frames), f"the log holds {last} of {len(self.frames)} commits")
        self.cut(last)
        for frame in frames:
            if frame.sequence <= last:
                _hold(frame == self.frames[frame.sequence - 1], f"frame {frame.sequence} differs")

    # --- the verdict ----------------------------------------------------------------------------

    def check(self) -> None:
        """Fold all frames, and check every answer.

        :raises Broken: a guarantee is violated
        """
        fold, states = Fold(), [StoreState()]
        taken: dict[str, int] = {}
        for frame in self.frames:
            attribution, made = fold.apply(frame)
            fold.check_counts()
            if fold.sequence % LOOKED_EACH == 0 or fold.sequence == len(self.frames):
                fold.check_indexes_of_topics()
            states.append(self._next(states[-1], fold, attribution, made, taken))
        tables = [state.tables.get(FED, {}) for state in states]
        for reader in self.readers:
            wrong = reader.wrong(tables)
            _hold(wrong is None, str(wrong))
        self._check_hashes()
        mine: dict[str, list[int]] = {}
        for sequence, (request, _, _) in self.owners.items():
            mine.setdefault(request.name, []).append(sequence)
        inspected = Inspected(self.frames)
        for request in self.requests.values():
            self._check_request(request, states, mine.get(request.name, []))
            owned = {self.owners[at][1]: at for at in mine.get(request.name, [])}
            for one in told(request, owned):
                wrong = inspected.wrong(one)
                _hold(wrong is None, f"{request.name} {one.text}: {wrong}")

    def hash_at(self, sequence: int) -> str:
        """Return the hash of the state after the frames up to `sequence`."""
        return self.folded(sequence).hash()

    def folded(self, sequence: int) -> Fold:
        fold = Fold()
        for frame in islice(self.frames, sequence):
            fold.apply(frame)
        return fold

    def _next(
        self,
        before: StoreState,
        fold: Fold,
        whose: effects.Attribution,
        made: list[UUID],
        taken: dict[str, int],
    ) -> StoreState:
        """Return the model's state after a frame, by its script."""
        reason = whose.reason
        if reason == FIRST_OWNER:
            return replace(before, users=before.users | {OWNER})
        after = StoreState(
            fold.tables(),
            fold.entries,
            fold.indexes(),
            *fold.messages(),
            fold.users(),
            queue=fold.queue(),
        )
        if not fold.changes:
            _hold(whose.entry is not None, f"commit {fold.sequence} is empty")
            return before
        if fold.kept_late:
            return before  # of a refused commit: its client was answered so
        self._check_cut(fold, whose)
        if whose.how == "node" and reason in ITS_OWN:
            _hold(Draft(before).same(after) and not fold.puts(), f"{fold.sequence} is no upkeep")
            _hold(not fold.taken_back, f"{fold.sequence} takes back what is still out")
            return before
        if fold.sent and fold.sent <= self.guests.keys():
            _hold(Draft(before).same(after) and not fold.puts(), f"{fold.sequence} is no message")
            return before
        _hold(reason in self.requests, f"commit {fold.sequence} comes from nobody: {reason}")
        assert reason is not None
        request = self.requests[reason]
        puts = fold.puts()
        for number in range(taken.get(reason, 0), len(request.script.parts)):
            part = request.script.parts[number]
            if whose.statement != _logged(part.text()):
                continue  # what another makes of the state may be the same
            for ids, tie in product(_new_ids(part, made), (False, True)):
                draft = Draft(before, ids, tie)
                try:
                    results = part.run(draft)
                except ExpectedRefusal:
                    continue
                wrote = draft.wrote or draft.perhaps
                if wrote and draft.same(after) and draft.puts == puts:
                    # A TAKE that found nothing goes on waiting; behind it may stand its like.
                    goes_on = part.waits and not fold.handed_out
                    if goes_on:
                        self.waited.add(fold.sequence)
                    taken[reason] = number if goes_on else number + 1
                    self.owners[fold.sequence] = request, number, results
                    early = fold.taken_back and not any(word in part.text() for word in ANSWERS)
                    _hold(not early, f"{fold.sequence} takes back what is still out")
                    return replace(draft.state(), queue=after.queue)
        raise GuaranteeViolated(
            f"commit {fold.sequence} is not what {request.script.text!r} makes of the state before"
            f" it: {_difference(before.tables, after.tables)}; {before.entries} → {after.entries};"
            f" {before.queue} → {after.queue}"
        )

    def _check_cut(self, fold: Fold, whose: effects.Attribution) -> None:
        """Check that a credential has no commits after its revocation."""
        for request in (whose.reason or "", *sorted(fold.sent)):
            last = self._cuts.get(self.guests.get(request, ""))
            _hold(
                last is None or fold.sequence <= last,
                f"{request} has committed {fold.sequence}, {whose.statement!r}, and what it was let"
                f" in by was good until {last}",
            )

    def _check_hashes(self) -> None:
        for request in self.requests.values():
            if request.script.parts[0].steps[0].text != "INFO FOR STATE" or not request.answer:
                continue
            for result in request.answer.results:
                told: Any = result.value
                _hold(
                    told["sequence"] <= request.until and told["sequence"] >= request.after,
                    f"{request.name} shows the state at {told['sequence']}, durable were"
                    f" {request.after} to {request.until}",
                )
                wanted = self.hash_at(told["sequence"])
                _hold(told["hash"] == wanted, f"{request.name}: the hash is of another state")
                self.told += 1

    def _check_request(
        self, request: SentScript, states: list[StoreState], frames: list[int]
    ) -> None:
        where = f"{request.name} {request.script.text!r}"
        if frames:
            _hold(frames[0] > request.after, f"{where} stands before what was shown before it")
        if request.answer is None:
            if request.error is not None:
                _hold(request.error in request.may, f"{where} was refused: {request.error}")
                ended = request.error in ("Cancelled", "StatementTimeout")
                told = bool(frames) and frames[-1] > request.until
                _hold(
                    not (ended and told), f"{where} is {request.error} and may be there: {frames}"
                )
                if request.error == "DiskFull" and len(request.script.parts) == 1:
                    # What a TAKE did that waited on was only due, and stays.
                    there = [at for at in frames if at not in self.waited]
                    _hold(not there, f"{where} was refused as DiskFull and is there: {there}")
            return
        answer, low = request.answer, request.after
        _hold(answer.sequence <= request.until, f"{where} shows {answer.sequence}, not yet durable")
        if frames:
            _hold(answer.sequence == frames[-1], f"{where} says {answer.sequence}, not {frames}")
        values = [result.value for result in answer.results]
        ahead, left = list(frames), len(frames)
        at = 0
        for number, part in enumerate(request.script.parts):
            refused = at + part.results > len(values)
            while refused and part.waits and ahead and self.owners[ahead[0]][1] == number:
                low = ahead.pop(0)  # it found nothing but what was due, and went on to wait
            owner = self.owners[ahead[0]] if ahead else None
            if not refused and owner is not None and owner[1] == number:
                low = ahead.pop(0)
                while part.waits and ahead and self.owners[ahead[0]][1] == number:
                    low = ahead.pop(0)
                found = values[at : at + part.results]
                _hold(_same(found, owner[2]), f"{where} at {low}: {found}, wanted {owner[2]}")
            else:
                high = ahead[0] - 1 if ahead else request.until
                last = refused or number == len(request.script.parts) - 1
                if last and not left and answer.sequence:
                    _hold(low <= answer.sequence, f"{where} is older than what was shown")
                    low = high = answer.sequence
                code = request.refusal() if refused else None
                if refused and code in request.may:
                    _hold(not ahead, f"{where} was refused as {code} and is there: {ahead}")
                    return
                low = self._read(where, part, values[at:], code, states, low, high)
            at += part.results
            if refused:
                _hold(not ahead, f"{where} was refused and is there: {ahead}")
                return
        _hold(not ahead and request.refusal() is None, f"{where}: {request.refusal()}, {ahead}")

    def _read(
        self,
        where: str,
        part: ScriptTransaction,
        values: list[Any],
        code: str | None,
        states: list[StoreState],
        low: int,
        high: int,
    ) -> int:
        """Return a sequence at which the answer of a read-only part is correct."""
        wanted: Any = None
        for sequence in range(low, high + 1):
            draft = Draft(states[sequence])
            try:
                wanted = part.run(draft)
            except ExpectedRefusal as refused:
                wanted = str(refused)
                if wanted == code:
                    return sequence
            else:
                if code is None and not draft.wrote and _same(values[: part.results], wanted):
                    return sequence
        found = code or values[: part.results]
        raise GuaranteeViolated(f"{where}, read at {low} to {high}: {found}, wanted {wanted}")


@lru_cache
def _logged(text: str) -> str:
    """Return the statements of a part as the statement log names them."""
    script = parse(text)
    return Plan(script).redacted(0, len(script.statements))


def _new_ids(part: ScriptTransaction, made: list[UUID]) -> Iterator[list[UUID]]:
    """Match the records that a part creates without an id to the ids generated in its commit.

    Records that the part deletes again are not in the commit.
    """
    count = sum(step.makes_id for step in part.steps)
    for chosen in combinations(range(count), len(made)):
        ids = list(UNSEEN[:count])
        for at, id in zip(chosen, made, strict=True):
            ids[at] = id
        yield ids


def _same(found: Any, wanted: Any) -> bool:
    if found == wanted or wanted is STATE or wanted is ANYTHING:
        return True
    if isinstance(found, list) and isinstance(wanted, list):
        if found and isinstance(found[0], dict) and "role" in found[0]:
            found = [user["name"] for user in found]
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        whole = isinstance(wanted, AtLeast) or found.keys() == wanted.keys()
        return whole and all(_same(found.get(name), wanted[name]) for name in wanted)
    if isinstance(wanted, RecordId) and wanted.id in UNSEEN:
        return isinstance(found.id, UUID) and found.table == wanted.table
    return False


def _difference(before: dict[str, Rows], after: dict[str, Rows]) -> str:
    names = sorted({*before, *after})
    return "; ".join(
        f"{name}: {before.get(name)} → {after.get(name)}"
        for name in names
        if before.get(name) != after.get(name)
    )


def _hold(condition: bool, broken: str) -> None:
    if not condition:
        raise GuaranteeViolated(broken)
