"""When a peer is asked whether it is there, and when it is taken for gone, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol import limits
from storeclient.pulse import ANSWER_SECONDS, LEAVING_SECONDS, QUIET_SECONDS, Pulse
from tests.simulation.loop import run


class PulsePeer:
    """A peer, and the pulse of the connection to it."""

    def __init__(self) -> None:
        self.open = True
        self.answers = True
        self.seconds: float | None = ANSWER_SECONDS
        self.asked: list[float] = []
        self.lost: list[float] = []
        self.pulse = Pulse(lambda: self.open, self.ask, lambda: self.lost.append(self.now))

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def ask(self) -> float | None:
        self.asked.append(self.now)
        if self.answers:
            self.pulse.on_data()
        return self.seconds


def after(seconds: float, given: Callable[[PulsePeer], None]) -> PulsePeer:
    """How it stands with a peer after so long."""

    async def going_on() -> PulsePeer:
        peer = PulsePeer()
        given(peer)
        peer.pulse.begin()
        await asyncio.sleep(seconds)
        peer.pulse.stop()
        return peer

    return run(going_on())


def silent(peer: PulsePeer) -> None:
    peer.answers = False


def test_one_that_answers_is_asked_again_and_again_and_never_lost() -> None:
    peer = after(100 * QUIET_SECONDS, lambda _peer: None)
    assert len(peer.asked) >= 40 and not peer.lost


def test_one_that_does_not_is_lost() -> None:
    peer = after(1000, silent)
    assert peer.asked == [QUIET_SECONDS] and peer.lost == [QUIET_SECONDS + ANSWER_SECONDS]


def test_one_that_is_leaving_has_longer() -> None:
    def leaving(peer: PulsePeer) -> None:
        peer.answers, peer.seconds = False, LEAVING_SECONDS

    assert limits.DRAIN_SECONDS < LEAVING_SECONDS
    assert after(1000, leaving).lost == [QUIET_SECONDS + LEAVING_SECONDS]


def test_one_that_can_not_be_asked_is_not_lost() -> None:
    def deaf(peer: PulsePeer) -> None:
        peer.answers, peer.seconds = False, None

    peer = after(1000, deaf)
    assert len(peer.asked) > 10 and not peer.lost


def test_where_nothing_is_open_nobody_is_asked() -> None:
    def idle(peer: PulsePeer) -> None:
        peer.open = peer.answers = False

    peer = after(1000, idle)
    assert not peer.asked and not peer.lost
