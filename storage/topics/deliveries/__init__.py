"""Deliveries of a group: at least once, with ack deadlines, redelivery and dead letters.

`index` keeps the rows consistent and its head lists the invariants. `fetch`, `acks`, `expiry` and
`group` are functions on a `DeliveryIndex`: TAKE; ACK, NACK, EXTEND, GIVE UP; expiry; seek and trim.
"""

PUBLIC = ("acks", "expiry", "fetch", "group", "index")
