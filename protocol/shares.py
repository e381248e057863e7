"""Who may have more of what is bounded for all users together.

One user alone may have so much, and something is left beside that for the others. Of two who want
all they can get the second one gets most of what the first has left, a third one most of the rest,
so whoever comes next still gets in. No share is fixed, none has to be taken back.
"""

from __future__ import annotations


def fits(held: int, size: int, total: int, alone: int, others: int) -> bool:
    """True if a user may take more of something.

    :param held: what the user has
    :param size: what it takes
    :param total: what all users have together
    :param alone: what one user may have while no other has anything
    :param others: what is left for others then
    """
    free = alone + others - total - size
    if free < 0:
        return False
    # Who has nothing yet may take the last: one request always gets its turn.
    return not held or (held + size) * others <= alone * free
