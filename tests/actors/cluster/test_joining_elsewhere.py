"""The lead has moved since a token was made, or moves while a copy comes: one says where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from protocol.errors import NotWritable
from protocol.links import Leads, LinkClosed, Redeem, Redeemed, Refused
from storage.catalog.join_tokens import JoinToken, TokenLocation
from storage.faults import CopyFailed
from tests.actors.cluster import test_snapshot_transfer
from tests.actors.cluster.test_snapshot_transfer import PIN, CopyGiver, at_once, check, leader, new
from tests.actors.cluster.wires import Door, WireEnd, linked
from tests.logbook import Logbook

__all__ = ["at_once", "leader"]

OLD, OLD_PIN = "old.example:8002", "ef" * 32
NOW = "n1.example:8002"
TOKEN = JoinToken("n2.secret", TokenLocation([OLD], OLD_PIN))


class Moved(Door):
    """Who made the token follows another by now."""

    says: Leads | None = Leads("who leads", NOW, (PIN,))
    takes_tokens = False

    async def connect(self, address: str, pins: Collection[str]) -> WireEnd:
        if address != OLD:
            return await super().connect(address, pins)
        self.asked.append(address)
        assert OLD_PIN in pins
        own, theirs = linked(self.own, self.other)
        theirs.send(self._refused)
        return own

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        if address != OLD:
            return await super().redeem(address, pin, asked)
        assert pin == OLD_PIN
        if not self.takes_tokens:
            self.asked.append(address)
            raise NotWritable("it follows", **self._refused.detail)
        return await super().redeem(address, self.other.fingerprint, asked)

    @property
    def _refused(self) -> Refused:
        detail = {} if self.says is None else self.says.detail
        return Refused("NotWritable", "it follows", detail)


class SinceTheToken(Moved):
    """It led still when the token was brought."""

    takes_tokens = True


class Silent(Moved):
    """It does not know who leads."""

    says = None


class InCircles(Moved):
    """It says that it leads itself."""

    says = Leads("old", OLD, (OLD_PIN,))


@pytest.mark.parametrize("way", [Moved, SinceTheToken])
async def test_who_leads_is_asked_that_another_has_named(
    way: type[Moved], tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_snapshot_transfer, "Door", way)
    joined = new(tmp_path, leader)
    copied = await joined.join(TOKEN)
    # By the token, then for the copy; of the old one once, and never more.
    assert joined.door.asked == [OLD, NOW, NOW] if way is Moved else [OLD, OLD, NOW]
    await check(joined, copied)


async def test_whoever_goes_on_asks_who_leads_first(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("is tried again")
    monkeypatch.setattr(test_snapshot_transfer, "Door", SinceTheToken)
    joined = new(tmp_path, leader)
    serve, ended = leader.copies.serve, asyncio.Event()

    async def interrupted(link: WireEnd, asked: object) -> None:
        ended.set()
        raise LinkClosed("it dies")

    monkeypatch.setattr(leader.copies, "serve", interrupted)
    joining = asyncio.ensure_future(joined.join(TOKEN))
    await ended.wait()
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
    monkeypatch.setattr(leader.copies, "serve", serve)
    copied = await joined.join(None)
    assert joined.door.asked[0] == NOW
    await check(joined, copied)


@pytest.mark.parametrize("way", [Silent, InCircles])
async def test_who_knows_of_nobody_is_asked_again(
    way: type[Moved],
    tmp_path: Path,
    leader: CopyGiver,
    monkeypatch: pytest.MonkeyPatch,
    logbook: Logbook,
) -> None:
    logbook.allow("is tried again")
    monkeypatch.setattr(test_snapshot_transfer, "Door", way)
    joined = new(tmp_path, leader)
    with pytest.raises(CopyFailed, match="it follows"):
        await joined.join(TOKEN)
    assert set(joined.door.asked) == {OLD}
