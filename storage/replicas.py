"""The rows of the cluster: which nodes belong to it, as declared.

A row is a declaration. What a node is doing at the moment stands in none.

- A row names its node by the id that was made with that node's directory, or by the certificate
  that it shows, never by its address: a machine that was wiped is nobody. One that says neither
  *waits* for whoever brings its join token.
- A certificate is renewed by a second one, which is trusted beside the first until it was shown, or
  the first is no more valid.
- No two rows have the same address for peers, the same id or the same certificate. Whoever changes
  one has read them all, so that of two that meet one loses its race.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from protocol import binary, limits
from protocol.addresses import check_address, check_peer
from protocol.errors import AlreadyExists, BadRequest, TooLarge
from protocol.fingerprints import check_fingerprint
from protocol.node_roles import check_node_roles
from protocol.text import check_name
from storage import keys, revocations
from storage.catalog import Taken, check_comment
from storage.transactions import Transaction

_PREFIX: Final = keys.tagged(keys.REPLICA)[0]
_ID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Of a node: a UUID."""


@dataclass(frozen=True, slots=True)
class TokenKept:
    """What is left of a join token."""

    digest: bytes = field(repr=False)
    expires: datetime
    """Log time, until when it can be used."""
    store: str
    """The id of the store that it was made by, and opens."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The certificate that a node will show next."""

    certificate: str
    """Its fingerprint."""
    expires: datetime


@dataclass(frozen=True, slots=True)
class Replica:
    """A row."""

    name: str
    peer: str
    """The address that other nodes use, in its one form."""
    endpoints: tuple[str, ...] = ()
    """Addresses that clients use."""
    node: str | None = None
    """The id of the node, a UUID."""
    certificate: str | None = None
    """The fingerprint of what the node shows to others."""
    certificate_expires: datetime | None = None
    """None: nobody has shown it so far."""
    renewal: Renewal | None = None
    """Trusted beside the other."""
    roles: tuple[str, ...] | None = None
    """None: not declared. Empty: declared to have none."""
    comment: str | None = None
    created: datetime | None = None
    """Log time; None: of one that is not kept yet."""
    token: TokenKept | None = None
    """Of a row that waits: what opens it."""

    @property
    def waits(self) -> bool:
        """Whether it waits for a node."""
        return self.node is None and self.certificate is None

    @property
    def certificates(self) -> dict[str, datetime | None]:
        """The fingerprints that its node may show, unless they were revoked, and when each of these
        certificates runs out, as far as that is known."""
        found: dict[str, datetime | None] = {}
        if self.certificate is not None:
            found[self.certificate] = self.certificate_expires
        if self.renewal is not None:
            found[self.renewal.certificate] = self.renewal.expires
        return found


def find(tx: Transaction, name: str) -> Replica | None:
    """The row of that name, if there is one."""
    value = tx.get(_key(name))
    return None if value is None else _read(name, value)


def every(tx: Transaction) -> list[Replica]:
    """All rows, by name."""
    return [
        _read(key[len(_PREFIX) :].decode(), value)
        for pairs in tx.scan(*keys.tagged(keys.REPLICA))
        for key, value in pairs
    ]


def define(tx: Transaction, made: Replica, taken: Taken = Taken.REFUSE) -> None:
    """Declare a row, as `catalog.define_namespace` does. One that is declared anew is what is said
    now, and nothing else: it waits again if that names no node, and its token opens it no more.
    Only what its node shows stays trusted where the same node is named and no certificate.

    :raises AlreadyExists: the name is taken; or another row has its address, id or certificate
    :raises BadRequest: of an address, the id, the fingerprint; the certificate was revoked
    :raises NameRefused, Unknown, TooLarge: of the name, of a role; too many of what is bounded
    """
    check_name(made.name, "replica")
    check_comment(made.comment)
    made = _in_one_form(made)
    others = every(tx)
    present = next((one for one in others if one.name == made.name), None)
    if present is not None and taken is Taken.SKIP:
        return
    if present is not None and taken is not Taken.OVERWRITE:
        raise AlreadyExists(f"replica {made.name} exists", kind="replica", name=made.name)
    if present is None and len(others) >= limits.REPLICAS:
        raise TooLarge(f"a cluster has at most {limits.REPLICAS} rows", limit=limits.REPLICAS)
    stays = present is not None and present.node is not None and present.node == made.node
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
    """Change what is given. :raises: as `define`"""
    changed = replace(
        replica,
        peer=replica.peer if peer is None else peer,
        endpoints=replica.endpoints if endpoints is None else endpoints,
        roles=replica.roles if roles is None else roles,
    )
    _put(tx, _in_one_form(changed), every(tx))


def drop(tx: Transaction, replica: Replica) -> None:
    """Remove a row, and its token with it."""
    tx.delete(_key(replica.name))


def give_token(tx: Transaction, replica: Replica, token: TokenKept) -> None:
    """Let a token open a row, in place of one that did.

    :raises BadRequest: the row does not wait
    """
    if not replica.waits:
        raise BadRequest(
            f"replica {replica.name} has its node already: there is nothing that a token would"
            " open. Where that node's directory is gone, DROP REPLICA and DEFINE REPLICA come first"
        )
    tx.put(_key(replica.name), _packed(replace(replica, token=token)))


def settle(
    tx: Transaction,
    replica: Replica,
    node: str,
    certificate: str,
    expires: datetime,
) -> Replica:
    """The node of a row that waited is known: its token is used up.

    :param expires: of the certificate that it showed
    :raises AlreadyExists: another row has the node or the certificate
    :raises BadRequest: the certificate was revoked; or what is given is no id or fingerprint
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
    """Trust a second certificate of a row's node, in the place of one that it was to show next. Of
    a row without one that is trusted it is the first.

    :raises AlreadyExists: another row has it
    :raises BadRequest: it was revoked, or is no fingerprint
    """
    certificate, replica = check_fingerprint(certificate), _without_revoked(tx, replica)
    if replica.certificate is None or replica.certificate == certificate:
        renewed = replace(replica, certificate=certificate, certificate_expires=expires)
    else:
        renewed = replace(replica, renewal=Renewal(certificate, expires))
    return renewed if renewed == find(tx, replica.name) else _put(tx, renewed, every(tx))


def shown(
    tx: Transaction, replica: Replica, node: str, certificate: str, expires: datetime
) -> Replica:
    """A row's node has shown one of its certificates: its id is known, and when that runs out. Once
    it has shown the second one, the first is trusted no more.

    :raises AlreadyExists: another row has the node
    :raises BadRequest: it is no id
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
    return seen if seen == find(tx, replica.name) else _put(tx, _in_one_form(seen), every(tx))


def revoke(tx: Transaction, certificate: str, reason: str | None) -> None:
    """Trust a certificate no more, nor the node that shows it: the other one of its row, whose key
    stands beside that of the first, goes out of the row. It may be declared anew. If it was revoked
    already, that stays as it was.

    :raises BadRequest, TooLarge: as `revocations.revoke`
    """
    certificate = check_fingerprint(certificate)
    revocations.revoke(tx, certificate, reason)
    for row in every(tx):
        if certificate in row.certificates:
            alone = replace(
                row,
                certificate=certificate,
                certificate_expires=row.certificates[certificate],
                renewal=None,
            )
            if alone != row:
                tx.put(_key(row.name), _packed(alone))


def trusted(tx: Transaction, replica: Replica) -> list[str]:
    """The certificates that a row's node may show."""
    return [one for one in replica.certificates if revocations.find(tx, one) is None]


def is_shut_out(tx: Transaction, replica: Replica) -> bool:
    """Whether all that a row's node could show was revoked. One that has shown nothing so far is
    not."""
    return bool(replica.certificates) and not trusted(tx, replica)


def _without_revoked(tx: Transaction, replica: Replica) -> Replica:
    """The row with those of its certificates that are trusted."""
    left = trusted(tx, replica)
    if replica.certificate is not None and replica.certificate not in left:
        replica = replace(replica, certificate=None, certificate_expires=None)
    if replica.renewal is not None and replica.renewal.certificate not in left:
        replica = replace(replica, renewal=None)
    return replica


def _trusting(replica: Replica, other: Replica) -> Replica:
    """The row with the certificates of another."""
    return replace(
        replica,
        certificate=other.certificate,
        certificate_expires=other.certificate_expires,
        renewal=other.renewal,
    )


def _in_one_form(replica: Replica) -> Replica:
    """The same, so that what means the same looks it. :raises BadRequest, Unknown, TooLarge:"""
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
    """Whether a node may be named so by its id."""
    return _ID.fullmatch(text) is not None


def _check_id(text: str) -> str:
    if not is_id(text):
        raise BadRequest(f"{text[:100]!r} is no id of a node: INFO FOR NODE shows its own")
    return text.lower()


def _put(tx: Transaction, replica: Replica, others: list[Replica]) -> Replica:
    """Keep a row. :param others: all rows, this one among them or not :raises: as `define`"""
    for other in others:
        if other.name != replica.name:
            for what, mine, theirs in (
                ("address for peers", replica.peer, other.peer),
                ("node", replica.node, other.node),
                *(("certificate", one, _same(one, other)) for one in replica.certificates),
            ):
                if mine is not None and mine == theirs:
                    raise AlreadyExists(
                        f"replica {other.name} has the {what} {mine}",
                        kind="replica",
                        name=other.name,
                    )
    for certificate in replica.certificates:
        if revocations.find(tx, certificate) is not None:
            raise BadRequest(f"the certificate {certificate} was revoked: no replica may show it")
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
    renewal = fields.pop("renewal", None)  # a row of an earlier version has none
    return Replica(
        name,
        endpoints=tuple(endpoints),
        roles=None if roles is None else tuple(roles),
        token=None if token is None else TokenKept(*token),
        renewal=None if renewal is None else Renewal(*renewal),
        **fields,
    )
