"""Bytes on the disk: keys, frames, effects, entries, containers, sealing.

Pure functions between values and bytes. A change of one of them may change what is on the disk.
"""

PUBLIC = (
    "container",
    "effects",
    "entries",
    "frames",
    "keys",
    "positions",
    "sealing",
)
