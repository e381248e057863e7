"""Generated password of a store's first owner: shown once, or written to a file.

Output off a terminal is kept in journals that many users may read, so there it goes to a file of
its own. Both happen before the store has the owner: no crash leaves an owner whose password is
lost.
"""

from __future__ import annotations

import os

import structlog

from actors.first_password import FIRST_PASSWORD, keep_password
from actors.settings import FirstOwner
from protocol.environment import Fs
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened


def deliver_password(
    fs: Fs, directory: str, console: Console, sealed: bool, owner: FirstOwner
) -> None:
    """Deliver the password before the store has the owner.

    :raises NotOpened: the file can't be written, or the store is encrypted, so that nothing in its
        directory may be plaintext; the store has no users then
    """
    if console.terminal:
        console.print_line(
            f"first owner: {owner.name}, password: {owner.password} (shown only once)"
        )
        return
    if sealed:
        raise NotOpened(
            f"{directory}: a sealed store writes no password to a file: set STORE_USER and"
            " STORE_PASSWORD for its first owner"
        )
    try:
        path = keep_password(fs, directory, owner.password)
    except OSError as error:
        path = os.path.join(directory, FIRST_PASSWORD)
        raise NotOpened(f"{path}: the first owner's password: {error.strerror}") from error
    structlog.get_logger().warning(
        "first owner: its password was generated and is in a file; change it, and remove the file",
        user=owner.name,
        file=os.path.abspath(path),
    )
