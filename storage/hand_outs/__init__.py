"""The rules of hand-outs: taken, acknowledged, handed out again, given up, moved.

A message that a group has looked at and is not done with has a hand-out (`rows.py`) in one
of three states:

- OUT: a member has it, until its deadline;
- WAITING: it is to be handed out, again or for the first time, when it is due;
- PARKED: in a group ORDERED BY KEY, an earlier message of its key is not done.

Invariants:

- Messages handed out together share an entry of the index of deadlines: time · first position →
  how many are still out under it (4) · last position (8). It goes with the last of them.
- Every hand-out that is WAITING stands in the index of what is ready under its time.
- The head of a key (position (8) · how many are parked behind it (4)) is its earliest hand-out, and
  the only one that is not parked.
- What a deadline has passed for is no longer out, whether or not somebody has taken it back: it is
  due since then, or since its backoff from then on. So nothing depends on who looks, and when.
- Except that no deadline has passed of what nobody has been shown: as long as the commit of a
  hand-out is not released, it is out. A stalled disk spends no attempt. What is released late gets
  its time from then on (`HandOuts.count_from_now`).

| file | what it holds |
|---|---|
| `rows.py` | the row of a hand-out, and the receipt that names one |
| `hand_outs.py` | all of it: beginning anew, trimming, and what INFO says |
| `taking.py` | what a TAKE gets |
| `answering.py` | ACK, NACK, EXTEND, GIVE UP |
| `lapsing.py` | deadlines that have passed, and dead letters |
| `books.py` | rows, indexes and the order by key, and how they are kept together |

The files but the first hold a class each, which inherits from the one below it: a class that is
compiled has one parent.
"""

from storage.hand_outs.answering import PART
from storage.hand_outs.hand_outs import HandOuts
from storage.hand_outs.lapsing import DEAD_HEADERS

__all__ = ["DEAD_HEADERS", "PART", "HandOuts"]
