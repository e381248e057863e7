"""Join tokens: what a new node brings to become the one that a row waits for.

A token is the name of its row and 256 random bits. The store keeps a digest of it, so neither its
log nor its state nor a backup lets anybody in. The digest is keyed with the store's id: a store
that is restored has another, and what was given out by the one that it came of opens nothing in it.

It can be used once, and until it expires. A row has one at a time.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final
from uuid import UUID

from protocol import limits
from protocol.doors import Rng
from protocol.errors import ExpireRefused, SignInRefused, TooLarge
from protocol.text import NAME
from storage import replicas
from storage.replicas import Replica, TokenKept
from storage.transactions import Transaction

SECRET_BYTES: Final = 32
_DIGEST_BYTES: Final = 32
_PURPOSE: Final = b"join token"
_NAME_ENDS: Final = "."
"""Between name and secret; neither holds one."""
_LONGEST: Final = limits.NAME_CHARACTERS + len(_NAME_ENDS) + 4 * SECRET_BYTES


def create(
    tx: Transaction, store: str, replica: Replica, lasting: timedelta | None, rng: Rng
) -> tuple[str, datetime]:
    """A token for a row that waits, in place of one it had, and until when it can be used.

    :param store: the store's id
    :param lasting: None: `limits.JOIN_TOKEN_SECONDS`
    :raises BadRequest: the row does not wait
    :raises ExpireRefused, TooLarge: it would last no time, or too long
    """
    most = timedelta(seconds=limits.JOIN_TOKEN_SECONDS_MAX)
    lasting = timedelta(seconds=limits.JOIN_TOKEN_SECONDS) if lasting is None else lasting
    if lasting <= timedelta(0):
        raise ExpireRefused("a join token that expires at once opens nothing")
    if lasting > most:
        raise TooLarge(
            f"a join token lasts at most {most // timedelta(hours=1)} hours",
            limit=limits.JOIN_TOKEN_SECONDS_MAX,
        )
    secret = urlsafe_b64encode(rng.bytes(SECRET_BYTES)).rstrip(b"=").decode()
    token = f"{replica.name}{_NAME_ENDS}{secret}"
    expires = tx.now + lasting
    replicas.give_token(tx, replica, TokenKept(_digest(store, token), expires, store))
    return token, expires


def usable_until(tx: Transaction, store: str, replica: Replica) -> datetime | None:
    """Until when the token of a row can be used; None: it has none that can."""
    token = replica.token
    if token is None or not replica.waits or token.store != store or token.expires <= tx.now:
        return None
    return token.expires


def redeem(
    tx: Transaction, store: str, token: str, node: str, certificate: str, expires: datetime
) -> Replica:
    """The row that a token opens, with the node that brought it: from now on it waits no more.

    :param expires: of the certificate
    :raises SignInRefused: it opens nothing. Why not, a name that no row has among it, is not told
    :raises AlreadyExists, BadRequest: as `replicas.settle`
    """
    found = _opened(tx, store, token)
    if found is None:
        raise SignInRefused("the join token opens nothing: it may have been used, or have expired")
    return replicas.settle(tx, found, node, certificate, expires)


def _opened(tx: Transaction, store: str, token: str) -> Replica | None:
    name, _, _ = token.partition(_NAME_ENDS)
    if len(token) > _LONGEST or not token.isascii() or NAME.match(name) is None:
        return None
    found = replicas.find(tx, name)
    if found is None or found.token is None or usable_until(tx, store, found) is None:
        return None
    return found if hmac.compare_digest(found.token.digest, _digest(store, token)) else None


def _digest(store: str, token: str) -> bytes:
    return blake2b(
        token.encode(), key=UUID(store).bytes, digest_size=_DIGEST_BYTES, person=_PURPOSE
    ).digest()
