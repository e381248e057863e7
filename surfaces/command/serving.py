"""Serve: from a command line to a ready node, and from SIGTERM to a closed store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import structlog

from actors.agreement import EtcdAgreement, EtcdCredentials
from actors.cluster.membership import Identity
from actors.environment import system_environment
from actors.node import START_FAULTS, Node
from actors.node_info import Listening
from actors.settings import FirstOwner, NodeSettings, keep_log
from actors.vaults.told import VaultSettings
from protocol.environment import Clock
from protocol.requests import Surface
from protocol.values import instant
from protocol.version import VERSION
from surfaces.command import addresses, certificates, descriptors, etcd, heap, notify, peers
from surfaces.command.addresses import Address, AddressRefused, Reservation
from surfaces.command.arguments import Serve
from surfaces.command.certificates import Certificate, CertificateRefused
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened, reason
from surfaces.command.first_owner import deliver_password
from surfaces.command.joining import join_first
from surfaces.command.key_reading import keys_in
from surfaces.command.new_files import is_within
from surfaces.command.opening import opened
from surfaces.command.renewal import HangUps, Renewal
from surfaces.command.stopping import StopSignals, drain
from surfaces.http.shared import HttpSettings
from surfaces.http.surface import HttpSurface
from surfaces.peers.surface import PeerSettings, PeerSurface
from surfaces.wire.gate import NodeGate
from surfaces.wire.surface import WireSettings, WireSurface


class RestartRequired(Exception):
    """The node ended in order and has to be started again: its directory is no store any more.

    At its start it copies the store from the leader before it serves.
    """


async def serve(command: Serve, variables: Mapping[str, str], console: Console) -> bool:
    """Serve until SIGTERM, SIGINT or a failure of the node. Return False after a failure.

    :raises NotOpened: an address, a certificate, a folder, a key or the store can't be used;
        nothing has been changed on disk
    :raises RestartRequired: the node has to be started again, as an empty replica
    """
    environment = system_environment()
    certificate = _certificate(command, environment.clock)
    _check_backup_folder(command.backup_dir, command.directory)
    with ExitStack() as tried:  # bind once before a store is copied: a port may be taken
        _reserve(command, tried)
    await join_first(command, environment, console, certificate.context if certificate else None)
    keys = keys_in(environment.fs, command.opening.keys)
    access = etcd.access(command.etcd)
    settings = NodeSettings(
        command.directory,
        links=command.peers is not None,
        first_owner=_first_owner(command),
        keep_log=keep_log(command.keep_log),
        keep_statements=command.keep_statements,
        accept_clock_jump=command.opening.accept_clock_jump,
        rebuild_state=command.opening.rebuild_state,
        slow_us=command.slow // timedelta(microseconds=1),
        backup_dir=command.backup_dir,
        key=keys.own,
        opening_keys=keys.opening,
        vaults=VaultSettings(unseal_us=command.unseal_for // timedelta(microseconds=1)),
        agree=partial(EtcdAgreement, access=access),
        told_owner=partial(
            deliver_password, environment.fs, command.directory, console, keys.own is not None
        ),
    )
    with (
        ExitStack() as held,
        StopSignals() as signals,
        HangUps(signals.asked, console.terminal) as hang_ups,
    ):
        shown = peers.given_identity(command.peers, environment.clock)
        http, wire, peer = _reserve(command, held)
        async with opened(settings, environment, console) as node:
            most = descriptors.for_connections(_raise_descriptor_limit())
            presenting = _surfaces(node, http, wire, certificate, most)
            surfaces: list[AnySurface] = [*presenting]
            try:
                if peer is not None:
                    surfaces.append(await _linking(node, peer, shown, most))
                for surface in surfaces:
                    await _listen(surface)
                held.close()
                _show(node, command)
                _present(node, surfaces, certificate)
                renewal = Renewal(
                    _certificate_files(command),
                    lambda: instant(environment.clock.wall_us()),
                    presenting,
                    partial(_renewed, node, surfaces),
                    partial(_read_again, node, command, access, environment.clock),
                )
                heap.freeze_startup_objects()
                _tell_ready(command, node, surfaces, console)
                notify.notify(variables, notify.READY)
                await _until_over(node, signals, renewal.at_each(hang_ups))
            finally:
                begins_anew = node.member.begins_anew.is_set() and not signals.asked.is_set()
                if not begins_anew:
                    notify.notify(variables, notify.STOPPING)
                await drain(node, surfaces)
    if begins_anew and node.failure is None and not signals.asked.is_set():
        raise RestartRequired
    return node.failure is None


Presenting = HttpSurface | WireSurface
AnySurface = Presenting | PeerSurface


def _surfaces(
    node: Node,
    http: Address | None,
    wire: Address | None,
    certificate: Certificate | None,
    most: int,
) -> list[Presenting]:
    tls = certificate.context if certificate else None
    found: list[HttpSurface] = []
    if http is not None:
        settings = HttpSettings(http.host, http.port, tls, descriptors=most)
        found.append(HttpSurface(node, settings))
    if wire is not None:
        other = WireSurface(NodeGate(node), WireSettings(wire.host, wire.port, tls, most))
        for surface in found:
            surface.wire = other
        return [*found, other]
    return [*found]


async def _linking(node: Node, peer: Address, shown: Identity | None, most: int) -> PeerSurface:
    """Return the peer surface, which does not listen yet.

    :raises NotOpened: the file PEER can't be used
    """
    try:
        await node.begin_peering(str(peer), shown)
    except START_FAULTS as fault:
        raise NotOpened(reason(node.settings.data_dir, fault)) from fault
    node.peering.on_show.append(partial(_show_peer, node))
    return PeerSurface(node.peering, PeerSettings(peer.host, peer.port, most))


async def _listen(surface: AnySurface) -> None:
    try:
        await surface.start()
    except OSError as error:  # taken in the moment since it was reserved
        raise NotOpened(f"can't listen: {addresses.reason(error)}") from error


def _show(node: Node, command: Serve) -> None:
    """Publish the settings of the command line in INFO FOR NODE."""
    node.facts.settings |= {
        "http": None if command.http is None else str(command.http),
        "serve": None if command.wire is None else str(command.wire),
        "cert": command.cert,
        "cert_key": command.cert_key,
        "peer": None if command.peers is None else str(command.peers.address),
        "peer_cert": None if command.peers is None else command.peers.cert,
        "peer_key": None if command.peers is None else command.peers.key,
        "etcd_ca": command.etcd.ca,
        "etcd_cert": command.etcd.cert,
        "etcd_key": command.etcd.key,
        "etcd_login": command.etcd.login,
        "etcd_login_in_clear": command.etcd.in_clear,
        "key_file": command.opening.keys.own,
        "backup_dir": command.backup_dir,
        "keep_log": command.keep_log,
        "keep_statements": command.keep_statements,
        "log_level": command.log_level,
        "slow": command.slow,
        "unseal_for": command.unseal_for,
        "accept_clock_jump": command.opening.accept_clock_jump,
        "rebuild_state": command.opening.rebuild_state,
    }


def _present(node: Node, surfaces: Sequence[AnySurface], certificate: Certificate | None) -> None:
    """Publish surfaces and certificates in use in INFO FOR NODE and /metrics."""
    expires = certificate.expires if certificate else None
    listening: list[Listening] = []
    for surface in surfaces:
        address = str(Address(*surface.address))
        linked = isinstance(surface, PeerSurface)
        ends = node.peering.shown.expires if linked else expires
        tls = linked or certificate is not None
        listening.append(Listening(_name(surface), address, tls, ends, surface.load))
    node.listens(tuple(listening))


def _show_peer(node: Node) -> None:
    """Update the published certificate expiry after the peer certificate has changed."""
    expires = node.peering.shown.expires
    node.listens(
        tuple(
            replace(one, certificate_expires=expires) if one.surface == "peer" else one
            for one in node.facts.listening
        )
    )


def _read_again(node: Node, command: Serve, access: EtcdCredentials, clock: Clock) -> None:
    if command.peers is not None:
        peers.renew(node.peering, command.peers, instant(clock.wall_us()))
    etcd.renew(access, command.etcd)


def _renewed(node: Node, surfaces: Sequence[AnySurface], certificate: Certificate) -> None:
    _present(node, surfaces, certificate)
    node.statements.did("renew certificate")


async def _until_over(
    node: Node, signals: StopSignals, beside: Coroutine[Any, Any, NoReturn]
) -> None:
    ends = signals.asked, node.failed, node.member.begins_anew
    waits = [asyncio.create_task(event.wait()) for event in ends]
    meanwhile = asyncio.create_task(beside)
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*waits, meanwhile):
            task.cancel()


def _first_owner(command: Serve) -> FirstOwner | None:
    owner = command.first_owner
    return None if owner is None else FirstOwner(owner.name, owner.password)


def _certificate_files(command: Serve) -> tuple[str, str] | None:
    if command.cert is None or command.cert_key is None:
        return None
    return command.cert, command.cert_key


def _certificate(command: Serve, clock: Clock) -> Certificate | None:
    files = _certificate_files(command)
    if files is None:
        return None
    try:
        return certificates.load(*files, instant(clock.wall_us()))
    except CertificateRefused as refused:
        raise NotOpened(str(refused)) from refused


def _check_backup_folder(folder: str | None, directory: str) -> None:
    if folder is None:
        return
    if not os.path.isdir(folder):
        raise NotOpened(f"--backup-dir: {folder} is not a directory")
    if is_within(folder, directory):
        # At each start the store removes stray files of its directory: none may be a backup.
        raise NotOpened(f"--backup-dir: {folder} is in the data directory, {directory}")
    if is_within(directory, folder):  # nor may a name of a backup lead into it
        raise NotOpened(f"--backup-dir: {folder} holds the data directory, {directory}")


def _reserve(command: Serve, held: ExitStack) -> list[Address | None]:
    """Bind the addresses of HTTP, the wire and peer links, and hold their ports until `held` ends.

    :raises NotOpened: an address can't be listened on, or overlaps another
    """
    peer = None if command.peers is None else command.peers.address
    asked = {"--http": command.http, "--serve": command.wire, "--peer": peer}
    reserved: dict[str, Reservation] = {}
    for flag, address in asked.items():
        if address is None:
            continue
        try:
            reservation = Reservation(address)
        except AddressRefused as refused:
            raise NotOpened(str(refused)) from refused
        held.callback(reservation.release)
        for other, its in reserved.items():
            if reservation.overlaps(its):
                raise NotOpened(
                    f"{other} contradicts {flag}: {its.address} and {reservation.address} overlap"
                )
        reserved[flag] = reservation
    return [reserved[flag].address if flag in reserved else None for flag in asked]


def _raise_descriptor_limit() -> int:
    limit = descriptors.raise_limit()
    if limit < descriptors.NEEDED:
        structlog.get_logger().warning(
            "low limit of open files",
            limit=limit,
            for_connections=descriptors.for_connections(limit),
            needed_at_the_ceilings=descriptors.NEEDED,
        )
    return limit


def _tell_ready(
    command: Serve, node: Node, surfaces: Sequence[AnySurface], console: Console
) -> None:
    shown = {_name(surface): str(Address(*surface.address)) for surface in surfaces}
    log: Any = structlog.get_logger()
    tls = command.cert is not None
    log.info(
        "ready", version=VERSION, pid=os.getpid(), directory=command.directory, tls=tls, **shown
    )
    if not tls:
        clear = [surface for surface in surfaces if not isinstance(surface, PeerSurface)]
        _warn_in_the_clear([address for surface in clear for address in surface.addresses])
    if console.terminal and "http" in shown:
        scheme = "https" if tls else "http"
        console.print_line(f"in a browser: {scheme}://{shown['http']}/")
    if node.generated_owner is not None:
        pass  # told before it was the store's
    elif node.first_owner is not None:
        console.print_line(f"first owner: {node.first_owner}, with the password of STORE_PASSWORD")
    elif command.first_owner is not None:
        log.info("STORE_USER and STORE_PASSWORD are ignored: the store already has users")


def _warn_in_the_clear(listening: Sequence[tuple[str, int]]) -> None:
    """Warn if passwords, tokens and data reach this machine without TLS."""
    addresses = [Address(*address) for address in listening]
    reached = [str(address) for address in addresses if not address.is_loopback]
    if reached:
        structlog.get_logger().warning(
            "other machines can connect without TLS: passwords and data travel in the"
            " clear; give --cert and --cert-key, or listen on loopback behind a TLS proxy",
            addresses=reached,
        )


def _name(surface: AnySurface) -> Surface:
    if isinstance(surface, PeerSurface):
        return "peer"
    return "http" if isinstance(surface, HttpSurface) else "wire"
