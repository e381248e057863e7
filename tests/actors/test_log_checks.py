"""Older segments are read in the background, and their damage shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from actors import log_checks
from actors.log_checks import LogChecksActor
from actors.log_reads import LogChecks, LogReadActor
from actors.runtime import Supervised, stop
from protocol import limits
from storage.formats.frames import SEGMENT_HEADER_BYTES
from storage.log.state import LogSizes
from tests.actors.parts import Parts, on_both, on_stepped, parts, play, until
from tests.logbook import Logbook

both = pytest.mark.parametrize("kind", ["stepped", "real"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds at once, of a few frames each part."""
    monkeypatch.setattr(limits, "LOG_CHECK_BYTES", 300)
    monkeypatch.setattr(limits, "LOG_CHECK_AFTER_SECONDS", 0)
    monkeypatch.setattr(limits, "LOG_CHECK_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(limits, "LOG_CHECK_ROUND_SECONDS", 0.01)


@asynccontextmanager
async def checked(kind: str, frames: int = 30) -> AsyncIterator[tuple[Parts, LogChecks]]:
    """A log in segments of four frames that is being checked, and what is found."""
    async with parts(kind) as node:
        node.log.state.sizes = LogSizes(segment_frames=4)
        for number in range(frames):
            await node.durable(node.put(f"k{number}", b"x" * 100))
        found = LogChecks()
        reader = Supervised(
            lambda: LogReadActor.start(node.runtime, node.log.reader, found), refoldable=True
        )
        ref = LogChecksActor.start(node.runtime, node.committer, reader)
        try:
            yield node, found
        finally:
            await stop(ref)
            await stop(reader.ref)


def damage(node: Parts, first: int, at: int = SEGMENT_HEADER_BYTES + 20) -> str:
    """Flip a bit in the segment that begins with a sequence. Answers its path."""
    path = f"/store/log/{first:020d}.storelog"
    inode = node.disk._file(path)
    inode.cache[at] ^= 1
    return path


@on_both
async def test_a_whole_log_is_read_again_and_again(kind: str) -> None:
    async with checked(kind) as (node, found):
        await until(lambda: found.rounds >= 2)
        assert found.info(1)["damage"] == []
        assert node.log.state.newest == 29
        await until(lambda: found.checked == 28)


@both
def test_damage_is_logged_once_and_the_rest_is_read(kind: str, logbook: Logbook) -> None:
    logbook.allow("the log is damaged")

    async def main() -> None:
        async with checked(kind) as (node, found):
            paths = [damage(node, 5), damage(node, 17)]
            rounds = found.rounds + 2
            await until(lambda: found.rounds >= rounds)
            shown = found.found(1)
            assert [one.file for one in shown] == paths
            assert [one.sequence for one in shown] == [5, 17]
            assert found.found(9) == shown[1:], "what is pruned is no damage"
            await node.durable(node.put("more", b"1"))
            assert not node.failures.failed

    play(kind, main)
    assert logbook.names().count("the log is damaged") == 2


@on_both
async def test_pruned_meanwhile(kind: str) -> None:
    async with checked(kind) as (node, found):
        node.log.prune(13)
        rounds = found.rounds + 2
        await until(lambda: found.rounds >= rounds)
        assert found.info(node.log.state.first)["damage"] == []
        node.log.prune(29)  # one segment is left: there is nothing to read
        rounds = found.rounds + 2
        await until(lambda: found.rounds >= rounds)


@on_stepped
async def test_beside_commits_the_pauses_are_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_CHECK_PAUSE_SECONDS", 1)
    monkeypatch.setattr(limits, "LOG_CHECK_ROUND_SECONDS", 1_000)
    async with checked("stepped") as (node, found):
        await asyncio.sleep(0.1)
        before = found.checked
        for number in range(50):
            await node.durable(node.put(f"busy{number}", b"1"))
            await asyncio.sleep(0.1)
        assert found.checked == before, "nothing was read while others committed"
        await asyncio.sleep(log_checks.BUSY_TIMES + 30)
        assert found.rounds == 1
