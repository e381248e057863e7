"""Who can bring about each line of the node's log. What anybody can, without a credential or with
one that lets it do nothing, goes through `actors/rate_limited_log.py`: a line a second."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tests.architecture.sources import Source, files

LEVELS = {"info", "warning", "error", "exception", "critical"}
LOGS = {"log", "_log", "self._log", "structlog.get_logger()", "say"}

LINES = """
bug | actor failed
bug | handler failed
busy | a script was not cancelled: the node is busy
busy | a session was not signed out: it ends at its expiry
disk | a part of the state can't be read
disk | a part of the state can't be read, and the state can't be rebuilt
disk | unreleased frames were cut off
disk | the checkpoint waits for disk space
disk | could not record the damage of the state
disk | the disk is full: old log was dropped
disk | the log is damaged
nodes | sending a copy of the store
nodes | the new lease time applies from the next election
nodes | a copy was cut off
nodes | a copy of the store was sent
nodes | a copy was given up
nodes | a copy was refused
nodes | a failover policy is in force
nodes | a follower attaches
nodes | a follower is gone
nodes | a follower is stranded
nodes | a member of the set lacks what was released
nodes | a new lineage begins, by order
nodes | a node has joined
nodes | a node was reached at an address reported by other nodes
nodes | another etcd cluster answers at the addresses reported by other nodes
nodes | another node has written the first in-sync replicas
nodes | attached
nodes | using the etcd addresses reported by other nodes
nodes | etcd has a known fault
nodes | the revision of etcd is behind that of this node
nodes | event
nodes | follows
nodes | trusts etcd again, since an operator has named a leader
nodes | in sync
nodes | leads
nodes | leads no more
nodes | releases again
nodes | releases nothing
nodes | no link to the leader
nodes | the copy failed and is tried again
nodes | unknown outcome of a request to take the lead
nodes | the store is copied anew: the node begins again
nodes | this node stopped following the leader
nodes | this node's state is not its leader's
nodes | what
operator | SIGHUP: no certificate to reload
operator | STORE_USER and STORE_PASSWORD are ignored: the store already has users
operator | already stopping
operator | asked to stop
operator | open connections are aborted
operator | low limit of open files
operator | first owner: its password was generated and is in a file; change it, and remove the file
operator | etcd credentials were not reloaded
operator | etcd credentials reloaded
operator | log recovered after an unclean stop
operator | log replayed
operator | node failed
operator | node started
operator | node stopped
operator | other machines can connect without TLS: passwords and data travel in the clear; give --cert and --cert-key, or listen on loopback behind a TLS proxy
operator | could not drop the places of an unfinished restore
operator | the places of an unfinished restore were dropped
operator | ready
operator | stopping
operator | the certificate for other nodes was reloaded
operator | the certificate was not renewed
operator | the certificate was not renewed: the one before stays in use
operator | the certificate was read again
operator | a jump of the clock was accepted
operator | the data directory was open to other users: its access was restricted
operator | the join token is ignored: the directory already holds a store
operator | the last commits were refused
operator | no checkpoint was taken: the next start replays more of the log
operator | the state was not closed cleanly: the next start replays more of the log
operator | the node is in a cluster but follows no node: start it with --peer
operator | the state is made anew from the log
operator | the certificate for other nodes was not reloaded
operator | requests in flight are cancelled
slow | slow statement
time | a value can't be decrypted, so its key is kept
time | another certificate is shown to other nodes
time | head of a vault's trail
time | old entries could not be removed yet
time | the certificate expires soon: replace its files, then send SIGHUP
time | the certificate for other nodes expires soon, and the next one is not in this node's row: the leader puts it there
time | the certificate for other nodes has expired: they refuse to link with this node
time | the certificate has expired: clients that verify it refuse to connect
time | the next certificate is made
time | the next certificate was refused
time | the state is the leader's
time | the check of this node's certificate failed
time | this node's certificate was revoked: no certificate of the same file is put into its row
time | this node's row names another certificate than it shows: other nodes refuse to link with it
time | values could not be sealed with the new key yet
time | due work of a topic was refused
writers | a transaction that kept conflicting was given priority
"""  # noqa: E501
"""Who brings a line about, and what it says.

| who | how often |
|---|---|
| time | what the node does by itself now and then, a minute apart or more |
| disk | damage, a full disk: once for each that is new |
| operator | who starts, stops and signals the process, or owns the store |
| nodes | other nodes and etcd: those that a row names, with pauses that grow |
| writers | who may write, and is disturbed by others who do: after some retries each |
| busy | clients that have signed in and go away, where the node is too busy to hear of it |
| slow | who may run statements: one for each that took a second |
| bug | nobody is known to |
"""


def found(sources: Iterable[Source]) -> set[str]:
    """What is said by lines that are not limited."""
    lines = set()
    for source in sources:
        for node in source.nodes:
            if not isinstance(node, ast.Call) or not node.args:
                continue
            if isinstance(node.func, ast.Attribute):
                is_line = node.func.attr in LEVELS and ast.unparse(node.func.value) in LOGS
            else:
                is_line = isinstance(node.func, ast.Name) and node.func.id == "say"
            if is_line:
                said = node.args[0]
                text = said.value if isinstance(said, ast.Constant) else ast.unparse(said)
                lines.add(str(text))
    return lines


def told() -> set[str]:
    """Those of the table."""
    rows = (line.split(" | ", 1) for line in LINES.strip().splitlines())
    return {text for _, text in rows}


def test_who_brings_each_line_about_is_known() -> None:
    """One that anybody can is not written here: it is said through a `RateLimitedLog`."""
    lines = found(files("actors", "surfaces", "storage", "protocol", "language"))
    assert not lines - told(), "who brings these about has to stand in LINES"
    assert not told() - lines, "these are gone"


def test_a_planted_line_is_missed() -> None:
    planted = 'def came(name: str) -> None:\n    log.info("a password was wrong", user=name)\n'
    assert found([Source("actors/planted.py", planted)]) - told() == {"a password was wrong"}
    limited = planted.replace("log.info", "self._limited_log.info")
    assert found([Source("actors/planted.py", limited)]) == set()
