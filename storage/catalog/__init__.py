"""Declarations: namespaces, databases, tables, fields, users, functions, and rows of the
cluster."""

PUBLIC = (
    "catalog",
    "failover",
    "fields",
    "functions",
    "join_tokens",
    "on_change",
    "replicas",
    "restores",
    "users",
)
