"""The log warns of a certificate that expires soon, and says when one has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from actors.certificates import CertificatesActor, CheckCertificates
from actors.node_info import Listening, NodeInfo
from actors.runtime import stop, tell
from protocol.environment import Clock
from protocol.requests import Surface
from protocol.values import instant
from storage.engine.memory import MemoryEngine
from tests.actors.nodes import running, simulated_environment
from tests.actors.parts import Failures, on_stepped
from tests.logbook import Logbook
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import START_US, LoopClock, ManualClock

NOW = instant(START_US)
DAY = timedelta(days=1)
SOON = "the certificate expires soon"
OVER = "the certificate has expired"


def presenting(*expiries: datetime | None) -> tuple[Listening, ...]:
    """Two surfaces, or one, with certificates that expire then."""
    names: tuple[Surface, Surface] = ("http", "wire")
    return tuple(
        Listening(name, "127.0.0.1:1", expires is not None, expires)
        for name, expires in zip(names, expiries, strict=False)
    )


def lines(logbook: Logbook) -> list[tuple[str, Any, Any]]:
    """What was said of certificates: level, days left, surfaces."""
    return [
        (event["level"], event.get("days_left"), event["surfaces"])
        for event in logbook.events
        if event["event"].startswith((SOON, OVER))
    ]


class Watched:
    """The actor over surfaces that the test decides about."""

    def __init__(self, clock: Clock | None) -> None:
        self.failures = Failures()
        self.facts = NodeInfo(lambda: None, dict)  # type: ignore[arg-type, return-value]
        self.runtime = self.failures.runtime("stepped", clock)
        self.ref = CertificatesActor.start(self.runtime, self.facts)

    async def present(self, *expiries: datetime | None) -> None:
        """Present these from now on."""
        self.facts.listening = presenting(*expiries)
        tell(self.ref, CheckCertificates())
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@asynccontextmanager
async def watched(clock: Clock | None = None) -> AsyncIterator[Watched]:
    """The actor; it must not have failed."""
    made = Watched(clock)
    yield made
    await stop(made.ref)
    assert not made.failures.failed


@on_stepped
async def test_a_line_a_day_from_fourteen_days_ahead_and_an_error_from_the_moment_on(
    logbook: Logbook,
) -> None:
    logbook.allow(f"{SOON}|{OVER}")
    clock = LoopClock(asyncio.get_running_loop())
    async with watched(clock) as here:
        expires = NOW + 16 * DAY + timedelta(hours=5)
        await here.present(expires, expires)
        said: list[str] = []

        async def until(moment: datetime, *more: str) -> None:
            now = instant(clock.wall_us())
            await asyncio.sleep((moment - now).total_seconds())
            said.extend(more)
            assert [level for level, _, _ in lines(logbook)] == said, moment

        second = timedelta(seconds=1)
        await until(expires - 14 * DAY - second)
        await until(expires - 14 * DAY + second, "warning")
        for days in range(13, 0, -1):
            await until(expires - days * DAY - second)
            await until(expires - days * DAY + 2 * second, "warning")
            assert lines(logbook)[-1][1] in (days, days - 1)
        await until(expires - second)
        await until(expires + 2 * second, "error")
        await until(expires + DAY - second)
        await until(expires + DAY + 3 * second, "error")
        assert all(surfaces == ["http", "wire"] for _, _, surfaces in lines(logbook))


@on_stepped
async def test_what_is_presented_anew_is_judged_at_once_and_what_it_replaced_no_more(
    logbook: Logbook,
) -> None:
    logbook.allow(f"{SOON}|{OVER}")
    clock = ManualClock()
    async with watched(clock) as here:
        just = NOW + 14 * DAY
        await here.present(just + timedelta(microseconds=1), None)
        assert lines(logbook) == []
        await here.present(just, just + DAY)
        await here.present(NOW, just)
        each = [("warning", 14, ["http"]), ("error", None, ["http"]), ("warning", 14, ["wire"])]
        assert lines(logbook) == each
        assert logbook.events[-1]["expires"] == just.astimezone(UTC).isoformat()
        await here.present(NOW + 400 * DAY, NOW + 400 * DAY)
        clock.step_wall(100 * 86_400_000_000)
        await asyncio.sleep(3 * 86_400)  # of the loop's time; the wall's is the test's
        assert lines(logbook) == each
        clock.step_wall(290 * 86_400_000_000)
        await asyncio.sleep(86_401)
        assert lines(logbook)[3:] == [("warning", 10, ["http", "wire"])]


@on_stepped
async def test_a_node_without_certificates_sets_no_timer() -> None:
    loop: Any = asyncio.get_running_loop()
    async with watched() as here:
        await here.present(None, None)
        await here.present()
        assert not loop._scheduled
        await here.present(NOW + 99 * DAY)
        assert len(loop._scheduled) == 1


@on_stepped
async def test_a_node_says_it_when_its_surfaces_begin(logbook: Logbook) -> None:
    logbook.allow(SOON)
    clock = ManualClock()
    environment = simulated_environment("stepped", SimulatedDisk(), MemoryEngine(), clock=clock)
    async with running(environment) as node:
        node.listens(presenting(NOW + 3 * DAY, NOW + 3 * DAY))
        await asyncio.sleep(0.001)
        assert lines(logbook) == [("warning", 3, ["http", "wire"])]
        info: Any = node.facts.info()["surfaces"]
        assert [one["certificate_expires"] for one in info] == [NOW + 3 * DAY] * 2
