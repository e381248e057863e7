"""Log backups: frames come back as they were, and as far as a broken file still proves them."""

from __future__ import annotations

import random

import pytest

from protocol.errors import BackupCorrupt, BackupCut, WrongKey
from storage.backups import log_file, verify
from storage.backups.log_file import LogBackup
from storage.formats import container
from storage.formats.frames import Frame
from storage.formats.positions import LogPosition
from storage.formats.sealing import Key
from tests.simulation.environment import SeededRng
from tests.storage.backups import held
from tests.storage.backups.held import KEY, KEYS, HeldFile


def frames(count: int, first: int = 1, largest: int = 300) -> list[Frame]:
    """Frames of a log, some of them long."""
    chance = random.Random(count)
    return [
        Frame(n, 1 + n // 20, 1_000 + n, 256 * (n % 2), chance.randbytes(chance.randrange(largest)))
        for n in range(first, first + count)
    ]


def backup(some: list[Frame], key: Key | None = None, before: LogPosition = held.START) -> bytes:
    parts: list[bytes] = []
    facts = held.log_facts(before.sequence + len(some), before)
    written = held.finished(log_file.write(some, facts, parts.append, SeededRng(5), key))
    data = b"".join(parts)
    assert (written.size, written.records) == (len(data), len(some))
    assert written.sequence == facts.last
    return data


def read(data: bytes, key: Key | None = None) -> list[Frame]:
    return list(LogBackup(HeldFile(data), key).frames())


def read_on(data: bytes, key: Key | None = None) -> tuple[list[Frame], Exception | None]:
    """The frames that a backup still proves, and what was wrong then."""
    found: list[Frame] = []
    try:
        found.extend(LogBackup(HeldFile(data), key).frames())
    except (BackupCut, BackupCorrupt) as problem:
        return found, problem
    return found, None


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of some bytes, so that frames go over their borders."""
    monkeypatch.setattr(container, "CHUNK_BYTES", 512)


@KEYS
@pytest.mark.parametrize("count", [0, 1, 2, 100])
@pytest.mark.usefixtures("small")
def test_frames_come_back(key: Key | None, count: int) -> None:
    some = frames(count)
    assert read(backup(some, key), key) == some


def test_what_is_written_gives_way() -> None:
    steps = log_file.write(frames(2_000), held.log_facts(2_000), lambda data: None, SeededRng(5))
    assert sum(1 for _ in steps) >= 7


@KEYS
@pytest.mark.usefixtures("small")
def test_a_cut_file_proves_a_prefix(key: Key | None) -> None:
    some = frames(60)
    data = backup(some, key)
    most = 0
    for size in range(held.chunks(data)[0][1], len(data), 19):
        found, problem = read_on(data[:size], key)
        assert isinstance(problem, BackupCut)
        assert found == some[: len(found)]
        assert problem.detail["sequence"] == len(found) + 1
        most = max(most, len(found))
    assert most == 60


@pytest.mark.usefixtures("small")
def test_a_cut_plain_file_proves_its_last_whole_frame() -> None:
    """Though the chunk that it stands in is not whole."""
    some = frames(60, largest=20)
    data = backup(some)
    [*_, (begun, _), _] = held.chunks(data)
    counts = {len(read_on(data[:size])[0]) for size in range(begun, len(data), 10)}
    assert len(counts) >= 3


@KEYS
@pytest.mark.usefixtures("small")
def test_damage_is_found_and_what_stands_before_it_is_not_lost(key: Key | None) -> None:
    some = frames(60)
    data = backup(some, key)
    begins = held.chunks(data)[1][0]
    for at in range(begins, len(data), 31):
        broken = data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :]
        found, problem = read_on(broken, key)
        assert isinstance(problem, BackupCorrupt | BackupCut)
        assert found == some[: len(found)]
        report = verify.verify(HeldFile(broken), key)
        assert report.result in ("corrupt", "cut")
        assert report.sequence == len(found) == report.records
        assert report.at is not None and report.at <= at + container.CHUNK_HEAD_BYTES


def test_a_gap_is_damage() -> None:
    """As only a fault of whoever wrote it could make one: every check holds."""
    some = frames(20)
    parts: list[bytes] = []
    copy = log_file.LogBackupWriter(held.log_facts(19), parts.append, SeededRng(5))
    copy.add(some[:9])
    copy._last = 10
    copy.add(some[10:])
    copy._last = 19
    copy.end()
    found, problem = read_on(b"".join(parts))
    assert found == some[:9]
    assert isinstance(problem, BackupCorrupt) and "found that of 11" in str(problem)


@KEYS
def test_verify_says_what_a_whole_file_holds(key: Key | None) -> None:
    some = frames(20, first=5)
    before = LogPosition(4, 1, 1_004, bytes(16))
    report = verify.verify(HeldFile(backup(some, key, before)), key)
    assert (report.form, report.result, report.sealed) == ("log", "whole", key is not None)
    assert (report.sequence, report.records) == (24, 20)
    assert report.facts == held.log_facts(24, before)


def test_verify_needs_the_key() -> None:
    with pytest.raises(WrongKey):
        verify.verify(HeldFile(backup(frames(3), KEY)), held.OTHER_KEY)
