"""Bytes on the disk: keys, frames, effects, entries, containers, sealing.

Pure functions between values and bytes. A change of one of them may change what is on the disk.
"""

PUBLIC = (
    "backup_facts",
    "backup_forms",
    "container",
    "effects",
    "entries",
    "epochs",
    "frames",
    "keys",
    "pairs",
    "positions",
    "sealing",
    "vault_entries",
)
