"""Intake: admits a request by its head, starts it in its turn, counts it when it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from tornado.httputil import HTTPConnection, HTTPInputError

from actors.sessions import token_digest
from protocol.errors import BadRequest, MisdirectedRequest, SignInRefused
from surfaces.http import cors, scripts
from surfaces.http.credentials import Token, credential
from surfaces.http.exchange import Exchange, Route
from surfaces.http.head import RequestHead
from surfaces.http.router import Router
from surfaces.http.routes import application
from surfaces.http.shared import Http
from surfaces.memory_quota import NOBODY

HEALTH: Final = "/health"


class Intake:
    """Intake of one surface."""

    def __init__(self, surface: Http, routes: Sequence[Route]) -> None:
        self._surface = surface
        self._admission = surface.admission
        self.table = Router(routes)
        self._application = application(surface, routes)
        """Tornado application of the routes with a Tornado handler."""
        self.quiet = asyncio.Event()
        """Set when a request has ended while the surface stops, or a connection is gone."""

    def admit(self, exchange: Exchange, head: RequestHead) -> Route:
        """Return the route of a request, decided by its head.

        :raises MisdirectedRequest: its Host is not this node
        :raises Refusal: as `Router.find`; SignInRefused when the route needs a credential
        """
        surface = self._surface
        known = not head.host or surface.hosts.known(head.host, surface.node.status)
        # A load balancer may request /health by any host name.
        if not known and head.path != HEALTH:
            raise MisdirectedRequest(f"unknown host {head.host}: it is not in the node's ENDPOINTS")
        route = self.table.find(head)
        exchange.route = route
        if b"origin" in head.fields:
            cors.check_credential(head, surface.node.status().endpoints)
        if (
            route.credential == "required"
            and b"authorization" not in head.fields
            and not route.upgrades  # a WebSocket's may be a subprotocol: handshake.py
        ):
            raise SignInRefused("no credential: send Authorization: Bearer or Basic")
        if surface.stopping and not route.probe:
            raise self._admission.leaving()
        return route

    def run_request(self, exchange: Exchange, *, judged: bool = False) -> None:
        """Run a request in its turn.

        :param judged: True if it was deferred already, for lack of a free slot
        """
        route, head, refusal = exchange.route, exchange.head, exchange.refusal
        if refusal is not None and (route is None or not route.upgrades):
            exchange.refuse(refusal)
            return
        assert route is not None
        assert head is not None
        if refusal is None and not route.probe:
            user = exchange.connection.user
            if self._admission.full:
                user = self._asker(exchange)
            if not (self._admission.has_room(user) or self._lets_in(exchange)):
                if not judged:
                    self._admission.admit_later(partial(self._judge, exchange))
                    return
                exchange.refusal = self._admission.busy()
                if not route.upgrades:
                    exchange.refuse(exchange.refusal)
                    return
            else:
                exchange.runs(user)
        try:
            if route.lean is not None:
                exchange.delegate = delegate = route.lean(self._surface, exchange)
                delegate.finish()
            else:
                self._hand_over(exchange, head)
        except HTTPInputError as error:  # raised by Tornado, for instance for the query
            exchange.refuse(BadRequest(str(error)))
        except Exception as error:
            exchange.fail(error)

    def _hand_over(self, exchange: Exchange, head: RequestHead) -> None:
        """Answer through a Tornado handler. The exchange and its connection stand in for Tornado's
        own."""
        delegate = self._application.start_request(
            exchange.connection, cast(HTTPConnection, exchange)
        )
        exchange.delegate = delegate
        delegate.headers_received(*head.tornado())
        if exchange.body:
            delegate.data_received(exchange.body)
        delegate.finish()

    def _judge(self, exchange: Exchange) -> None:
        """Run a deferred request, or refuse it."""
        if exchange.connection.closed:
            exchange.finished()
        else:
            self.run_request(exchange, judged=True)

    def _asker(self, exchange: Exchange) -> str:
        """Return the user by a cached credential; NOBODY if it has to be checked."""
        assert exchange.head is not None
        try:
            given = credential(exchange.head)
        except SignInRefused:
            return NOBODY
        if isinstance(given, Token):
            return self._surface.user_of_token(token_digest(given.token)) or NOBODY
        if given is None:
            return NOBODY
        address = exchange.connection.address
        return self._surface.user_of_password(given.user, given.password, address) or NOBODY

    def _lets_in(self, exchange: Exchange) -> bool:
        """Return True if a request without a free slot is admitted nevertheless."""
        exchange.beside = self._admission.lets_in_beside and scripts.only_administers(exchange)
        return exchange.beside

    def finished(self, exchange: Exchange) -> None:
        """Count a request that is answered, or whose client is gone."""
        exchange.release()
        surface, head, route = self._surface, exchange.head, exchange.route
        method = head.method if head is not None else "unreadable"
        path = route.path if route is not None else "none"
        surface.counters.answer(method, path, exchange.status)
        if exchange.counted:
            exchange.set_authenticating(False)
            exchange.counted = False
            self._admission.end(exchange.user, beside=exchange.beside)
            surface.counters.ran(path, surface.loop.time() - exchange.since)
            if surface.stopping:
                self.quiet.set()
