"""History of one world as a table that a person can follow: `make seeds … SHOW=1` prints it.

A row is a change of role, a line of the cluster's log, a write of etcd that changes lead or in-sync
replicas, or the start or end of a process. Times are virtual seconds; epoch and sequence are those
that the node shows at that moment. For etcd they are the epoch of the lead and its revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import structlog

from actors.cluster.role import ClusterMember, Role
from tests.simulation.members import Members, ObservedEtcd, SimulatedMember
from tests.simulation.processes import here

EVENTS: Final = frozenset({
    "a copy of the store was sent", "a failover policy is in force", "a follower attaches",
    "a follower is gone", "a follower is stranded", "a new lineage begins, by order", "attached",
    "etcd does not answer", "follows", "in sync", "leads", "leads no more", "no link to the leader",
    "nobody leads until an operator names a node", "releases again", "releases nothing",
    "sending a copy of the store", "the lease was not renewed", "the store has to be copied anew",
    "this node stopped following the leader",
    "trusts etcd again, since an operator has named a leader",
})  # fmt: skip
"""Lines of the log that become rows."""


class HistoryRow(NamedTuple):
    seconds: float
    node: str
    role: str | None
    epoch: int | None
    sequence: int | None
    event: str

    def __str__(self) -> str:
        epoch, sequence = ("" if one is None else one for one in (self.epoch, self.sequence))
        return (
            f"{self.seconds:8.3f} | {self.node:<5} | {self.role or '':<8} | {epoch:>5} |"
            f" {sequence:>8} | {self.event}"
        )


HEAD: Final = "time (s) | node  | role     | epoch | sequence | event"


@dataclass
class HistoryTable:
    rows: list[HistoryRow] = field(default_factory=list)
    _world: Members | None = None
    _names: dict[str, str] = field(default_factory=dict)
    """Names of machines, by the ids of their nodes."""

    def __str__(self) -> str:
        return "\n".join((HEAD, *map(str, self.rows)))

    def _add(self, machine: SimulatedMember, event: str, role: Role | None = None) -> None:
        seconds = asyncio.get_running_loop().time()
        name, node = machine.name, getattr(machine, "opening", None)
        if machine.process is None or node is None:
            self.rows.append(HistoryRow(seconds, name, None, None, None, event))
            return
        committer, role = node.committer, role or node.member.role
        epoch = committer.ledger.epoch if role.leadership is None else role.leadership.epoch
        shown = type(role).__name__
        self.rows.append(HistoryRow(seconds, name, shown, epoch, committer.commit_index, event))

    def _here(self) -> SimulatedMember | None:
        return None if self._world is None else self._world.whose(here())

    def capture(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Take one line of the log; a structlog processor."""
        machine = self._here()
        if machine is not None and event.get("event") in EVENTS:
            fields = " ".join(f"{key}={self._named(event[key])}" for key in event if key != "event")
            self._add(machine, f"{event['event']} {fields}".rstrip())
        return event

    def _named(self, told: Any) -> str:
        """Show the ids of nodes as names."""
        assert self._world is not None
        if isinstance(told, list):
            return ",".join(sorted(map(self._named, told)))
        # A machine whose disk is lost has no id any more: its earlier one stays known.
        self._names.update({one.id: one.name for one in self._world.machines if one.id})
        shown = str(told)
        for id, name in self._names.items():
            shown = shown.replace(id, name)
        return shown

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the world that is made within, beside the processors of structlog that are set."""
        begins, become = Members.__init__, ClusterMember.become
        start, die, write = SimulatedMember.start, SimulatedMember.die, ObservedEtcd._write
        told: list[object] = [None]

        def began(world: Members, *arguments: Any, **named: Any) -> None:
            begins(world, *arguments, **named)
            self._world = world

        def becomes(member: ClusterMember, role: Role) -> None:
            before, machine = member.role, self._here()
            become(member, role)
            if machine is not None and type(before) is not type(role):
                self._add(machine, f"{type(before).__name__} -> {type(role).__name__}", role)

        async def starts(machine: SimulatedMember, **how: Any) -> None:
            self._add(machine, "the process starts")
            await start(machine, **how)

        def dies(machine: SimulatedMember, power: bool) -> None:
            self._add(machine, "the power fails" if power else "the process is killed")
            die(machine, power)

        def writes(etcd: ObservedEtcd) -> int:
            revision = write(etcd)
            asyncio.get_running_loop().call_soon(agreed, etcd)
            return revision

        def agreed(etcd: ObservedEtcd) -> None:
            lead, insync = etcd.agreed.lead, etcd.agreed.insync
            leads = "nobody" if lead is None else self._named(lead.node)
            members = "none" if insync is None else self._named(sorted(insync.members))
            if told[0] != (lead, insync):
                told[0] = lead, insync
                event = f"leads: {leads}; in-sync replicas: {members}"
                seconds, epoch = (
                    asyncio.get_running_loop().time(),
                    None if lead is None else lead.epoch,
                )
                self.rows.append(
                    HistoryRow(seconds, "etcd", None, epoch, etcd.agreed.revision, event)
                )

        patches: tuple[tuple[type, str, Callable[..., Any]], ...] = (
            (Members, "__init__", began), (ClusterMember, "become", becomes),
            (SimulatedMember, "start", starts), (SimulatedMember, "die", dies),
            (ObservedEtcd, "_write", writes),
        )  # fmt: skip
        processors = structlog.get_config()["processors"]
        with ExitStack() as stack:
            for target, name, value in patches:
                stack.enter_context(patch.object(target, name, value))
            structlog.configure(processors=[self.capture, *processors])
            try:
                yield
            finally:
                structlog.configure(processors=processors)
