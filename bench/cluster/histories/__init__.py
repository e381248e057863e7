"""What clients of a cluster were told while it was broken, and whether it can be true.

| file | what it holds |
|---|---|
| `clients.py` | clients that ask without end, each for one kind of history at a time |
| `history.py` | what each kind of history can do, and what they ask through |
| `records.py` | records: what was acknowledged is there |
| `registers.py` | one value each: reads, writes, compare-and-set, on who leads and elsewhere |
| `counters.py` | keys of the cache that are counted up |
| `banks.py` | money that is moved in transactions: no read sees any come or go |
| `locks.py` | a lock, and what its fences guard |
| `topics.py` | messages: each published once, each handed out, none made up |
| `linear.py` | whether operations could have happened one after the other |

Times are seconds of the monotonic clock of the one process in which all clients are.
"""
