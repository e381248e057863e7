"""The keywords of the language.

Keywords are recognized where the grammar expects one, so most of them may also be names. The
printer quotes every name in `KEYWORDS`, which is always correct and never ambiguous.

The words of topics, backups and vaults are not in `KEYWORDS`, because fields called `read`, `time`
or `list` are common, and a column is named after its printed expression. Where such a name would be
ambiguous, the printer puts it in parentheses.
"""

from __future__ import annotations

from typing import Final

from protocol import text

_OF_TOPICS: Final = frozenset({
    "ACK", "EXTEND", "GIVE", "NACK", "PUBLISH", "READ", "REDRIVE", "TAKE", "TRIM",
})  # fmt: skip

_OF_BACKUPS: Final = frozenset({"BACKUP", "RESTORE"})

_OF_VAULTS: Final = frozenset({"ERASE", "LIST", "REVEAL", "ROTATE", "WRITE"})

STATEMENTS: Final = frozenset({
    "ALTER", "BEGIN", "CANCEL", "COMMIT", "CREATE", "DEFINE", "DELETE", "DROP", "EXPIRE", "FOR",
    "GET", "GRANT", "IF", "INCR", "INFO", "INSERT", "KEYS", "KILL", "LET", "LOCK", "PERSIST",
    "RETURN",
    "SELECT", "SET", "SWAP", "THROW", "UNLOCK", "UPDATE", "UPSERT", "USE",
    "CHECK", "EXPLAIN", "MEASURE", "REBUILD", "REVOKE",
}) | _OF_TOPICS | _OF_BACKUPS | _OF_VAULTS  # fmt: skip
"""First words of statements."""

RESERVED: Final = frozenset({
    "AND", "AS", "CONTAINS", "FALSE", "FROM", "IN", "NONE", "NOT", "NULL", "OR", "SELECT",
    "TRUE", "WHERE",
})  # fmt: skip
"""Words never read as a bare name where an expression begins.

A missing operand is then reported where it is missing, and not one word later.
"""

KEYWORDS: Final = (STATEMENTS - _OF_TOPICS - _OF_BACKUPS - _OF_VAULTS) | RESERVED | frozenset({
    "ABSENT", "AFTER", "ALL", "ASC", "BEFORE", "BY", "CASE", "COMMENT", "CONTENT", "CURRENT",
    "DATABASE", "DESC", "DIFF", "DISTINCT", "DUPLICATE", "ELSE", "END", "ENDPOINTS", "EXISTS",
    "EXPECT", "FETCH", "GROUP", "HAVING", "HOLDER", "IGNORE", "INTO", "KEEP", "LIMIT", "MERGE",
    "NAMESPACE", "NODE", "OMIT", "ON", "ONLY", "ORDER", "ORIGINS", "OVERWRITE", "PASSHASH",
    "PASSWORD", "PREFIX", "PRESENT", "REASON", "ROLE", "ROLES", "RUNNING", "SCHEMAFULL",
    "SCHEMALESS", "SPACE", "SPLIT", "START", "STORE", "TABLE", "THEN", "TIMEOUT", "TRANSACTION",
    "UNSET", "USER", "USERS", "VALUE", "WHEN", "ANALYZE", "FIELDS", "INDEX", "UNCHECKED", "UNIQUE",
})  # fmt: skip


def quote(name: str) -> str:
    """Return a name as written in a script: in back-quotes unless it is plain and not a keyword."""
    return text.quote_name(name, KEYWORDS)
