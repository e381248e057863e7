"""Column projections of records: derived, in memory, for scans that read a few fields of many rows.

They are in no log, backup or state hash; each node builds its own. `projections` holds them, with
the keys that applied commits have changed since, and bounds their memory. `blocks` and `ids` are
the arrays; they import numpy, so only a scan that builds or reads columns imports them.
"""

PUBLIC = ("blocks", "ids", "projections")
