"""Cluster: replication of one log to several nodes, with leader election and failover through etcd.

etcd holds the leader with its epoch, the in-sync replicas (ISR, as in Kafka) and a published commit
index (`protocol/agreement.py`). Frames go from node to node, never through etcd. There is no vote:
a member of the ISR takes a vacant lead in one etcd transaction.

| file | holds |
|---|---|
| `leader_state.py` | leader state: commit index and ISR changes |
| `following.py` | follower state: promised epoch, log matching |
| `next_role.py` | decides the next role of a node that does not lead |
| `lease.py` | the leader's lease |
| `followers.py` | progress of each follower, and the ISR to ask for |
| `trust.py` | trusted peer certificates, from the replica rows |
| `peering.py` | requests of other nodes: join tokens, certificate renewals |
| `renewing.py` | this node's certificate: made, published in its row, shown, renewed |
| `replica_sender.py` | replica sender: the leader's end of one link |
| `replica_receiver.py` | replica receiver: the follower's end of one link |
| `entry_forwarding.py` | statement-log and audit entries that followers forward to the leader |
| `attaching.py` | reconnects the replica receiver, with backoff |
| `state_check.py` | compares the state checksum of leader and follower |
| `window.py`, `lag.py`, `sync_status.py`, `backoff.py` | flow control, lag, status, backoff |
| `cluster_file.py` | the thread that writes the file CLUSTER |
| `snapshot_transfer.py` | sends snapshot copies to nodes that join |
| `joining.py` | fetches a snapshot copy into a new directory |
| `durable_state.py` | durable cluster memory of a node: the file CLUSTER |
| `role.py` | the role of this node, with its leadership or follow task |
| `member.py` | this node as a cluster member: the checks before a write or an answer |
| `coordination.py` | the actor that polls etcd and changes the role |
| `requests.py` | requests to that actor |
| `founding.py` | DEFINE FAILOVER: the first failover policy, up to the first request to etcd |
| `amending.py` | DEFINE FAILOVER: replaces the policy in force |
| `nomination.py` | DEFINE NODE LEADS STORE: may this node lead, and the refusals |
| `election.py` | election: takes a vacant lead as a member, as founder or by order |
| `linearizable_reads.py`, `read_index.py` | linearizable reads; read index rounds (Raft §6.4) |
| `leadership.py`, `holding.py` | one leadership: its state; its lease, ISR requests and end |
| `stalls.py` | why a leader's commit index stands still, and the remedy |
| `follow_task.py`, `replica_senders.py` | the task that follows a leader; the replica senders |
| `peer_addresses.py`, `agreement_lookup.py` | current addresses of other nodes and of etcd |
| `address_hints.py` | asks other nodes for those addresses |
| `diagnostics.py`, `tasks.py` | known faults of etcd; cancelling tasks |
| `service.py`, `starting.py` | the interface for statements; wiring |

The first five files are pure values without clock, disk or network: each event returns a new value.
So every order of events can be tried on them.

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
  of its directory is not elected.
"""
