"""Routes under /vault: seals and passphrases, and operations on records.

An operation on records runs a statement with the whole body bound as parameters. So it is
authorized, audited and cancelled like any script, and no part of the body becomes statement text.
Passphrases go to the vaults actor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from actors.runtime import ask_now
from protocol import jsonvalues, limits
from protocol.errors import BadRequest
from protocol.requests import Caller, RunScript
from protocol.text import format_datetime
from protocol.values import LONG, Tick, Value, check_unicode
from protocol.vaults import (
    ChangePassphrase,
    Names,
    Seal,
    ShowVaults,
    Unseal,
    checked_names,
)
from surfaces.http import answers, results
from surfaces.http.body_weights import read_counted, whole
from surfaces.http.callers import caller
from surfaces.http.head import RequestHead
from surfaces.http.queries import decoded, integer
from surfaces.http.running import RunningDelegate, without_place

ALL: Final = "/vault"
ONE: Final = "/vault/{ns}/{db}/{vault}"
SEALS: Final = ("unseal", "seal", "passphrase")
RECORDS: Final = ("reveal", "write", "erase")
STORE_PATHS: Final[dict[str, str]] = {word: f"{ALL}/{word}" for word in SEALS}
VAULT_PATHS: Final[dict[str, str]] = {word: f"{ONE}/{word}" for word in (*SEALS, *RECORDS)}
BODY_MAX: Final[int] = 2 * limits.VAULT_VALUE_BYTES
"""Maximum bytes of a body: a value takes more bytes as JSON than as msgpack."""


def template(path: str) -> str | None:
    """Return the route template for a path under /vault, or None."""
    parts = path.split("/")
    if len(parts) == 3:
        return STORE_PATHS.get(parts[2])
    if len(parts) == 5:
        return ONE
    return VAULT_PATHS.get(parts[5]) if len(parts) == 6 else None


def _written(vault: str, body: Mapping[str, Any]) -> str:
    when = ""
    if "expect" in body:
        when = " EXPECT VERSION $expect"
    elif body.get("if") == "absent":
        when = " IF ABSENT"
    return f"WRITE $id IN VAULT {vault} VALUE $value{when}"


_WAYS: Final[dict[str, Callable[[str, Mapping[str, Any]], str]]] = {
    "reveal": lambda vault, body: (
        f"REVEAL $id FROM VAULT {vault}{' VERSION $version' if 'version' in body else ''}"
    ),
    "write": _written,
    "erase": lambda vault, _body: f"ERASE $id FROM VAULT {vault}",
}
"""Statement of each route, given the quoted name of the vault, and the body."""


class VaultDelegate(RunningDelegate):
    """Delegate of one vault request."""

    async def _answer(self) -> None:
        exchange = self._exchange
        head = exchange.head
        assert head is not None
        who = await caller(exchange)
        exchange.own(who.user)
        if exchange.connection.closed:
            return
        answer = await self._asked(who, head)
        if not exchange.connection.closed:
            data = await results.encode_value(answer, self._surface.long_work, who.user)
            exchange.reply(200, data, answers.JSON)

    async def _asked(self, who: Caller, head: RequestHead) -> Value:
        size = len(self._exchange.body)
        parts = [decoded(part) for part in head.path.split("/")[2:]]
        if not parts:
            standings = await ask_now(self._surface.node.vaults, ShowVaults(who))
            return standings.described(_moment)
        if len(parts) == 1:
            found, who = await self._read(who)
            return await self._seals(who, None, parts[0], found)
        names = checked_names(*parts[:3])
        if len(parts) == 3:
            return await self._list(who, names)
        found, who = await self._read(who)
        if parts[3] in SEALS:
            return await self._seals(who, names, parts[3], found)
        given = self._object(found)
        if given.get("if") not in (None, "absent"):
            raise BadRequest("if must be 'absent', or left out")
        if "if" in given and "expect" in given:
            raise BadRequest("give either if or expect, not both")
        text = _WAYS[parts[3]](_quoted(names[2]), given)
        reason = _string(given, "reason")
        bound = await self._bound(given, size)
        if size > LONG:
            who = await caller(self._exchange)  # other work ran meanwhile
        del found, given
        return await self._script(who, names, text, bound, reason)

    async def _read(self, who: Caller) -> tuple[Any, Caller]:
        """Return the parsed body, with unresolved tags, and the caller."""
        if not self._exchange.body:
            return {}, who
        return await read_counted(self._exchange, who, jsonvalues.parse, LONG, whole)

    async def _bound(self, given: dict[str, Any], size: int) -> dict[str, Value]:
        """Return the statement's parameters from a body of `size` bytes."""
        bind = partial(_values, given)
        if size <= LONG:
            return bind(None)
        return await self._surface.long_work.run(self._exchange.user, bind)

    async def _list(self, who: Caller, names: Names) -> Value:
        query = self._exchange.parameters()
        bound: dict[str, Value] = {
            "prefix": query.get("prefix", ""),
            "after": query.get("after", ""),
            "limit": integer(query["limit"], "limit")
            if "limit" in query
            else limits.VAULT_IDS_LISTED,
        }
        text = f"LIST FROM VAULT {_quoted(names[2])} PREFIX $prefix AFTER $after LIMIT $limit"
        return await self._script(who, names, text, bound, None)

    async def _script(
        self,
        who: Caller,
        names: Names,
        text: str,
        bound: dict[str, Value],
        reason: str | None,
    ) -> Value:
        run = RunScript(who, text, self._exchange.request, bound, names[0], names[1], reason=reason)
        self._running = True
        answer = await ask_now(self._surface.node.scripts, run)
        self._running = False
        self._exchange.committed = answer.committed
        if answer.refusal is not None:
            raise without_place(answer.refusal, "committed")
        return answer.results[-1].value

    async def _seals(
        self, who: Caller, names: Names | None, word: str, body: Any
    ) -> dict[str, Any]:
        vaults, request = self._surface.node.vaults, self._exchange.request
        if word == "seal":
            await ask_now(vaults, Seal(who, names, request))
            return {"sealed": True}
        if word == "unseal":
            given = self._object(body)
            passphrase = _needed(given, "passphrase")
            until = await ask_now(vaults, Unseal(who, names, passphrase, request))
            return {"sealed": False, "until": _moment(until)}
        given = self._object(body)
        rekey = given.get("rekey", False)
        if not isinstance(rekey, bool):
            raise BadRequest("rekey must be true or false")
        asked = ChangePassphrase(
            who, names, _string(given, "old"), _needed(given, "new"), rekey, request
        )
        return {"changed": True, "rewrapped": await ask_now(vaults, asked)}

    def _object(self, found: Any) -> dict[str, Any]:
        """Return the body if it is a valid object.

        :raises BadRequest: the body is not a JSON object of the route's fields
        """
        route = self._exchange.route
        assert route is not None and route.body is not None
        fields, needed = sorted(route.body["properties"]), sorted(route.body["required"])
        if not isinstance(found, dict) or not {*needed} <= found.keys() <= {*fields}:
            raise BadRequest(
                f"the body must be a JSON object of {', '.join(fields)}",
                fields=fields,
                needed=needed,
            )
        return found


def _values(given: dict[str, Any], tick: Tick | None) -> dict[str, Value]:
    return {
        name: jsonvalues.from_json(value, tick)
        for name, value in given.items()
        if name not in ("reason", "if")
    }


def _quoted(name: str) -> str:
    """Return the name in backquotes. Names that `check_name` accepts have nothing to escape."""
    return f"`{name}`"


def _string(given: Mapping[str, Any], name: str) -> str | None:
    found = given.get(name)
    if found is None:
        return None
    if not isinstance(found, str):
        raise BadRequest(f"{name} must be a string")
    check_unicode(found)
    if name == "reason" and len(found) > limits.REASON_CHARACTERS:
        raise BadRequest(f"the reason is too long: at most {limits.REASON_CHARACTERS} characters")
    return found


def _needed(given: Mapping[str, Any], name: str) -> str:
    found = _string(given, name)
    if found is None:
        raise BadRequest(f"{name} must be a string")
    return found


def _moment(at: datetime | None) -> str | None:
    return None if at is None else format_datetime(at)
