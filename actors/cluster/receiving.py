"""A follower and its leader: takes the leader's frames as they are, and shows what it has released.

| the leader says | the follower |
|---|---|
| `Attached` | promises the epoch, cuts its log to where both agree, and acknowledges that |
| `Frames` | writes them, acknowledges once they are synced, shows what is released of them |
| `Frames` without any, and nothing newly released | acknowledges: it lives |
| `Compare` | hashes its state (`comparing.py`) |
| `CopyNeeded`, `Refused` | gives up; what for is in what `run` raises |

Invariants:

- Nothing is acknowledged before the epoch is promised on its disk; nor is its history told, where
  it is known in which epoch the other leads.
- Nothing is acknowledged that is not synced. What was synced together goes in one message.
- Frames are taken only of the epoch that it is attached in, and only while it has promised no later
  one. What was sent before a promise is not acknowledged behind it.
- Nothing is shown that the leader has not released.

What could not be committed here of statements and sign-ins (`actors/backlog.py`) is carried to the
leader beside all that, a few at a time: the next ones once it says that the last are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Final, Protocol

import structlog

from actors.backlog import Backlog
from actors.cluster.comparing import Compared
from actors.cluster.entry_forwarding import told
from actors.cluster.follow_task import detached
from actors.cluster.following import frame_at
from actors.cluster.lag import Lag
from actors.commits import Committer
from actors.runtime import Runtime
from protocol import limits
from protocol.errors import CATALOGUE, BadRequest, Failed, Stranded
from protocol.links import (
    Acknowledge,
    Attach,
    Attached,
    Compare,
    CopyNeeded,
    Entries,
    Frames,
    Link,
    LinkClosed,
    Refused,
    Told,
)
from storage.frames import FRAME_HEADER_BYTES, Frame

log = structlog.get_logger("cluster")

LOOKS: Final = 4
"""It is looked so often in the time of a silence whether there is one."""
UNSYNCED_BYTES: Final = 2 * limits.SHIP_WINDOW_BYTES
"""Taken and not synced: beyond it nothing more is read from the link. A leader stays below it."""


class Epochs(Protocol):
    """What this node has promised, on its disk."""

    @property
    def promised(self) -> int:
        """Nobody of an older epoch is listened to; on the disk when it stands here."""

    async def promise(self, epoch: int) -> None:
        """Listen to nobody of an older epoch from now on; on the disk when this returns. An epoch
        that is not later than what was promised changes nothing.

        :raises OSError: as the disk says
        :raises DiskFull: no room to write it down
        """


class CopyMissing(Exception):
    """The leader's log begins behind what this node has: it has to be copied."""

    def __init__(self, begins: int) -> None:
        super().__init__(f"the leader's log begins at {begins}, and this node lacks what is before")
        self.begins = begins


class Receiving:
    """One link of a follower's, from attaching to its end. On the loop only.

    :param link: to the leader; closed at the end
    :param epoch: in which that node is known to lead; None: nobody has agreed on who leads
    :param backlog: what is carried to the leader; None: nothing is
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        epochs: Epochs,
        link: Link,
        epoch: int | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self._loop = runtime.loop
        self._monotonic_us = runtime.clock.monotonic_us
        self._committer = committer
        self._epochs = epochs
        self._link = link
        self._expected = epoch
        self.epoch = 0
        """In which it is attached; 0: it is not yet."""
        self._told_at = 0
        """The commit up to which this node may have shown frames before it attached."""
        self.released = 0
        """The last frame that the leader has said to be released."""
        self.heard_us = self._monotonic_us()
        """When the leader was heard last, on the monotonic clock."""
        self._lag = Lag(1, 0)
        self._synced = 0
        """The last frame that may be acknowledged."""
        self._unsynced_bytes = 0
        self._fewer = asyncio.Event()
        self._acknowledges = False
        """Whether an acknowledgement goes out at the end of this turn."""
        self._round = 0
        """The newest number that is to be said back."""
        self._asks = 0
        """How often it was asked what is present."""
        self._asking: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._backlog = backlog
        self._carries = 0
        """The newest of what is carried there that is not known to be kept; 0: nothing is."""
        self._failed: Exception | None = None
        """Why the link was ended here."""
        self._over = False
        self._compared = Compared(runtime, committer, self._show, self._differs)
        self._watch: asyncio.TimerHandle | None = None

    @property
    def is_in_sync(self) -> bool:
        """Whether it has all that was released a moment ago."""
        return self.epoch > 0 and not self._lag.is_late(self._monotonic_us())

    @property
    def is_told(self) -> bool:
        """True if this node shows all that it may have shown before it attached."""
        return self.epoch > 0 and self._committer.released_upto >= self._told_at

    async def run(self) -> None:
        """Follow until the link ends, or until this is cancelled.

        :raises LinkClosed: it has ended
        :raises CopyMissing: this node has to be copied first
        :raises Stranded: it shows what the leader's history does not hold
        :raises Refusal: the leader refuses it; or its own log, on a full disk; or what the leader
            sends follows nothing that is here
        :raises OSError: the promise could not be written down
        """
        self._look_for_silence()
        try:
            await self._attach()
            while True:
                await self._hear(await self._link.receive())
                await asyncio.sleep(0)  # what has come already is taken a message in each turn
        except LinkClosed:
            if self._failed is not None:
                raise self._failed from None
            raise
        except Stranded as why:
            self._link.send(Refused(why.code, why.message))
            raise
        finally:
            self._over = True
            self._end_asking()
            if self._backlog is not None and self._backlog.on_more == self._carry:
                self._backlog.on_more = None
            if self._watch is not None:
                self._watch.cancel()
            self._compared.close()
            self._link.close()

    def _look_for_silence(self) -> None:
        if self._monotonic_us() - self.heard_us > limits.SHIP_SILENT_SECONDS * 1_000_000:
            self._link.close(f"the leader has said nothing for {limits.SHIP_SILENT_SECONDS} s")
        pause = limits.SHIP_SILENT_SECONDS / LOOKS
        self._watch = self._loop.call_later(pause, self._look_for_silence)

    # --- attaching --------------------------------------------------------------------------------

    async def _attach(self) -> None:
        if self._expected is not None:
            await self._epochs.promise(self._expected)
        committer, promised = self._committer, self._epochs.promised
        # What another link has brought may be on its way to the disk yet, and be shown there: it is
        # a part of what is told. What another link has cut is none, whoever has waited for that.
        end = await committer.find_end()
        history: list[Told] = [*committer.history()]
        self._link.send(Attach(history, end, committer.released_upto, promised))
        answer = await self._link.receive()
        if not isinstance(answer, Attached):
            raise _no(answer)
        if answer.epoch < self._epochs.promised:
            raise LinkClosed(
                f"it leads in epoch {answer.epoch}, and {self._epochs.promised} was promised"
            )
        if answer.agree > end:
            raise LinkClosed(f"it agrees up to {answer.agree}, and this log ends at {end}")
        await self._epochs.promise(answer.epoch)
        await committer.cut(answer.agree)
        if answer.time:
            committer.follow_time(answer.epoch, answer.time)
        self._synced = answer.agree
        # Rule 7: a leader knows what was released once a frame of its own epoch is. Before that
        # all of this log may have been, and have been shown.
        at = frame_at(committer.history(), answer.released)
        knows = at is not None and at.epoch == answer.epoch
        self._told_at = answer.released if knows else answer.agree
        self.epoch, self.heard_us = answer.epoch, self._monotonic_us()
        self._lag = Lag(answer.released, answer.agree)
        log.info("attached", leader=self._link.peer.node, epoch=self.epoch, agree=answer.agree)
        self._acknowledge_soon()
        self._hear_released(answer.released)
        if answer.keeps and self._backlog is not None:
            # Behind the acknowledgement, which says that this node is attached.
            self._loop.call_soon(self._begin_to_carry, self._backlog)

    # --- what the leader says ---------------------------------------------------------------------

    async def _hear(self, message: object) -> None:
        self.heard_us = self._monotonic_us()
        if isinstance(message, Frames):
            self._check_epoch(message.epoch)
            if message.frames:
                self._take(_frames(message), message.released)
            elif message.released <= self.released:
                self._acknowledge_soon()
            if message.round > self._round:
                self._round = message.round
                self._acknowledge_soon()
            self._hear_released(message.released)
            while self._asking and self._asking[0][0] <= message.present:
                _, asking = self._asking.popleft()
                if not asking.done():
                    asking.set_result(message.released)
            if self._carries and message.kept >= self._carries and self._backlog is not None:
                kept, self._carries = self._carries, 0
                self._backlog.done(kept)
                self._carry()
            while self._unsynced_bytes > UNSYNCED_BYTES and self._failed is None:
                self._fewer.clear()
                await self._fewer.wait()
        elif isinstance(message, Compare):
            self._compared.hear(message)
        else:
            raise _no(message)

    def _check_epoch(self, epoch: int) -> None:
        promised = self._epochs.promised
        if epoch != self.epoch or epoch < promised:
            raise LinkClosed(
                f"frames of epoch {epoch}: it was attached in {self.epoch}, {promised} was promised"
            )

    def _take(self, frames: list[Frame], released: int) -> None:
        size = sum(len(frame.body) + FRAME_HEADER_BYTES for frame in frames)
        synced = self._committer.receive(frames, released)
        self._unsynced_bytes += size
        synced.add_done_callback(partial(self._is_synced, size))

    def _is_synced(self, size: int, synced: asyncio.Future[int]) -> None:
        self._unsynced_bytes -= size
        self._fewer.set()
        error = None if synced.cancelled() else synced.exception()
        if self._over:
            return
        if error is not None or synced.cancelled():
            self._give_up(error if isinstance(error, Exception) else LinkClosed("not written"))
            return
        self._synced = max(self._synced, synced.result())
        self._lag.synced(self._synced)
        self._acknowledge_soon()

    def _give_up(self, why: Exception) -> None:
        self._failed = self._failed or why
        self._link.close(str(why))

    # --- what it says and shows -------------------------------------------------------------------

    def _acknowledge_soon(self) -> None:
        """Acknowledge what is synced, once in this turn of the loop."""
        if not self._acknowledges:
            self._acknowledges = True
            self._loop.call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        self._acknowledges = False
        if not self._over and self._epochs.promised == self.epoch:
            applied = self._committer.released_upto
            said = Acknowledge(self.epoch, self._synced, applied, self._round, self._asks)
            self._link.send(said)

    def _begin_to_carry(self, backlog: Backlog) -> None:
        if not self._over:
            backlog.on_more = self._carry
            self._carry()

    def _carry(self) -> None:
        """Say the next of what is to be kept, where the last is."""
        if self._over or self._carries or self._backlog is None:
            return
        batch = self._backlog.oldest()
        if batch is not None:
            self._carries = batch.last
            entries = [told(one) for one in batch.noted]
            self._link.send(Entries(self.epoch, batch.life, batch.first, entries))

    def ask_present(self) -> asyncio.Future[int]:
        """What who leads has released once all of the set have told it that it still leads.

        :raises Busy: this node is not attached; the future too, when the link ends before that
        """
        if self._over or self.epoch == 0:
            raise detached()
        while self._asking and self._asking[0][1].done():
            self._asking.popleft()  # who has asked has given up
        self._asks += 1
        asking: asyncio.Future[int] = self._loop.create_future()
        self._asking.append((self._asks, asking))
        self._acknowledge_soon()
        return asking

    def _end_asking(self) -> None:
        while self._asking:
            _, asking = self._asking.popleft()
            if not asking.done():
                asking.set_exception(detached())

    def _hear_released(self, released: int) -> None:
        self.released = max(self.released, released)
        self._lag.ends(self.released, self._synced, self._monotonic_us())
        self._show()

    def _show(self) -> None:
        """Show what is released, as far as it is synced: the committer sees to that. With a stop
        where the state is to be kept."""
        if not self._over:
            self._committer.show(self._compared.bound(self.released))

    def _differs(self, why: str) -> None:
        log.error("this node's state is not its leader's", leader=self._link.peer.node, reason=why)
        stranded = Stranded(why)
        self._link.send(Refused(stranded.code, why))
        self._give_up(stranded)


def _frames(message: Frames) -> list[Frame]:
    """The frames of a message. That they follow what was taken before is the committer's to see.

    :raises LinkClosed: they are of an epoch that this leader can't have led in
    """
    frames = [Frame(*told) for told in message.frames]
    if any(frame.epoch > message.epoch for frame in frames):
        raise LinkClosed(f"frames of a later epoch than that of their leader, {message.epoch}")
    return frames


def _no(message: object) -> Exception:
    """What it means that the leader sends no frames."""
    if isinstance(message, CopyNeeded):
        return CopyMissing(message.begins)
    if not isinstance(message, Refused):
        return BadRequest(f"{type(message).__name__} is nothing that a leader says")
    return CATALOGUE.get(message.code, Failed)(message.message)
