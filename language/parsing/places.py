"""Parser of statements on namespaces, databases, tables and the node: DEFINE, ALTER, DROP, USE,
INFO FOR and KILL."""

from __future__ import annotations

from typing import Any, Final

from language import tree
from language.lexer import NAME, QUOTED
from language.parsing.records import RecordParser
from protocol import limits

GRAMMAR: Final = """
exists = IF NOT EXISTS | OVERWRITE
comment = COMMENT string
reason = REASON string
database = [name "."] name
define_namespace = DEFINE NAMESPACE [exists] name [comment]
define_database = DEFINE DATABASE [exists] database [comment]
define_table = DEFINE TABLE [exists] name [SCHEMAFULL | SCHEMALESS] [on_change] [comment]
on_change = ON CHANGE [OF label {"," label}] PUBLISH INTO name
drop_namespace = DROP NAMESPACE name [reason]
drop_database = DROP DATABASE database [reason]
drop_table = DROP TABLE name [reason]
use = USE (NAMESPACE name [DATABASE name] | DATABASE name | name "." name)
define_node = DEFINE NODE (roles [endpoints] [origins] | endpoints [origins] | origins
    | LEADS STORE [FORCE reason])
roles = ROLES (NONE | word {"," word})
endpoints = ENDPOINTS string {"," string}
origins = ORIGINS (NONE | string {"," string})
info = INFO FOR (STORE | NAMESPACE [name] | DATABASE [database] | TABLE name | INDEX name ON name
    | SPACE name | TOPIC name | GROUP name ON name | FUNCTION name | ANALYZER name | USERS
    | USER name | GRANTS [OF name] | NODE | CLUSTER | STATE | RUNNING | BACKUPS
    | (STATEMENTS | AUDIT) [BEFORE expression] [LIMIT expression] [OF name]
    | VAULT name
    | AUDIT OF (VAULT name | ALL VAULTS [NUMBER expression])
        (CHECK | [BEFORE expression] [LIMIT expression])
    | HISTORY OF (addressed | place) [BEFORE expression] [LIMIT expression])
place = NAMESPACE name | DATABASE database | TABLE name | name ["." name]
kill = KILL expression
"""


class PlaceParser(RecordParser):
    """Parser of statements on namespaces, databases, tables and the node."""

    # --- DEFINE -----------------------------------------------------------------------------------

    def define(self) -> tree.Statement:
        at = self._begin_statement("DEFINE")
        return self._one_of(DEFINES, at)

    def _one_of(self, family: dict[str, Any], at: int) -> tree.Statement:
        word = self.word()
        if word not in family:
            self.unexpected(either(*family))
        self.i += 1
        return family[word](self, at)  # type: ignore[no-any-return]

    def _exists(self) -> tree.Exists:
        if self.take_word("OVERWRITE"):
            return tree.Exists.OVERWRITE
        if self.take_word("IF"):
            self.expect_word("NOT", "EXISTS")
            return tree.Exists.SKIP
        return tree.Exists.REFUSE

    def _comment(self) -> str | None:
        if not self.take_word("COMMENT"):
            return None
        return self.string("COMMENT", limits.COMMENT_CHARACTERS)

    def _reason(self) -> str | None:
        if not self.take_word("REASON"):
            return None
        return self.string("REASON", limits.REASON_CHARACTERS)

    def _database(self) -> tuple[str | None, str]:
        """Parse `[ns.]db`."""
        first = self.name("database")
        if self.take_mark("."):
            return first, self.name("database")
        return None, first

    def define_namespace(self, at: int) -> tree.Statement:
        exists = self._exists()
        return tree.DefineNamespace(self.name("namespace"), exists, self._comment(), at)

    def define_database(self, at: int) -> tree.Statement:
        exists = self._exists()
        namespace, name = self._database()
        return tree.DefineDatabase(namespace, name, exists, self._comment(), at)

    def define_table(self, at: int) -> tree.Statement:
        exists = self._exists()
        name = self.name("table")
        schemafull = self.take_word("SCHEMAFULL")
        if not schemafull:
            self.take_word("SCHEMALESS")
        on_change = self.on_change() if self.take_word("ON") else None
        return tree.DefineTable(name, exists, schemafull, self._comment(), on_change, at)

    def on_change(self) -> tree.OnChange:
        """Parse `CHANGE [OF f, …] PUBLISH INTO topic`, after ON."""
        self.expect_word("CHANGE")
        fields: list[str] = []
        if self.take_word("OF"):
            fields.append(self.label("field name"))
            while self.separated():
                fields.append(self.label("field name"))
                self.at_most(fields, "fields")
        self.expect_word("PUBLISH", "INTO")
        return tree.OnChange(self.name("topic"), tuple(fields))

    def role(self) -> str:
        """Parse a role. The node checks it: valid roles are not part of the grammar."""
        if self.kinds[self.i] != NAME:
            self.unexpected("a role")
        self.i += 1
        return self.texts[self.i - 1].lower()

    def define_node(self, at: int) -> tree.Statement:
        roles: tuple[str, ...] | None = None
        endpoints: tuple[str, ...] | None = None
        origins: tuple[str, ...] | None = None
        if self.take_word("LEADS"):
            return self._lead_store(at)
        if self.take_word("ROLES"):
            roles = self.roles()
        if self.take_word("ENDPOINTS"):
            endpoints = self.addresses()
        if self.take_word("ORIGINS"):
            origins = () if self.take_word("NONE") else self.origins()
        if roles is None and endpoints is None and origins is None:
            self.unexpected("ROLES, ENDPOINTS, ORIGINS or LEADS")
        return tree.DefineNode(roles, endpoints, origins, at)

    def _lead_store(self, at: int) -> tree.Statement:
        self.expect_word("STORE")
        if not self.take_word("FORCE"):
            return tree.LeadStore(at=at)
        self.expect_word("REASON")
        return tree.LeadStore(True, self.string("REASON", limits.REASON_CHARACTERS), at)

    def roles(self) -> tuple[str, ...]:
        """Parse the roles after ROLES."""
        if self.take_word("NONE"):
            return ()
        named = [self.role()]
        while self.separated():
            named.append(self.role())
            self.at_most(named, "roles")
        return tuple(named)

    def addresses(self) -> tuple[str, ...]:
        """Parse the addresses after ENDPOINTS."""
        found = [self.string("an endpoint's address")]
        while self.separated():
            found.append(self.string("an endpoint's address"))
            self.at_most(found, "endpoints")
        return tuple(found)

    def origins(self) -> tuple[str, ...]:
        found = [self.string("an origin")]
        while self.separated():
            found.append(self.string("an origin"))
            self.at_most(found, "origins")
        return tuple(found)

    # --- ALTER and DROP ---------------------------------------------------------------------------

    def alter(self) -> tree.Statement:
        at = self._begin_statement("ALTER")
        return self._one_of(ALTERS, at)

    def drop(self) -> tree.Statement:
        at = self._begin_statement("DROP")
        return self._one_of(DROPS, at)

    def drop_namespace(self, at: int) -> tree.Statement:
        return tree.DropNamespace(self.name("namespace"), self._reason(), at)

    def drop_database(self, at: int) -> tree.Statement:
        namespace, name = self._database()
        return tree.DropDatabase(namespace, name, self._reason(), at)

    def drop_table(self, at: int) -> tree.Statement:
        return tree.DropTable(self.name("table"), self._reason(), at)

    def index_on_table(self) -> tuple[str, str]:
        """Parse `i ON t`."""
        name = self.name("index")
        self.expect_word("ON")
        return name, self.table()

    def on_topic(self, what: str) -> tuple[str, str]:
        """Parse `g ON t` of a group or reader."""
        name = self.name(what)
        self.expect_word("ON")
        return name, self.name("topic")

    # --- USE, INFO, KILL --------------------------------------------------------------------------

    def use(self) -> tree.Use:
        at = self._begin_statement("USE")
        if self.take_word("NAMESPACE"):
            namespace = self.name("namespace")
            return tree.Use(namespace, self._used_database(), at)
        if self.word() == "DATABASE":
            return tree.Use(None, self._used_database(), at)
        if self.kinds[self.i] not in (NAME, QUOTED):
            self.unexpected("NAMESPACE, DATABASE or ns.db")
        namespace = self.name("namespace")
        self.expect_mark(".", "`.` and a database: USE ns.db")
        return tree.Use(namespace, self.name("database"), at)

    def _used_database(self) -> str | None:
        return self.name("database") if self.take_word("DATABASE") else None

    def info(self) -> tree.Info | tree.InfoEntries | tree.InfoHistory | tree.InfoTrail:
        at = self._begin_statement("INFO")
        self.expect_word("FOR")
        word = self.word()
        if word not in _SUBJECTS:
            self.unexpected(either(*_SUBJECTS))
        self.i += 1
        if word == "HISTORY":
            self.expect_word("OF")
            return tree.InfoHistory(self._historic(), *self._paged(), at)
        if word == "AUDIT" and (trail := self._trail(at)) is not None:
            return trail
        if word in ("STATEMENTS", "AUDIT"):
            before, limit = self._paged()
            user = self.name("user") if self.take_word("OF") else None
            return tree.InfoEntries(word, before, limit, user, at)  # type: ignore[arg-type]
        names: tuple[str, ...] = ()
        if word in ("TABLE", "SPACE", "TOPIC", "USER", "FUNCTION", "VAULT", "ANALYZER"):
            names = (self.name(word.lower()),)
        elif word == "GRANTS":
            names = (self.name("user"),) if self.take_word("OF") else ()
        elif word == "GROUP":
            names = self.on_topic("group")
        elif word == "INDEX":
            names = self.index_on_table()
        elif word in ("NAMESPACE", "DATABASE") and self.kinds[self.i] in (NAME, QUOTED):
            names = (self.name(word.lower()),)
            if word == "DATABASE" and self.take_mark("."):
                names += (self.name("database"),)
        return tree.Info(word, names, at)  # type: ignore[arg-type]

    def _trail(self, at: int) -> tree.InfoTrail | None:
        """Parse `OF VAULT v` or `OF ALL VAULTS`; None if no vault's trail is requested.

        Any word may be the name of a user.
        """
        if self.take_word("OF", "ALL", "VAULTS"):
            number = self.expression() if self.take_word("NUMBER") else None
            return tree.InfoTrail(None, number, *self._paged_or_checked(), at)
        if self.word(1) != "VAULT" or self.kinds[self.i + 2] not in (NAME, QUOTED):
            return None
        self.expect_word("OF", "VAULT")
        return tree.InfoTrail(self.name("vault"), None, *self._paged_or_checked(), at)

    def _paged_or_checked(
        self,
    ) -> tuple[tree.Expression | None, tree.Expression | None, bool]:
        """Parse BEFORE and LIMIT, or CHECK instead of them."""
        return (None, None, True) if self.take_word("CHECK") else (*self._paged(), False)

    def _paged(self) -> tuple[tree.Expression | None, tree.Expression | None]:
        """Parse `BEFORE e LIMIT e`; both are optional."""
        before = self.expression() if self.take_word("BEFORE") else None
        return before, self.expression() if self.take_word("LIMIT") else None

    def _historic(self) -> tree.Expression | tree.SecurableRef:
        """Parse the subject of a history: a record, or an object that has none."""
        word = self.word()
        nouns = ("NAMESPACE", "DATABASE", "TABLE")
        if word in nouns and self.kinds[self.i + 1] in (NAME, QUOTED):
            self.i += 1
            names = self._database() if word == "DATABASE" else (None, self.name(word.lower()))
            return tree.SecurableRef(word, tuple(name for name in names if name is not None))
        target = self.target()
        if isinstance(target, tree.ExpressionTarget):
            return target.expression
        if isinstance(target, tree.RecordRange):
            self.unexpected("one record, table:id")
        if self.take_mark("."):
            return tree.SecurableRef("DATABASE", (target.table, self.name("database")))
        return tree.SecurableRef("TABLE", (target.table,))

    def kill(self) -> tree.Kill:
        at = self._begin_statement("KILL")
        return tree.Kill(self.expression(), at)


def either(*words: str) -> str:
    """Join words as `A, B or C`; empty without words."""
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


DEFINES: Final[dict[str, Any]] = {
    "NAMESPACE": PlaceParser.define_namespace,
    "DATABASE": PlaceParser.define_database,
    "TABLE": PlaceParser.define_table,
    "NODE": PlaceParser.define_node,
}
ALTERS: Final[dict[str, Any]] = {}
DROPS: Final[dict[str, Any]] = {
    "NAMESPACE": PlaceParser.drop_namespace,
    "DATABASE": PlaceParser.drop_database,
    "TABLE": PlaceParser.drop_table,
}
_SUBJECTS: Final = (
    "STORE", "NAMESPACE", "DATABASE", "TABLE", "INDEX", "SPACE", "TOPIC", "GROUP", "USERS", "USER",
    "GRANTS", "NODE", "CLUSTER", "STATE", "RUNNING", "BACKUPS", "FUNCTION", "ANALYZER", "VAULT",
    "STATEMENTS", "AUDIT", "HISTORY",
)  # fmt: skip
