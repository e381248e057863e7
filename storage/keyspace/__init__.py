"""Keys of a cache space: values with expiry, counters and locks."""

PUBLIC = ("keyspace",)
