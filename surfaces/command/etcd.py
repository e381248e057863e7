"""etcd credentials of this node: files and two variables, read and validated."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import structlog

from actors.agreement import EtcdCredentials
from surfaces.command.arguments import EtcdOptions
from surfaces.command.certificates import CertificateRefused, check_file, check_private
from surfaces.command.failures import NotOpened

LOGIN_BYTES: Final = 4096


def access(told: EtcdOptions) -> EtcdCredentials:
    """Return the access to etcd.

    :raises NotOpened: a file can't be used: the message names it, without its contents
    """
    try:
        return _read(told)
    except CertificateRefused as refused:
        raise NotOpened(str(refused)) from refused


def renew(used: EtcdCredentials, told: EtcdOptions) -> None:
    """Read the files again. If they can't be used, nothing changes, and the reason is logged."""
    if told == EtcdOptions():
        return
    log = structlog.get_logger()
    try:
        found = _read(told)
    except CertificateRefused as refused:
        log.error("etcd credentials were not reloaded", reason=str(refused))
        return
    used.credential, used.tls = found.credential, found.tls
    log.info("etcd credentials reloaded")


def _read(told: EtcdOptions) -> EtcdCredentials:
    credential = told.credential
    if told.login is not None:
        credential = _login(told.login)
    tls = None if told.ca is None and told.cert is None else _context(told)
    return EtcdCredentials(credential, tls, told.in_clear)


def _login(path: str) -> tuple[str, str]:
    check_file("--etcd-login", path)
    check_private("--etcd-login", path)
    try:
        with Path(path).open("rb") as file:
            text = file.read(LOGIN_BYTES + 1).decode()
    except OSError as error:
        raise CertificateRefused(f"--etcd-login: {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        text = ""
    name, colon, password = text.rstrip("\r\n").partition(":")
    if not name or not colon or not password or len(text) > LOGIN_BYTES or "\n" in password:
        raise CertificateRefused(f"--etcd-login: {path}: expected one line, user:password")
    return name, password


def _context(told: EtcdOptions) -> ssl.SSLContext:
    if told.ca is not None:
        check_file("--etcd-ca", told.ca)
    try:
        context = ssl.create_default_context(cafile=told.ca)
    except OSError as error:  # includes ssl.SSLError
        raise CertificateRefused(
            f"--etcd-ca: {told.ca}: no PEM certificates in this file"
        ) from error
    if told.cert is None or told.key is None:
        return context
    check_file("--etcd-cert", told.cert)
    check_file("--etcd-key", told.key)
    check_private("--etcd-key", told.key)
    try:
        # An empty passphrase: a sealed key is refused instead of asking at the terminal.
        context.load_cert_chain(told.cert, told.key, password=lambda: b"")
    except OSError as error:
        raise CertificateRefused(
            f"--etcd-cert: {told.cert}: no certificate that matches the unencrypted key {told.key}"
        ) from error
    return context
