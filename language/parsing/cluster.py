"""Parser of cluster statements: replicas, join tokens, certificates and the failover policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from language import tree
from language.lexer import DURATION, INT, NAME, QUOTED, STRING
from language.parsing.access import AccessParser
from language.parsing.places import ALTERS, DEFINES, DROPS
from protocol.failover import check_url
from protocol.fingerprints import FINGERPRINT
from protocol.text import parse_duration

GRAMMAR: Final = """
define_replica = DEFINE REPLICA [exists] name PEER string [endpoints]
    [NODE string | CERTIFICATE string] [REPLICATES STORE] [roles] [comment]
alter_replica = ALTER REPLICA name (roles | SET PEER string | SET endpoints
    | LEADS (STORE | name ["." name ["." name]]))
drop_replica = DROP REPLICA name [reason]
create_statement = create | create_join_token
create_join_token = CREATE JOIN TOKEN [FOR name] [EXPIRES duration]
revoke_statement = revoke | revoke_certificate
revoke_certificate = REVOKE CERTIFICATE (fingerprint | string) [reason]
define_failover = DEFINE FAILOVER VIA url {"," url} LEASE duration ACKS int BEHIND duration
    PROMOTE (AUTO | MANUAL)
drop_failover = DROP FAILOVER [reason]
"""
GRAMMAR_NOTE: Final = """
A fingerprint is 64 hexadecimal digits. With colons between them it is a string.
"""
_DIGITS: Final = 9
"""Maximum number of digits of a number of followers."""
_RANGE_NAMES: Final = 3


class ClusterParser(AccessParser):
    """Parser of cluster statements."""

    def define_replica(self, at: int) -> tree.Statement:
        exists = self._exists()
        name = self.name("replica")
        self.expect_word("PEER")
        peer = self.string("the address for peers")
        endpoints = self.addresses() if self.take_word("ENDPOINTS") else ()
        node = certificate = None
        if self.take_word("NODE"):
            node = self.string("the id of a node")
        elif self.take_word("CERTIFICATE"):
            certificate = self.string("the fingerprint of a certificate")
        if self.take_word("REPLICATES"):
            self.expect_word("STORE")
        roles = self.roles() if self.take_word("ROLES") else None
        return tree.DefineReplica(
            name, peer, endpoints, node, certificate, roles, exists, self._comment(), at
        )

    def alter_replica(self, at: int) -> tree.Statement:
        name = self.name("replica")
        if self.take_word("ROLES"):
            return tree.AlterReplica(name, roles=self.roles(), at=at)
        if self.take_word("LEADS"):
            return tree.AlterReplica(name, leads=self._led(), at=at)
        if not self.take_word("SET"):
            self.unexpected("ROLES, SET PEER, SET ENDPOINTS or LEADS")
        if self.take_word("PEER"):
            return tree.AlterReplica(name, peer=self.string("the address for peers"), at=at)
        if self.take_word("ENDPOINTS"):
            return tree.AlterReplica(name, endpoints=self.addresses(), at=at)
        self.unexpected("PEER or ENDPOINTS")

    def _led(self) -> tuple[str, ...]:
        """Parse the object that a replica shall lead: the store, or a table by its names."""
        if self.take_word("STORE"):
            return ()
        if self.kinds[self.i] not in (NAME, QUOTED):
            self.unexpected("STORE or a table")
        names = [self.name("table")]
        while len(names) < _RANGE_NAMES and self.take_mark("."):
            names.append(self.name("table"))
        return tuple(names)

    def drop_replica(self, at: int) -> tree.Statement:
        return tree.DropReplica(self.name("replica"), self._reason(), at)

    # --- what begins as another statement does ----------------------------------------------------

    def create_statement(self) -> tree.Create | tree.CreateJoinToken:
        """Parse CREATE of a record or of a join token."""
        if (self.word(1), self.word(2)) != ("JOIN", "TOKEN"):
            return self.create()
        at = self._begin_statement("CREATE")
        self.expect_word("JOIN", "TOKEN")
        name = self.name("replica") if self.take_word("FOR") else None
        expires = self._lasts() if self.take_word("EXPIRES") else None
        return tree.CreateJoinToken(name, expires, at)

    def revoke_statement(self) -> tree.Statement:
        """Parse REVOKE of a privilege or of a certificate."""
        if self.word(1) != "CERTIFICATE":
            return self.revoke()
        at = self._begin_statement("REVOKE")
        self.expect_word("CERTIFICATE")
        return tree.RevokeCertificate(self._fingerprint(), self._reason(), at)

    def _fingerprint(self) -> str:
        """Parse a fingerprint, quoted or bare (it may look like a number, name or duration)."""
        if self.kinds[self.i] == STRING:
            return self.string("the fingerprint of a certificate")
        text = self.texts[self.i]
        if FINGERPRINT.fullmatch(text) is None:
            self.unexpected("the fingerprint of a certificate")
        self.i += 1
        return text

    # --- failover ---------------------------------------------------------------------------------

    def define_failover(self, at: int) -> tree.Statement:
        self.expect_word("VIA")
        via = [self._url()]
        while self.separated():
            via.append(self._url())
            self.at_most(via, "addresses")
        self.expect_word("LEASE")
        lease = self._lasts()
        self.expect_word("ACKS")
        acks = self._followers()
        self.expect_word("BEHIND")
        behind = self._lasts()
        self.expect_word("PROMOTE")
        if self.take_word("AUTO"):
            return tree.DefineFailover(tuple(via), lease, acks, behind, "AUTO", at)
        if self.take_word("MANUAL"):
            return tree.DefineFailover(tuple(via), lease, acks, behind, "MANUAL", at)
        self.unexpected("AUTO or MANUAL")

    def _url(self) -> str:
        """Parse an etcd address. It is checked here, so that one with a password is rejected before
        it can be stored."""
        with self.placed(self.i):
            return check_url(self.string("the address of etcd"))

    def drop_failover(self, at: int) -> tree.Statement:
        return tree.DropFailover(self._reason(), at)

    def _lasts(self) -> timedelta:
        if self.kinds[self.i] != DURATION:
            self.unexpected("a duration such as 5m")
        with self.placed(self.i):
            found = parse_duration(self.texts[self.i])
        self.i += 1
        return found

    def _followers(self) -> int:
        if self.kinds[self.i] != INT or len(self.texts[self.i]) > _DIGITS:
            self.unexpected("a number of followers")
        self.i += 1
        return int(self.texts[self.i - 1])


DEFINES["REPLICA"] = ClusterParser.define_replica
DEFINES["FAILOVER"] = ClusterParser.define_failover
ALTERS["REPLICA"] = ClusterParser.alter_replica
DROPS["REPLICA"] = ClusterParser.drop_replica
DROPS["FAILOVER"] = ClusterParser.drop_failover
