"""Many who guess a passphrase from one address: whoever has brought the right one before, or comes
from elsewhere, does not stand behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from actors.node import Node
from actors.runtime import ask
from actors.vaults.actor import VaultsActor
from protocol import limits
from protocol.errors import TooManyTries, WrongKey
from protocol.requests import AuthenticateToken, Caller, SignIn
from storage.vaults.cipher import stretched
from tests.actors.nodes import ANA, OWNER
from tests.actors.parts import on_stepped, outcome
from tests.actors.vaulted import PASSPHRASE, node_with_vault, unseal

GUESSERS = 24
ADDRESS = "203.0.113.9:4000"
ELSEWHERE = "198.51.100.7:4000"


async def signed_in(node: Node, address: str = ADDRESS) -> Caller:
    session = await ask(node.sessions, SignIn(OWNER.name, OWNER.password, "wire", address))
    return await ask(node.sessions, AuthenticateToken(session.token, "wire", address))


async def guessing(node: Node, caller: Caller, order: list[str]) -> list[asyncio.Future[Any]]:
    """So many who guess, each in a session of its own; the first guess is being looked at."""
    guesses = await begun(node, caller, order)
    while not order:
        await asyncio.sleep(0)
    return guesses


async def begun(node: Node, caller: Caller, order: list[str]) -> list[asyncio.Future[Any]]:
    callers = [await signed_in(node, caller.address) for _ in range(GUESSERS)]
    order.clear()
    return [
        asyncio.ensure_future(outcome(unseal(node, f"a wrong one {n}", caller=one)))
        for n, one in enumerate(callers)
    ]


def watched(
    main: Callable[[Node, list[str]], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run with a list of passphrases in the order in which they are made keys."""
    order: list[str] = []

    def notes(passphrase: str, *rest: Any) -> Any:
        order.append(passphrase)
        return stretched(passphrase, *rest)

    async def whole() -> None:
        async with node_with_vault() as node:
            monkeypatch.setattr("actors.passwords.stretched", notes)
            await main(node, order)

    on_stepped.run(whole)


def test_who_has_brought_the_right_one_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: Node, order: list[str]) -> None:
        me = await signed_in(node)
        await unseal(node, caller=me)
        guesses = await guessing(node, me, order)
        await unseal(node, caller=me)
        assert order.index(PASSPHRASE) <= 3, order
        assert all(isinstance(one, WrongKey) for one in await asyncio.gather(*guesses))

    watched(main, monkeypatch)


def test_who_comes_from_elsewhere_has_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: Node, order: list[str]) -> None:
        here = replace(ANA, address=ADDRESS)
        await unseal(node, caller=here)  # so that those who guess are known there
        guesses = await guessing(node, here, order)
        await unseal(node, caller=replace(ANA, address=ELSEWHERE))
        assert order.index(PASSPHRASE) <= 5, order
        await asyncio.gather(*guesses)

    watched(main, monkeypatch)


def test_it_waits_for_no_place_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIGN_IN_FAILURES_AN_HOUR", 4)
    monkeypatch.setattr(limits, "SIGN_INS_AT_ONCE", 1)
    monkeypatch.setattr(limits, "SIGN_INS_A_SECOND", 1)

    async def main(node: Node, order: list[str]) -> None:
        me = await signed_in(node)
        await unseal(node, caller=me)
        await asyncio.gather(*await guessing(node, me, order))
        guesses = await begun(node, me, order)
        await asyncio.sleep(2)
        for caller, waits in ((me, False), (replace(ANA, address=ADDRESS), True)):
            began = node.environment.clock.monotonic_us()
            refused = await outcome(unseal(node, caller=caller))
            waited = node.environment.clock.monotonic_us() - began > 1_000_000
            assert (waited or isinstance(refused, TooManyTries)) is waits
        await asyncio.gather(*guesses)

    watched(main, monkeypatch)


def test_no_more_sessions_are_remembered_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.vaults.actor.PROVEN", 2)
    remembered: list[str] = []
    note = VaultsActor._note_proven

    def notes(self: VaultsActor, of: tuple[int, str]) -> None:
        note(self, of)
        remembered[:] = [session for _, session in self._proven]

    monkeypatch.setattr(VaultsActor, "_note_proven", notes)

    async def main(node: Node, order: list[str]) -> None:
        sessions = [await signed_in(node) for _ in range(4)]
        for one in sessions:
            await unseal(node, caller=one)
        await unseal(node)  # without a session
        assert remembered == [one.session for one in sessions[2:]]

    watched(main, monkeypatch)
