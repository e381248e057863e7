"""Cluster membership as declared: one row for each replica. Runtime status is not in it.

- A row identifies its node by the id of that node's directory, or by its certificate, never by its
  address. A wiped machine loses its identity. A row with neither *waits* for the node that presents
  its join token.
- A certificate is renewed by a second one. Both are trusted until the node has presented the
  second, or the first expires.
- No two rows have the same peer address, id or certificate. Every change reads all rows, so of two
  concurrent changes that collide one fails validation.
- A revocation of a certificate is permanent. It outlives the row that named it, so that no
  later row can be declared with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from protocol import binary, limits
from protocol.addresses import check_address, check_peer
from protocol.errors import AlreadyExists, BadRequest, TooLarge
from protocol.fingerprints import check_fingerprint
from protocol.node_roles import check_node_roles
from protocol.text import check_name
from storage.catalog.places import IfExists, check_comment
from storage.formats import keys
from storage.txn.transaction import Transaction

_PREFIX: Final = keys.tagged(keys.REPLICA)[0]
_ID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Pattern of a node's id, a UUID."""


@dataclass(frozen=True, slots=True)
class StoredToken:
    """Stored part of a join token."""

    digest: bytes = field(repr=False)
    expires: datetime
    """Log time until which it can be used."""
    store: str
    """Id of the store that made it and that it admits to."""


@dataclass(frozen=True, slots=True)
class NextCertificate:
    """Certificate that a node will present next."""

    certificate: str
    """Fingerprint of the certificate."""
    expires: datetime


@dataclass(frozen=True, slots=True)
class Replica:
    """Declared replica."""

    name: str
    peer: str
    """Address for other nodes, normalized."""
    endpoints: tuple[str, ...] = ()
    """Addresses for clients."""
    node: str | None = None
    """Id of the node, a UUID."""
    certificate: str | None = None
    """Fingerprint of the certificate that the node presents to others."""
    certificate_expires: datetime | None = None
    """Its expiry; None: the node has not presented it yet."""
    renewal: NextCertificate | None = None
    """Second certificate, trusted beside the first."""
    roles: tuple[str, ...] | None = None
    """Declared roles. None: not declared. Empty: declared to have none."""
    comment: str | None = None
    created: datetime | None = None
    """Log time; None: the row is not stored yet."""
    token: StoredToken | None = None
    """Join token that admits a node to a waiting row."""

    @property
    def waits(self) -> bool:
        """True if the row waits for its node."""
        return self.node is None and self.certificate is None

    @property
    def certificates(self) -> dict[str, datetime | None]:
        """Fingerprints that the node may present unless revoked, with their expiry if known."""
        found: dict[str, datetime | None] = {}
        if self.certificate is not None:
            found[self.certificate] = self.certificate_expires
        if self.renewal is not None:
            found[self.renewal.certificate] = self.renewal.expires
        return found


def find(tx: Transaction, name: str) -> Replica | None:
    """Return the row of that name, or None."""
    value = tx.get(_key(name))
    return None if value is None else _read(name, value)


def every(tx: Transaction) -> list[Replica]:
    """Return all rows, by name."""
    # The range joins the read set: of two commits that add colliding rows, one conflicts.
    return [
        _read(key[len(_PREFIX) :].decode(), value)
        for pairs in tx.scan(*keys.tagged(keys.REPLICA))
        for key, value in pairs
    ]


def define(tx: Transaction, made: Replica, taken: IfExists = IfExists.REFUSE) -> None:
    """Declare a row, as `places.define_namespace` does.

    A redeclared row is replaced completely: without a node it waits again, and its earlier token is
    void. Only the certificates stay trusted if the same node is named without a certificate.

    :raises AlreadyExists: the name is taken; or another row has the address, id or certificate
    :raises BadRequest: an invalid address, id or fingerprint; the certificate was revoked
    :raises NameRefused, Unknown, TooLarge: of the name, of a role; a limit is exceeded
    """
    check_name(made.name, "replica")
    check_comment(made.comment)
    # Before any comparison: one address may be written in several ways.
    made = _in_one_form(made)
    others = every(tx)
    present = next((one for one in others if one.name == made.name), None)
    if present is not None and taken is IfExists.SKIP:
        return
    if present is not None and taken is not IfExists.OVERWRITE:
        raise AlreadyExists(f"replica {made.name} exists", kind="replica", name=made.name)
    if present is None and len(others) >= limits.REPLICAS:
        raise TooLarge(f"a cluster has at most {limits.REPLICAS} rows", limit=limits.REPLICAS)
    stays = present is not None and present.node is not None and present.node == made.node
    # The same node could not connect any more without its certificates. Revoked ones go, or
    # `_put` would refuse the row.
    if present is not None and stays and made.certificate is None:
        made = _trusting(made, _without_revoked(tx, present))
    _put(tx, replace(made, created=tx.now if present is None else present.created), others)


def alter(
    tx: Transaction,
    replica: Replica,
    *,
    peer: str | None = None,
    endpoints: tuple[str, ...] | None = None,
    roles: tuple[str, ...] | None = None,
) -> None:
    """Change the given fields.

    :raises: as `define`
    """
    changed = replace(
        replica,
        peer=replica.peer if peer is None else peer,
        endpoints=replica.endpoints if endpoints is None else endpoints,
        roles=replica.roles if roles is None else roles,
    )
    _put(tx, _in_one_form(changed), every(tx))


def drop(tx: Transaction, replica: Replica) -> None:
    """Remove a row, with its token."""
    tx.delete(_key(replica.name))


def give_token(tx: Transaction, replica: Replica, token: StoredToken) -> None:
    """Store a join token for a waiting row, in place of any earlier one.

    :raises BadRequest: the row does not wait
    """
    if not replica.waits:
        raise BadRequest(
            f"replica {replica.name} already has a node and needs no join token. If the directory"
            " of that node is lost, DROP REPLICA and DEFINE REPLICA first"
        )
    # Not by `_put`: no value changes that another row could have.
    tx.put(_key(replica.name), _packed(replace(replica, token=token)))


def assign_node(
    tx: Transaction,
    replica: Replica,
    node: str,
    certificate: str,
    expires: datetime,
) -> Replica:
    """Assign a node to a waiting row, which uses up its token.

    :param expires: expiry of the certificate that the node presented
    :raises AlreadyExists: another row has the node or the certificate
    :raises BadRequest: the certificate was revoked; or an invalid id or fingerprint
    """
    assert replica.waits, "whoever settles one has found it waiting"
    settled = replace(
        replica,
        node=node,
        certificate=certificate,
        certificate_expires=expires,
        token=None,
    )
    return _put(tx, _in_one_form(settled), every(tx))


def renew(tx: Transaction, replica: Replica, certificate: str, expires: datetime) -> Replica:
    """Trust a second certificate of a row's node, in place of any earlier second one.

    Without a trusted first certificate it becomes the first.

    :raises AlreadyExists: another row has it
    :raises BadRequest: it was revoked, or is no fingerprint
    """
    certificate, replica = check_fingerprint(certificate), _without_revoked(tx, replica)
    if replica.certificate is None or replica.certificate == certificate:
        renewed = replace(replica, certificate=certificate, certificate_expires=expires)
    else:
        renewed = replace(replica, renewal=NextCertificate(certificate, expires))
    # A repeated request finds the row as it should be, and writes nothing.
    return renewed if renewed == find(tx, replica.name) else _put(tx, renewed, every(tx))


def shown(
    tx: Transaction, replica: Replica, node: str, certificate: str, expires: datetime
) -> Replica:
    """Record that a row's node has presented a certificate: its id, and the certificate's expiry.

    Once it has presented the second certificate, the first is no longer trusted.

    :raises AlreadyExists: another row has the node
    :raises BadRequest: the id is invalid
    """
    replica = _without_revoked(tx, replica)
    assert certificate in replica.certificates, "whoever notes one has found it trusted"
    second = replica.renewal is not None and replica.renewal.certificate == certificate
    seen = replace(
        replica,
        node=node if replica.node is None else replica.node,
        certificate=certificate,
        certificate_expires=expires,
        renewal=None if second else replica.renewal,
    )
    # Called for each new link: an unchanged row must not make a commit.
    return seen if seen == find(tx, replica.name) else _put(tx, _in_one_form(seen), every(tx))


def revoke(tx: Transaction, certificate: str, reason: str | None) -> None:
    """Revoke a certificate, and with it the node that presents it.

    The row's other certificate is removed too, since its key is stored beside that of the first. It
    may be declared again. An earlier revocation stays as it was.

    :raises BadRequest, TooLarge: as `revocations.revoke`
    """
    certificate = check_fingerprint(certificate)
    add_revocation(tx, certificate, reason)
    for row in every(tx):
        if certificate in row.certificates:
            alone = replace(
                row,
                certificate=certificate,
                certificate_expires=row.certificates[certificate],
                renewal=None,
            )
            if alone != row:
                # Not by `_put`, which refuses revoked certificates. The row keeps this one: with
                # neither node nor certificate it would wait for a new node.
                tx.put(_key(row.name), _packed(alone))


def trusted(tx: Transaction, replica: Replica) -> list[str]:
    """Return the certificates that a row's node may present."""
    return [one for one in replica.certificates if find_revocation(tx, one) is None]


def is_shut_out(tx: Transaction, replica: Replica) -> bool:
    """True if all certificates of a row's node are revoked; False if it has none yet."""
    return bool(replica.certificates) and not trusted(tx, replica)


def _without_revoked(tx: Transaction, replica: Replica) -> Replica:
    """Return the row without its revoked certificates."""
    left = trusted(tx, replica)
    if replica.certificate is not None and replica.certificate not in left:
        replica = replace(replica, certificate=None, certificate_expires=None)
    if replica.renewal is not None and replica.renewal.certificate not in left:
        replica = replace(replica, renewal=None)
    return replica


def _trusting(replica: Replica, other: Replica) -> Replica:
    """Return the row with the certificates of another."""
    return replace(
        replica,
        certificate=other.certificate,
        certificate_expires=other.certificate_expires,
        renewal=other.renewal,
    )


def _in_one_form(replica: Replica) -> Replica:
    """Validate and normalize a row, so that equal values compare equal.

    :raises BadRequest, Unknown, TooLarge:
    """
    if len(replica.endpoints) > limits.REPLICA_ENDPOINTS:
        raise TooLarge(
            f"a replica has at most {limits.REPLICA_ENDPOINTS} endpoints",
            limit=limits.REPLICA_ENDPOINTS,
        )
    certificate = replica.certificate
    return replace(
        replica,
        peer=check_peer(replica.peer),
        endpoints=tuple(dict.fromkeys(map(check_address, replica.endpoints))),
        node=None if replica.node is None else _check_id(replica.node),
        certificate=None if certificate is None else check_fingerprint(certificate),
        roles=None if replica.roles is None else check_node_roles(replica.roles),
    )


def is_id(text: str) -> bool:
    """True if the text has the form of a node's id."""
    return _ID.fullmatch(text) is not None


def _check_id(text: str) -> str:
    if not is_id(text):
        raise BadRequest(
            f"{text[:100]!r} is not the id of a node: INFO FOR NODE on that node shows it"
        )
    return text.lower()


def _put(tx: Transaction, replica: Replica, others: list[Replica]) -> Replica:
    """Store a row after checking it against the others.

    :param others: all rows, with or without this one
    :raises: as `define`
    """
    for other in others:
        if other.name != replica.name:
            for what, mine, theirs in (
                ("address for peers", replica.peer, other.peer),
                ("node", replica.node, other.node),
                # Against both certificates of the other row: its renewal is trusted as well.
                *(("certificate", one, _same(one, other)) for one in replica.certificates),
            ):
                if mine is not None and mine == theirs:
                    raise AlreadyExists(
                        f"replica {other.name} has the {what} {mine}",
                        kind="replica",
                        name=other.name,
                    )
    # A revocation outlives its row, so a later row cannot bring the certificate back.
    for certificate in replica.certificates:
        if find_revocation(tx, certificate) is not None:
            raise BadRequest(
                f"the certificate {certificate} was revoked: a replica cannot use it again"
            )
    tx.put(_key(replica.name), _packed(replica))
    return replica


def _same(certificate: str, other: Replica) -> str | None:
    return certificate if certificate in other.certificates else None


def _key(name: str) -> bytes:
    return _PREFIX + name.encode()


def _packed(replica: Replica) -> bytes:
    token, renewal = replica.token, replica.renewal
    return binary.pack(
        {
            "peer": replica.peer,
            "endpoints": list(replica.endpoints),
            "node": replica.node,
            "certificate": replica.certificate,
            "certificate_expires": replica.certificate_expires,
            "renewal": None if renewal is None else [renewal.certificate, renewal.expires],
            "roles": None if replica.roles is None else list(replica.roles),
            "comment": replica.comment,
            "created": replica.created,
            "token": None if token is None else [token.digest, token.expires, token.store],
        }
    )


def _read(name: str, value: bytes) -> Replica:
    fields: dict[str, Any] = binary.unpack_object(value)
    endpoints, roles, token = fields.pop("endpoints"), fields.pop("roles"), fields.pop("token")
    renewal = fields.pop("renewal", None)  # rows of earlier versions have none
    return Replica(
        name,
        endpoints=tuple(endpoints),
        roles=None if roles is None else tuple(roles),
        token=None if token is None else StoredToken(*token),
        renewal=None if renewal is None else NextCertificate(*renewal),
        **fields,
    )


@dataclass(frozen=True, slots=True)
class Revocation:
    """Revoked certificate."""

    certificate: str
    """Fingerprint of the certificate."""
    at: datetime
    """Log time of the revocation."""
    reason: str | None


def find_revocation(tx: Transaction, certificate: str) -> Revocation | None:
    """Return the revocation of a certificate, or None.

    :raises BadRequest: it is no fingerprint
    """
    key = _revocation_key(check_fingerprint(certificate))
    value = tx.get(key)
    return None if value is None else _read_revocation(key, value)


def each_revocation(tx: Transaction) -> Iterator[list[Revocation]]:
    """Yield all revocations, in batches."""
    for pairs in tx.scan(*keys.tagged(keys.REVOKED)):
        yield [_read_revocation(key, value) for key, value in pairs]


def add_revocation(tx: Transaction, certificate: str, reason: str | None) -> bool:
    """Revoke a certificate, in use or not. An earlier revocation stays as it was.

    :returns: True if it was not revoked before
    :raises BadRequest: it is no fingerprint
    :raises TooLarge: the maximum number of certificates is revoked already
    """
    key = _revocation_key(check_fingerprint(certificate))
    if tx.get(key) is not None:
        return False
    # Counted by a scan: the limit bounds it, and revocations are rare.
    if sum(map(len, tx.scan(*keys.tagged(keys.REVOKED)))) >= limits.REVOKED_CERTIFICATES:
        raise TooLarge(
            f"too many revoked certificates: the limit is {limits.REVOKED_CERTIFICATES}. To shut"
            " out the certificate of a row, use DROP REPLICA",
            limit=limits.REVOKED_CERTIFICATES,
        )
    tx.put(key, binary.pack({"at": tx.now, "reason": reason}))
    return True


def _revocation_key(fingerprint: str) -> bytes:
    return keys.tagged(keys.REVOKED)[0] + bytes.fromhex(fingerprint)


def _read_revocation(key: bytes, value: bytes) -> Revocation:
    fields = binary.unpack_object(value)
    return Revocation(key[keys.TAG_AT + 1 :].hex(), fields["at"], fields["reason"])
