"""VAULT requests on a wire connection: seals and passphrases, which are never part of a statement.

Each runs in its own task, for the connection's caller at that time, and is answered once. A later
sign-in waits until that caller is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from protocol.errors import BadRequest, Refusal, SignInRefused
from protocol.frames import MessageKind, WireMessage
from protocol.requests import Caller
from protocol.vaults import (
    ChangePassphrase,
    Names,
    Seal,
    ShowVaults,
    Unseal,
    VaultStates,
    checked_names,
)
from surfaces.wire.bodies import field, operation
from surfaces.wire.link import WireLink

_WHERE: Final = frozenset({"op", "ns", "db", "vault"})
Asked = Unseal | Seal | ChangePassphrase | ShowVaults


class WireVaults:
    """:param link: the connection"""

    def __init__(self, link: WireLink) -> None:
        self._link = link
        self.starting: asyncio.Future[Caller] | None = None
        """Done when the caller of the newest request is known."""

    def receive(self, message: WireMessage) -> None:
        """Start a VAULT, or refuse it."""
        link, admission = self._link, self._link.wire.admission
        if admission.draining:
            link.refuse(message.id, admission.leaving())
        elif message.refusal is not None:
            link.refuse(message.id, message.refusal)
        elif link.token is None:
            link.refuse(message.id, SignInRefused("a vault needs a signed-in user"))
        elif not admission.has_room(user := link.user):
            link.refuse(message.id, admission.busy())
        else:
            admission.admit(user)
            try:
                asked = link.wire.gate.caller(link.token, link.who, link.address)
            except Refusal as refusal:
                admission.end(user)
                link.refuse(message.id, refusal)
                return
            if not isinstance(asked, Caller):
                self.starting = asked
            link.wire.background.spawn(self._run(message, asked, user))

    async def _run(
        self, message: WireMessage, asked: Caller | asyncio.Future[Caller], user: str
    ) -> None:
        link, id = self._link, message.id
        try:
            caller = asked if isinstance(asked, Caller) else await asked
            body = await self._answered(message.body or {}, caller, link.name(id))
        except Refusal as refusal:
            self._refuse(id, user, refusal)
        except asyncio.CancelledError:  # the surface closes
            self._refuse(id, user, link.wire.admission.leaving())
            raise
        except Exception as error:
            self._refuse(id, user, link.failed(link.name(id), error))
        else:
            link.wire.admission.end(user)
            link.send(MessageKind.VALUE, id, body)
            link.end_if_done()

    def _refuse(self, id: int, user: str, refusal: Refusal) -> None:
        self._link.wire.admission.end(user)
        self._link.refuse(id, refusal)
        self._link.end_if_done()

    async def _answered(self, body: dict[str, Any], caller: Caller, name: str) -> dict[str, Any]:
        read = operation("VAULT", body, _OPERATIONS)
        found = await self._link.wire.gate.vaults(read(body, caller, name))
        if isinstance(found, VaultStates):
            return found.described(lambda at: at)
        if isinstance(found, datetime):
            return {"sealed": False, "until": found}
        return {"sealed": True} if found is None else {"changed": True, "rewrapped": found}


def _names(body: dict[str, Any]) -> Names | None:
    """Return the names of the vault in a body; None: the store.

    :raises BadRequest: incomplete names
    """
    found = [field("VAULT", body, name, str) for name in ("ns", "db", "vault")]
    if all(name is None for name in found):
        return None
    namespace, database, vault = found
    if namespace is None or database is None or vault is None:
        raise BadRequest("VAULT takes ns, db and vault, or none of them", field="vault")
    return checked_names(namespace, database, vault)


def _text(body: dict[str, Any], name: str) -> str:
    found = field("VAULT", body, name, str)
    if found is None:
        raise BadRequest(f"VAULT needs {name}", field=name)
    return found


def _unseal(body: dict[str, Any], caller: Caller, request: str) -> Asked:
    return Unseal(caller, _names(body), _text(body, "passphrase"), request)


def _seal(body: dict[str, Any], caller: Caller, request: str) -> Asked:
    return Seal(caller, _names(body), request)


def _passphrase(body: dict[str, Any], caller: Caller, request: str) -> Asked:
    rekey = bool(field("VAULT", body, "rekey", bool))
    old = field("VAULT", body, "old", str)
    return ChangePassphrase(caller, _names(body), old, _text(body, "new"), rekey, request)


def _show(_body: dict[str, Any], caller: Caller, _request: str) -> Asked:
    return ShowVaults(caller)


_Read = Callable[[dict[str, Any], Caller, str], Asked]
_OPERATIONS: Final[dict[str, tuple[frozenset[str], _Read]]] = {
    "unseal": (_WHERE | {"passphrase"}, _unseal),
    "seal": (_WHERE, _seal),
    "passphrase": (_WHERE | {"old", "new", "rekey"}, _passphrase),
    "show": (frozenset({"op"}), _show),
}
