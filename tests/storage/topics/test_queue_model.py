"""Topics and groups against their model, on both engines; and bugs that the model must see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage.topics.deliveries.delivery import DeliveryRow
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import GroupState
from storage.topics.message_rows import MessageRows
from storage.txn.appends import Append
from storage.txn.write_set import WriteSet
from tests.storage.engines import KINDS, make
from tests.storage.queue_story import QueueStory

SAMPLE = {"memory": [0, 1, 40, *range(2, 8)], "rocks": [0, 1]}
"""Histories that show every bug below."""
MANY = {"memory": range(60), "rocks": range(6)}


@pytest.mark.parametrize("of", [SAMPLE, pytest.param(MANY, marks=pytest.mark.hard)])
@pytest.mark.parametrize("kind", KINDS)
def test_random_histories(
    kind: str,
    of: dict[str, Sequence[int]],
    tmp_path: Path,
    figure: Callable[[str, object], None],
) -> None:
    commits = conflicts = crashes = 0
    for seed in of[kind]:
        place = tmp_path / str(seed)
        place.mkdir()
        store = make(kind, place)
        story = QueueStory(seed, store)
        try:
            story.run()
        except Exception as error:
            error.add_note(f"seed {seed} on {kind}")
            raise
        finally:
            store.close()
        commits += story.commits
        conflicts += story.conflicts
        crashes += story.crashes
    figure(f"queues on {kind}", f"{commits} commits, {conflicts} conflicts, {crashes} crashes")
    assert conflicts, "no transaction ever lost a race"


def nothing(*_arguments: object, **_named: object) -> None:
    """Do nothing."""


def same_numbers(self: Append, write_set: WriteSet, present: bytes | None, time_us: int) -> None:
    """What is appended stays where the transaction put it, whatever others have appended."""


_end = MessageRows.end


def never_exactly(self: MessageRows, exactly: bool = True) -> tuple[int, int]:
    """Nobody remembers that it was at the end of a topic."""
    return _end(self, exactly=False)


def once_more(self: DeliveryIndex, row: DeliveryRow) -> bool:
    """One delivery too many."""
    return self.group.deliveries is not None and row.attempt > self.group.deliveries


def stays_listed(self: DeliveryIndex, out: dict[int, DeliveryRow]) -> None:
    """A deadline remains of what was acknowledged."""
    self.state.out -= len(out)


def since_now(
    self: DeliveryIndex, position: int, row: DeliveryRow, since_us: int, delay: Any
) -> None:
    """What lapsed is due since somebody looked."""
    _return(self, position, row, self.now_us, delay)


_return = DeliveryIndex.schedule_redelivery


def same_epoch(self: GroupState) -> bytes:
    """A group that was moved takes receipts from before."""
    self.epoch = 1
    return _pack(self)


_pack = GroupState.pack

PLANTED = [
    (Append, "renumber", same_numbers), (MessageRows, "end", never_exactly),
    (DeliveryIndex, "is_last", once_more), (DeliveryIndex, "leave_flight", stays_listed),
    (DeliveryIndex, "schedule_redelivery", since_now),
    (DeliveryIndex, "advance_committed", nothing),
    (GroupState, "pack", same_epoch),
]  # fmt: skip


@pytest.mark.parametrize("whose, name, bug", PLANTED, ids=lambda one: getattr(one, "__name__", one))
def test_planted_bugs_are_seen(
    whose: Any, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whose, name, bug)
    with pytest.raises(Exception):  # noqa: B017
        for seed in SAMPLE["memory"]:
            QueueStory(seed).run()
