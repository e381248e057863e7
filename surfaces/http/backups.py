"""GET /backup: a backup as a file.

It is one BACKUP statement, run as any script is: judged, counted, kept in the audit trail, ended by
KILL and by a client that goes away. Its bytes stand in a file of the node before the first of them
leaves, so that whatever is refused is refused as any request is, and how many there are is known.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from copy import copy
from typing import Final

from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, ResponseStartLine

from actors.runtime import ask_now, tell
from protocol import limits
from protocol.errors import BadRequest, Busy, Refusal
from protocol.requests import CancelScript, HeldFile, RunScript
from surfaces.http.callers import caller
from surfaces.http.exchange import Exchange
from surfaces.http.head import Head
from surfaces.http.queries import integer, parameters
from surfaces.http.shared import Http

FORMS: Final = {"snapshot": "STATE", "log": "LOG", "script": "SCRIPT"}
"""What `as` may say, and the word of the statement."""
EXTENSIONS: Final = {"snapshot": ".storesnap", "log": ".storelog", "script": ".storeql"}
PART_BYTES: Final = 256 * limits.KIB
"""Read and sent at once; the next when the client has kept up."""
_OF_SCRIPTS: Final = frozenset({"statement", "line", "column", "near"})
"""What a refusal says of a text that nobody has written here."""


class BackupDelegate(HTTPMessageDelegate):
    """Takes one backup for one request."""

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange
        self._taking = False

    def finish(self) -> None:
        """The request is there: take it."""
        self._surface.spawn(self._run())

    def on_connection_close(self) -> None:
        """The client is gone: nobody reads the backup."""
        if not self._taking:
            return
        try:
            tell(self._surface.node.scripts, CancelScript(self._exchange.request))
        except Busy as busy:  # it is taken to its end, and then forgotten
            self._exchange.report(busy)

    async def _run(self) -> None:
        exchange = self._exchange
        assert exchange.head is not None
        try:
            who = await caller(exchange)
            statement = asked(exchange.head)
            run = RunScript(who, statement, exchange.request, hands_over=tuple(FORMS.values()))
            self._taking = not exchange.connection.closed
            if self._taking:
                answer = await ask_now(self._surface.node.scripts, run)
                self._taking = False
                if answer.refusal is not None:
                    raise _without_place(answer.refusal)
                assert answer.file is not None, "a backup is handed over"
                await self._send(answer.file)
        except Refusal as refusal:
            exchange.refuse(refusal)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            exchange.fail(error)
        finally:
            self._taking = False
            exchange.finished()

    async def _send(self, file: HeldFile) -> None:
        exchange, head = self._exchange, self._exchange.head
        assert head is not None
        try:
            if exchange.connection.closed:
                return
            await exchange.write_headers(ResponseStartLine("HTTP/1.1", 200, "OK"), _fields(file))
            if head.method == "HEAD":
                return
            at = 0
            while at < file.size and not exchange.connection.closed:
                data = await file.read(at, PART_BYTES)
                at += len(data)
                await exchange.write(data)
        finally:
            file.close()


def asked(head: Head) -> str:
    """The statement that a request stands for. :raises BadRequest: it stands for none"""
    query = parameters(head.query, ("as", "from"))
    form = query.get("as", "snapshot")
    if form not in FORMS:
        raise BadRequest(f"as is one of {', '.join(FORMS)}, not {form[:40]!r}")
    statement = f"BACKUP {FORMS[form]}"
    if "from" not in query:
        return statement
    if form != "log":
        raise BadRequest("from is the sequence that a log begins at: it stands beside as=log")
    first = integer(query["from"], "from")
    if first < 1:
        raise BadRequest(f"from is a sequence, which are from 1, not {first}")
    return f"{statement} FROM {first}"


def _fields(file: HeldFile) -> HTTPHeaders:
    name = f"store-{file.sequence}{EXTENSIONS[file.form]}"
    return HTTPHeaders(
        {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(file.size),
            "Content-Disposition": f'attachment; filename="{name}"',
            "Store-Backup-Form": file.form,
            "Digest": f"sha-256={b64encode(file.sha256).decode('ascii')}",
        }
    )


def _without_place(refusal: Refusal) -> Refusal:
    told = copy(refusal)
    told.detail = {name: refusal.detail[name] for name in refusal.detail.keys() - _OF_SCRIPTS}
    return told
