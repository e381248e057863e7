"""Password hashing: argon2id, bounded, off the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from argon2 import extract_parameters
from argon2.exceptions import VerificationError, VerifyMismatchError

from actors.passwords import (
    Cost,
    Hash,
    HashRequester,
    PasswordActor,
    Passwords,
    Verdict,
    check_passhash,
    check_password,
)
from actors.sign_in_throttle import HashPriority
from protocol import limits
from protocol.errors import BadRequest, Busy, Draining
from storage.vaults.cipher import Argon2Parameters
from tests.actors.parts import CHEAP, KINDS, Failures, on_both, outcome, play, until
from tests.simulation.environment import SeededRng

both = pytest.mark.parametrize("kind", KINDS)


@on_both
async def test_a_hash_matches_its_password_only(kind: str) -> None:
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


@on_both
async def test_lesser_parameters_are_renewed(kind: str) -> None:
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


@on_both
async def test_greater_parameters_stay(kind: str) -> None:
    """Whoever brought a dearer hash wanted it, and the node must not make it a cheaper one."""
    runtime = Failures().runtime(kind)
    dear = Passwords(runtime, SeededRng(1), 1, Cost(memory_kib=256, passes=2, lanes=2))
    own = Passwords(runtime, SeededRng(1), 1, Cost(memory_kib=128, passes=1))
    verdict = await own.verify("correct horse", await dear.hash("correct horse"))
    assert verdict.matches
    assert verdict.renewed is None
    await dear.stop()
    await own.stop()


async def test_as_many_at_once_as_cores_then_a_queue_then_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    passwords = Passwords(Failures().runtime("real"), SeededRng(1), 3, CHEAP)
    waiting = [
        passwords.verify("correct horse", None, HashRequester(f"n{n}"))
        for n in range(3 + limits.HASH_QUEUE)
    ]
    await until(lambda: running[0] == 3)
    one_more = HashRequester("another")
    assert isinstance(await outcome(passwords.verify("one too many", None, one_more)), Busy)
    let.set()
    await asyncio.gather(*waiting)
    assert most[0] == 3
    await passwords.verify("room again", None)
    await passwords.stop()


class Line:
    """Passwords whose hashes end when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
        self.begun: list[str] = []
        self.most: Counter[str] = Counter()
        """Under way at once, by their first letter."""
        self._ends = threading.Semaphore(0)
        running: Counter[str] = Counter()
        guard = threading.Lock()

        def held(_actor: PasswordActor, _passhash: str, password: str) -> bool:
            with guard:  # a thread that begins adds to what another goes through
                running[password[0]] += 1
                self.most |= running
                self.begun.append(password)
            assert self._ends.acquire(timeout=30)
            with guard:
                running[password[0]] -= 1
            return True

        monkeypatch.setattr(PasswordActor, "_matches", held)
        self.passwords = Passwords(Failures().runtime("real"), SeededRng(1), cores, CHEAP)

    def ask(
        self,
        name: str,
        user: str,
        network: str = "here",
        rank: HashPriority = HashPriority.UNKNOWN,
        passhash: str | None = None,
    ) -> asyncio.Future[Verdict]:
        return self.passwords.verify(name, passhash, HashRequester(user, network, rank))

    async def end(self, count: int = 1) -> None:
        """Let so many end, and as many more begin."""
        wanted = len(self.begun) + count
        self._ends.release(count)
        await until(lambda: len(self.begun) >= wanted)

    async def stop(self) -> None:
        self._ends.release(1000)
        await self.passwords.stop()


async def test_one_user_has_one_thread_and_the_others_have_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line(monkeypatch, 2)
    many = [line.ask(f"a{n}", "ana") for n in range(20)]
    await until(lambda: line.begun == ["a0"])
    others = [line.ask(f"b{n}", "bob") for n in range(20)]
    await until(lambda: len(line.begun) == 2)
    assert set(line.begun) == {"a0", "b0"}, "a thread is free and nineteen of hers wait"
    await line.end(4)
    assert line.most == {"a": 1, "b": 1}
    await line.stop()
    await asyncio.gather(*many, *others, return_exceptions=True)


async def test_one_hash_at_a_time_takes_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    dear = "$argon2id$v=19$m=262144,t=3,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA"
    line = Line(monkeypatch, 3)
    asked = [line.ask(f"dear{n}", f"ana{n}", passhash=dear) for n in range(3)]
    asked.append(line.ask("cheap", "bob"))
    await until(lambda: len(line.begun) == 2)
    assert set(line.begun) == {"dear0", "cheap"}
    await line.stop()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_the_line_is_shared_out_between_the_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line(monkeypatch, 1)
    flood = [line.ask(f"f{n}", f"f{n}", "flood") for n in range(limits.HASH_QUEUE + 10)]
    await until(lambda: len(line.begun) == 1)
    other = [line.ask(f"o{n}", f"o{n}", f"other{n}") for n in range(3)]
    refused = sum(one.done() and isinstance(one.exception(), Busy) for one in flood)
    assert refused == 9 + 3, "those that come from elsewhere push out the flood's own"
    await line.end(6)
    assert {"o0", "o1", "o2"} <= set(line.begun), line.begun
    await line.stop()
    await asyncio.gather(*flood, *other, return_exceptions=True)


async def test_who_is_known_goes_first_and_not_always(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch, 1)
    asked = [line.ask("first", "first")]
    await until(lambda: len(line.begun) == 1)
    for n in range(8):
        asked.append(line.ask(f"unknown{n}", f"u{n}"))
        asked.append(line.ask(f"known{n}", f"k{n}", "here", HashPriority.KNOWN))
    await line.end(8)
    kinds = [name.rstrip("0123456789") for name in line.begun[1:]]
    assert kinds.count("known") == 6, kinds
    assert kinds.count("unknown") == 2
    await line.stop()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_what_nobody_waits_for_any_more_is_not_hashed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line(monkeypatch, 1)
    first, gone, last = line.ask("a", "a"), line.ask("b", "b"), line.ask("c", "c")
    gone.cancel()
    await until(lambda: len(line.begun) == 1)
    await line.end()
    assert line.begun == ["a", "c"]
    await line.stop()
    await asyncio.gather(first, last)
    assert isinstance(await outcome(line.ask("late", "d")), Draining)


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
        "$argon2id$v=19$m=262144,t=16,p=8$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA",
        "$argon2id$v=19$m=262144,t=4,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA",
        "$argon2id$v=19$m=65536,t=3,p=5$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA",
    ],
)
def test_a_hash_that_is_weak_dear_or_none_is_refused(passhash: str) -> None:
    for space in (None, "shop"):
        with pytest.raises(BadRequest):
            check_passhash(passhash, space)


@pytest.mark.parametrize(
    "parameters, of_space",
    [
        ("m=65536,t=3,p=4", False),  # RFC 9106, the second choice
        ("m=262144,t=3,p=1", False),
        ("m=65536,t=5,p=1", False),
        ("m=65536,t=4,p=1", True),
        ("m=19456,t=2,p=1", True),
    ],
)
def test_an_owner_of_a_space_may_bring_less(parameters: str, of_space: bool) -> None:
    passhash = f"$argon2id$v=19${parameters}$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAA"
    assert check_passhash(passhash) == passhash
    if of_space:
        assert check_passhash(passhash, "shop") == passhash
    else:
        with pytest.raises(BadRequest, match="m·t at most 262144"):
            check_passhash(passhash, "shop")


async def test_the_hash_of_nobody_is_not_made_and_takes_as_long_to_look_at() -> None:
    """What is malformed is refused at once, by which a user that does not exist would be told."""
    actor = PasswordActor(Failures().runtime("real"), SeededRng(1), CHEAP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("actors.passwords.hash_secret", None)
        actor.on_start()
    of_somebody = actor.hash(Hash("correct horse"))
    assert extract_parameters(actor._nobody) == extract_parameters(of_somebody)
    with pytest.raises(VerifyMismatchError):
        actor._hasher.verify(actor._nobody, b"correct horse")
    with pytest.raises(VerificationError) as cut:
        actor._hasher.verify(actor._nobody.rpartition("$")[0], b"correct horse")
    assert not isinstance(cut.value, VerifyMismatchError)


async def test_one_passphrase_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL's threads for two at once wait for each other for ever; whoever they are of."""
    going = most = 0
    both_asked = threading.Event()

    def slowly(*_: object) -> bytearray:
        nonlocal going, most
        going += 1
        most = max(most, going)
        both_asked.wait()
        going -= 1
        return bytearray(32)

    monkeypatch.setattr("actors.passwords.stretched", slowly)
    passwords = Passwords(Failures().runtime("real"), SeededRng(1), 4, CHEAP)
    for stretch in (Argon2Parameters(), Argon2Parameters(19 * 1024, 1, 1)):
        both_asked.clear()
        asked = [
            passwords.derive("a passphrase", b"", stretch, HashRequester(f"u{number}"))
            for number in range(4)
        ]
        # Who signs in has the other threads meanwhile.
        assert await passwords.hash("correct horse")
        both_asked.set()
        await asyncio.gather(*asked)
    assert most == 1
    await passwords.stop()


async def test_no_memory_for_a_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> bytearray:
        raise MemoryError("not enough")

    monkeypatch.setattr("actors.passwords.stretched", none)
    passwords = Passwords(Failures().runtime("real"), SeededRng(1), 1, CHEAP)
    with pytest.raises(Busy, match="not enough memory"):
        await passwords.derive("a passphrase", b"", Argon2Parameters(), HashRequester("ana"))
    await passwords.stop()
