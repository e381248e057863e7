"""Deliveries of a group: at least once, with ack deadlines, redelivery and dead letters.

`index` keeps the rows consistent and its head lists the invariants; each of `expiry`, `acks`,
`fetch` and `group` adds operations by inheritance, since a compiled class has one parent.
"""

PUBLIC = ("expiry", "group")
