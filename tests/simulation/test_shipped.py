"""Three nodes that ship their logs to each other, from a seed; and planted faults that the rig must
detect."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from actors.cluster.replica_receiver import ReplicaReceiver
from actors.cluster.replica_senders import ReplicaSender
from protocol.errors import Refusal
from storage.faults import StoreFault
from storage.formats.frames import Frame
from tests.logbook import Logbook
from tests.simulation.shipped import Shipped

APART = 25
EACH = 10
"""Seeds of each of the parts, and from the beginning of one to that of the next."""
STEPS = 150

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
            figures.update(Shipped(seed).run(STEPS))
        figures["compared"] = logbook.names().count("the state is the leader's")
        return figures

    return run


@pytest.mark.hard
@pytest.mark.parametrize("part", range(20))
def test_in_many_worlds_they_show_the_same(
    part: int,
    clusters: Callable[[Sequence[int]], Counter[str]],
    figure: Callable[[str, object], None],
) -> None:
    first = 1_000 + part * APART
    figures = clusters(range(first, first + EACH))
    figure(f"D shipping, many, part {part + 1}", f"{EACH}: {dict(figures)}; 0 broken")


# --- planted faults -------------------------------------------------------------------------------


def _shows_all(receiving: ReplicaReceiver, released: int) -> None:
    _fine_hear_released(receiving, max(released, receiving._synced))


def _leaves_frames_out(shipping: ReplicaSender, frames: list[Frame]) -> None:
    _fine_send(shipping, frames[1:] if len(frames) > 2 else frames)


_fine_hear_released = ReplicaReceiver._on_commit_index
_fine_send = ReplicaSender._send

FAULTS: dict[str, tuple[Any, str, Any]] = {
    "shows what is not released": (ReplicaReceiver, "_on_commit_index", _shows_all),
    "leaves frames out": (ReplicaSender, "_send", _leaves_frames_out),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    fault: str, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow(".*")
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, Refusal, StoreFault)):
        for seed in range(40):
            Shipped(seed).run(STEPS)
    gc.collect()  # what tasks were ended by is logged here, and not in a later test


@pytest.mark.parametrize(
    "seeds",
    [
        range(5),
        *(pytest.param(range(at, at + 10), marks=pytest.mark.hard) for at in range(0, 60, 10)),
    ],
    ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}",
)
def test_whatever_the_network_does_they_show_the_same(
    seeds: Sequence[int],
    clusters: Callable[[Sequence[int]], Counter[str]],
    figure: Callable[[str, object], None],
) -> None:
    figures = clusters(seeds)
    assert figures["attached"] > len(seeds) and figures["leaders"] > len(seeds)
    assert figures["compared"]
    figure(f"D shipping from {seeds[0]} to {seeds[-1]}", f"{dict(figures)}; 0 broken")
