"""What wrong passwords cost those that follow: delays, turns, and never the right one's way in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from actors import sign_in_throttle
from actors.passwords import PasswordActor
from actors.runtime import ask, tell
from actors.sign_in_throttle import KNOWN_NETWORKS, HashPriority, Known, SignInThrottle, network
from actors.sign_ins import ReleaseDelayed, SessionsActor
from protocol import limits
from protocol.errors import Busy, Cancelled, SignInRefused, TooManyTries
from protocol.requests import Session, SignIn, stays
from tests.actors.parts import Played, SignInDesk, desk, on_stepped, outcome, play

PASSWORD = "correct horse"
HERE = "192.0.2.1:5000"
ELSEWHERE = "192.0.2.2:5000"
HOUR = 3600


def sign_in(
    at: SignInDesk,
    password: str = PASSWORD,
    user: str = "ana",
    address: str = HERE,
    is_gone: Callable[[], bool] = stays,
) -> Any:
    return outcome(ask(at.ref, SignIn(user, password, "http", address, is_gone)))


async def took(awaited: Any) -> float:
    """Seconds of the loop's clock."""
    began = asyncio.get_running_loop().time()
    await awaited
    return round(asyncio.get_running_loop().time() - began, 3)


def tries_of(at: SignInDesk) -> SignInThrottle:
    actor = at.ref._actor_weakref()
    assert isinstance(actor, SessionsActor)
    return actor._throttle


@asynccontextmanager
async def ana(kind: str = "stepped") -> AsyncIterator[SignInDesk]:
    async with desk(kind) as at:
        await at.define("ana", PASSWORD)
        yield at


with_ana = Played(ana).stepped


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Passwords that were hashed, in their order."""
    found: list[str] = []
    real = PasswordActor._matches

    def counted(self: PasswordActor, passhash: str, password: str) -> bool:
        found.append(password)
        return real(self, passhash, password)

    monkeypatch.setattr(PasswordActor, "_matches", counted)
    return found


@with_ana
async def test_the_right_password_is_let_in_after_any_number_of_wrong_ones(
    at: SignInDesk, /
) -> None:
    for wrong in (110, 400):
        refused = await asyncio.gather(*(sign_in(at, "wrong horse") for _ in range(wrong)))
        assert {type(one) for one in refused} == {SignInRefused}
        session = await sign_in(at)
        assert isinstance(session, Session), session


async def guessing(
    at: SignInDesk, guessers: int, over: Callable[[], bool], patience: float | None
) -> None:
    """So many who guess from ana's own address, one password after the other.

    :param patience: seconds after which a guess that is not answered is left alone; None: it never
        is
    """

    async def guess() -> None:
        while not over():
            gone = asyncio.Event()
            try:
                async with asyncio.timeout(patience):
                    found = await sign_in(at, "wrong horse", is_gone=gone.is_set)
            except TimeoutError:
                gone.set()
                continue
            if not isinstance(found, SignInRefused):
                await asyncio.sleep(0.1)

    await asyncio.gather(*(guess() for _ in range(guessers)))


@pytest.mark.parametrize("patience", [None, 5.0])
@with_ana
async def test_the_right_password_is_let_in_while_wrong_ones_keep_coming(
    at: SignInDesk, /, patience: float | None
) -> None:
    """From its own address, for its own user: nothing but the password tells them apart."""
    over, guessers, turns = False, 130, 24
    flood = asyncio.ensure_future(guessing(at, guessers, lambda: over, patience))
    await asyncio.sleep(5)
    owner = []
    for _ in range(turns):
        owner.append(asyncio.ensure_future(sign_in(at)))
        await asyncio.sleep(1)
    ends = asyncio.get_running_loop().time() + guessers / limits.SIGN_INS_A_SECOND
    found = [type(one) for one in await asyncio.gather(*owner)]
    ended = asyncio.get_running_loop().time()
    over = True
    await flood
    assert found == [Session] * turns
    assert ended <= ends


@with_ana
async def test_made_up_names_keep_nobody_of_their_address_out(at: SignInDesk, /) -> None:
    names = [f"n{n}" for n in range(limits.HASH_QUEUE * 3)]
    flood = [asyncio.ensure_future(sign_in(at, "wrong horse", name)) for name in names]
    await asyncio.sleep(0)
    assert isinstance(await sign_in(at), Session)
    assert {type(one) for one in await asyncio.gather(*flood)} == {SignInRefused}


@with_ana
async def test_who_is_gone_leaves_the_line(at: SignInDesk, /) -> None:
    of, gone = tries_of(at), False
    held = [await of.enter("ana", HERE) for _ in range(limits.SIGN_INS_AT_ONCE)]
    left = [asyncio.ensure_future(sign_in(at, is_gone=lambda: gone)) for _ in range(1_000)]
    stayed = asyncio.ensure_future(sign_in(at))
    await asyncio.sleep(0.1)
    gone = True
    kinds = {type(one) for one in await asyncio.gather(*left)}
    assert kinds == {Cancelled}
    assert asyncio.get_running_loop().time() <= sign_in_throttle.LOOK_SECONDS
    assert not stayed.done()
    for one in held:
        one.end()
    assert isinstance(await stayed, Session)


@pytest.mark.parametrize("patience", [None, 0.2])
def test_how_often_one_can_guess_is_bounded(judged: list[str], patience: float | None) -> None:
    """By their answers for those who wait for them, and for those who don't by the pace."""
    seconds, guessers = HOUR // (2 if patience is None else 30), 52

    async def main() -> None:
        async with ana() as at:
            loop = asyncio.get_running_loop()
            until = loop.time() + seconds
            await guessing(at, guessers, lambda: loop.time() >= until, patience)

    play("stepped", main)
    if patience is None:
        at_most = seconds * guessers * 1_000_000 // sign_in_throttle.DELAY_MOST_US
        at_most += 1_000  # before the delay has grown to its most
    else:
        at_most = limits.SIGN_IN_FAILURES_AN_HOUR + limits.SIGN_INS_A_SECOND * (seconds + 1)
        at_most += seconds * limits.SIGN_IN_FAILURES_AN_HOUR // HOUR  # which have leaked away
    assert limits.SIGN_IN_FAILURES_AN_HOUR < len(judged) <= at_most


@on_stepped
async def test_an_attempt_pushes_none_of_its_own_counters_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sign_in_throttle, "TRIES", 24)
    async with ana() as at:
        of = tries_of(at)
        for number in range(40):
            one = await of.enter(f"n{number}", f"198.51.100.{number}:1")
            assert all(of._counters.get(own.key) is own for own in one._counters)
            await one.failed()
            one.end()


@on_stepped
async def test_made_up_names_push_no_counter_out(
    figure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_throttle, "TRIES", 1_000)
    async with ana() as at:
        for _ in range(5):
            await sign_in(at, "wrong horse")
        names = iter(range(1_500))

        async def make_up() -> None:
            for number in names:
                address = f"198.51.{number % 200}.{number % 100}:1"
                while isinstance(await sign_in(at, "x" * 9, f"n{number}", address), Busy):
                    await asyncio.sleep(0)

        await asyncio.gather(*(make_up() for _ in range(60)))
        kept = len(tries_of(at))
        assert kept <= 1_000
        figure("counters of failed sign-ins after a flood of names", kept)
        assert await took(sign_in(at, "wrong horse")) == 3.2, "the sixth"
        await asyncio.sleep(HOUR)
        await sign_in(at, "wrong horse")
        assert len(tries_of(at)) <= 1_000


@with_ana
async def test_many_failures_from_one_address_are_all_answered_late(at: SignInDesk, /) -> None:
    for n in range(limits.NETWORK_FAILURES_AN_HOUR):
        await sign_in(at, "wrong horse", f"n{n}")
    assert await took(sign_in(at, "wrong horse", "n0")) < 5, "some have leaked away"
    for n in range(limits.NETWORK_FAILURES_AN_HOUR):
        await sign_in(at, "wrong horse", f"n{n}")
    assert await took(sign_in(at, "wrong horse", "another")) == 5.0
    assert await took(sign_in(at, "wrong horse", "another", ELSEWHERE)) == 0.1
    assert await took(sign_in(at)) == 0.0


@on_stepped
async def test_answers_held_back_are_bounded(
    monkeypatch: pytest.MonkeyPatch, judged: list[str]
) -> None:
    monkeypatch.setattr(limits, "SIGN_INS_HELD", 10)
    async with ana() as at:
        for _ in range(limits.SIGN_IN_FAILURES_AN_HOUR + 20):
            await sign_in(at, "wrong horse")
        before = len(judged)
        waiting = [asyncio.ensure_future(sign_in(at, "wrong horse")) for _ in range(30)]
        await asyncio.sleep(1)
        seen = len(judged) - before
        assert 10 < seen <= limits.SIGN_INS_AT_ONCE + limits.SIGN_INS_A_SECOND
        assert sum(one.done() for one in waiting) == seen - 10
        await asyncio.gather(*waiting)


@with_ana
async def test_who_came_first_has_its_turn_first_and_waits_no_longer_than_may_be(
    at: SignInDesk, /
) -> None:
    of = tries_of(at)
    held = [await of.enter("ana", HERE) for _ in range(limits.SIGN_INS_AT_ONCE)]
    waiting = [asyncio.ensure_future(of.enter("ana", HERE)) for _ in range(3)]
    await asyncio.sleep(1)
    held.pop().end()
    held.pop().end()
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True, True, False]
    assert isinstance(await outcome(waiting[2]), TooManyTries)
    assert asyncio.get_running_loop().time() >= limits.SIGN_IN_WAIT_SECONDS
    for one in [*held, *(await asyncio.gather(*waiting[:2]))]:
        one.end()


@with_ana
async def test_a_node_that_stops_makes_nobody_wait(at: SignInDesk, /) -> None:
    for _ in range(limits.SIGN_IN_FAILURES_AN_HOUR + 20):
        await sign_in(at, "wrong horse")
    waiting = [asyncio.ensure_future(sign_in(at, "wrong horse")) for _ in range(37)]
    await asyncio.sleep(1)
    tell(at.ref, ReleaseDelayed())
    assert await took(asyncio.gather(*waiting)) == 0.0
    assert await took(sign_in(at, "wrong horse", address=ELSEWHERE)) == 0.0


@pytest.mark.parametrize(
    "address, where",
    [
        ("192.0.2.1:5000", "192.0.2.1"),
        ("[2001:db8:1:2:3::4]:5000", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:ffff::9]:1", "2001:db8:1:2::/64"),
        ("[::ffff:192.0.2.1]:5000", "192.0.2.1"),
        ("[fe80::1%eth0]:5000", "fe80::/64"),
        ("[::1]:5", "::/64"),
        ("local", "local"),
        ("unknown", "unknown"),
    ],
)
def test_where_a_peer_comes_from(address: str, where: str) -> None:
    assert network(address) == where


def test_only_right_passwords_push_out_who_is_known() -> None:
    known = Known()
    known.add("ana", "here")
    assert known.rank("ana", "here") is HashPriority.KNOWN
    assert known.rank("bob", "here") is HashPriority.KNOWN_NETWORK
    assert known.rank("ana", "there") is HashPriority.UNKNOWN
    for n in range(KNOWN_NETWORKS):
        known.add("bob", f"n{n}")
    assert known.rank("ana", "here") is HashPriority.KNOWN, "each user has networks of its own"
    for n in range(KNOWN_NETWORKS):
        known.add("ana", f"n{n}")
    assert known.rank("ana", "here") is HashPriority.KNOWN_NETWORK
