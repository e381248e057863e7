"""Shared state of one HTTP surface: the node, counters and ceilings, the header cache."""

from __future__ import annotations

import asyncio
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from actors.rate_limited_log import RateLimitedLog
from protocol import limits
from surfaces.admission import Admission
from surfaces.background_tasks import BackgroundTasks
from surfaces.counters import CountedWire, HttpCounters
from surfaces.http import answers
from surfaces.http.header_cache import HeaderCache
from surfaces.http.hosts import Hosts
from surfaces.logs import RefusalLog
from surfaces.long_work import LongWork
from surfaces.memory_quota import MemoryQuota

if TYPE_CHECKING:
    from actors.node import Node


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Time limits of a client, seconds."""

    tls_s: float = limits.TLS_SECONDS
    head_s: float = limits.HEAD_SECONDS
    body_s: float = limits.BODY_SECONDS
    write_s: float = limits.WRITE_SECONDS
    idle_s: float = limits.IDLE_SECONDS
    linger_s: float = limits.LINGER_SECONDS
    ping_s: float = limits.PING_SECONDS
    pong_s: float = limits.PONG_SECONDS
    close_s: float = limits.CLOSE_SECONDS


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Address and options of the surface.

    :ivar tls: HTTPS if given, else plain HTTP
    :ivar connections, running: the ceilings
    :ivar descriptors: every connection's descriptor is below this number: `surfaces/listener.py`
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    connections: int = limits.CONNECTIONS
    running: int = limits.RUNNING
    descriptors: int = sys.maxsize


class Http(ABC):
    """Shared part of the surface. `surface.py` makes it listen."""

    loop: asyncio.AbstractEventLoop
    long_work: LongWork
    description: bytes
    """Response body of `GET /openapi.json`."""

    def __init__(self, node: Node, settings: HttpSettings) -> None:
        self.node = node
        self.settings = settings
        self.clock = node.environment.clock
        self.deadlines = settings.deadlines
        self.long_values = 0
        """Values of keys being encoded in slices."""
        self.counters = HttpCounters()
        self.wire: CountedWire | None = None
        """The wire surface of the node; None: it has none."""
        self.admission = Admission(
            settings.running,
            lambda: node.registry.waiting("http"),
            lambda user: node.registry.waiting_of("http", user),
        )
        self.bodies_bytes = 0
        """Bytes of all buffered bodies. An anonymous client holds at most a small body."""
        self.requests = MemoryQuota(limits.REQUESTS_BYTES)
        """Memory quota of requests, by user; unauthenticated ones are charged as anonymous."""
        self.answers = MemoryQuota(limits.ANSWERS_BYTES)
        """Memory quota of unread responses, by user."""
        self.limited_log = RateLimitedLog("surfaces.http")
        self.refusals = RefusalLog("http")
        self.background = BackgroundTasks(self.limited_log)
        self.known = HeaderCache(node.environment.rng.bytes(32))
        self.hosts = Hosts(settings.host)
        self.was_probed = False
        """True if `/ready` was requested."""
        self.date_field = b""
        self._after_request = b""
        """Header of a JSON response between the request id and the length."""
        self._prefix = node.environment.rng.bytes(3).hex()
        self._requests = 0

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]:
        """Host and port listened on."""

    @property
    @abstractmethod
    def held(self) -> int:
        """Number of open connections."""

    @property
    @abstractmethod
    def sockets(self) -> int:
        """Number of these that are WebSockets."""

    @abstractmethod
    def unready(self) -> Literal["draining", "full"] | None:
        """Return the reason why the surface itself should get no traffic."""

    @property
    def stopping(self) -> bool:
        """True while draining: no new request is admitted."""
        return self.admission.draining

    @property
    def running(self) -> int:
        """Number of running requests."""
        return self.admission.running

    def takes_more(self, host: str) -> bool:
        """True if a request for a host may run at once, without a refusal."""
        admission = self.admission
        return (
            self.hosts.known(host, self.node.status)
            and not admission.full
            and not admission.draining
        )

    def next_request(self) -> str:
        """Return a new request id: unique in this process, and unlikely to occur in another."""
        self._requests += 1
        return f"r-{self._prefix}{self._requests:x}"

    def dated(self, field: bytes) -> None:
        """Set the Date line of responses."""
        self.date_field = field
        self._after_request = (
            b"\r\n%s%sCache-Control: no-store\r\nContent-Type: %s\r\nContent-Length: "
            % (field, answers.COMMON, answers.JSON)
        )

    def plain(self, status: int, request: str, body: bytes) -> bytes:
        """Return a complete response with a JSON body, on a connection that is kept alive."""
        return b"%sStore-Request: %s%s%d\r\n\r\n%s" % (
            answers.status_line(status),
            request.encode("ascii"),
            self._after_request,
            len(body),
            body,
        )

    def user_of_token(self, digest: bytes) -> str | None:
        """Return the user of a session token if it is cached."""
        found = self.node.spaces.sessions.glance(
            digest, self.node.committer.ledger.state.users_version
        )
        return None if found is None else found.user

    def user_of_password(self, user: str, password: str, address: str) -> str | None:
        """Return the user if the password is cached as correct."""
        version = self.node.committer.ledger.state.users_version
        found = self.node.spaces.sessions.still_right(user, password, "http", address, version)
        return None if found is None else found.user

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work of a request, which answers its own errors."""
        self.background.spawn(work)
