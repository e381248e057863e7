"""R11: somebody sets the wall clock, while the node runs and between two of its lives.

Nothing ends early by that, nothing that has ended comes back, and log time never falls. How long
things last is told by the monotonic clock; the wall is only looked at when a life begins.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actors.node import Node
from actors.runtime import ask
from actors.scripts.turns import Turns
from actors.sessions import Sessions
from protocol import limits
from protocol.doors import Clock, Rng
from protocol.errors import SessionEnded, StatementTimeout
from protocol.requests import AuthenticateToken, SignIn
from storage.ledger import Ledger
from storage.memory import MemoryEngine
from tests.actors.nodes import OWNER, prepare, running, simulated_doors, value
from tests.actors.parts import outcome, play
from tests.logbook import Logbook
from tests.processes import PASSWORD, USER, NodeProcess
from tests.simulation.disk import SimulatedDisk
from tests.simulation.doors import LoopClock, ManualClock

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
STEPS_US = (-HOUR_US, HOUR_US, 10 * 365 * 24 * HOUR_US, -10 * 365 * 24 * HOUR_US)
HISTORIES = 40
LIVES = 3
ADDRESS = "192.0.2.1:5000"


class Wrong(AssertionError):
    """Something ended early, lasted too long, or came back."""


class WallOnly:
    """The planted fault: how long things last is read off the wall."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wall_us(self) -> int:
        return self._clock.wall_us()

    def monotonic_us(self) -> int:
        self._clock.monotonic_us()  # a look takes its time
        return self._clock.wall_us()


# --- sessions -------------------------------------------------------------------------------------


class SessionsHistory:
    """Sign-ins and uses of their tokens, with the clock set in between. `run` lets it happen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.tokens: list[tuple[str, int]] = []
        """All there ever were, and when each was given."""
        self.used: dict[str, int] = {}
        """When those that are open were used last."""
        self.uses = 0
        self.ended = 0

    def run(self) -> None:
        """:raises Wrong: a session is open that should not be, or the other way round"""
        disk, engine = SimulatedDisk(), MemoryEngine()

        async def life() -> None:
            doors = simulated_doors("stepped", disk, engine, self.seed, self.clock)
            async with running(doors) as node:
                for _ in range(25):
                    await self._step(node)

        for _ in range(LIVES):
            self.used.clear()  # a restart signs everyone out
            play("stepped", life, self.seed)
            self.clock.step_wall(self.chance.choice(STEPS_US))

    async def _step(self, node: Node) -> None:
        chance = self.chance
        kind = chance.randrange(5)
        if kind == 0 or not self.tokens:
            signing = SignIn(OWNER.name, OWNER.password, "wire", ADDRESS)
            session = await ask(node.sessions, signing)
            self.tokens.append((session.token, self.clock.monotonic_us()))
            self.used[session.token] = self.clock.monotonic_us()
        elif kind == 1:
            self.clock.step_wall(chance.choice(STEPS_US))
        elif kind == 2:
            self.clock.advance(chance.choice((1, 60, 1800, 3599, 3600, 7200)) * SECOND_US)
        else:
            await self._use(node, *chance.choice(self.tokens[-4:]))

    async def _use(self, node: Node, token: str, given: int) -> None:
        now = self.clock.monotonic_us()
        wanted = (
            token in self.used
            and now - given < limits.SESSION_SECONDS * SECOND_US
            and now - self.used[token] < limits.SESSION_IDLE_SECONDS * SECOND_US
        )
        found = await outcome(ask(node.sessions, AuthenticateToken(token, "wire", ADDRESS)))
        self.uses += 1
        if wanted == isinstance(found, SessionEnded):
            raise Wrong(f"seed {self.seed}: a session that is {wanted and 'open'}: {found}")
        if wanted:
            self.used[token] = now
        else:
            self.ended += 1
            self.used.pop(token, None)


def test_no_session_ends_early_or_comes_back(figure: Callable[[str, object], None]) -> None:
    uses = ended = 0
    for seed in range(HISTORIES):
        history = SessionsHistory(seed)
        history.run()
        uses, ended = uses + history.uses, ended + history.ended
    assert uses > 20 * HISTORIES and ended > HISTORIES
    figure("R11 uses of a session", f"{uses}, {ended} of an ended one; 0 early, 0 back")


def test_sessions_on_the_wall_clock_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Sessions.__init__

    def planted(sessions: Sessions, clock: Clock, rng: Rng) -> None:
        fine(sessions, WallOnly(clock), rng)

    monkeypatch.setattr(Sessions, "__init__", planted)
    with pytest.raises(Wrong):
        for seed in range(HISTORIES):
            SessionsHistory(seed).run()


# --- deadlines ------------------------------------------------------------------------------------


def timeouts(seed: int) -> int:
    """Scripts with a TIMEOUT beside somebody who sets the clock all the time. Answers how many used
    it up. :raises Wrong:"""
    chance = random.Random(seed)

    async def main() -> int:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop, tick_us=1_000)

        async def set_clock() -> None:
            while True:
                await asyncio.sleep(chance.uniform(0, 0.05))
                clock.step_wall(chance.choice(STEPS_US))

        async def script(passes: int, given_ms: int) -> bool:
            began = loop.time()
            text = f"SELECT * FROM [{', '.join(['{ a: 1 }'] * passes)}] TIMEOUT {given_ms}ms"
            found = await outcome(value(node, text))
            took_ms = (loop.time() - began) * 1000
            over = isinstance(found, StatementTimeout)
            if (over and took_ms < given_ms) or (not over and took_ms > given_ms + 1000):
                raise Wrong(f"seed {seed}: {given_ms} ms were given, {took_ms} taken: {found}")
            return over

        doors = simulated_doors("stepped", SimulatedDisk(), MemoryEngine(), seed, clock)
        async with running(doors) as node:
            await prepare(node)
            setting = asyncio.ensure_future(set_clock())
            scripts = [
                script(chance.randrange(1, 400), chance.randrange(1, 4000)) for _ in range(6)
            ]
            over = await asyncio.gather(*scripts)
            setting.cancel()
        return sum(over)

    return play("stepped", main, seed)


def test_no_timeout_comes_early(figure: Callable[[str, object], None]) -> None:
    over = sum(timeouts(seed) for seed in range(HISTORIES))
    assert HISTORIES < over < 6 * HISTORIES
    figure("R11 statements with a TIMEOUT", f"{6 * HISTORIES}, {over} used it up; 0 early")


def test_deadlines_on_the_wall_clock_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Turns.__init__

    def planted(turns: Turns, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        fine(turns, loop, WallOnly(clock))

    monkeypatch.setattr(Turns, "__init__", planted)
    with pytest.raises(Wrong):
        for seed in range(HISTORIES):
            timeouts(seed)


# --- log time -------------------------------------------------------------------------------------


def log_times(seed: int) -> int:
    """Times that scripts were told, and those of their commits, over lives with the clock set in
    and between them. Answers how many. :raises Wrong:"""
    chance, clock = random.Random(seed), ManualClock()
    disk, engine = SimulatedDisk(), MemoryEngine()
    told: list[datetime] = []
    frames: list[int] = []

    async def life() -> None:
        async with running(simulated_doors("stepped", disk, engine, seed, clock)) as node:
            await prepare(node) if not told else None
            last, at = None, 0
            for _ in range(20):
                now = await value(node, "CREATE t SET at = time::now(); RETURN time::now()")
                if told and now < told[-1]:
                    raise Wrong(f"seed {seed}: it is {now} after {told[-1]}")
                passed = timedelta(microseconds=clock.monotonic_us() - at)
                if last is not None and now - last != passed:
                    raise Wrong(f"seed {seed}: {now - last} for {passed}")
                told.append(now)
                last, at = now, clock.monotonic_us()
                clock.advance(chance.choice((0, 1, SECOND_US, HOUR_US)))
                clock.step_wall(chance.choice((0, 0, *STEPS_US)))
            assert node._log is not None
            frames[:] = [frame.time for frame in node._log.read(1)]
            if frames != sorted(frames):
                raise Wrong(f"seed {seed}: log time fell")

    for _ in range(LIVES):
        play("stepped", life, seed)
        clock.step_wall(chance.choice(STEPS_US))
    return len(told) + len(frames)


def test_log_time_never_falls(figure: Callable[[str, object], None]) -> None:
    times = sum(log_times(seed) for seed in range(HISTORIES))
    figure("R11 log times", f"{times}; 0 fell, 0 jumped in a life")


def _wall_time(ledger: Ledger) -> int:
    return ledger._clock.wall_us()


def test_log_time_off_the_wall_clock_is_caught(
    monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("")
    monkeypatch.setattr(Ledger, "log_time", _wall_time)
    with pytest.raises(Wrong):
        for seed in range(HISTORIES):
            log_times(seed)


# --- a real process -------------------------------------------------------------------------------

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
OFFSETS = ("+0", "-1h", "+1h", "+10y", "-1h")


@pytest.mark.hard
def test_a_real_node_whose_wall_clock_is_set(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    """Under libfaketime, which sets only the wall clock."""
    assert LIBRARIES, "libfaketime is not installed: apt-get install faketime"
    clock = tmp_path / "clock"
    more = {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    told: list[str] = []
    tokens: list[str] = []
    for life, offset in enumerate(OFFSETS):
        clock.write_text(f"{offset}\n")
        node = NodeProcess(tmp_path / "store", more=more).start()
        try:
            for token in tokens:
                assert _use(node, token) == 401, "a session came back"
            tokens.append(_sign_in(node))
            if life == 0:
                prepared = "DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t"
                assert "error" not in node.script(prepared)
            for other in OFFSETS:
                clock.write_text(f"{other}\n")
                assert _use(node, tokens[-1]) == 200, "a session ended early"
                found = _results(
                    node, "USE a.b; CREATE t SET at = time::now() TIMEOUT 5s; RETURN time::now()"
                )
                told.append(found[-1]["$dt"])
            assert node.stop() == 0
        finally:
            if node.process.poll() is None:
                node.kill()
    assert told == sorted(told)
    assert datetime.fromisoformat(told[-1]) - datetime.fromisoformat(told[0]) > timedelta(3000)
    figure("R11 real process", f"{len(OFFSETS)} starts, {len(told)} times; 0 early, 0 back, 0 fell")


def _sign_in(node: NodeProcess) -> str:
    answer = node.request("POST", "/session", {"user": USER, "password": PASSWORD}, user=None)
    assert answer.status in (200, 201), answer.body
    return str(answer.json["token"])


def _use(node: NodeProcess, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return node.request("POST", "/script", {"script": "RETURN 1"}, headers, user=None).status


def _results(node: NodeProcess, script: str) -> list[Any]:
    answer = node.script(script)
    assert "error" not in answer, answer
    return [result["value"] for result in answer["results"]]
