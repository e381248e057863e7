"""Transactions: optimistic concurrency control over the state and the pending writes.

The ledger numbers commits, applies them in the order of the log, and rolls them back as long as
they are not released. Snapshots read one fixed state.
"""

PUBLIC = (
    "appends",
    "applied_position",
    "ids",
    "latest",
    "ledger",
    "marked_records",
    "priority_lock",
    "read_set",
    "replay",
    "snapshots",
    "steps",
    "tickets",
    "trail_rows",
    "transaction",
    "write_set",
)
