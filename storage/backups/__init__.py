"""Backup files: snapshots, logs and scripts; verification, and restore into a directory.

Snapshot and log share the container of `storage/formats/container.py`; a script is text of the
language. Long work is a generator that yields between slices, or takes a progress callback.
"""

PUBLIC = (
    "due_work",
    "log_file",
    "place_copy",
    "replica_copy",
    "restore",
    "scripts",
    "snapshot_file",
    "state_builder",
    "verify",
)
