"""Cluster: replication of one log to several nodes, with leader election and failover through etcd.

etcd holds the leader with its epoch, the in-sync replicas (ISR, as in Kafka) and a published commit
index (`protocol/agreement.py`). Frames go from node to node, never through etcd. There is no vote:
a member of the ISR takes a vacant lead in one etcd transaction.

| file | holds |
|---|---|
| `log_matching.py` | follower state: promised epoch, log matching; flow control, lag, sync status |
| `read_index.py` | linearizable reads, and the rounds that confirm a leader (Raft §6.4) |
| `leader_state.py` | commit index, ISR, followers, lease and stalls of one leadership |
| `replica_senders.py` | the leader's ends of all links; entries that followers forward |
| `state_check.py` | compares the state checksum of leader and follower |
| `replica_receiver.py` | the follower's end of the link, opened again and again; the follow task |
| `durable_state.py` | durable cluster memory of a node: the file CLUSTER, and its thread |
| `role.py` | the role of this node; the checks before a write or an answer |
| `election.py` | decides the next role; takes a vacant lead, as a member, as founder or by order |
| `leader.py` | holds the lead: its lease, ISR requests and end |
| `failover_policy.py` | DEFINE FAILOVER: founds a cluster, and replaces the policy in force |
| `coordinator.py` | the actor that polls etcd and changes the role |
| `membership.py` | trusted peer certificates; join tokens and renewals that other nodes ask for |
| `identity.py` | this node's certificate: made, published in its row, shown, renewed |
| `discovery.py` | current addresses of other nodes and of etcd |
| `snapshot_transfer.py` | sends snapshot copies to nodes that join |
| `bootstrap.py` | fetches a snapshot copy into a new directory |
| `diagnostics.py` | known faults of etcd; the replicas of this node in INFO FOR NODE |
| `service.py` | the interface for statements; wiring |

`log_matching.py`, `decide_role`, and the lease, followers and state of a leader are pure values
without clock, disk or network: each event returns a new value. So every order of events can be
tried on them.

Invariant: **each member of the ISR in etcd holds, synced, every frame ever released.**

Comments cite these rules as `Cluster rule <number>`:

- Cluster rule 1: A commit is released when it is synced here and on every member of the ISR. With
  fewer than ACKS recent followers, writes are refused.
- Cluster rule 2: A silent member leaves the ISR in etcd before anything is released without it.
  While a change is unanswered, the leader waits for the union of both sets.
- Cluster rule 3: Only a member of the ISR takes a vacant lead, in one transaction that compares the
  ISR. Each epoch is above all before it.
- Cluster rule 4: The lease is renewed at a third of its length. The leader's deadline counts from
  the sending, on the boot-time clock, less a tenth.
- Cluster rule 5: A promised epoch is on the disk before a follower sends its epoch history, and
  before a leader writes its first frame.
- Cluster rule 6: On attaching, a follower truncates its log to the last common frame (log matching,
  KIP-101). Below its applied frames it is stranded, and nothing is truncated.
- Cluster rule 7: A new leader releases nothing before a frame of its own epoch is released (Raft
  §5.4.2).
- Cluster rule 8: Only a node that was declared coordinating takes the lead or writes.
- Cluster rule 9: The leader publishes its commit index in etcd, so that a node with an older copy
  of its directory is not elected. Of a follower that has gone only the released frames count: it
  may come back on such a copy.
"""
