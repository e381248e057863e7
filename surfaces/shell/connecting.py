"""A client of the node that the command line names."""

from __future__ import annotations

import getpass
import os
import ssl
from collections.abc import Callable
from typing import Final

from storeclient import AsyncClient
from surfaces.shell.arguments import Access
from surfaces.shell.outcomes import USAGE, Ended

CONNECT_SECONDS: Final = 10.0
"""In which a connection must stand, after an outage too: about what a node takes to start."""
TERMINAL: Final = "/dev/tty"


def client_of(
    access: Access, namespace: str | None = None, database: str | None = None
) -> AsyncClient:
    """A client that connects when it is first used.

    :raises Ended: the address is none, there is no password and nobody to ask, or the file of
        certificates can't be used
    """
    password = access.password
    if access.user is not None and password is None:
        password = ask_password(access.user)
    try:
        return AsyncClient(
            access.address,
            user=access.user,
            password=password,
            token=access.token,
            ns=namespace,
            db=database,
            tls=_trusted(access),
            connect_timeout=CONNECT_SECONDS,
        )
    except ValueError as error:
        raise Ended(str(error), USAGE) from error


def ask_password(user: str, ask: Callable[[str], str] = getpass.getpass) -> str:
    """The password, asked for at the terminal even where standard input is a script.

    :raises Ended: there is no terminal
    """
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise Ended(
            f"no password for {user}: set STORE_PASSWORD, or STORE_TOKEN; there is no terminal to"
            " ask at",
            USAGE,
        ) from None
    try:
        return ask(f"password of {user}: ")
    except EOFError:
        raise Ended(f"no password for {user}", USAGE) from None


def _trusted(access: Access) -> ssl.SSLContext | bool:
    if access.ca is None:
        return access.tls
    try:
        return ssl.create_default_context(cafile=access.ca)
    except OSError as error:  # of which an error of TLS is one
        reason = "no certificates (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
        raise Ended(f"--ca: {access.ca}: {reason}", USAGE) from error
