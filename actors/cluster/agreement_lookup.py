"""Finds the current addresses of etcd, for a node that was away while etcd moved.

The addresses of the policy in its log do not answer. The newer policy stands in a part of the log
that this node lacks, and the leader that would send it is named in the unreachable etcd. So this
node asks the nodes of its replica rows.

Their addresses are used only if they lead to the same etcd: it has the same cluster id, and its
revision has not gone back. If the policy here has only `https` addresses, so must theirs, because
passwords are sent there.

The result is kept in memory only. Once the log has caught up, its policy says the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from actors.cluster.tasks import end
from protocol.agreement import Agreement, NotAnswered
from protocol.environment import Clock
from protocol.errors import Refusal
from protocol.failover import Policy, check_url
from protocol.links import Way
from storage.catalog.failover import StoredPolicy
from storage.files.cluster_file import ClusterState

log = structlog.get_logger("cluster")

SILENT_US: Final = 30_000_000
"""Silence of etcd (µs) before other nodes are asked, and before the found addresses are given up.
"""


class AgreementLookup:
    """On the loop only.

    :param agreement: makes an etcd client from addresses
    :param ask: returns the answers of the other nodes
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
        """Monotonic time since which etcd is silent, or at which other nodes were last asked (µs).
        """
        self._instead: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Replacement addresses, keyed by the addresses of the policy; one entry at most."""
        self._asking: asyncio.Future[None] | None = None

    def via(self, policy: Policy) -> tuple[str, ...]:
        """Return the addresses of etcd to use for a policy."""
        return self._instead.get(policy.via, policy.via)

    def on_answer(self) -> None:
        """Note that etcd has answered."""
        self._silent_us = None

    def silent(self, policy: Policy, kept: StoredPolicy | None, known: ClusterState) -> None:
        """Note that etcd has not answered; after `SILENT_US` ask other nodes.

        :param kept: the policy stored in this node's log
        :param known: the state of etcd as last seen
        """
        now_us = self._clock.monotonic_us()
        if self._silent_us is None:
            self._silent_us = now_us
        if self._asking is not None and self._asking.done():
            self._asking.result()  # raises a bug that ended the lookup
            self._asking = None
        if self._asking is not None or now_us - self._silent_us < SILENT_US:
            return
        self._silent_us = now_us
        if self._instead:
            self._instead = {}  # silent there too: try the addresses of the policy again
        elif kept is not None:
            self._asking = asyncio.ensure_future(self._ask_nodes(policy, kept, known))

    async def end(self) -> None:
        """Cancel a lookup under way."""
        if self._asking is not None:
            await end(self._asking)

    async def _ask_nodes(self, policy: Policy, kept: StoredPolicy, known: ClusterState) -> None:
        ways = await self._ask()
        since = {tuple(way.via): way.since for way in ways if way.since is not None}
        for via in sorted(since, key=since.__getitem__, reverse=True):
            # An older policy may name an etcd that was given up.
            if since[via] <= kept.since or not _may_be_asked(via, policy):
                continue
            try:
                agreed = await self._agreement(via).read()
            except NotAnswered:
                continue
            # Another etcd, or one that was set back, could elect a node that lacks commits.
            if known.agreement in (None, agreed.cluster) and agreed.revision >= known.revision:
                log.warning("using the etcd addresses reported by other nodes", via=via)
                self._instead = {policy.via: via}
                return
            log.warning(
                "another etcd cluster answers at the addresses reported by other nodes", via=via
            )


def _may_be_asked(via: tuple[str, ...], policy: Policy) -> bool:
    """True if these addresses are well-formed, new, and as encrypted as those of the policy."""
    try:
        found = tuple(map(check_url, via))
    except Refusal:
        return False
    if not via or found != via or via == policy.via:
        return False
    return _are_sealed(via) or not _are_sealed(policy.via)


def _are_sealed(via: tuple[str, ...]) -> bool:
    return all(url.startswith("https:") for url in via)
