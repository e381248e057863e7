"""Where the nodes agree by now, when nobody answers where the policy says: what others say is gone
by where it leads to the same, and no further."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actors.cluster import discovery
from actors.cluster.discovery import SILENT_US, AgreementLookup
from protocol.agreement import Agreement
from protocol.failover import Policy
from protocol.links import Way
from storage.catalog.failover import StoredPolicy
from storage.files.cluster_file import ClusterState
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.agreement import AgreementModel, Fate, ModelAgreement
from tests.simulation.environment import ManualClock

OLD, NEW, NEWER = "https://old:2379", "https://new:2379", "https://newer:2379"
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy((OLD,), timedelta(seconds=5), 1, timedelta(seconds=1), "AUTO")
KEPT = StoredPolicy(POLICY, "a store", SINCE)
KNOWN = ClusterState(agreement="model", revision=1)


@pytest.fixture(autouse=True)
def told(logbook: Logbook) -> None:
    logbook.allow("using the etcd addresses|another etcd cluster answers")


def way(*via: str, later: int = 1) -> Way:
    """What another says."""
    return Way(list(via), SINCE + timedelta(days=later))


class Away:
    """A node that finds nobody where its policy says."""

    def __init__(self, *ways: Way) -> None:
        self.ways = ways
        self.asked = 0
        self.clock = ManualClock()
        self.behind: dict[str, AgreementModel] = {}
        """By address, what answers there; nothing: nobody."""
        self.lookup = AgreementLookup(self.clock, self._door, self._ask)

    def _door(self, via: Sequence[str]) -> Agreement:
        found = self.behind.get(via[0])
        fate = Fate.REFUSED if found is None else Fate.ANSWERED
        return ModelAgreement(found or AgreementModel(), lambda: (fate, 0.01))

    async def _ask(self) -> Sequence[Way]:
        self.asked += 1
        return self.ways

    async def silent(self, microseconds: int, known: ClusterState = KNOWN) -> tuple[str, ...]:
        """Nobody has answered for so long; where it is asked then."""
        self.lookup.silent(POLICY, KEPT, known)
        self.clock.advance(microseconds)
        self.lookup.silent(POLICY, KEPT, known)
        await asyncio.sleep(1)
        return self.lookup.via(POLICY)


def played(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    stepped.run(main(), 1)


def test_others_are_asked_once_nobody_has_answered_for_long() -> None:
    async def main() -> None:
        away = Away(way(NEW))
        away.behind[NEW] = AgreementModel()
        assert await away.silent(SILENT_US - 1) == (OLD,) and away.asked == 0
        away.lookup.on_answer()
        assert await away.silent(SILENT_US - 1) == (OLD,) and away.asked == 0
        assert await away.silent(1) == (NEW,) and away.asked == 1
        other = POLICY._replace(via=(NEWER,))
        assert away.lookup.via(other) == (NEWER,), "its log has come further"

    played(main)


def test_the_newest_that_answers_counts() -> None:
    async def main() -> None:
        away = Away(way(NEW), way("https://newest:2379", later=3), way(NEWER, later=2))
        away.behind |= {NEW: AgreementModel(), NEWER: AgreementModel()}
        assert await away.silent(SILENT_US) == (NEWER,)

    played(main)


def test_where_nobody_answers_any_more_it_begins_again() -> None:
    async def main() -> None:
        away = Away(way(NEW))
        away.behind[NEW] = AgreementModel()
        assert await away.silent(SILENT_US) == (NEW,)
        away.lookup.on_answer()
        assert await away.silent(SILENT_US) == (OLD,)
        assert await away.silent(SILENT_US) == (NEW,) and away.asked == 2

    played(main)


@pytest.mark.parametrize(
    ("said", "agreement", "known"),
    [
        (way(NEW, later=0), AgreementModel(), KNOWN),
        (way(NEW), AgreementModel("another"), KNOWN),
        (way(NEW), AgreementModel(), KNOWN._replace(revision=7)),
        (way("http://new:2379"), AgreementModel(), KNOWN),
        (way(NEW, "http://new:2379"), AgreementModel(), KNOWN),
        (way("https://user:password@new:2379"), AgreementModel(), KNOWN),
        (way("https://new:2379/path"), AgreementModel(), KNOWN),
        (way(), AgreementModel(), KNOWN),
        (Way([NEW]), AgreementModel(), KNOWN),
    ],
    ids=[
        "no later", "another etcd", "one that was set back", "in clear", "partly in clear",
        "with a password", "with a path", "nothing", "by no policy",
    ],
)  # fmt: skip
def test_what_leads_elsewhere_is_not_believed(
    said: Way, agreement: AgreementModel, known: ClusterState
) -> None:
    not_believed(said, agreement, known)


def not_believed(said: Way, agreement: AgreementModel, known: ClusterState) -> None:
    async def main() -> None:
        away = Away(said)
        if said.via:
            away.behind[said.via[0]] = agreement
        assert await away.silent(SILENT_US, known) == (OLD,)
        assert away.asked == 1

    played(main)


def test_a_planted_fault_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_may_be_asked", lambda *_: True)
    with pytest.raises(AssertionError):
        not_believed(way("http://new:2379"), AgreementModel(), KNOWN)


def test_what_was_agreed_is_compared_with_what_was_heard() -> None:
    """A node that has never heard of any takes what is said."""

    async def main() -> None:
        away = Away(way(NEW))
        away.behind[NEW] = AgreementModel("another")
        assert await away.silent(SILENT_US, ClusterState()) == (NEW,)

    played(main)
