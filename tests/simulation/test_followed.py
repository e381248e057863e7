"""Three nodes that follow one another, from a seed; and planted faults that the rig must detect."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from actors.commits.following import FollowedLog
from protocol.errors import Refusal
from storage.faults import StoreFault
from storage.indexes.derived import MaintainedIndexes
from storage.log.log import Log
from storage.log.reader import LogReader
from storage.txn.catalog_cache import CatalogCache
from storage.txn.committed_state import CommittedState
from storage.txn.ledger import Ledger
from storage.txn.write_set import WriteSet
from tests.logbook import Logbook
from tests.simulation.followed import Cluster3
from tests.sweeps import some_of

EXPECTED = (
    "node failed.*the machine died",
    "unreleased frames were cut off",
    "the next start replays more of the log",
    "the last commits were refused",
    "actor failed",
)


@pytest.fixture
def clusters(logbook: Logbook) -> Callable[[Sequence[int]], Counter[str]]:
    """Run clusters, and sum up their figures."""
    for pattern in EXPECTED:
        logbook.allow(pattern)

    def run(seeds: Sequence[int]) -> Counter[str]:
        figures = Counter[str]()
        for seed in seeds:
            figures.update(Cluster3(seed).run())
        return figures

    return run


# --- planted faults -------------------------------------------------------------------------------


def _declares_nothing(write_set: WriteSet) -> set[bytes]:
    write_set.catalog = True
    return set()


def _enters_nothing(
    _kept: MaintainedIndexes, _changed: Any, _get: Any
) -> Generator[None, None, dict[bytes, bytes | None]]:
    yield
    return {}


def _keeps_what_was_not_released(ledger: Ledger, upto: int, *why: Any) -> None:
    if upto == ledger.synced_seq:
        _fine_withdraw(ledger, upto, *why)


_fine_withdraw = Ledger.roll_back
_fine_take = FollowedLog.take


def _acknowledges_at_once(following: FollowedLog, *taken: Any) -> Any:
    _fine_take(following, *taken)
    done = following._runtime.loop.create_future()
    done.set_result(following._handed)
    return done


def _cuts_nothing(log: Log, after: int) -> None:
    """Planted fault: report a cut without making it."""
    at = log.reader.position_at(after)
    log.state.last, log.state.epoch, log.state.last_time, log.state.digest = (
        after,
        at.epoch,
        at.time,
        at.digest,
    )


def _remembers_look_ups(catalog_cache: CatalogCache, sequence: int, *_: Any) -> None:
    catalog_cache.since = sequence


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "shows what is not released": (FollowedLog, "_upto", property(lambda one: one.log_upto)),
    "starts with what is not released": (LogReader, "end_at", lambda log, _sequence: log.state.end),
    "remembers look-ups": (CatalogCache, "changed", _remembers_look_ups),
    "enters nothing in indexes": (MaintainedIndexes, "follow", _enters_nothing),
    "keeps what was not released": (Ledger, "roll_back", _keeps_what_was_not_released),
    "acknowledges at once": (FollowedLog, "take", _acknowledges_at_once),
    "cuts nothing": (Log, "cut", _cuts_nothing),
    "one moment is another": (CommittedState, "freeze", lambda state, reads: (state.engine, [])),
    "declares nothing": (WriteSet, "declares", _declares_nothing),
}


SHOWN_BY = {"acknowledges at once": 35}
"""Seed that detects a planted fault, by fault; tried before others."""


@pytest.mark.parametrize("fault", some_of(FAULTS, every=3))
def test_a_planted_fault_is_found(
    fault: str, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow(".*")
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, Refusal, StoreFault)):
        for seed in (SHOWN_BY.get(fault, 0), *range(100)):
            Cluster3(seed).run()
    gc.collect()  # errors of a broken world's tasks are reported here, not in another test


@pytest.mark.parametrize(
    "seeds",
    [
        (0, 1, *SHOWN_BY.values()),
        *(pytest.param(range(at, at + 10), marks=pytest.mark.hard) for at in range(0, 100, 10)),
    ],
    ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}",
)
def test_whoever_leads_they_show_the_same(
    seeds: Sequence[int],
    clusters: Callable[[Sequence[int]], Counter[str]],
    figure: Callable[[str, object], None],
) -> None:
    figures = clusters(seeds)
    assert figures["cuts"] and figures["unknown"] and figures["leaders"] > len(seeds)
    figure(f"D clusters from {seeds[0]} to {seeds[-1]}", f"{dict(figures)}; 0 broken")
