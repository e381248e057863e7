"""The end of an unseal under load: what was in flight then was recorded and is answered, or is
refused. Many clients reveal over real sockets until each is told that it is sealed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from actors.vaults.actor import VaultsActor
from actors.vaults.keyring import Keyring
from actors.vaults.told import VaultSettings
from protocol.errors import Sealed
from protocol.values import MICROSECOND
from tests.nodes import OWNER, PASSPHRASE, PASSWORD, VAULTS
from tests.surfaces.served import Served, served

Figure = Callable[[str, object], None]
pytestmark = pytest.mark.timeout(300)
CLIENTS: Final = 12
RECORDS: Final = 20
ENOUGH: Final = 60
UNSEALED: Final = timedelta(milliseconds=400)
TOLD: Final = VaultSettings(unseal_us=UNSEALED // MICROSECOND, stretch=VAULTS.stretch)
PAGE: Final = 1_000


class Broken(AssertionError):
    """Something was shown that was not recorded, or too late."""


@dataclass
class Heard:
    """What clients were told. Each reveal is known by its reason."""

    answered: dict[str, float] = field(default_factory=dict)
    """When it was begun."""
    refused: dict[str, float] = field(default_factory=dict)
    sealed_at: float | None = None
    """When somebody knew first that it was sealed."""

    def sealed(self) -> None:
        if self.sealed_at is None:
            self.sealed_at = time.monotonic()

    def judge(self, trail: list[Any], until: datetime) -> None:
        """:raises Broken:"""
        granted: dict[str, list[datetime]] = {}
        for one in trail:
            if one["action"] == "reveal" and one["outcome"] == "granted":
                granted.setdefault(one["reason"], []).append(one["at"])
        for reason, begun in self.answered.items():
            if len(granted.get(reason, ())) != 1:
                raise Broken(f"{reason} was answered, with entries {granted.get(reason)}")
            assert self.sealed_at is not None
            if begun > self.sealed_at:
                raise Broken(f"{reason} was answered, and begun when it was sealed")
        for reason, moments in granted.items():
            if reason not in self.answered and reason not in self.refused:
                raise Broken(f"{reason} is in the trail, and nobody has asked")
            if max(moments) > until:
                raise Broken(f"{reason} was granted behind the end")


async def client(house: Served, token: str, lane: int, heard: Heard) -> None:
    """Reveal, until that is refused."""
    raw = await house.raw()
    number = 0
    while True:
        number += 1
        reason, begun = f"{lane}-{number}", time.monotonic()
        body = {"id": f"k{number % RECORDS}", "reason": reason}
        answer = await raw.ask(
            "POST",
            "/vault/shop/main/v/reveal",
            json.dumps(body).encode(),
            authorization=f"Bearer {token}",
            content_type="application/json",
        )
        if answer.status != 200:
            assert answer.error["code"] == "Sealed", answer.body
            heard.sealed()
            heard.refused[reason] = begun
            return
        assert answer.json["value"] == number % RECORDS
        heard.answered[reason] = begun


async def trail_of(house: Served) -> list[Any]:
    found: list[Any] = []
    before = ""
    while True:
        page = await house.here.value(f"INFO FOR AUDIT OF VAULT v {before} LIMIT {PAGE}")
        found += page
        if len(page) < PAGE:
            return found
        before = f"BEFORE {page[-1]['seq']}"


async def unsealed_once(house: Served, token: str, *, by_hand: bool) -> Heard:
    """Unseal, and reveal until that is over. :raises Broken:"""
    heard = Heard()
    raw = await house.raw()
    fields = {"authorization": f"Bearer {token}", "content_type": "application/json"}
    body = json.dumps({"passphrase": PASSPHRASE}).encode()
    answer = await raw.ask("POST", "/vault/unseal", body, **fields)
    until = datetime.fromisoformat(answer.json["until"])
    clients = [asyncio.create_task(client(house, token, n, heard)) for n in range(CLIENTS)]
    if by_hand:
        while len(heard.answered) < ENOUGH and heard.sealed_at is None:
            await asyncio.sleep(0)
        answer = await raw.ask("POST", "/vault/seal", b"", **fields)
        assert answer.json == {"sealed": True}
        heard.sealed()
    await asyncio.gather(*clients)
    await client(house, token, CLIENTS, heard)
    assert f"{CLIENTS}-1" in heard.refused
    heard.judge(await trail_of(house), until)
    return heard


async def under_load(directory: Path, *, by_hand: bool) -> int:
    """Let unseals end under reveals, by themselves or because somebody seals, until enough were
    answered. Answers how many. :raises Broken:"""
    answered = 0
    told = replace(TOLD, unseal_us=3_600_000_000) if by_hand else TOLD
    async with served(directory, {"vaults": told}) as house:
        await house.here.value("DEFINE VAULT v")
        token = await house.token(await house.raw(), OWNER.user, PASSWORD)
        while answered < ENOUGH:
            await house.here.value("DROP VAULT v; DEFINE VAULT v")
            written = 0
            while written < RECORDS:
                await house.here.unseal()
                try:
                    id = {"id": f"k{written}", "value": written}
                    await house.here.value("WRITE $id IN VAULT v VALUE $value", id)
                except Sealed:
                    continue
                written += 1
            answered += len((await unsealed_once(house, token, by_hand=by_hand)).answered)
    return answered


@pytest.mark.parametrize("by_hand", [False, True])
async def test_the_end_of_an_unseal_under_load(
    by_hand: bool, tmp_path: Path, figure: Figure
) -> None:
    answered = await under_load(tmp_path / "store", by_hand=by_hand)
    how = "by hand" if by_hand else "by time"
    figure(f"R22 sealed {how} under load", f"{answered} answered, 0 unrecorded or late")


async def test_a_seal_that_comes_late_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_us = 600_000

    def until_us(self: Keyring, of: int) -> int | None:
        found = self._open.get(of)
        if found is None or found.until_us + late_us <= self._clock.monotonic_us():
            return None
        return found.until_us

    monkeypatch.setattr(Keyring, "until_us", until_us)
    monkeypatch.setattr(VaultsActor, "_over", lambda *_: None)
    with pytest.raises(Broken, match="behind the end"):
        await under_load(tmp_path / "store", by_hand=False)
