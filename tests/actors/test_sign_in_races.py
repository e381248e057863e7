"""What becomes of a sign-in whose user changes while its password is being hashed.

A hash takes long, and everything else goes on meanwhile. So the user that was read before it is
compared with the user that is there after it, and whoever was dropped or changed in between has no
session and no rights of before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest
from argon2 import PasswordHasher

from actors.passwords import Cost, PasswordActor
from actors.runtime import ask
from protocol.errors import SessionEnded, SignInRefused
from protocol.requests import (
    AuthenticatePassword,
    AuthenticateToken,
    ChangePassword,
    Session,
    SignIn,
)
from storage.catalog import users
from tests.actors.parts import SOMEBODY, SignInDesk, desk, outcome, until, with_desk
from tests.logbook import Logbook
from tests.simulation.disk import NO_LIMIT

PASSWORD = "correct horse"
ANOTHER = "another horse"
HERE = "192.0.2.1:5000"
REFUSED = (SignInRefused, SessionEnded)


class Hold:
    """Stops every hash before it is told what it found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self._go = threading.Event()
        self._go.set()
        real = PasswordActor._matches

        def held(actor: PasswordActor, passhash: str, password: str) -> bool:
            found = real(actor, passhash, password)
            self.begun += 1
            assert self._go.wait(30), "a hash was held for ever"
            return found

        monkeypatch.setattr(PasswordActor, "_matches", held)

    @asynccontextmanager
    async def during(self, hashes: int = 1) -> AsyncIterator[None]:
        """For as long as `hashes` more of them are under way."""
        wanted = self.begun + hashes
        await until(lambda: self.begun >= wanted)
        try:
            yield
        finally:
            self._go.set()

    def stop(self) -> None:
        """From now on."""
        self._go.clear()


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    return Hold(monkeypatch)


async def another_role(at: SignInDesk) -> None:
    await at.change("ana", role="viewer")


async def another_password(at: SignInDesk) -> None:
    await at.change("ana", passhash=await at.passwords.hash(ANOTHER))


async def dropped(at: SignInDesk) -> None:
    await at.drop("ana")


async def declared_anew(at: SignInDesk) -> None:
    """Another user of the same name, with the same password in the same hash."""
    passhash = at.stored("ana").passhash
    await at.drop("ana")
    with at.parts.committer.begin_transaction() as tx:
        users.define(tx, "ana", users.OWNER, passhash)
        sequence = at.parts.committer.commit(tx, SOMEBODY).sequence
    await at.parts.durable(sequence)


CHANGES = [another_role, another_password, dropped, declared_anew]
changes = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
Change = Callable[[SignInDesk], Awaitable[None]]


def signing_in(at: SignInDesk, password: str = PASSWORD) -> asyncio.Task[Any]:
    asked = SignIn("ana", password, "http", HERE)
    return asyncio.create_task(outcome(ask(at.ref, asked)))


async def token(at: SignInDesk, session: Session) -> Any:
    return await outcome(ask(at.ref, AuthenticateToken(session.token, "http", HERE)))


@asynccontextmanager
async def opened() -> AsyncIterator[SignInDesk]:
    async with desk("real") as at:
        await at.define("root", PASSWORD)
        await at.define("ana", PASSWORD)
        yield at


@changes
async def test_a_user_that_changes_during_the_hash_gets_no_session(
    change: Change, hold: Hold
) -> None:
    async with opened() as at:
        hold.stop()
        waiting = signing_in(at)
        async with hold.during():
            await change(at)
        assert isinstance(await waiting, REFUSED)
        assert len(at.sessions) == 0


@changes
async def test_nor_is_it_let_in_with_basic(change: Change, hold: Hold) -> None:
    async with opened() as at:
        hold.stop()
        asked = AuthenticatePassword("ana", PASSWORD, "http", HERE)
        waiting = asyncio.create_task(outcome(ask(at.ref, asked)))
        async with hold.during():
            await change(at)
        assert isinstance(await waiting, REFUSED)


@changes
async def test_nor_does_its_password_change(change: Change, hold: Hold) -> None:
    async with opened() as at:
        session: Session = await signing_in(at)
        hold.stop()
        asked = ChangePassword(session.caller, PASSWORD, "a third horse")
        waiting = asyncio.create_task(outcome(ask(at.ref, asked)))
        async with hold.during():
            await change(at)
        assert isinstance(await waiting, REFUSED)
        assert not isinstance(await signing_in(at, "a third horse"), Session)


async def test_two_first_sign_ins_with_an_old_hash_both_succeed(hold: Hold) -> None:
    """One of them stores a hash with today's parameters while the other is still being hashed."""
    async with desk("real", cost=Cost(memory_kib=128, passes=1)) as at:
        await at.define("ana", PASSWORD)
        await at.change("ana", passhash=PasswordHasher(1, 64, 1).hash(PASSWORD))
        both = [signing_in(at), signing_in(at)]
        sessions = await asyncio.gather(*both)
        assert all(isinstance(one, Session) for one in sessions), sessions
        for session in sessions:
            assert (await token(at, session)).user == "ana"


@changes
async def test_a_session_that_a_space_asks_about_is_the_user_as_stored(
    change: Change,
) -> None:
    """`Sessions.caller` compares what it stored itself: nobody need have told it of the change."""
    async with opened() as at:
        session: Session = await signing_in(at)
        digest = sha256(session.token.encode()).digest()
        with at.parts.committer.begin_transaction() as tx:
            assert at.sessions.caller(digest, tx).user == "ana"
        await change(at)
        with at.parts.committer.begin_transaction() as tx, pytest.raises(SessionEnded):
            at.sessions.caller(digest, tx)
        assert len(at.sessions) == 0


@with_desk.stepped.using(cost=Cost(memory_kib=128, passes=1))
async def test_a_hash_that_the_disk_has_no_room_for_ends_no_session(
    at: SignInDesk, /, logbook: Logbook
) -> None:
    logbook.allow("no room left on the disk for the log")
    await at.define("ana", PASSWORD)
    before = await signing_in(at)
    weak = PasswordHasher(1, 64, 1).hash(PASSWORD)
    await at.change("ana", passhash=weak)
    at.sessions.renew("ana", weak)
    disk = at.parts.disk
    disk.capacity = sum(len(i.cache) for i in disk._names.values() if i is not None)
    during = await signing_in(at)
    assert at.stored("ana").passhash == weak
    disk.capacity = NO_LIMIT
    await at.define("bob", PASSWORD)
    for session in (before, during):
        assert (await token(at, session)).user == "ana"
