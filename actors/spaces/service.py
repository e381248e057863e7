"""Cache spaces at run time: entry point of the surfaces, expired keys, sweeping.

Scripts work on keys through their own transactions, by the same rules (`operations.perform`). The
ledger validates both, so that neither depends on the other for correctness.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.commits.committer import Committer
from actors.execution.executor import Executor
from actors.execution.request import Requester
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime
from actors.sessions import Sessions
from actors.spaces.access_cache import CallerOrToken, Names, SpaceAccessCache
from actors.spaces.request import Answers, KeysParts, KeysRequest
from actors.spaces.sweeping import Sweepers
from actors.statements import Statements
from protocol.spaces import KeyOperation, Room


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
        self.sessions = sessions
        self.sweepers = Sweepers(runtime, committer)
        access_cache = SpaceAccessCache(committer, roles, sessions, rights)
        self._parts = KeysParts(committer, sessions, access_cache, statements, self.sweepers)
        self.start_leading = self.sweepers.start_leading
        self.expiring = self.sweepers.expiring
        self.dropped = self.sweepers.dropped
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
            KeysRequest(self._parts, asker, who, names, operations, room)
        )

    async def stop(self) -> None:
        """Stop sweeping."""
        await self.sweepers.stop()
