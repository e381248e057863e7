"""Sign-in, tokens and Basic: who a caller is, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.passwords import Cost
from actors.runtime import ask
from actors.sessions import CALLERS_BY_PASSWORD, token_digest
from protocol import limits
from protocol.errors import (
    BadRequest,
    NotWritable,
    SessionEnded,
    SignInRefused,
)
from protocol.requests import (
    AuthenticatePassword,
    AuthenticateToken,
    ChangePassword,
    Session,
    SignIn,
)
from tests.actors.parts import (
    SignInDesk,
    desk,
    on_both,
    on_stepped,
    outcome,
    with_desk,
)
from tests.simulation.environment import LoopClock

PASSWORD = "correct horse"
HERE = "192.0.2.1:5000"
ELSEWHERE = "192.0.2.2:5000"


async def sign_in(at: SignInDesk, password: str = PASSWORD, **fields: Any) -> Session:
    request = {"user": "ana", "surface": "http", "address": HERE, **fields}
    return await ask(at.ref, SignIn(password=password, **request))


async def token(at: SignInDesk, token: str, address: str = HERE) -> Any:
    return await outcome(ask(at.ref, AuthenticateToken(token, "http", address)))


async def basic(
    at: SignInDesk, password: str = PASSWORD, user: str = "ana", address: str = HERE
) -> Any:
    return await outcome(ask(at.ref, AuthenticatePassword(user, password, "http", address)))


@with_desk
async def test_a_password_gives_a_token_and_the_token_a_caller(at: SignInDesk, /) -> None:
    await at.define("ana", PASSWORD)
    session = await sign_in(at)
    assert len(session.token) == 43
    assert session.idle_seconds == 3600
    caller = await token(at, session.token, ELSEWHERE)
    assert (caller.user, caller.role, caller.space) == ("ana", "owner", None)
    assert caller.address == ELSEWHERE
    assert caller.session == session.caller.session
    assert session.token not in repr(session.caller)
    assert isinstance(await token(at, "x" * 43), SessionEnded)
    assert isinstance(await token(at, ""), SessionEnded)
    other = await sign_in(at)
    assert other.token != session.token
    assert other.caller.session != session.caller.session


@with_desk
async def test_only_the_digest_of_a_token_is_kept(at: SignInDesk, /) -> None:
    await at.define("ana", PASSWORD)
    session = await sign_in(at)
    kept = repr([getattr(at.sessions, name) for name in dir(at.sessions)])
    assert session.token not in kept
    assert PASSWORD not in kept


@on_stepped
async def test_a_session_ends_after_an_hour_without_use_and_after_twelve_with_it() -> None:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    async with desk("stepped", clock) as at:
        await at.define("ana", PASSWORD)
        idle, used = await sign_in(at), await sign_in(at)
        clock.step_wall(86_400_000_000)  # the wall clock has no say
        await asyncio.sleep(limits.SESSION_IDLE_SECONDS - 1)
        assert (await token(at, used.token)).user == "ana"
        await asyncio.sleep(2)
        assert isinstance(await token(at, idle.token), SessionEnded)
        for _ in range(21):
            assert (await token(at, used.token)).user == "ana"
            await asyncio.sleep(1800)
        clock.step_wall(-86_400_000_000)
        left = limits.SESSION_SECONDS - (limits.SESSION_IDLE_SECONDS + 1) - 21 * 1800
        await asyncio.sleep(left - 1)
        assert (await token(at, used.token)).user == "ana"
        await asyncio.sleep(2)
        assert isinstance(await token(at, used.token), SessionEnded)


@with_desk.stepped
async def test_a_glance_at_a_session_counts_as_use_and_ends_as_the_session_does(
    at: SignInDesk, /
) -> None:
    await at.define("ana", PASSWORD)
    session = await sign_in(at)
    name = token_digest(session.token)
    version = at.parts.ledger.state.catalog_version
    assert at.sessions.glance(name, version) == session.caller
    assert at.sessions.glance(name, version + 1) is None, "its user may be another"
    assert at.sessions.glance(token_digest("another"), version) is None
    for _ in range(limits.SESSION_SECONDS // 3000):
        await asyncio.sleep(2999)
        assert at.sessions.glance(name, version) == session.caller
    left = limits.SESSION_SECONDS % 3000 + limits.SESSION_SECONDS // 3000
    await asyncio.sleep(left - 1)
    assert at.sessions.glance(name, version) == session.caller
    await asyncio.sleep(1)
    assert at.sessions.glance(name, version) is None
    assert isinstance(await token(at, session.token), SessionEnded)
    unused = token_digest((await sign_in(at)).token)
    await asyncio.sleep(limits.SESSION_IDLE_SECONDS)
    assert at.sessions.glance(unused, version) is None


@with_desk
async def test_a_session_ends_when_its_user_is_dropped_or_changed(at: SignInDesk, /) -> None:
    await at.define("root", PASSWORD)
    for change in ("role", "password", "drop"):
        await at.define("ana", PASSWORD)
        await at.define("bob" + change, PASSWORD)
        session = await sign_in(at)
        other = await sign_in(at, user="bob" + change)
        assert (await basic(at)).user == "ana"
        if change == "role":
            await at.change("ana", role="viewer")
        elif change == "password":
            await at.change("ana", passhash=await at.passwords.hash("another horse"))
        else:
            await at.drop("ana")
        assert isinstance(await token(at, session.token), SessionEnded)
        assert (await token(at, other.token)).user == "bob" + change
        if change == "password":
            assert isinstance(await basic(at), SignInRefused), "nothing is remembered"
            assert (await basic(at, "another horse")).user == "ana"
        if change != "drop":
            await at.drop("ana")


@with_desk
async def test_a_password_that_is_remembered_is_asked_for_no_user_until_users_change(
    at: SignInDesk, /
) -> None:
    await at.define("root", PASSWORD)
    await at.define("ana", PASSWORD)
    first, second = await basic(at), await basic(at)
    assert (second.role, second.address, second.session) == ("owner", HERE, None)
    assert first == second
    assert await basic(at) is second, "nobody was looked at"
    assert (await basic(at, address=ELSEWHERE)).address == ELSEWHERE
    assert await basic(at) is second
    assert isinstance(await basic(at, PASSWORD + "x"), SignInRefused)
    await at.define("bob", PASSWORD)
    assert await basic(at) == second
    await at.change("ana", role="viewer")
    assert (await basic(at)).role == "viewer"
    await at.drop("ana")
    assert isinstance(await basic(at), SignInRefused)
    for port in range(2 * CALLERS_BY_PASSWORD):
        await basic(at, user="bob", address=f"192.0.2.3:{port}")
    (kept,) = (one for one in at.sessions._remembered.values() if one.user == "bob")
    assert len(kept.callers._by_origin) <= CALLERS_BY_PASSWORD


@with_desk
async def test_unknown_user_and_wrong_password_are_told_alike(at: SignInDesk, /) -> None:
    await at.define("ana", PASSWORD)
    wrong = await outcome(sign_in(at, "wrong horse"))
    unknown = await outcome(sign_in(at, user="nobody"))
    assert type(wrong) is type(unknown) is SignInRefused
    assert (wrong.message, wrong.detail) == (unknown.message, unknown.detail)
    assert "ana" not in wrong.message


@on_stepped
async def test_the_work_is_the_same_for_an_unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    from actors.passwords import PasswordActor

    checked: list[str] = []
    real = PasswordActor._matches

    def counted(self: PasswordActor, passhash: str, password: str) -> bool:
        checked.append(passhash.rsplit("$", 2)[0])
        return real(self, passhash, password)

    monkeypatch.setattr(PasswordActor, "_matches", counted)
    async with desk("stepped") as at:
        await at.define("ana", PASSWORD)
        for user in ("ana", "nobody"):
            await outcome(sign_in(at, "wrong horse", user=user))
        await outcome(sign_in(at, "x" * (limits.PASSWORD_CHARACTERS_MAX + 1)))
        assert len(checked) == 3
        assert len(set(checked)) == 1, "the same parameters"


@on_stepped
async def test_each_failure_is_answered_later_than_the_one_before() -> None:
    loop = asyncio.get_running_loop()

    async def took(password: str, address: str = HERE) -> float:
        began = loop.time()
        await outcome(sign_in(at, password, address=address))
        return round(loop.time() - began, 3)

    async with desk("stepped") as at:
        await at.define("ana", PASSWORD)
        delays = [await took("wrong horse") for _ in range(9)]
        assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        assert await took("wrong horse", ELSEWHERE) == 0.1
        assert await took("wrong horse", "192.0.2.1:6000") == 5.0, "the port is no address"
        assert await took(PASSWORD) == 0.0, "the right one is not held back"
        assert await took("wrong horse") == 0.1


@on_stepped
async def test_a_right_credential_is_remembered_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from actors.passwords import PasswordActor

    hashed: list[str] = []
    real = PasswordActor._matches

    def counted(self: PasswordActor, passhash: str, password: str) -> bool:
        hashed.append(password)
        return real(self, passhash, password)

    monkeypatch.setattr(PasswordActor, "_matches", counted)
    async with desk("stepped") as at:
        await at.define("ana", PASSWORD)
        for _ in range(5):
            assert (await basic(at)).session is None
        assert len(hashed) == 1
        assert isinstance(await basic(at, "wrong horse"), SignInRefused)
        assert isinstance(await basic(at, "wrong horse"), SignInRefused)
        assert len(hashed) == 3, "a wrong one is never remembered"
        await asyncio.sleep(limits.CREDENTIAL_MEMO_SECONDS)
        await basic(at)
        assert len(hashed) == 4


@with_desk
async def test_a_user_changes_its_password_and_its_other_sessions_end(at: SignInDesk, /) -> None:
    await at.define("ana", PASSWORD)
    one, two = await sign_in(at), await sign_in(at)
    caller = one.caller

    def change(old: str, new: str) -> Any:
        return outcome(ask(at.ref, ChangePassword(caller, old, new)))

    assert isinstance(await change("wrong horse", "another horse"), SignInRefused)
    assert isinstance(await change(PASSWORD, "short"), BadRequest)
    assert await change(PASSWORD, "another horse") is None
    assert (await token(at, one.token)).user == "ana"
    assert isinstance(await token(at, two.token), SessionEnded)
    assert isinstance(await outcome(sign_in(at)), SignInRefused)
    assert (await sign_in(at, "another horse")).caller.user == "ana"
    await at.roles.define(["serving"], None)
    assert isinstance(await change("another horse", PASSWORD), NotWritable)


@with_desk.using(cost=Cost(memory_kib=128, passes=1))
async def test_a_weaker_hash_is_renewed_at_sign_in_and_ends_no_session(at: SignInDesk, /) -> None:
    weak = "$argon2id$v=19$m=64,t=1,p=1$"
    await at.define("ana", PASSWORD)
    from argon2 import PasswordHasher

    passhash = PasswordHasher(1, 64, 1).hash(PASSWORD)
    assert passhash.startswith(weak)
    await at.change("ana", passhash=passhash)
    one = await sign_in(at)
    assert at.stored("ana").passhash.startswith("$argon2id$v=19$m=128,t=1,p=1$")
    two = await sign_in(at)
    for session in (one, two):
        assert (await token(at, session.token)).user == "ana"


@on_stepped
async def test_who_signs_in_again_and_again_ends_nobody_elses_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SESSIONS", 5)
    async with desk("stepped") as at:
        for name in ("ana", "bob"):
            await at.define(name, PASSWORD)
        others = [await sign_in(at, user="bob") for _ in range(2)]
        own = [await sign_in(at) for _ in range(20)]
        assert len(at.sessions) == 5
        for one in [*others, *own[-3:]]:
            assert not isinstance(await token(at, one.token), SessionEnded)
        at.sessions.end_all("ana")
        assert len(at.sessions) == 2
        await asyncio.sleep(limits.SESSION_SECONDS)
        for one in others:
            assert isinstance(await token(at, one.token), SessionEnded)
        assert not at.sessions._of_users


@on_both
async def test_the_session_idle_longest_makes_room(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SESSIONS", 3)
    async with desk(kind) as at:
        await at.define("ana", PASSWORD)
        opened = [await sign_in(at) for _ in range(3)]
        await token(at, opened[0].token)
        opened.append(await sign_in(at))
        alive = [not isinstance(await token(at, one.token), SessionEnded) for one in opened]
        assert alive == [True, False, True, True]
