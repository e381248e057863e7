"""Vaults: owner of the plain keys, the reveals of values, and their audit trails."""
