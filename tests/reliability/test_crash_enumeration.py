"""R1: cut the power at every operation of a log's life; nothing acknowledged is ever lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

import storage.files.directory
import storage.files.metadata_file
import storage.log.log
from protocol.environment import File, Fs
from storage.faults import StoreFault
from storage.formats.frames import Frame, PlacedFrame
from storage.formats.positions import LogPosition
from storage.log.log import Log
from storage.log.recovery import Recovery, SegmentEnd
from storage.log.segments import Segment
from storage.log.tail_writer import TailWriter
from tests.reliability.crashes import Broken, Enumeration, enumerate_crashes
from tests.sweeps import some_of

STATES = 48_000
PARTS = 8
SAMPLE = {"alone": {7: 3_000}, "follows": {2: 800, 9: 800}}
"""Crash states by seed that show each planted fault below."""


def sampled(kind: str, log_class: type[Log] = Log) -> Iterator[Enumeration]:
    for seed, states in SAMPLE[kind].items():
        yield enumerate_crashes(seed, states, log_class, follows=kind == "follows")


@pytest.mark.parametrize("kind", SAMPLE)
def test_no_crash_state_breaks_a_promise(kind: str, figure: Callable[[str, object], None]) -> None:
    for done in sampled(kind):
        assert done.recoveries_cut > done.states // 10
        figure(f"R1 crash states, {kind}", told(done))


@pytest.mark.hard
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", SAMPLE)
def test_no_crash_state_of_many_breaks_a_promise(
    kind: str, part: int, figure: Callable[[str, object], None]
) -> None:
    follows = kind == "follows"
    done = enumerate_crashes(seed=part, states=STATES // PARTS // (1 + follows), follows=follows)
    assert done.recoveries_cut > done.states // 10
    figure(f"R1 many crash states, {kind}, part {part + 1} of {PARTS}", told(done))


def told(done: Enumeration) -> str:
    return (
        f"{done.states}, {done.recoveries_cut} of them in a recovery; 0 lost, 0 ghosts, 0 refused"
    )


class WritesWithoutSync(TailWriter):
    def write(self, data: bytes, reserved: bool, first: int | None, ends: bool = False) -> None:
        assert self.file is not None
        self.file.append(data)


class AcknowledgesBeforeSync(Log):
    writes = WritesWithoutSync


class TrustsThePageCache(Log):
    """Appends to the old segment after an unclean stop, without rewriting its tail."""

    def _move_tail(self, file: File, old: Segment, ending: SegmentEnd, unproven: object) -> None:
        file.truncate(ending.good)
        old.size = ending.good
        self.tail.file = file
        self.recovery = Recovery(False, self.state.last)


class PrunesBeforeItSaysSo(Log):
    def prune(self, below: int) -> None:
        for segment in self.state.segments[:-1]:
            if segment.first < below:
                self.state.fs.unlink(segment.path)
        super().prune(below)


class DropsTheLastSegmentBeforeItBeganAnother(Log):
    """What it gives way with is the segment that it stands in."""

    def give_way(self, flushed: int) -> int:
        if flushed >= self.state.last:
            self.markers.write("BEGINS", {"first": self.state.last + 1})
        return super().give_way(flushed)


class CutsBackUnsynced(TailWriter):
    def _cut_back(self, file: File, data: bytes, first: int | None) -> None:
        with suppress(OSError):
            file.truncate(self.state.segments[-1].size)
        self.worn = True


class CutsBackWithoutSync(Log):
    writes = CutsBackUnsynced


class WritesOnBehindTheCut(TailWriter):
    def _cut_back(self, file: File, data: bytes, first: int | None) -> None:
        super()._cut_back(file, data, first)
        self.worn = False


class WritesOnAfterCuttingBack(Log):
    writes = WritesOnBehindTheCut


class RefusesByName(TailWriter):
    def _cut_back(self, file: File, data: bytes, first: int | None) -> None:
        super()._cut_back(file, data, None)


class SaysThatItIsNotThere(Log):
    """What could not be cut off is refused by name, though a start finds it."""

    writes = RefusesByName


class ForgetsTheRest(TailWriter):
    def cut_torn(self, reserved: bool) -> None:
        self.torn = False


class ForgetsWhatItCouldNotCut(Log):
    """Goes on behind it in another segment, and a start finds both."""

    writes = ForgetsTheRest


class LeavesClosedStanding(Log):
    def _prepare_to_write(self, reserved: bool) -> None:
        self._closed_file = False
        super()._prepare_to_write(reserved)


class TakesMarksForProof(Log):
    """Forgets the frames of the last batch when it recovers."""

    def _move_tail(
        self, file: File, old: Segment, ending: SegmentEnd, unproven: Sequence[PlacedFrame]
    ) -> None:
        super()._move_tail(file, old, ending, unproven[:-1])


class NotesNewestBeforeItIsThere(Log):
    """A crash in between leaves a log that looks as if its newest segment were lost."""

    def _begin_segment(self, at: LogPosition, copied: Sequence[PlacedFrame], flags: int) -> Segment:
        self.markers.write("NEWEST", {"first": at.sequence + 1})
        return super()._begin_segment(at, copied, flags)


class KeepsZeros(TailWriter):
    def take_zeros_off(self, reserved: bool) -> None:
        self.zeros = 0


class LeavesZeros(Log):
    """Closes a segment with what was put ahead of its end."""

    writes = KeepsZeros


class CutsZerosUnsynced(TailWriter):
    def take_zeros_off(self, reserved: bool) -> None:
        if self.zeros and self.file is not None:
            self.file.truncate(self.state.segments[-1].size)
        self.zeros = 0


class TakesZerosOffUnsynced(Log):
    """The next segment is begun, or CLOSED written, while the cut may still be lost."""

    writes = CutsZerosUnsynced


class CutsWithoutSync(Log):
    """The old segment is cut, and no new one takes over behind it."""

    def cut(self, after: int) -> None:
        state = self.state
        offset = self._offset_of(state.segments[-1], after + 1)
        at = self.reader.position_at(after)
        if state.segments[-1].first > after or after >= state.last:
            super().cut(after)
            return
        assert self.tail.file is not None
        self.tail.file.truncate(offset)
        state.segments[-1].size, self.tail.zeros = offset, 0
        state.last, state.epoch, state.last_time, state.digest = (
            after, at.epoch, at.time, at.digest,
        )  # fmt: skip


class LeavesNewestStanding(Log):
    """What is cut looks as if it had been lost."""

    def _write_newest(self, first: int, reserved: bool) -> None:
        if first > self._newest:
            super()._write_newest(first, reserved)


class ForgetsThatTheOldOneGoesOn(Log):
    """Readers go through what was cut."""

    def _begin_segment(self, at: LogPosition, copied: Sequence[PlacedFrame], flags: int) -> Segment:
        return super()._begin_segment(at, copied, flags if copied else 0)


class SaysTheReignTooLate(Log):
    """HISTORY behind the first frame of the next epoch."""

    def _note_epoch_ends(self, frames: Sequence[Frame], reserved: bool) -> None:
        write, note = self.tail.write, super()._note_epoch_ends

        def late(*told: Any) -> None:
            vars(self.tail).pop("write")
            write(*told)
            note(frames, reserved)

        vars(self.tail)["write"] = late


ALONE = [
    AcknowledgesBeforeSync, TrustsThePageCache, PrunesBeforeItSaysSo, CutsBackWithoutSync,
    ForgetsWhatItCouldNotCut, LeavesClosedStanding, TakesMarksForProof, NotesNewestBeforeItIsThere,
    LeavesZeros, TakesZerosOffUnsynced, DropsTheLastSegmentBeforeItBeganAnother,
]  # fmt: skip
FOLLOWS = [
    CutsWithoutSync, LeavesNewestStanding, ForgetsThatTheOldOneGoesOn, SaysTheReignTooLate,
]  # fmt: skip
RARELY_SHOWN = [WritesOnAfterCuttingBack, SaysThatItIsNotThere]


@pytest.mark.parametrize(
    "kind, planted",
    some_of([*(("alone", one) for one in ALONE), *(("follows", one) for one in FOLLOWS)], every=4),
)
def test_planted_log_is_caught(kind: str, planted: type[Log]) -> None:
    with pytest.raises((Broken, StoreFault, AssertionError)):
        list(sampled(kind, planted))


@pytest.mark.hard
@pytest.mark.parametrize("planted", RARELY_SHOWN)
def test_planted_log_that_few_states_show_is_caught(planted: type[Log]) -> None:
    with pytest.raises((Broken, StoreFault, AssertionError)):
        enumerate_crashes(seed=1, states=60_000, log_class=planted)


def _rename_before_sync(fs: Fs, tmp: str, target: str, data: bytes) -> None:
    folder, _, name = target.rpartition("/")
    file = fs.open(f"{tmp}/{name}.new", create=True)
    file.truncate(0)
    file.append(data)
    file.close()
    fs.rename(f"{tmp}/{name}.new", target)
    fs.sync_directory(folder)


def _directory_not_synced(fs: Fs, tmp: str, target: str, data: bytes) -> None:
    _, _, name = target.rpartition("/")
    file = fs.open(f"{tmp}/{name}.new", create=True)
    file.truncate(0)
    file.append(data)
    file.sync()
    file.close()
    fs.rename(f"{tmp}/{name}.new", target)


@pytest.mark.parametrize("planted", [_rename_before_sync, _directory_not_synced])
def test_planted_replace_is_caught(
    planted: Callable[[Fs, str, str, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (storage.log.log, storage.files.metadata_file, storage.files.directory):
        monkeypatch.setattr(module, "replace_file", planted)
    with pytest.raises((Broken, StoreFault, AssertionError)):
        list(sampled("alone"))
