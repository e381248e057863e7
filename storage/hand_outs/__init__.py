"""Deliveries of a group (hand-outs): at-least-once, ack deadlines, redelivery, dead letters.

A message that a group has read and is not done with has a delivery row (`rows.py`) in one of three
states:

- OUT: in flight, a member has it until its ack deadline (SQS: visibility timeout);
- WAITING: to be delivered, again or for the first time, once it is due;
- PARKED: in a group ORDERED BY KEY, an earlier message of its key is not done.

Invariants:

- Messages delivered together share an entry of the ack deadline index: time · first position →
  number still in flight under it (4) · last position (8). It is deleted with the last of them.
- Every WAITING delivery is in the index of ready messages under its time.
- The head of a key (position (8) · number parked behind it (4)) is its earliest delivery, and
  the only one that is not parked.
- A delivery whose ack deadline has passed is no longer in flight, even if it has not been taken
  back yet. It is due since then, or since its backoff after that. So the outcome does not depend
  on when the expiry runs.
- Exception: an ack deadline does not pass before the member has received the delivery. While the
  commit of a delivery is unreleased, the delivery is in flight, so a stalled disk uses up no
  attempt. A late release restarts the deadline (`HandOuts.count_from_now`).

| file | contents |
|---|---|
| `rows.py` | the row of a delivery, and its receipt |
| `hand_outs.py` | the complete class: seek, trimming, and the figures of INFO |
| `taking.py` | TAKE |
| `answering.py` | ACK, NACK, EXTEND, GIVE UP |
| `lapsing.py` | expiry of ack deadlines, and dead letters |
| `books.py` | rows, indexes and the order by key, and how they are kept consistent |

Each file but the first holds one class, which inherits from the one below it: a compiled class
has one parent.
"""

from storage.hand_outs.answering import PART
from storage.hand_outs.hand_outs import HandOuts
from storage.hand_outs.lapsing import DEAD_HEADERS

__all__ = ["DEAD_HEADERS", "PART", "HandOuts"]
