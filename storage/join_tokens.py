"""Join tokens: what a new node brings to become the one that a row waits for.

A token is the name of its row and 256 random bits. The store keeps a digest of these, so neither
its log nor its state nor a backup lets anybody in. The digest is keyed with the store's id: a store
that is restored has another, and what was given out by the one that it came of opens nothing in it.

It can be used once, and until it expires. A row has one at a time.

Behind both it says where it is to be brought, if the node that made it listens for others: to which
addresses, and to whom, by the certificate that is shown there. Whoever brings it says it to nobody
else.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import UUID

from protocol import binary, limits
from protocol.addresses import check_peer
from protocol.binary import unpack_strictly
from protocol.doors import Rng
from protocol.errors import BadRequest, ExpireRefused, Refusal, SignInRefused, TooLarge
from protocol.fingerprints import check_fingerprint
from protocol.text import NAME
from storage import replicas
from storage.replicas import Replica, TokenKept
from storage.transactions import Transaction

SECRET_BYTES: Final = 32
_DIGEST_BYTES: Final = 32
_PURPOSE: Final = b"join token"
_NAME_ENDS: Final = "."
"""Between name, secret and where it is to be brought; none of them holds one."""
_LONGEST: Final = limits.NAME_CHARACTERS + len(_NAME_ENDS) + 4 * SECRET_BYTES


class Where(NamedTuple):
    """Where a token is to be brought."""

    addresses: Sequence[str]
    """Any of them; one at least."""
    fingerprint: str
    """Of the certificate that is shown there."""


class Invitation(NamedTuple):
    """What a token says."""

    secret: str
    """Name of the row and random bits: what opens it."""
    where: Where


def create(
    tx: Transaction,
    store: str,
    replica: Replica,
    lasting: timedelta | None,
    rng: Rng,
    where: Where | None = None,
) -> tuple[str, datetime]:
    """A token for a row that waits, in place of one it had, and until when it can be used.

    :param store: the store's id
    :param where: None: the node listens for no others, and the token tells nobody where to go
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
    return token if where is None else f"{token}{_NAME_ENDS}{_told(where)}", expires


def read(token: str) -> Invitation:
    """What a token says.

    :raises BadRequest: it is none, or does not say where it opens something
    """
    if not token.strip():
        raise BadRequest("there is no join token where one was to be: it is empty")
    name, _, rest = token.strip().partition(_NAME_ENDS)
    secret, _, told = rest.partition(_NAME_ENDS)
    if len(token) > limits.JOIN_TOKEN_CHARACTERS or NAME.match(name) is None or not secret:
        raise BadRequest("this is no join token")
    if not told:
        raise BadRequest(
            "the join token does not say where it opens something: the node that made it was"
            " started without --peer"
        )
    try:
        where = _where(unpack_strictly(urlsafe_b64decode(told + "=" * (-len(told) % 4))))
    except (Refusal, ValueError, TypeError) as error:
        raise BadRequest("this is no join token, or not all of one") from error
    return Invitation(f"{name}{_NAME_ENDS}{secret}", where)


def _where(told: Any) -> Where:
    """:raises ValueError, TypeError, BadRequest: it says something else"""
    fingerprint, addresses = told
    if not isinstance(fingerprint, bytes) or not isinstance(addresses, list) or not addresses:
        raise ValueError("no fingerprint, or no address")
    return Where([check_peer(one) for one in addresses], check_fingerprint(fingerprint.hex()))


def _told(where: Where) -> str:
    packed = binary.pack([bytes.fromhex(where.fingerprint), list(where.addresses)])
    return urlsafe_b64encode(packed).rstrip(b"=").decode()


def usable_until(tx: Transaction, store: str, replica: Replica) -> datetime | None:
    """Until when the token of a row can be used; None: it has none that can."""
    token = replica.token
    if token is None or not replica.waits or token.store != store or token.expires <= tx.now:
        return None
    return token.expires


def any_usable(tx: Transaction, store: str) -> bool:
    """Whether there is a token that opens something."""
    return any(usable_until(tx, store, row) is not None for row in replicas.every(tx))


def redeem(
    tx: Transaction,
    store: str,
    token: str,
    node: str,
    certificate: str,
    expires: datetime,
) -> Replica:
    """The row that a token opens, with the node that brought it: from now on it waits no more.

    :param token: without where it was to be brought
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
