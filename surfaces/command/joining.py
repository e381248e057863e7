"""`--join <file>`: a new directory becomes a copy of the cluster's store. The flag stands alone, or
beside those that serve the store afterwards."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from ssl import SSLContext

import structlog

from actors.cluster.bootstrap import CopiedStore, DirectoryState, place_of
from actors.cluster.bootstrap import join as copy_store
from actors.cluster.membership import Identity
from actors.environment import Environment, system_environment
from actors.node import START_FAULTS
from actors.rate_limited_log import RateLimitedLog
from protocol import limits
from protocol.environment import Clock
from protocol.links import VERSION, Hello, Links
from protocol.values import instant
from surfaces.command import peers
from surfaces.command.arguments import Invitation, Join, Serve
from surfaces.command.console import Console
from surfaces.command.copying import AddressTaken, Tick, probed
from surfaces.command.failures import NotOpened, reason
from surfaces.command.key_reading import keys_in
from surfaces.command.progress import stages
from surfaces.peers.dialling import Dialler
from surfaces.peers.tls import context


async def join(command: Join, console: Console) -> bool:
    """Copy the store, and print the result.

    :raises NotOpened: the token can't be read or is not accepted, or the directory is unsuitable:
        nothing was changed. Or the copy is incomplete: the directory is not a store, and the same
        command resumes the copy.
    """
    environment = system_environment()
    copied = await _joined(command, environment, console)
    if copied is None:
        console.answer(f"{command.directory} has already joined: the token was not used")
    else:
        console.answer(_summary(copied))
    return True


async def join_first(
    command: Serve, environment: Environment, console: Console, tls: SSLContext | None
) -> None:
    """Join before a serving node opens its store, if it was asked to and has not joined. An
    incomplete copy is resumed. Probes are answered meanwhile.

    :param tls: TLS context of the HTTP surface
    :raises NotOpened: as `join`; or the address of HTTP is taken
    """
    directory, invitation = command.directory, command.invitation
    if invitation != Invitation() or place_of(environment.fs, directory) is DirectoryState.JOINING:
        given = peers.given_identity(command.peers, environment.clock)
        lacks = place_of(environment.fs, directory) in (
            DirectoryState.EMPTY,
            DirectoryState.JOINING,
        )
        try:
            with probed(command.http if lacks else None, tls, environment.clock) as far:
                copied = await _joined(command, environment, console, given, far)
        except AddressTaken as taken:
            raise NotOpened(str(taken)) from taken
        if copied is not None:
            console.print_line(_summary(copied))
    if command.peers is None and place_of(environment.fs, directory) is DirectoryState.JOINED:
        structlog.get_logger().warning(
            "the node is in a cluster but follows no node: start it with --peer",
            directory=directory,
        )


async def _joined(
    command: Join | Serve,
    environment: Environment,
    console: Console,
    given: Identity | None = None,
    far: Tick | None = None,
) -> CopiedStore | None:
    """Copy the store. Return None if the directory holds a store already.

    :param far: progress callback, beside the console
    """
    directory, invitation = command.directory, command.invitation
    place = place_of(environment.fs, directory)
    if place is DirectoryState.JOINED or (
        place is DirectoryState.STORE and invitation.file is None
    ):
        structlog.get_logger().info(
            "the join token is ignored: the directory already holds a store"
        )
        return None
    key = keys_in(environment.fs, command.opening.keys).own
    limited_log = RateLimitedLog("surfaces.peers")

    def links_of(node: str, identity: Identity) -> Links:
        shown, hello = context(identity.chain, identity.private_key), Hello(VERSION, "", node)
        return Dialler(lambda: shown, lambda: hello, _Nobody(environment.clock), limited_log)

    try:
        with stages(console) as shown:

            def tick(stage: str, done: int, total: int) -> None:
                shown(stage, done, total)
                if far is not None:
                    far(stage, done, total)

            token = partial(_token, invitation, environment)
            return await copy_store(environment, directory, token, key, tick, links_of, given)
    except START_FAULTS as fault:
        raise NotOpened(reason(directory, fault)) from fault
    except KeyboardInterrupt:
        raise NotOpened(
            f"interrupted: {directory} is not a store yet; run the same command again to finish"
        ) from None
    finally:
        limited_log.close()


def _token(invitation: Invitation, environment: Environment) -> str | None:
    """Return the given token, if there is one.

    :raises OSError: its file can't be read
    """
    if invitation.file is None:
        return invitation.token
    file = environment.fs.open_read(invitation.file)
    try:
        return file.read(0, limits.JOIN_TOKEN_CHARACTERS + 1).decode("ascii", "replace").strip()
    finally:
        file.close()


class _Nobody:
    """Trust of a node without rows: it trusts only the certificate in its join token."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @property
    def now(self) -> datetime:
        """Wall clock for the validity of certificates."""
        return instant(self._clock.wall_us())

    def of(self, fingerprint: str) -> None:
        """Return None: no peer is known."""

    def is_revoked(self, fingerprint: str) -> bool:
        """Return False: no revocation is known."""
        return False


def _summary(copied: CopiedStore) -> str:
    return (
        f"joined store {copied.store} as node {copied.node}: copied up to sequence"
        f" {copied.at.sequence}, records: {copied.records}, state {copied.hash}"
    )
