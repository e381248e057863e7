"""Fair shares of a resource that is limited for all users together.

A single user may take up to `alone`, and a reserve stays for others. The second user can get most
of the reserve, the third most of the rest, so every newcomer still gets some. No share is fixed,
and none is ever revoked.
"""

from __future__ import annotations


def fits(held: int, size: int, total: int, alone: int, others: int) -> bool:
    """True if a user may take more of a resource.

    :param held: amount that the user holds
    :param size: amount requested
    :param total: amount that all users hold
    :param alone: limit of one user while no other holds any
    :param others: reserve for other users beyond that
    """
    free = alone + others - total - size
    if free < 0:
        return False
    # A user that holds nothing may take the last: one request is always possible.
    return not held or (held + size) * others <= alone * free
