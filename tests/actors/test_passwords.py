"""Password hashing: argon2id, bounded, off the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from actors.passwords import Cost, PasswordActor, Passwords, Verify, check_passhash, check_password
from actors.runtime import stop
from protocol import limits
from protocol.errors import BadRequest, Busy
from tests.actors.parts import CHEAP, KINDS, Failures, outcome, play, until
from tests.simulation.doors import SeededRng

both = pytest.mark.parametrize("kind", KINDS)


@both
def test_a_hash_matches_its_password_only(kind: str) -> None:
    async def main() -> None:
        passwords = Passwords(Failures().runtime(kind), SeededRng(1), 2, CHEAP)
        passhash = await passwords.hash("correct horse")
        assert passhash.startswith("$argon2id$v=19$m=64,t=1,p=1$")
        assert (await passwords.verify("correct horse", passhash)).matches
        assert not (await passwords.verify("correct horsf", passhash)).matches
        assert not (await passwords.verify("correct horse", None)).matches
        assert not (await passwords.verify("a user that does not exist", None)).matches
        assert not (await passwords.verify("correct horse", "no hash at all")).matches
        assert await passwords.hash("correct horse") != passhash, "a salt of its own"
        await passwords.stop()

    play(kind, main)


@both
def test_passwords_are_never_cut(kind: str) -> None:
    async def main() -> None:
        passwords = Passwords(Failures().runtime(kind), SeededRng(1), 1, CHEAP)
        longest = "ä" * limits.PASSWORD_CHARACTERS_MAX
        passhash = await passwords.hash(longest)
        assert (await passwords.verify(longest, passhash)).matches
        assert not (await passwords.verify(longest[:-1], passhash)).matches
        assert not (await passwords.verify(longest + "ä", passhash)).matches
        for refused in ("1234567", longest + "ä"):
            with pytest.raises(BadRequest):
                passwords.hash(refused)
        await passwords.stop()

    play(kind, main)
    check_password("12345678")


@both
def test_lesser_parameters_are_renewed(kind: str) -> None:
    async def main() -> None:
        runtime = Failures().runtime(kind)
        old = Passwords(runtime, SeededRng(1), 1, CHEAP)
        new = Passwords(runtime, SeededRng(1), 1, Cost(memory_kib=128, passes=1))
        passhash = await old.hash("correct horse")
        verdict = await new.verify("correct horse", passhash)
        assert verdict.matches
        assert verdict.renewed is not None
        assert (await new.verify("correct horse", verdict.renewed)).renewed is None
        assert (await new.verify("wrong horse", passhash)).renewed is None
        await old.stop()
        await new.stop()

    play(kind, main)


@both
def test_greater_parameters_stay(kind: str) -> None:
    """Whoever brought a dearer hash wanted it, and the node must not make it a cheaper one."""

    async def main() -> None:
        runtime = Failures().runtime(kind)
        dear = Passwords(runtime, SeededRng(1), 1, Cost(memory_kib=256, passes=2, lanes=2))
        own = Passwords(runtime, SeededRng(1), 1, Cost(memory_kib=128, passes=1))
        verdict = await own.verify("correct horse", await dear.hash("correct horse"))
        assert verdict.matches
        assert verdict.renewed is None
        await dear.stop()
        await own.stop()

    play(kind, main)


def test_as_many_at_once_as_cores_then_a_queue_then_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    let, running, most = threading.Event(), [0], [0]
    guard = threading.Lock()

    def held(self: PasswordActor, passhash: str, password: str) -> bool:
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        let.wait()
        with guard:
            running[0] -= 1
        return True

    monkeypatch.setattr(PasswordActor, "_matches", held)

    async def main() -> None:
        passwords = Passwords(Failures().runtime("real"), SeededRng(1), 3, CHEAP)
        waiting = [
            asyncio.ensure_future(passwords.verify("correct horse", None))
            for _ in range(3 + limits.HASH_QUEUE)
        ]
        await until(lambda: running[0] == 3)
        assert isinstance(await outcome(passwords.verify("one too many", None)), Busy)
        let.set()
        await asyncio.gather(*waiting)
        assert most[0] == 3
        await passwords.verify("room again", None)
        await passwords.stop()

    play("real", main)


def test_the_parameters_for_people_are_the_ones_asked_for() -> None:
    async def main() -> str:
        passwords = Passwords(Failures().runtime("real"), SeededRng(1), 1)
        passhash = await passwords.hash("correct horse")
        await passwords.stop()
        return passhash

    passhash = play("real", main)
    assert passhash.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert check_passhash(passhash) == passhash


@pytest.mark.parametrize(
    "passhash",
    [
        "",
        "secret",
        "$argon2i$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA",
        "$argon2id$v=19$m=64,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA",
        "$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA",
        "$argon2id$v=19$m=19456,t=1000,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA",
    ],
)
def test_a_hash_that_is_weak_dear_or_none_is_refused(passhash: str) -> None:
    with pytest.raises(BadRequest):
        check_passhash(passhash)


def test_no_password_shows_when_a_message_is_printed() -> None:
    assert "horse" not in repr(Verify("correct horse", "$argon2id$horse"))


def test_a_stopped_hasher_leaves_no_thread() -> None:
    async def main() -> None:
        before = threading.active_count()
        ref = PasswordActor.start(Failures().runtime("real"), SeededRng(1), CHEAP)
        await stop(ref)
        assert threading.active_count() == before

    play("real", main)
