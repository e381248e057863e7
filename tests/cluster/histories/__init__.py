"""Histories: operations of clients during faults, their answers, and checkers, as in Jepsen.

| file | what it holds |
|---|---|
| `clients.py` | clients that send requests in a loop, and an availability probe |
| `history.py` | interface of a history; the clients' requests |
| `records.py` | records: no acknowledged write is lost |
| `registers.py` | one value each: reads, writes, compare-and-set, on the leader and elsewhere |
| `counters.py` | keys of the cache that are incremented |
| `banks.py` | transfers in transactions: the total is the same in every read |
| `locks.py` | a lock, and a record that its fencing tokens guard |
| `topics.py` | messages: each published once, each delivered, none invented |
| `linear.py` | linearizability checker |

Times are seconds of the monotonic clock of the one process that runs all clients.
"""
