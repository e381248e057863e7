"""Cache spaces at run time: entry point of the surfaces, expired keys, sweeping.

Scripts work on keys through their own transactions, by the same rules (`operations.perform`). The
ledger validates both, so that neither depends on the other for correctness.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.commits.committer import NODE, Committer
from actors.execution.executor import Executor
from actors.execution.request import Requester
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime
from actors.sessions import Sessions
from actors.spaces.access_cache import CallerOrToken, Names, SpaceAccessCache
from actors.spaces.request import Answers, KeysRequest
from actors.spaces.sweeping import EXPIRED, Sweepers
from actors.statements import Statements
from protocol.errors import NotWritable
from protocol.spaces import KeyOperation, Room
from storage.catalog.spaces import Space
from storage.keyspace.keyspace import SpaceKeys
from storage.txn.tickets import CommitTicket


class SpaceService:
    """Operations on the keys of all spaces; on the loop only."""

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        executor: Executor,
        roles: Roles,
        sessions: Sessions,
        rights: Rights,
        statements: Statements,
    ) -> None:
        self.statements = statements
        self.committer = committer
        self.sessions = sessions
        self.access_cache = SpaceAccessCache(committer, roles, sessions, rights)
        self.sweepers = Sweepers(runtime, committer)
        self.start_leading = self.sweepers.start_leading
        self.expiring = self.sweepers.expiring
        self.dropped = self.sweepers.dropped
        self.monotonic_us = runtime.clock.monotonic_us
        self._submit = executor.submit

    def run(
        self,
        asker: Requester[Answers],
        who: CallerOrToken,
        names: Names,
        operations: Sequence[KeyOperation],
        room: Room | None = None,
    ) -> Answers | None:
        """Run operations on the keys of one space in order, each atomic by itself: a refusal of one
        is its answer.

        :param who: a caller, or the digest of a token
        :param names: of namespace, database and space
        :param room: byte budget of the answers. Operations after the one that fills it are not done
            and get no answer. While any budget is left, at least one is done.
        :returns: the answers, if all they show is released; None: the caller is notified later
        :raises Refusal: of the request as a whole, without effect: SessionEnded, NotASpace,
            Draining, Busy, or a refusal of the log
        """
        return self._submit(  # type: ignore[no-any-return]
            KeysRequest(self, asker, who, names, operations, room)
        )

    def remove_expired(self, lapsed: Sequence[tuple[Space, list[bytes]]]) -> CommitTicket:
        """Remove expired keys that a read skipped, in one commit. Return the ticket that its answer
        must wait for. See `storage/keyspace/keyspace.py`.

        :raises Busy, NotEnoughReplicas, Draining: they can't be removed now, so that no answer may
            say that they are gone
        """
        with self.committer.begin_transaction() as tx:
            for space, names in lapsed:
                SpaceKeys(tx, space).remove_expired(names)
            tx.ignores_locks = True  # a read says that they are gone: they may not come back
            try:
                return self.committer.commit(tx, NODE, reason=EXPIRED)
            except NotWritable:
                return tx.ticket  # a node that takes no writes: see docs/cache.md

    async def stop(self) -> None:
        """Stop sweeping."""
        await self.sweepers.stop()
