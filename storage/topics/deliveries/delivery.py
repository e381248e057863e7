"""Format of a delivery's row and of its receipt. `index.py` has their rules.

    0   1  state
    1   1  flags: 1 = alone under its entry of the ack deadline index
    2   4  attempt: number of deliveries so far
    6   8  OUT: ack deadline. WAITING, PARKED: when it is due. Log time, µs
   14   8  OUT: first position of its entry of the ack deadline index
   22   2  length of the member
   24   2  length of the key; only ordered groups keep it
   26   …  member · key · the error of the last NACK

A receipt names topic · group · epoch · position · attempt, so it is valid for one delivery only.
Group ids are assigned per topic, so the receipt names the topic too, by a digest of the store and
the topic's id. The digest differs from that of every other topic, of a dropped and redeclared topic
of the same name, and of the same ids in a restored store. It does not reveal the number of topics.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, Final

from protocol import limits
from protocol.errors import BadRequest
from storage.topics.topics import Topic

OUT: Final = 1
WAITING: Final = 2
PARKED: Final = 3

ALONE: Final = 1
"""Row flag: the delivery is the only one under its ack deadline entry."""

_ROW: Final = Struct(">BBIQQHH")
assert _ROW.size == 26

# Enough to tell the topics of a store apart; more would lengthen every receipt.
_TOPIC_BYTES: Final = 4
"""Bytes of the digest that names a topic.

Receipts from before topics were named begin with as many bytes of the store's id. So they are
stale, not malformed.
"""
_RECEIPT: Final = re.compile(
    r"([0-9a-f]{8})\.([0-9]{1,10})\.([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,9})"
)

Named = tuple[str, int, int, int, int]
"""Decoded receipt: topic (as `topic_named`), group, epoch, position, attempt."""


@dataclass(slots=True)
class DeliveryRow:
    """Decoded row of a delivery; the module head describes its fields."""

    state: int
    flags: int
    attempt: int
    due_us: int
    batch: int
    member: bytes = b""
    key: bytes = b""
    error: bytes = b""

    def pack(self) -> bytes:
        """Encode the row."""
        head = _ROW.pack(
            self.state, self.flags, self.attempt, self.due_us, self.batch, len(self.member),
            len(self.key),
        )  # fmt: skip
        return head + self.member + self.key + self.error


def unpacked(row: bytes) -> DeliveryRow:
    """Decode a row."""
    state, flags, attempt, due, batch, member, key = _ROW.unpack_from(row)
    # `key` is a length here. The error takes the rest, so it needs no length.
    at = _ROW.size + member
    return DeliveryRow(
        state, flags, attempt, due, batch,
        row[_ROW.size : at], row[at : at + key], row[at + key :],
    )  # fmt: skip


def topic_named(store: str, topic: Topic) -> str:
    """Return the topic part of a receipt.

    :param store: first part of the store's id
    """
    id = topic.id.to_bytes(8, "big")
    return blake2b(id, digest_size=_TOPIC_BYTES, key=store.encode()).hexdigest()


def parsed_receipts(receipts: Sequence[Any]) -> list[Named]:
    """Decode receipts.

    :raises BadRequest: a receipt is malformed, or there are too many
    """
    if len(receipts) > limits.RECEIPTS:
        raise BadRequest(f"at most {limits.RECEIPTS} receipts at once", limit=limits.RECEIPTS)
    found: list[Named] = []
    for receipt in receipts:
        # The digits are bounded, so any position that matches fits the 8 bytes of a key.
        parts = _RECEIPT.fullmatch(receipt) if type(receipt) is str else None
        if parts is None:
            raise BadRequest(f"{str(receipt)[:40]!r} is not a receipt of a TAKE")
        topic, *numbers = parts.groups()
        group, epoch, position, attempt = map(int, numbers)
        found.append((topic, group, epoch, position, attempt))
    return found
