"""Finds the etcd that the nodes agree in by now, for a node that was away while that moved.

Nobody answers where the policy in its log says. A newer policy stands in a part of the log that it
lacks, and who would send that is named where it can't ask. So others are asked of whom it has rows.
What they say is gone by only if it leads to what was agreed in before: what answers there names
itself as that did, and has not gone back. Nor are passwords told to whoever listens: where the
policy here has nothing but `https`, so has what is said.

It is kept in memory alone. Once the log has come as far, the policy says the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from actors.cluster.tasks import end
from protocol.agreement import Agreement, NotAnswered
from protocol.doors import Clock
from protocol.errors import Refusal
from protocol.failover import Policy, check_url
from protocol.links import Way
from storage.cluster_file import Cluster
from storage.failover import Kept

log = structlog.get_logger("cluster")

SILENT_US: Final = 30_000_000
"""For so long nobody answers, before others are asked, and before it is gone back."""


class AgreementLookup:
    """On the loop only.

    :param agreement: the door, from addresses
    :param ask: what others say who are there
    """

    def __init__(
        self,
        clock: Clock,
        agreement: Callable[[Sequence[str]], Agreement],
        ask: Callable[[], Awaitable[Sequence[Way]]],
    ) -> None:
        self._clock = clock
        self._agreement = agreement
        self._ask = ask
        self._silent_us: int | None = None
        """Since when nobody answers; or when it was last looked for others."""
        self._instead: dict[tuple[str, ...], tuple[str, ...]] = {}
        """By the addresses of a policy, those that are asked at instead: of one at most."""
        self._asking: asyncio.Future[None] | None = None

    def via(self, policy: Policy) -> tuple[str, ...]:
        """Where to ask what is agreed."""
        return self._instead.get(policy.via, policy.via)

    def answered(self) -> None:
        """Somebody has answered there."""
        self._silent_us = None

    def silent(self, policy: Policy, kept: Kept | None, known: Cluster) -> None:
        """Nobody has.

        :param kept: the policy as it stands here
        :param known: what was agreed when it was last heard
        """
        now_us = self._clock.monotonic_us()
        if self._silent_us is None:
            self._silent_us = now_us
        if self._asking is not None and self._asking.done():
            self._asking.result()  # a bug, if it has ended of one
            self._asking = None
        if self._asking is not None or now_us - self._silent_us < SILENT_US:
            return
        self._silent_us = now_us
        if self._instead:
            self._instead = {}  # not there either: from the beginning
        elif kept is not None:
            self._asking = asyncio.ensure_future(self._look(policy, kept, known))

    async def end(self) -> None:
        """Ask nobody any more."""
        if self._asking is not None:
            await end(self._asking)

    async def _look(self, policy: Policy, kept: Kept, known: Cluster) -> None:
        ways = await self._ask()
        since = {tuple(way.via): way.since for way in ways if way.since is not None}
        for via in sorted(since, key=since.__getitem__, reverse=True):
            if since[via] <= kept.since or not _may_be_asked(via, policy):
                continue
            try:
                agreed = await self._agreement(via).look()
            except NotAnswered:
                continue
            if known.agreement in (None, agreed.cluster) and agreed.revision >= known.revision:
                log.warning("what is agreed is asked for where others say", via=via)
                self._instead = {policy.via: via}
                return
            log.warning("another agreement answers where others say that this one is", via=via)


def _may_be_asked(via: tuple[str, ...], policy: Policy) -> bool:
    """Whether that is no worse than what the policy says."""
    try:
        found = tuple(map(check_url, via))
    except Refusal:
        return False
    if not via or found != via or via == policy.via:
        return False
    return _are_sealed(via) or not _are_sealed(policy.via)


def _are_sealed(via: tuple[str, ...]) -> bool:
    return all(url.startswith("https:") for url in via)
