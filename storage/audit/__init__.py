"""The statement log and its entries that other members forward to the leader."""

PUBLIC = ("forwarded", "trail")
