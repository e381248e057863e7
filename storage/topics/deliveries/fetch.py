"""TAKE: selection and order of the messages to deliver."""

from __future__ import annotations

from protocol import limits
from protocol.errors import BadRequest
from protocol.values import check_unicode, instant
from storage.topics.deliveries import expiry
from storage.topics.deliveries.delivery import ALONE, OUT, WAITING, DeliveryRow, topic_named
from storage.topics.deliveries.expiry import SPENT, ExhaustedMessages
from storage.topics.deliveries.index import AHEAD_US, ENTRY, PLACE, STEP, Answer, DeliveryIndex
from storage.topics.groups import Group
from storage.topics.message_rows import answer, due_us, key_of
from storage.txn.appends import NUMBER
from storage.txn.transaction import Transaction


class FetchedMessages:
    """Messages collected for one TAKE."""

    __slots__ = ("_receipt", "_shown", "_until", "deadline_us", "found", "full", "member", "room",
                 "wanted")  # fmt: skip

    def __init__(
        self, tx: Transaction, group: Group, epoch: int, wanted: int, member: str | None
    ) -> None:
        self.wanted = wanted
        """Messages still wanted."""
        self.room = limits.MESSAGES_READ_BYTES
        """Bytes left for them."""
        self.full = False
        """True if the next message did not fit into `room`."""
        self.found: list[Answer] = []
        self.deadline_us = tx.now_us + group.deadline_us
        self.member = b"" if member is None else member.encode()
        self._shown = member
        self._until = instant(self.deadline_us)
        self._receipt = f"{topic_named(tx.store, group.topic)}.{group.id}.{epoch}"

    def fits(self, row: bytes) -> bool:
        """True if the message fits into `room`; the first always does."""
        if self.found and len(row) > self.room:
            self.full = True
        return not self.full

    def add(self, position: int, row: bytes, attempt: int) -> None:
        """Add a message to the response, with its receipt."""
        made = answer(position, row)
        made["receipt"] = f"{self._receipt}.{position}.{attempt}"
        made["attempt"] = attempt
        made["deadline"] = self._until
        made["member"] = self._shown
        self.found.append(made)
        self.wanted -= 1
        self.room -= len(row)


def take(index: DeliveryIndex, count: int = 1, member: str | None = None) -> list[Answer]:
    """Deliver up to `count` messages, in flight until their ack deadline.

    Return them as `Messages.read` does, with `receipt`, `attempt`, `deadline` and `member`.
    Writes nothing if no message is new, due or expired.

    :raises BadRequest: a count outside 1 … `limits.MESSAGES_READ`, a member's name too long
    """
    if not 1 <= count <= limits.MESSAGES_READ:
        raise BadRequest(f"TAKE takes 1 to {limits.MESSAGES_READ} messages", count=count)
    if member is not None:
        _check_member(member)
    state = index.load()
    index.more = False
    # First, so that expired deliveries make room and are offered before new messages.
    expiry.expire_deliveries(index, limits.LAPSE_HAND_OUTS)
    # May be negative: IN FLIGHT can be lowered below the number in flight.
    wanted = min(count, index.group.in_flight - state.out)
    taken = FetchedMessages(index.tx, index.group, state.epoch, wanted, member)
    if taken.wanted > 0 and state.hand_outs > state.out + state.parked:
        _take_waiting(index, taken)
    # A message that did not fit must not be overtaken by newer ones.
    if taken.wanted > 0 and not taken.full:
        _take_new(index, taken)
    index.store()
    return taken.found


def _take_waiting(index: DeliveryIndex, taken: FetchedMessages) -> None:
    """Deliver scheduled messages that are due, the longest due first."""
    tx, group, state, now_us = index.tx, index.group, index.state, index.now_us
    next_us = now_us + AHEAD_US
    over = ExhaustedMessages(SPENT)
    for key, _ in index.entries_between(group.ready, state.ready_from_us, next_us):
        time_us, position = PLACE.unpack_from(key, len(group.ready))
        if time_us > now_us or taken.wanted <= 0:
            next_us = time_us
            break
        place = group.hand_outs + NUMBER.pack(position)
        row = index.row(place)
        if index.is_last(row):  # DELIVERIES was lowered since its last one
            if over.bytes >= limits.LAPSE_BYTES or len(over.rows) >= limits.LAPSE_HAND_OUTS:
                next_us = time_us
                break
            tx.delete(key)
            expiry.end_delivery(index, position, row, over)
            continue
        message = index.messages.get(position)
        if not taken.fits(message):
            next_us = time_us
            break
        tx.delete(key)
        row.state, row.attempt, row.member = OUT, row.attempt + 1, taken.member
        row.due_us, row.batch = taken.deadline_us, position
        # Before `out` grows: with none in flight the known bound of the index is void.
        row.flags = index.add_deadline(taken.deadline_us, position, position, 1)
        tx.put(place, row.pack())
        state.out += 1
        state.redelivered += row.attempt > 1
        state.handed_out = max(state.handed_out, position)
        taken.add(position, message, row.attempt)
    # Before the dead letters: they release parked messages, which may lower the bound again.
    state.ready_from_us = next_us
    expiry.dead_letter(index, over)
    index.more = bool(over.rows)  # more of these, or a parked message of their keys


def _take_new(index: DeliveryIndex, taken: FetchedMessages) -> None:
    """Deliver messages that the group has not read yet."""
    state, now_us, ordered = index.state, index.now_us, index.group.ordered
    batch: list[tuple[int, bytes]] = []
    """Positions, with their keys in an ordered group."""
    looked, step = 0, taken.wanted
    while taken.wanted > 0 and not taken.full:
        if looked >= limits.GROUP_LOOKED:
            index.more = True
            break
        # Only a read that reaches the end of the topic conflicts with publishers.
        rows = index.messages.span(state.cursor + 1, step, taken.room)
        if not rows:
            break
        for position, row in rows:
            if taken.wanted <= 0:
                break
            key = key_of(row) if ordered else b""
            waits_us = due_us(row)
            head = index.head(key) if key else None
            # Parked even if it is due: an earlier message of its key is not done.
            if head is not None:
                index.park(position, key, head, waits_us)
            elif waits_us > now_us:
                index.schedule(position, DeliveryRow(WAITING, 0, 0, waits_us, 0, key=key))
                index.put_head(key, position, 0)
                state.hand_outs += 1
            elif taken.fits(row):
                batch.append((position, key))
                index.put_head(key, position, 0)
                taken.add(position, row, 1)
            else:
                break
            # The cursor stays before a message that did not fit: the next TAKE reads it again.
            state.cursor = position
        looked += len(rows)
        step = max(taken.wanted, STEP)
    if batch:
        _put_batch(index, batch, taken)


def _put_batch(
    index: DeliveryIndex, batch: list[tuple[int, bytes]], taken: FetchedMessages
) -> None:
    tx, group, state = index.tx, index.group, index.state
    first, last, count = batch[0][0], batch[-1][0], len(batch)
    flags = ALONE if count == 1 else 0
    # One encoded row serves a whole batch, unless the rows hold different keys.
    row = DeliveryRow(OUT, flags, 1, taken.deadline_us, first, taken.member)
    prefix, pack = group.hand_outs, NUMBER.pack
    if group.ordered:
        rows: dict[bytes, bytes] = {}
        for position, row.key in batch:
            rows[prefix + pack(position)] = row.pack()
    else:
        rows = dict.fromkeys([prefix + pack(position) for position, _ in batch], row.pack())
    tx.put_new(rows)
    # No other entry can begin with a position that was never delivered.
    tx.put(group.deadlines + PLACE.pack(taken.deadline_us, first), ENTRY.pack(count, last))
    index.expect_deadline(taken.deadline_us)
    state.hand_outs += count
    state.out += count
    state.handed_out = max(state.handed_out, last)


def _check_member(member: str) -> None:
    check_unicode(member)
    if not 1 <= len(member.encode()) <= limits.MEMBER_BYTES:
        raise BadRequest(f"MEMBER has 1 to {limits.MEMBER_BYTES} bytes")
