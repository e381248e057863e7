"""Commits actor: receives the messages of the log thread."""

from __future__ import annotations

from actors.commits.committer import ApplyMore, Committer, ReleaseFollowed
from actors.log import FramesSynced, LogFull
from actors.runtime import LoopActor, Runtime, handles


class CommitsActor(LoopActor):
    """Hears from the log. A failure here is the node's: see `Committer.lose`."""

    def __init__(self, runtime: Runtime, committer: Committer) -> None:
        super().__init__(runtime)
        self._committer = committer

    @handles(FramesSynced)
    def durable(self, message: FramesSynced) -> None:
        """The log has synced."""
        # No handler here replies: one that raises fails the actor, and with it the node.
        self._committer.durable(message)

    @handles(LogFull)
    def full(self, message: LogFull) -> None:
        """The log had no room."""
        # The generation tells this report from one of a roll back that came first.
        self._committer.roll_back(message.generation, message.refusal)

    @handles(ApplyMore)
    def apply_more(self, _message: ApplyMore) -> None:
        """The rest of something large."""
        self._committer.apply_more()

    @handles(ReleaseFollowed)
    def show_more(self, _message: ReleaseFollowed) -> None:
        """Apply more frames that the leader has released."""
        self._committer.show_more()

    def on_stop(self) -> None:
        """Nothing is on its way any more: the log has stopped before."""
        self._committer.finish()
