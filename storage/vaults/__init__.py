"""Vaults: sealed values by version, leases on them, and the trail of every access."""

PUBLIC = ("cipher", "rows", "trail", "vaults")
