"""The write-ahead log: segments of frames, synced before a commit is answered.

A start cuts off a torn end and refuses any other damage. Released frames are never changed.
"""

PUBLIC = ("log", "reader", "recovery", "retention", "segments")
