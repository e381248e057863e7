"""SIGHUP: reads the certificate again, and uses it for new connections."""

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
    """Handler of SIGHUP while the block lasts; after it the signal is ignored, like the others.

    A terminal that is closed sends SIGHUP too. A node started there then stops as if by SIGTERM:
    otherwise it would run on unnoticed.

    :param asked: set to stop the node
    :param on_terminal: True if the node was started on a terminal
    """

    def __init__(self, asked: asyncio.Event, on_terminal: bool) -> None:
        self.received = asyncio.Event()
        """Set by each SIGHUP; cleared by its consumer."""
        self._asked = asked
        self._on_terminal = on_terminal

    def __enter__(self) -> HangUps:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hang_up)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_hang_up(self) -> None:
        if self._on_terminal and not os.isatty(STANDARD_ERROR):  # the terminal was closed
            self._asked.set()
        else:
            self.received.set()


class Presents(Protocol):
    """A surface with TLS."""

    def present(self, tls: ssl.SSLContext) -> None:
        """Use this context for new connections."""


class Renewal:
    """Certificate in use, and its renewal.

    :param files: chain and key of the command line; None: the node has no certificate
    :param now: the wall clock
    :param renewed: called with each new one, once the surfaces use it
    :param beside: reads other files again
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
        """Renew at each SIGHUP; never ends. Signals during a renewal cause one more."""
        while True:
            await hang_ups.received.wait()
            hang_ups.received.clear()
            try:
                self._beside()
                await self.renew()
            except Exception:  # a bug; the current certificate stays in use
                self._log.exception("the certificate was not renewed")

    async def renew(self) -> None:
        """Read the files, and use their certificate if it is valid. Otherwise the current one stays
        in use, and the reason is logged."""
        if self._files is None:
            self._log.info("SIGHUP: no certificate to reload")
            return
        try:
            # In a thread: the files may be on a slow disk, and checking a key takes long.
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
