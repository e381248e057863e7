"""Commit pipeline: the one way by which state changes, from a transaction to its answer.

| file | holds |
|---|---|
| `committer.py` | the entry: attributes a change, commits it, returns its ticket |
| `tickets.py` | commit tickets, roll backs, callbacks on release |
| `group_commit.py` | group commit: commits on their way to the log thread |
| `priority_locks.py` | the priority lock of a starved transaction |
| `applier.py` | apply: released commits on their way to the state engine |
| `tail.py` | the newest frames, for feeds and replicas |
| `following.py` | replication: frames of a leader's log, from the network to the ledger |
| `idle_marks.py` | the mark in a log that has fallen idle |
| `actor.py` | receives the log thread's messages |

Two indexes: `synced_seq` is the newest sequence synced on this disk; `commit_index` is the
commit index (Raft §5.3), the newest sequence that answers, followers and the state engine may see.
On a single node they are equal at once; no code here relies on that. A follower commits nothing:
synced frames enter its ledger when the leader has released them.
"""
