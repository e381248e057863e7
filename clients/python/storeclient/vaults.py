"""Vaults: their seals, and the records in them.

Ids and values are sent as parameters, passphrases in messages of their own: neither is ever
statement text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from storeclient.answers import Answer
from storeclient.names import quote_name

Entries = list[dict[str, Any]]
Ids = list[str]


@dataclass(frozen=True, slots=True)
class Revealed:
    """A revealed version of a record."""

    id: str
    value: Any = field(repr=False)
    version: int
    at: datetime
    """Time when that version was written."""


@dataclass(frozen=True, slots=True)
class Written:
    """Result of a write."""

    written: bool
    """False: its condition did not hold."""
    version: int
    """Current version of the record; 0: it does not exist."""


class AskVault(Protocol):
    """Sends one operation on a seal, and returns the fields of its answer."""

    def __call__(self, body: dict[str, Any]) -> Awaitable[dict[str, Any]]: ...


class RunInVault(Protocol):
    """Runs a script in the database of a vault."""

    def __call__(
        self, script: str, params: Mapping[str, Any], reason: str | None
    ) -> Awaitable[Answer]: ...


class AsyncSeal:
    """Handle of the store's seal, which covers the vaults without a passphrase of their own. Made
    by `AsyncClient.store_seal()`."""

    def __init__(self, ask: AskVault, place: Mapping[str, str]) -> None:
        self._ask = ask
        self._place = dict(place)

    def __repr__(self) -> str:
        return "<AsyncSeal of the store>"

    async def unseal(self, passphrase: str) -> datetime:
        """Unseal for a limited time. Return the end of that; use of the vault does not extend it.

        :raises errors.WrongKey: wrong passphrase
        :raises errors.TooManyTries: after very many wrong ones
        """
        until: datetime = (await self._do("unseal", passphrase=passphrase))["until"]
        return until

    async def seal(self) -> None:
        """Seal immediately."""
        await self._do("seal")

    async def change_passphrase(self, old: str | None, new: str, *, rekey: bool = False) -> int:
        """Change the passphrase. Return the number of keys that were wrapped again.

        :param old: None: the store has none yet
        :param rekey: after a leak: replace all keys, and seal every value again
        """
        found = await self._do("passphrase", old=old, new=new, rekey=rekey)
        return int(found["rewrapped"])

    async def _do(self, op: str, **fields: Any) -> dict[str, Any]:
        return await self._ask({"op": op, **self._place, **fields})


class AsyncVault(AsyncSeal):
    """Handle of a vault. Made by `AsyncClient.vault(ns, db, name)` or `AsyncDatabase.vault(name)`;
    nothing is sent before its first call. `unseal`, `seal` and `change_passphrase` are for a vault
    with a passphrase of its own: others open with `AsyncClient.store_seal()`."""

    def __init__(self, ask: AskVault, run: RunInVault, ns: str, db: str, name: str) -> None:
        super().__init__(ask, {"ns": ns, "db": db, "vault": name})
        self._run = run
        self._name = quote_name(name)

    def __repr__(self) -> str:
        return f"<AsyncVault {'.'.join(self._place.values())}>"

    async def write(
        self,
        id: str,
        value: Any,
        *,
        if_absent: bool = False,
        expect: int | None = None,
        reason: str | None = None,
    ) -> Written:
        """Write the next version of a record.

        :param if_absent: only if the record does not exist
        :param expect: only if this is its version (optimistic concurrency); 0: same as `if_absent`
        :raises errors.Sealed: the vault is sealed
        """
        params = {"id": id, "value": value}
        when = " IF ABSENT" if if_absent else ""
        if expect is not None:
            when = " EXPECT VERSION $expect"
            params["expect"] = expect
        text = f"WRITE $id IN VAULT {self._name} VALUE $value{when}"
        found = await self._value(text, params, reason)
        return Written(found["written"], found["version"])

    async def reveal(
        self, id: str, *, version: int | None = None, reason: str | None = None
    ) -> Revealed:
        """Return the value of a record; the node records the access in the audit trail first.

        :raises errors.Unknown: no such record, or no such version
        :raises errors.Sealed: the vault is sealed
        :raises errors.WrongKey: the stored bytes are not those that were written
        """
        params: dict[str, Any] = {"id": id}
        if version is not None:
            params["version"] = version
        which = "" if version is None else " VERSION $version"
        found = await self._value(f"REVEAL $id FROM VAULT {self._name}{which}", params, reason)
        return Revealed(**found)

    async def list(self, prefix: str = "", after: str = "", limit: int = 1000) -> Ids:
        """Return ids in the order of their bytes, at most 1000; continue with the last one as
        `after`."""
        text = f"LIST FROM VAULT {self._name} PREFIX $prefix AFTER $after LIMIT $limit"
        params = {"prefix": prefix, "after": after, "limit": limit}
        found: Ids = (await self._value(text, params, None))["ids"]
        return found

    async def erase(self, id: str, *, reason: str | None = None) -> bool:
        """Erase a record with all its versions. Return whether it existed."""
        text = f"ERASE $id FROM VAULT {self._name}"
        return bool((await self._value(text, {"id": id}, reason))["erased"])

    async def info(self) -> dict[str, Any]:
        """Return the result of INFO FOR VAULT."""
        found: dict[str, Any] = await self._value(f"INFO FOR VAULT {self._name}", {}, None)
        return found

    async def audit(self, before: int | None = None, limit: int = 100) -> Entries:
        """Return entries of the audit trail, newest first. :param before: only entries before that
        `seq`"""
        params: dict[str, Any] = {"limit": limit}
        if before is not None:
            params["before"] = before
        page = "" if before is None else " BEFORE $before"
        text = f"INFO FOR AUDIT OF VAULT {self._name}{page} LIMIT $limit"
        found: Entries = await self._value(text, params, None)
        return found

    async def _value(self, text: str, params: Mapping[str, Any], reason: str | None) -> Any:
        return (await self._run(text, params, reason)).value
