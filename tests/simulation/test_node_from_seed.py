"""D: the whole node from a seed, against dictionaries; and what such a rig must be able to see.

A failure prints its seed. `World(seed).run()` does the same again, whatever the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import storage.ledger
from actors.commits import Committer
from actors.scripts.transactions import ScriptRun
from storage import conflicts, effects, forwarded, indexes, keys, records, replay
from storage.appends import Append
from storage.derived import Kept
from storage.frames import Frame, Placed
from storage.hand_outs import HandOuts, books
from storage.layers import apply_writes
from storage.ledger import Ledger
from storage.message_rows import MessageRows
from storage.read_set import ReadSet
from storage.sealed_state import SealedEngine
from storage.spaces import Keys
from storage.transactions import Transaction
from tests.logbook import Logbook
from tests.simulation.history import Broken
from tests.simulation.seeds import EXPECTED
from tests.simulation.world import Figures, Shape, SmallLog, World
from tests.storage.backups.held import KEY
from tests.storage.seals import counted
from tests.sweeps import parts, some_of

SEEDS = 200
PARTS = 20
HARD_SEEDS = 800


@pytest.fixture
def worlds(logbook: Logbook) -> Callable[[range], Figures]:
    """Runs worlds, and adds up what they went through."""
    for pattern in EXPECTED:
        logbook.allow(pattern)

    def run(seeds: range) -> Figures:
        figures = Figures()
        for seed in seeds:
            world = World(seed)
            world.run()
            figures.add(world.figures)
        return figures

    return run


@pytest.mark.parametrize("part", parts(PARTS, always=2))
def test_every_answer_is_true(
    part: int, worlds: Callable[[range], Figures], figure: Callable[[str, object], None]
) -> None:
    each = SEEDS // PARTS
    figures = worlds(range(part * each, (part + 1) * each))
    assert figures.crashes > each and figures.commits > 20 * each
    figure(f"D seeds, part {part + 1} of {PARTS}", f"{each}: {figures}; 0 broken")


@pytest.mark.hard
@pytest.mark.parametrize("part", range(PARTS))
def test_every_answer_is_true_for_many_seeds(
    part: int, worlds: Callable[[range], Figures], figure: Callable[[str, object], None]
) -> None:
    each = HARD_SEEDS // PARTS
    figures = worlds(range(10_000 + part * each, 10_000 + (part + 1) * each))
    figure(f"D hard seeds, part {part + 1} of {PARTS}", f"{each}: {figures}; 0 broken")


SEALED_SEEDS = 100


@pytest.mark.parametrize("part", parts(PARTS, always=1))
def test_every_answer_of_a_sealed_node_is_true(
    part: int, logbook: Logbook, figure: Callable[[str, object], None]
) -> None:
    """Its state comes back from an image on the disk, and no nonce is used twice in its lives."""
    for pattern in EXPECTED:
        logbook.allow(pattern)
    figures, each, seals = Figures(), SEALED_SEEDS // PARTS, 0
    for seed in range(30_000 + part * each, 30_000 + (part + 1) * each):
        with counted() as counts:
            world = World(seed, Shape(key=KEY))
            world.run()
        figures.add(world.figures)
        seals += counts.count
        shown = b"".join(content or b"" for content in world.disk.image().values())
        assert b"DEFINE" not in shown and b"PUBLISH" not in shown
    told = f"{each}: {figures}; {seals} seals, 0 nonces twice; 0 broken"
    figure(f"D sealed seeds, part {part + 1} of {PARTS}", told)


def test_log_that_goes_before_its_image_is_there_is_caught(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: a flush that says it has written what it has not."""
    logbook.allow("")

    def flush(self: SealedEngine, room: object = None) -> None:
        self._flushed = self.applied

    monkeypatch.setattr(SealedEngine, "flush", flush)
    with pytest.raises(Broken, match="the log begins at"):
        for seed in range(30_000, 30_050):
            World(seed, Shape(key=KEY)).run()


BROKEN_ONCE = {10_999: "a wait was over before its turn came, and nobody had looked"}
"""Seeds that found something, and what it was."""


@pytest.mark.parametrize("seed", BROKEN_ONCE)
def test_what_a_seed_found_is_mended(seed: int, worlds: Callable[[range], Figures]) -> None:
    worlds(range(seed, seed + 1))


KEPT_LATE = 10_419
"""A world in which a full disk refuses a statement whose entry is kept once there is room."""


def test_an_entry_that_is_kept_late_is_no_change(logbook: Logbook) -> None:
    logbook.allow("|".join(EXPECTED))
    World(KEPT_LATE).run()


def test_one_that_is_kept_twice_is_caught(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("")
    note = forwarded.note

    def again(tx: Transaction, node: str, life: bytes, number: int) -> bool:
        return note(tx, node, life, number + 1)

    monkeypatch.setattr(forwarded, "note", again)
    with pytest.raises(Broken, match="keeps an entry that was kept"):
        World(KEPT_LATE).run()


TRACES = "from tests.simulation.world import World; print([World(n).run() for n in range(2)])"


def test_a_seed_is_one_history(worlds: Callable[[range], Figures]) -> None:
    """In this process, in another, and whatever order its sets have."""

    def elsewhere(hashes: str) -> Any:
        told = {**os.environ, "PYTHONHASHSEED": hashes}
        ran = subprocess.run(
            [sys.executable, "-c", TRACES], env=told, capture_output=True, text=True, check=True
        )
        return ran.stdout.splitlines()[-1]

    here = [World(seed).run() for seed in range(2)]
    assert len(set(here)) == 2
    assert here == [World(seed).run() for seed in range(2)]
    assert elsewhere("1") == elsewhere("2") == str(here)


# --- planted faults -------------------------------------------------------------------------------


class AcknowledgesBeforeSync(SmallLog):
    def _write(self, data: bytes, reserved: bool, first: int | None, ends: bool = False) -> None:
        assert self._file is not None
        self._file.append(data)


class DropsTheLastFrame(SmallLog):
    """At a recovery: what nothing follows is not proved acknowledged, but it may have been."""

    def _move_tail(self, file: Any, old: Any, ending: Any, unproven: Sequence[Placed]) -> None:
        super()._move_tail(file, old, ending, unproven[:-1])


@pytest.mark.parametrize("planted", [AcknowledgesBeforeSync, DropsTheLastFrame])
def test_a_planted_log_is_caught(
    planted: type[SmallLog], logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "log_class", planted)
    _assert_caught(logbook)


def _forget_key(_reads: ReadSet, _key: bytes) -> None:
    pass


def _forget_range(_reads: ReadSet, _start: bytes, _end: bytes) -> None:
    pass


def _validate_nothing(_reads: ReadSet, _change: Any) -> None:
    pass


def _delete_uncounted(tx: Transaction, table: Any, id: Any, before: records.Stored) -> None:
    tx.delete_record(keys.record(table.prefix, id), before.sequence)


def _release_without_saw(run: ScriptRun) -> None:
    run.transaction.release()


_fine_fold = replay.fold


def _replay_no_range(found: Any, layer: Any) -> list[Any]:
    return _fine_fold([e for e in found if e[0] != effects.DELETE_RANGE], layer)


def _derives_nothing(_kept: Kept, changed: Any, get: Any) -> dict[bytes, bytes | None]:
    return {}


_fine_hand_over = Committer.hand_over
_handed_over: dict[int, bytes] = {}


def _ahead_of_the_log(committer: Committer, frame: Frame) -> None:
    """The state gets a commit before the log has it."""
    _fine_hand_over(committer, frame)
    _handed_over[frame.sequence] = frame.digest()
    before = range(committer.ledger.durable_upto + 1, frame.sequence)
    committer.ledger.mark_durable(frame.sequence - 1, [_handed_over[n] for n in before])
    committer.ledger.release(frame.sequence - 1)
    committer.ledger.settle()


def _settles_half(ledger: Ledger, layer: Any) -> bool:
    batch = ledger.engine.batch()
    writes = list(layer.writes.items())[: storage.ledger.SETTLE_KEYS]
    apply_writes(writes, layer.sequence, batch)
    ledger._write_settled(batch, [layer])
    return bool(ledger._next_part())


def _keeps_what_was_refused(_ledger: Ledger, _upto: int) -> None:
    pass


def _looks_up_what_others_see(tx: Transaction, at: Any) -> Any:
    found = tx._ledger.lookups.get(at)
    if found is None:
        return None
    tx._looked.add(found)
    return found.value


_fine_remove = Keys._remove


def _remove_uncounted(space_keys: Keys, name: bytes, found: Any) -> None:
    space_keys._tx.add(space_keys._space.count_key, 1)
    _fine_remove(space_keys, name, found)


def _deletes_no_entry(*_: object) -> bool:
    return False


def _stays_where_it_was(_append: Append, _layer: Any, _present: Any, _time_us: int) -> None:
    pass


def _never_differs(_before: bytes, _row: bytes) -> bool:
    return False


def _keeps_hand_outs(_hand_outs: HandOuts, *_: object) -> None:
    pass


_fine_lapse = HandOuts._lapse


def _lapses_early(hand_outs: HandOuts, most: int) -> int:
    now_us, hand_outs._now_us = hand_outs._now_us, hand_outs._now_us + 15_000
    try:
        return _fine_lapse(hand_outs, most)
    finally:
        hand_outs._now_us = now_us


def _leaves_deadlines(hand_outs: HandOuts, out: dict[int, Any]) -> None:
    hand_outs._state.out -= len(out)


_fine_end = MessageRows.end


def _forgets_the_end(rows: MessageRows, exactly: bool = True) -> tuple[int, int]:
    return _fine_end(rows, exactly=False)


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "a key that was read is not validated": (ReadSet, "add_key", _forget_key),
    "a range that was read is not validated": (ReadSet, "add_range", _forget_range),
    "nothing is validated": (conflicts, "_require_unread", _validate_nothing),
    "a count is kept wrong": (records, "delete", _delete_uncounted),
    "an answer does not wait for what it saw": (ScriptRun, "_release", _release_without_saw),
    "a replay forgets range deletes": (replay, "fold", _replay_no_range),
    "a replay derives nothing": (Kept, "follow", _derives_nothing),
    "the state runs ahead of the log": (Committer, "hand_over", _ahead_of_the_log),
    "half of a large commit reaches the state": (Ledger, "_settle_large", _settles_half),
    "a refused commit stays": (Ledger, "withdraw", _keeps_what_was_refused),
    "the count of a space is kept wrong": (Keys, "_remove", _remove_uncounted),
    "an index keeps what is no more": (indexes, "_may_delete", _deletes_no_entry),
    "what was published in a pause stays where it was": (Append, "settle", _stays_where_it_was),
    "where a group stands is not written": (books, "differ", _never_differs),
    "what is trimmed stays handed out": (HandOuts, "trimmed", _keeps_hand_outs),
    "hand-outs are taken back before their deadline": (HandOuts, "_lapse", _lapses_early),
    "a deadline stays of what was acknowledged": (HandOuts, "_leave", _leaves_deadlines),
    "who looked at the end of a topic is not validated": (MessageRows, "end", _forgets_the_end),
    "all share their look-ups": (Transaction, "known", _looks_up_what_others_see),
}

SHOWN_BY = {
    "a replay derives nothing": 2,
    "hand-outs are taken back before their deadline": 2,
    "all share their look-ups": 15,
}
"""A seed that showed a fault, tried before the others: most show it at once."""


@pytest.mark.parametrize("planted", some_of(PLANTED, every=3))
def test_a_planted_fault_is_caught(
    planted: str, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*PLANTED[planted])
    _assert_caught(logbook, SHOWN_BY.get(planted, 0))


def _assert_caught(logbook: Logbook, first: int = 0) -> None:
    logbook.allow("")
    with pytest.raises(Broken, match="seed "):
        for seed in (first, *range(60)):
            World(seed).run()
