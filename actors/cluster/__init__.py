"""A cluster: one log on several nodes. What is agreed on is etcd's (`protocol/agreement.py`), the
log is ours, and nobody votes.

| file | what it holds |
|---|---|
| `leading.py` | what a leader may release, and how its set changes |
| `following.py` | whose frames a follower takes, and where its log is cut when it attaches |
| `courses.py` | what a node does that does not lead: follow, take the lead, wait, or doubt |
| `lease.py` | how long who leads may believe that it does |
| `followers.py` | how far each follower is, and which set to ask for because of it |
| `trust.py` | whom this node trusts, by the certificates that rows name |
| `peering.py` | what other nodes ask before they follow: tokens, renewals |
| `renewing.py` | the certificate that this node shows: made, known, shown, renewed |
| `shipping.py` | a leader and one follower: frames, what is on its way, what was acknowledged |
| `receiving.py` | a follower and its leader: what it takes, acknowledges and shows |
| `entry_forwarding.py` | what followers bring for the statement log and the audit trail |
| `attaching.py` | a follower holds on to its leader: attempts, and when there is no point in more |
| `comparing.py` | whether a follower's state is its leader's |
| `window.py`, `lag.py`, `sync_status.py`, `backoff.py` | what those count by |
| `cluster_file.py` | waits for the disk while what the node remembers of its cluster is replaced |
| `copying.py` | copies of the store for nodes that join: a snapshot in parts, the log behind it |
| `joining.py` | a directory that becomes a copy: token, parts, store |
| `memory.py` | what a node remembers on its disk: the file CLUSTER |
| `role.py` | the role of this node, one value with the leadership or the task that it consists of |
| `member.py` | what this node is at the moment: who asks before writing or answering asks here |
| `coordination.py` | the actor that asks etcd and moves the node from one life to the other |
| `requests.py` | what that is asked for |
| `founding.py` | DEFINE FAILOVER, until etcd is asked for something |
| `amending.py` | DEFINE FAILOVER once more: another policy in place of the one that stands |
| `nomination.py` | whether a node may be named to lead, and what is said where it may not |
| `takeover.py` | taking a lead that nobody has: as a member, as who founds, by order |
| `present.py`, `rounds.py` | whether what a node shows is current, asked of all who may lead |
| `leadership.py`, `holding.py` | one leadership: what it releases; its lease, its sets, its end |
| `stalls.py` | what a leader waits for that releases nothing, and what helps |
| `follow_task.py`, `shippings.py` | whom this node follows; who follows it |
| `peer_addresses.py`, `agreement_lookup.py` | where others are by now, and where is agreed |
| `address_hints.py` | asking those for it who may know |
| `diagnostics.py`, `tasks.py` | what is known to be wrong with etcd; ending what runs beside |
| `service.py`, `starting.py` | what statements use of it; how it is put together |

The first five are values without time, disk or network: whatever is heard makes the next one. So
every order in which things can be heard is tried on them,
`tests/actors/cluster/test_every_history.py`. What is meant all along: **each member of the set in
etcd holds, synced, everything ever released.**
"""
