"""Configured certificate of a serving node for links to other nodes: read and validated."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import structlog

from actors.cluster.membership import Identity, Peering, given
from protocol.environment import Clock
from protocol.errors import BadRequest
from protocol.values import instant
from surfaces.command.arguments import Peers
from surfaces.command.certificates import CertificateRefused, check_file, check_private
from surfaces.command.failures import NotOpened


def given_identity(peers: Peers | None, clock: Clock) -> Identity | None:
    """Return the configured identity, or None.

    :raises NotOpened: it can't be used
    """
    if peers is None:
        return None
    try:
        return identity(peers, instant(clock.wall_us()))
    except CertificateRefused as refused:
        raise NotOpened(str(refused)) from refused


def identity(peers: Peers, now: datetime) -> Identity | None:
    """Return the configured certificate with its key; None: the node makes its own.

    :raises CertificateRefused: it can't be used; the message names the file and the reason
    """
    if peers.cert is None or peers.key is None:
        return None
    check_file("--peer-cert", peers.cert)
    check_file("--peer-key", peers.key)
    check_private("--peer-key", peers.key)
    try:
        return given(Path(peers.cert).read_bytes(), Path(peers.key).read_bytes(), now)
    except OSError as error:
        raise CertificateRefused(f"--peer-cert: {error.filename}: {error.strerror}") from error
    except BadRequest as error:
        raise CertificateRefused(f"--peer-cert: {peers.cert}: {error.message}") from error


def renew(peering: Peering, peers: Peers, now: datetime) -> None:
    """Read the files again. Their certificate is used once this node's row lists it. If it can't be
    used, nothing changes, and the reason is logged."""
    log = structlog.get_logger()
    try:
        found = identity(peers, now)
    except CertificateRefused as refused:
        log.error("the certificate for other nodes was not reloaded", reason=str(refused))
        return
    if found is not None:
        peering.accept_certificate(found)
        log.info("the certificate for other nodes was reloaded", fingerprint=found.fingerprint)
