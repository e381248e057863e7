"""R10: one state, however it was come by: live, replayed on what a crash left of it, from the log
alone, and as clients were told it while others wrote."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.logbook import Logbook
from tests.simulation.seeds import EXPECTED
from tests.simulation.world import EventCounts, World, WorldShape
from tests.sweeps import parts

APART = 50
"""Seeds from the beginning of one part to that of the next."""
EACH = 10
EACH_HARD = 20
"""Seeds of a part: of the first, which runs with every change, and of each of the others."""
PARTS = 10
SHAPE = WorldShape(lives=2, clients=3, scripts=4, pruned=False, rebuilt=True)
"""The whole log is kept, so that the state can be deleted at any time."""


@pytest.mark.parametrize("part", parts(PARTS, always=1))
def test_every_way_leads_to_one_state(
    part: int, logbook: Logbook, figure: Callable[[str, object], None]
) -> None:
    figures, each = EventCounts(), EACH_HARD if part else EACH
    for pattern in EXPECTED:
        logbook.allow(pattern)
    first = 50_000 + part * APART
    for seed in range(first, first + each):
        world = World(seed, SHAPE)
        world.run()
        figures.add(world.figures)
    assert figures.live >= each and min(figures.rebuilt, figures.replayed) >= each // 4
    told = (
        f"{figures.live} live, {figures.replayed} replayed, {figures.rebuilt} from the log alone,"
        f" {figures.told} told; 0 differ"
    )
    figure(f"R10 histories, part {part + 1} of {PARTS}", f"{each}: {told}")
