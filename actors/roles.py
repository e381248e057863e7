"""The node's own facts: its id, its roles, its endpoints.

They live beside the log, in the file NODE: no backup carries them and no follower inherits them.
`Roles` is read on the loop without asking anybody; the actor behind it replaces the file.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from actors.runtime import Runtime, Supervised, ThreadActor, ask, handles
from protocol.addresses import check_address
from protocol.errors import BadRequest, Busy, DiskFull, Draining, NotWritable
from protocol.node_roles import SERVING, WRITABLE, check_node_roles
from protocol.requests import Caller, Request, Unready
from protocol.values import Value
from storage.directory import StoreDirectory
from storage.node_file import NodeFacts, load_node, save_node

UNDECLARED: Final = (SERVING, WRITABLE)
"""What a node does that was never told: alone, it serves and takes writes."""


def takes_changes(words: Sequence[str] | None) -> bool:
    """Whether a node with these roles takes changes; None: it was never told."""
    return WRITABLE in (UNDECLARED if words is None else words)


@dataclass(frozen=True, slots=True)
class SaveFacts(Request[None]):
    """Make facts the ones that the next start finds."""

    facts: NodeFacts


class RolesActor(ThreadActor):
    """Waits for the disk while the file is replaced."""

    def __init__(self, runtime: Runtime, directory: StoreDirectory) -> None:
        super().__init__(runtime)
        self._directory = directory

    @handles(SaveFacts)
    def save(self, message: SaveFacts) -> None:
        """:raises DiskFull: no room; the old facts stand
        :raises OSError: as the disk says"""
        try:
            save_node(self._directory, message.facts)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DiskFull("no room on the disk for the node's roles and endpoints") from error


_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?", re.ASCII)
_USUAL_PORTS: Final = {"http": ":80", "https": ":443"}


def _origin(text: str) -> str:
    """An origin as browsers send it. :raises BadRequest: it is none, or would be everybody"""
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        raise BadRequest(
            f"{text[:80]!r} is no origin: wanted https://app.example or https://app.example:8443,"
            " each by itself and without a path",
            origin=text[:80],
        )
    scheme, host, port = found.groups()
    return f"{scheme}://{host}{'' if port == _USUAL_PORTS[scheme] else port or ''}"


class Roles:
    """What this node does at present."""

    def __init__(self, runtime: Runtime, directory: StoreDirectory, writes: bool = True) -> None:
        self._runtime = runtime
        self._directory = directory
        self._writes = writes
        self._facts = load_node(directory)
        self.words = self._in_force()
        """The roles in force."""
        self._defining = asyncio.Lock()
        self.check_told: Callable[[Caller | None], None] | None = None
        """Asks whether a node of a cluster knows what was released; None: it is in none."""
        self.actor = Supervised(lambda: RolesActor.start(runtime, directory), refoldable=True)

    @property
    def node_id(self) -> str:
        """This node's id; it stays, whatever the store."""
        return str(self._facts.node_id)

    @property
    def declared(self) -> tuple[str, ...] | None:
        """The roles that it was told; None: none ever."""
        return self._facts.roles

    def _in_force(self) -> tuple[str, ...]:
        words = UNDECLARED if self._facts.roles is None else self._facts.roles
        return words if self._writes else tuple(word for word in words if word != WRITABLE)

    @property
    def unready(self) -> Unready | None:
        """Why, by its roles, the node should get no traffic."""
        words = self.words
        if not words:
            return "no_roles"
        return None if SERVING in words else "not_serving"

    def check_answering(self, caller: Caller | None = None) -> None:
        """Any role makes the node answer its clients; without `serving` it only asks for no more of
        them (`unready`).

        :param caller: None: somebody who need not be an owner of the store
        :raises Draining: it has none
        :raises Busy: it does not know enough of its cluster's store at the moment
        """
        if not self.words:
            raise Draining("the node has no role: it answers nobody until one is declared")
        if self.check_told is not None:
            self.check_told(caller)

    def answers(self, caller: Caller | None = None) -> bool:
        """Whether `check_answering` refuses a caller nothing. :param caller: None: whoever asks"""
        if self.check_told is None:
            return bool(self.words)
        try:
            self.check_answering(caller)
        except (Draining, Busy):
            return False
        return True

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses that clients use, as declared."""
        return self._facts.endpoints

    def check_writable(self) -> None:
        """:raises NotWritable: the node lacks the writable role"""
        if WRITABLE not in self.words:
            raise NotWritable("the node is not writable: reads only", roles=list(self.words))

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins whose pages browsers may let read answers, as declared."""
        return self._facts.origins

    def define(
        self,
        roles: Sequence[str] | None,
        endpoints: Sequence[str] | None,
        origins: Sequence[str] | None = None,
    ) -> asyncio.Future[None]:
        """Set roles, endpoints or origins, None leaving one as it is; in force once the file is
        durable.

        :raises Unknown: an unknown role word
        :raises BadRequest: an endpoint that is no address, an origin that is none
        """
        words = None if roles is None else check_node_roles(roles)
        for address in endpoints or ():
            check_address(address)
        named = None if origins is None else tuple(map(_origin, origins))
        return asyncio.ensure_future(self._define(words, endpoints, named), loop=self._runtime.loop)

    async def _define(
        self,
        roles: tuple[str, ...] | None,
        endpoints: Sequence[str] | None,
        origins: tuple[str, ...] | None,
    ) -> None:
        async with self._defining:  # one after the other: each builds on the facts before it
            facts = self._facts
            if roles is not None:
                facts = replace(facts, roles=roles)
            if endpoints is not None:
                facts = replace(facts, endpoints=tuple(endpoints))
            if origins is not None:
                facts = replace(facts, origins=origins)
            await ask(self.actor.ref, SaveFacts(facts))
            self._facts = facts
            self.words = self._in_force()

    def info(self) -> dict[str, Value]:
        """The facts, for INFO FOR NODE."""
        return {
            "id": self.node_id,
            "store": str(self._directory.store_id),
            "roles": list(self.words),
            "endpoints": list(self._facts.endpoints),
            "origins": list(self._facts.origins),
        }

    async def stop(self) -> None:
        """Finish what is being saved."""
        await self.actor.stop()
