"""Roles: the node's own facts: its id, its roles, its endpoints.

They are in the file NODE beside the log, so no backup contains them and no follower gets them.
`Roles` is read on the loop without a message; its actor replaces the file.
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
from storage.files.directory import StoreDirectory
from storage.files.node_file import NodeFileContents, load_node, save_node

UNDECLARED: Final = (SERVING, WRITABLE)
"""Default roles of a node that was never given any: alone, it serves and takes writes."""


def takes_changes(words: Sequence[str] | None) -> bool:
    """True if a node with these roles takes writes; None: it was never given any."""
    return WRITABLE in (UNDECLARED if words is None else words)


@dataclass(frozen=True, slots=True)
class SaveFacts(Request[None]):
    """Save facts durably, for the next start."""

    facts: NodeFileContents


class RolesActor(ThreadActor):
    """Blocks on the disk while the file is replaced."""

    def __init__(self, runtime: Runtime, directory: StoreDirectory) -> None:
        super().__init__(runtime)
        self._directory = directory

    @handles(SaveFacts)
    def save(self, message: SaveFacts) -> None:
        """Save facts.

        :raises DiskFull: no room; the old facts stay valid
        :raises OSError: from the disk
        """
        try:
            save_node(self._directory, message.facts)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DiskFull("no room on the disk for the node's roles and endpoints") from error


_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?", re.ASCII)
_USUAL_PORTS: Final = {"http": ":80", "https": ":443"}


def _origin(text: str) -> str:
    """Return an origin as browsers send it. :raises BadRequest: it is invalid, or a wildcard"""
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        raise BadRequest(
            f"{text[:80]!r} is not an origin: an origin is like https://app.example or"
            " https://app.example:8443, without a path",
            origin=text[:80],
        )
    scheme, host, port = found.groups()
    return f"{scheme}://{host}{'' if port == _USUAL_PORTS[scheme] else port or ''}"


class Roles:
    """Roles, endpoints and origins of this node."""

    def __init__(self, runtime: Runtime, directory: StoreDirectory, writes: bool = True) -> None:
        self._runtime = runtime
        self._directory = directory
        self._writes = writes
        self._facts = load_node(directory)
        self.words = self._in_force()
        """Roles in force."""
        self._defining = asyncio.Lock()
        self.check_told: Callable[[Caller | None], None] | None = None
        """Checks that a node of a cluster knows the commit index; None: it is in no cluster."""
        self.actor = Supervised(lambda: RolesActor.start(runtime, directory), refoldable=True)

    @property
    def node_id(self) -> str:
        """Id of this node, independent of the store."""
        return str(self._facts.node_id)

    @property
    def declared(self) -> tuple[str, ...] | None:
        """Declared roles; None if none were ever declared."""
        return self._facts.roles

    def _in_force(self) -> tuple[str, ...]:
        words = UNDECLARED if self._facts.roles is None else self._facts.roles
        return words if self._writes else tuple(word for word in words if word != WRITABLE)

    @property
    def unready(self) -> Unready | None:
        """Reason why the node should get no traffic, by its roles; None: it should."""
        words = self.words
        if not words:
            return "no_roles"
        return None if SERVING in words else "not_serving"

    def check_answering(self, caller: Caller | None = None) -> None:
        """Check that the node responds to a caller.

        Any role is enough; a node without `serving` only asks for no more traffic (`unready`).

        :param caller: None: unknown, so not taken to be an owner of the store
        :raises Draining: the node has no role
        :raises Busy: it does not know enough of its cluster's commit index at the moment
        """
        if not self.words:
            raise Draining(
                "the node has no role and answers no requests: declare one with DEFINE NODE ROLES"
            )
        if self.check_told is not None:
            self.check_told(caller)

    def answers(self, caller: Caller | None = None) -> bool:
        """True if `check_answering` accepts a caller. :param caller: None: any caller"""
        if self.check_told is None:
            return bool(self.words)
        try:
            self.check_answering(caller)
        except (Draining, Busy):
            return False
        return True

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses for clients, as declared."""
        return self._facts.endpoints

    def check_writable(self) -> None:
        """Check the writable role. :raises NotWritable: the node lacks it"""
        if WRITABLE not in self.words:
            raise NotWritable("the node is not writable: reads only", roles=list(self.words))

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins whose pages may read responses in a browser (CORS), as declared."""
        return self._facts.origins

    def define(
        self,
        roles: Sequence[str] | None,
        endpoints: Sequence[str] | None,
        origins: Sequence[str] | None = None,
    ) -> asyncio.Future[None]:
        """Set roles, endpoints or origins; None leaves one unchanged. They are in force once the
        file is durable.

        :raises Unknown: an unknown role word
        :raises BadRequest: an endpoint that is not an address, or an invalid origin
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
        async with self._defining:  # serialized: each change builds on the facts before it
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
        """Return the facts for INFO FOR NODE."""
        return {
            "id": self.node_id,
            "store": str(self._directory.store_id),
            "roles": list(self.words),
            "endpoints": list(self._facts.endpoints),
            "origins": list(self._facts.origins),
        }

    async def stop(self) -> None:
        """Stop after the save under way."""
        await self.actor.stop()
