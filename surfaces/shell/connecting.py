"""Client of the node that the command line names."""

from __future__ import annotations

import getpass
import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from storeclient import AsyncClient
from surfaces.shell.arguments import NodeAccess
from surfaces.shell.outcomes import USAGE, CommandEnded

CONNECT_SECONDS: Final = 10.0
"""Time limit of a connection attempt, after an outage too, seconds: about as long as a node takes
to start."""
TERMINAL: Final = "/dev/tty"


def with_password(access: NodeAccess) -> NodeAccess:
    """Return the same access with a password, prompting for it if a user has none.

    :raises Ended: there is no terminal
    """
    if access.user is None or access.password is not None:
        return access
    return replace(access, password=ask_password(access.user))


def client_of(
    access: NodeAccess,
    namespace: str | None = None,
    database: str | None = None,
    leader: Sequence[str] = (),
) -> AsyncClient:
    """Return a client that connects at its first use.

    :param leader: addresses tried before that of the command line. With them the client follows the
        leader (the writable node), also when it changes.
    :raises Ended: an address is invalid, there is no password and no terminal, a token is to be
        sent to the leader, or the file of certificates can't be used
    """
    access = with_password(access)
    try:
        return AsyncClient(
            [*leader, *access.address.split(",")],
            user=access.user,
            password=access.password,
            token=access.token,
            ns=namespace,
            db=database,
            tls=_trusted(access),
            connect_timeout=CONNECT_SECONDS,
        )
    except ValueError as error:
        raise CommandEnded(str(error), USAGE) from error


def ask_password(user: str, ask: Callable[[str], str] = getpass.getpass) -> str:
    """Prompt for the password at the terminal, even if standard input is a script.

    :raises Ended: there is no terminal
    """
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise CommandEnded(
            f"no password for {user} and no terminal to ask for it: set STORE_PASSWORD or"
            " STORE_TOKEN",
            USAGE,
        ) from None
    try:
        return ask(f"password of {user}: ")
    except EOFError:
        raise CommandEnded(f"no password for {user}", USAGE) from None


def _trusted(access: NodeAccess) -> ssl.SSLContext | bool:
    if access.ca is None:
        return access.tls
    try:
        return ssl.create_default_context(cafile=access.ca)
    except OSError as error:  # includes ssl.SSLError
        reason = "no certificates (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
        raise CommandEnded(f"--ca: {access.ca}: {reason}", USAGE) from error
