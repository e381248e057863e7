"""SIGHUP: the certificate is read again, and presented to whoever connects from then on."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import NoReturn, Protocol

import structlog

from surfaces.command import certificates
from surfaces.command.certificates import Certificate, CertificateRefused
from surfaces.logs import STANDARD_ERROR


class HangUps:
    """SIGHUP, as long as the block lasts; after it the signal does nothing, as the others.

    A terminal that is closed sends it too. A node that was started there stops then as if it had
    been told to: nobody would find it again.

    :param asked: set when it is to stop
    :param on_terminal: whether it was started on one
    """

    def __init__(self, asked: asyncio.Event, on_terminal: bool) -> None:
        self.came = asyncio.Event()
        """Set by each; cleared by who acts on it."""
        self._asked = asked
        self._on_terminal = on_terminal

    def __enter__(self) -> HangUps:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._came)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _came(self) -> None:
        if self._on_terminal and not os.isatty(STANDARD_ERROR):  # not since it was closed
            self._asked.set()
        else:
            self.came.set()


class Presents(Protocol):
    """A surface that speaks TLS."""

    def present(self, tls: ssl.SSLContext) -> None:
        """Present what this context holds to whoever connects from now on."""


class Renewal:
    """The certificate in use, and how another takes its place.

    :param files: chain and key, as the command line names them; None: the node has no certificate
    :param now: the wall clock
    :param renewed: called with each new one, once the surfaces present it
    :param beside: reads what else is read again
    """

    def __init__(
        self,
        files: tuple[str, str] | None,
        now: Callable[[], datetime],
        surfaces: Sequence[Presents],
        renewed: Callable[[Certificate], None],
        beside: Callable[[], None] = lambda: None,
    ) -> None:
        self._files = files
        self._now = now
        self._surfaces = surfaces
        self._renewed = renewed
        self._beside = beside
        self._log = structlog.get_logger()

    async def at_each(self, hang_ups: HangUps) -> NoReturn:
        """Renew at each SIGHUP, one after the other; never ends. Those that come while one is acted
        on are one more."""
        while True:
            await hang_ups.came.wait()
            hang_ups.came.clear()
            try:
                self._beside()
                await self.renew()
            except Exception:  # a bug; what is in use stays so
                self._log.exception("the certificate was not renewed")

    async def renew(self) -> None:
        """Read the files. What they hold is presented from now on, if it can be; if not, what was
        presented before goes on, and the log says why."""
        if self._files is None:
            self._log.info("SIGHUP: there is no certificate to be read again")
            return
        try:
            # In a thread: the files may lie anywhere, and checking a key takes its time.
            found = await asyncio.to_thread(certificates.load, *self._files, self._now())
        except CertificateRefused as refused:
            self._log.error(
                "the certificate was not renewed: the one before stays in use", reason=str(refused)
            )
            return
        for surface in self._surfaces:
            surface.present(found.context)
        self._renewed(found)
        self._log.info(
            "the certificate was read again",
            expires=found.expires.isoformat(),
            fingerprint=found.fingerprint,
        )
