"""Join tokens: single-use credentials with which a new node takes the place of a declared replica.

A token is the name of its row (`replicas.py`) and 256 random bits. The store keeps only a keyed
digest of these, so its log, state and backups admit no node. The key of the digest is the store's
id. A restored store has another id, so tokens of the original are useless there.

A token can be used once, until it expires. A row has one at a time.

If the node that made it accepts peers, the token also contains where to redeem it: the addresses,
and the fingerprint of the certificate presented there. The joining node sends this part to no other
node.
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
from protocol.environment import Rng
from protocol.errors import BadRequest, ExpireRefused, Refusal, SignInRefused, TooLarge
from protocol.fingerprints import check_fingerprint
from protocol.text import NAME
from storage.catalog import replicas
from storage.catalog.replicas import Replica, StoredToken
from storage.txn.transaction import Transaction

SECRET_BYTES: Final = 32
_DIGEST_BYTES: Final = 32
_PURPOSE: Final = b"join token"
_NAME_ENDS: Final = "."
"""Separator of name, secret and location; none of them contains it."""
_LONGEST: Final = limits.NAME_CHARACTERS + len(_NAME_ENDS) + 4 * SECRET_BYTES


class TokenLocation(NamedTuple):
    """Location at which to redeem a token."""

    addresses: Sequence[str]
    """Equivalent addresses, at least one."""
    fingerprint: str
    """Fingerprint of the certificate presented there."""


class JoinToken(NamedTuple):
    """A parsed token."""

    secret: str
    """Row name and random bits: the credential itself."""
    where: TokenLocation


def create(
    tx: Transaction,
    store: str,
    replica: Replica,
    lasting: timedelta | None,
    rng: Rng,
    where: TokenLocation | None = None,
) -> tuple[str, datetime]:
    """Create a token for a waiting row, replacing any other. Return it and its expiry time.

    :param store: id of the store
    :param lasting: lifetime; None: `limits.JOIN_TOKEN_SECONDS`
    :param where: None: the node accepts no peers, so the token contains no location
    :raises BadRequest: the row does not wait for a node
    :raises ExpireRefused, TooLarge: the lifetime is not positive, or too long
    """
    most = timedelta(seconds=limits.JOIN_TOKEN_SECONDS_MAX)
    lasting = timedelta(seconds=limits.JOIN_TOKEN_SECONDS) if lasting is None else lasting
    if lasting <= timedelta(0):
        raise ExpireRefused("the EXPIRES of a join token must be longer than 0")
    if lasting > most:
        raise TooLarge(
            f"a join token lasts at most {most // timedelta(hours=1)} hours",
            limit=limits.JOIN_TOKEN_SECONDS_MAX,
        )
    # base64url has no `.`, which separates the parts of a token.
    secret = urlsafe_b64encode(rng.bytes(SECRET_BYTES)).rstrip(b"=").decode()
    token = f"{replica.name}{_NAME_ENDS}{secret}"
    # Log time never falls: a wall clock that is set back makes no token valid again.
    expires = tx.now + lasting
    replicas.give_token(tx, replica, StoredToken(_digest(store, token), expires, store))
    return token if where is None else f"{token}{_NAME_ENDS}{_encoded_location(where)}", expires


def read(token: str) -> JoinToken:
    """Parse a token.

    :raises BadRequest: it is no token, or contains no location
    """
    if not token.strip():
        raise BadRequest("the join token is empty")
    name, _, rest = token.strip().partition(_NAME_ENDS)
    secret, _, told = rest.partition(_NAME_ENDS)
    if len(token) > limits.JOIN_TOKEN_CHARACTERS or NAME.match(name) is None or not secret:
        raise BadRequest("this is not a join token")
    if not told:
        raise BadRequest(
            "the join token has no address to join: the node that made it was started without"
            " --peer"
        )
    try:
        where = _where(unpack_strictly(urlsafe_b64decode(told + "=" * (-len(told) % 4))))
    except (Refusal, ValueError, TypeError) as error:
        raise BadRequest("this is not a join token, or it is incomplete") from error
    return JoinToken(f"{name}{_NAME_ENDS}{secret}", where)


def _where(told: Any) -> TokenLocation:
    """Decode a location. :raises ValueError, TypeError, BadRequest: it is invalid"""
    fingerprint, addresses = told
    if not isinstance(fingerprint, bytes) or not isinstance(addresses, list) or not addresses:
        raise ValueError("no fingerprint, or no address")
    return TokenLocation(
        [check_peer(one) for one in addresses], check_fingerprint(fingerprint.hex())
    )


def _encoded_location(where: TokenLocation) -> str:
    packed = binary.pack([bytes.fromhex(where.fingerprint), list(where.addresses)])
    return urlsafe_b64encode(packed).rstrip(b"=").decode()


def usable_until(tx: Transaction, store: str, replica: Replica) -> datetime | None:
    """Return the expiry time of a row's token; None: it has no usable one."""
    token = replica.token
    # A restore brings rows along, but its store has another id, so their tokens are void.
    if token is None or not replica.waits or token.store != store or token.expires <= tx.now:
        return None
    return token.expires


def any_usable(tx: Transaction, store: str) -> bool:
    """Return True if any row has a usable token."""
    return any(usable_until(tx, store, row) is not None for row in replicas.every(tx))


def redeem(
    tx: Transaction,
    store: str,
    token: str,
    node: str,
    certificate: str,
    expires: datetime,
) -> Replica:
    """Redeem a token: bind its row to the node that presents it. The row waits no more.

    :param token: without its location
    :param node: id of the joining node
    :param certificate: fingerprint of its certificate
    :param expires: expiry time of the certificate
    :raises SignInRefused: the token is not valid. The reason, even an unknown row, is not revealed
    :raises AlreadyExists, BadRequest: as `replicas.settle`
    """
    found = _opened(tx, store, token)
    if found is None:
        raise SignInRefused("the join token is unknown, used or expired: create a new one")
    # The row is in the read set: of two nodes that bring the same token only one commits.
    return replicas.assign_node(tx, found, node, certificate, expires)


def _opened(tx: Transaction, store: str, token: str) -> Replica | None:
    name, _, _ = token.partition(_NAME_ENDS)
    # Bounded before any work: the sender is not known yet.
    if len(token) > _LONGEST or not token.isascii() or NAME.match(name) is None:
        return None
    found = replicas.find(tx, name)
    if found is None or found.token is None or usable_until(tx, store, found) is None:
        return None
    # In constant time: the delay of an answer must not show how much of a digest matches.
    return found if hmac.compare_digest(found.token.digest, _digest(store, token)) else None


def _digest(store: str, token: str) -> bytes:
    # Not stretched as a password is: 256 random bits cannot be guessed.
    return blake2b(
        token.encode(), key=UUID(store).bytes, digest_size=_DIGEST_BYTES, person=_PURPOSE
    ).digest()
