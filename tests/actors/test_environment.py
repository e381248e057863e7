"""The real doors, and how a busy loop lets an urgent thread in."""

from __future__ import annotations

import asyncio
import sys
import threading
from itertools import pairwise

import pytest

from actors.environment import (
    FEW_BYTES,
    SUPPLY_BYTES,
    SWITCH_SECONDS,
    SystemRng,
    ready_calls,
    system_environment,
)
from actors.runtime import GilYield
from actors.runtime.gil_yield import (
    GIVE_WAY_AFTER_US,
    GIVE_WAY_EVERY_US,
    GIVE_WAY_TIMES,
    POSTPONE_MOST_US,
    POSTPONE_US,
)
from tests.actors.parts import until


class Echo(asyncio.Protocol):
    """Answers with what it got."""

    transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Hears(Echo):
    """Keeps what it got."""

    heard = b""

    def data_received(self, data: bytes) -> None:
        self.heard += data


async def test_a_connection_through_the_net() -> None:
    net = system_environment().net
    listener = await net.listen("127.0.0.1", 0, Echo)
    host, port = listener.address
    assert host == "127.0.0.1"
    with pytest.raises(OSError):
        await net.listen("127.0.0.1", port, Echo)
    transport, protocol = await net.connect(host, port, Hears)
    assert isinstance(protocol, Hears)
    protocol.transport.write(b"hello")
    await until(lambda: protocol.heard == b"hello")
    listener.close()
    protocol.transport.write(b" again")
    await until(lambda: protocol.heard == b"hello again")
    transport.close()
    with pytest.raises(OSError):
        await net.connect(host, port, Hears)
    await asyncio.sleep(0.01)


async def test_the_clocks_and_the_randomness() -> None:
    before = sys.getswitchinterval()
    try:
        environment = system_environment()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    finally:
        sys.setswitchinterval(before)
    assert environment.clock.wall_us() > 1_700_000_000_000_000
    assert environment.clock.monotonic_us() <= environment.clock.monotonic_us()
    assert len(environment.rng.bytes(7)) == 7
    assert {environment.rng.below(2) for _ in range(100)} == {0, 1}
    assert environment.scheduler.loop is asyncio.get_running_loop()
    assert environment.cores >= 1


def windows(urgent: GilYield, until_us: int) -> list[int]:
    """When a loop that is always busy stands still, in microseconds since the hand-over."""
    found: list[int] = []

    class Asked:
        def acquire(self, timeout: float) -> bool:
            found.append(now)
            return False

    urgent._done = Asked()  # type: ignore[assignment]
    for now in range(0, until_us, 10):
        urgent.yield_gil(now + 1)
    return found


def test_a_loop_gives_way_a_few_times_soon_and_then_ever_more_rarely() -> None:
    urgent = GilYield()
    urgent.begin_batch(1)
    found = windows(urgent, 100_000)
    assert found[0] == GIVE_WAY_AFTER_US
    gaps = [later - sooner for sooner, later in pairwise(found)]
    assert gaps[:GIVE_WAY_TIMES] == [GIVE_WAY_EVERY_US] * GIVE_WAY_TIMES
    assert gaps[GIVE_WAY_TIMES : GIVE_WAY_TIMES + 3] == [500, 1000, 2000]
    assert len(found) < 15, "a slow disk must not stop the loop"


def test_a_loop_leaves_the_disk_the_time_it_needs_before_it_gives_way() -> None:
    urgent = GilYield()
    for took_us in (4_000,) * 100 + (9_000,):
        urgent.finished(took_us)
    urgent.begin_batch(1)
    assert windows(urgent, 100_000)[0] == 4_000 + GIVE_WAY_AFTER_US + 260


def test_a_loop_that_works_for_others_gives_way_later_but_not_for_ever() -> None:
    urgent = GilYield()
    urgent.begin_batch(1)
    urgent.postpone(101)
    assert windows(urgent, 100_000)[0] == 100 + POSTPONE_US
    urgent = GilYield()
    urgent.begin_batch(1)
    for now_us in range(1, 100_000, 100):
        urgent.postpone(now_us)
    assert windows(urgent, 100_000)[0] == POSTPONE_MOST_US


def test_a_batch_that_is_done_ends_the_wait() -> None:
    urgent = GilYield()
    urgent.begin_batch(1)
    threading.Thread(target=urgent.finished, args=(0,)).start()
    urgent.yield_gil(10_000)
    urgent.end_batch()
    assert [urgent.since_us] == [0]
    urgent.begin_batch(20_000)
    assert [urgent.since_us] == [20_000]


async def test_a_process_that_fails_says_why() -> None:
    scheduler = system_environment().scheduler
    # A vector that is not whole, behind more than a pipe holds.
    with pytest.raises(OSError, match=r"storage.search.training ended with 1: .*Error: "):
        await scheduler.compute("storage.search.training", [b"x" * 1_000_003] * 2)
    with pytest.raises(OSError, match=r"ended with 1: .*No module named"):
        await scheduler.compute("storage.nowhere", [b"x" * 1_000_000] * 2)


def test_no_random_bytes_are_given_out_twice() -> None:
    """Across the end of a supply, by several threads at once."""
    rng = SystemRng()
    taken: list[bytes] = []

    def take() -> None:
        for _ in range(SUPPLY_BYTES):
            taken.append(rng.bytes(FEW_BYTES))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {len(part) for part in taken} == {FEW_BYTES}
    assert len(set(taken)) == len(taken) == 4 * SUPPLY_BYTES
    assert [len(rng.bytes(count)) for count in (0, 1, FEW_BYTES + 1, 2 * SUPPLY_BYTES)] == [
        0, 1, FEW_BYTES + 1, 2 * SUPPLY_BYTES,
    ]  # fmt: skip


async def test_calls_are_counted_while_other_threads_have_the_loop_call_something() -> None:
    """It was found by chance: what one connection asked for ended another one."""
    loop = asyncio.get_running_loop()

    class Meddles(asyncio.TimerHandle):
        """While it is looked at, another thread comes in between."""

        def cancelled(self) -> bool:
            thread = threading.Thread(target=loop.call_soon_threadsafe, args=(lambda: None,))
            thread.start()
            thread.join()
            return super().cancelled()

    before = ready_calls(loop)
    for _ in range(2):
        loop._ready.append(Meddles(0, lambda: None, (), loop))  # type: ignore[attr-defined]
    assert ready_calls(loop) == before + 2
