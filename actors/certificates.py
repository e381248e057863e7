"""Certificate monitor: logs that a certificate of a surface expires soon, or has expired.

It checks when the surfaces begin to present certificates, then once a day. It also checks at the
beginning of the warning period and at the expiry, when the message changes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from actors.node_info import NodeInfo
from actors.runtime import LoopActor, Runtime, handles, tell
from protocol import limits
from protocol.requests import Surface
from protocol.values import instant

log = structlog.get_logger("node")

WARNING: Final = timedelta(days=limits.CERTIFICATE_WARNING_DAYS)
LEAST_SECONDS: Final = 1.0
"""Minimum delay between two checks: a timer that fires early must not cause a busy loop."""


@dataclass(frozen=True, slots=True)
class CheckCertificates:
    """Check the certificates that are presented now."""


class CertificatesActor(LoopActor):
    """Schedules the checks of certificates.

    :param facts: lists the surfaces and their certificates
    """

    def __init__(self, runtime: Runtime, facts: NodeInfo) -> None:
        super().__init__(runtime)
        self._facts = facts
        self._next: asyncio.TimerHandle | None = None

    def on_start(self) -> None:
        """Check at once: this actor may replace one that failed."""
        self.check_certificates(CheckCertificates())

    @handles(CheckCertificates)
    def check_certificates(self, _message: CheckCertificates) -> None:
        """Log the state of the certificates presented now, and schedule the next check."""
        if self._next is not None:
            self._next.cancel()
        surfaces: dict[datetime, list[Surface]] = defaultdict(list)
        for one in self._facts.listening:
            if one.certificate_expires is not None:
                surfaces[one.certificate_expires].append(one.surface)
        if not surfaces:
            return
        now = instant(self.runtime.clock.wall_us())
        for expires, presented_by in surfaces.items():
            _say(expires, presented_by, now)
        self._next = self.after(_pause_seconds(surfaces, now), self._wake)

    def _wake(self) -> None:
        tell(self.actor_ref, CheckCertificates())


def _say(expires: datetime, surfaces: list[Surface], now: datetime) -> None:
    if surfaces == ["peer"]:
        _say_of_peers(expires, now)
    elif now >= expires:
        log.error(
            "the certificate has expired: clients that verify it refuse to connect",
            expires=expires.isoformat(),
            surfaces=surfaces,
        )
    elif now >= expires - WARNING:
        log.warning(
            "the certificate expires soon: replace its files, then send SIGHUP",
            expires=expires.isoformat(),
            days_left=(expires - now).days,
            surfaces=surfaces,
        )


def _say_of_peers(expires: datetime, now: datetime) -> None:
    """Log that the certificate for other nodes was not renewed in time, though renewal is
    automatic."""
    if now >= expires:
        log.error(
            "the certificate for other nodes has expired: they refuse to link with this node",
            expires=expires.isoformat(),
        )
    elif now >= expires - WARNING:
        log.warning(
            "the certificate for other nodes expires soon, and the next one is not in this node's"
            " row: the leader puts it there",
            expires=expires.isoformat(),
            days_left=(expires - now).days,
        )


def _pause_seconds(expiries: dict[datetime, list[Surface]], now: datetime) -> float:
    changes = [moment for expires in expiries for moment in (expires - WARNING, expires)]
    until = [(moment - now).total_seconds() for moment in changes if moment > now]
    return max(LEAST_SECONDS, min([limits.CERTIFICATE_LOOK_SECONDS, *until]))
