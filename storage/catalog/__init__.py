"""Declarations: namespaces, databases, tables, fields, users, functions, and rows of the
cluster."""

PUBLIC = (
    "analyzers",
    "failover",
    "functions",
    "join_tokens",
    "on_change",
    "places",
    "replicas",
    "restores",
    "spaces",
    "tables",
    "users",
)
