"""Vaults: owner of the plain keys, the reveals of values, and their audit trails."""

from actors.vaults.checking import Checked, check
from actors.vaults.parts import Parts
from actors.vaults.reveals import Asked, Look
from actors.vaults.service import Vaults, condition_of
from actors.vaults.starting import begin
from actors.vaults.told import VaultSettings
from actors.vaults.trail import Act

__all__ = [
    "Act", "Asked", "Checked", "Look", "Parts", "VaultSettings", "Vaults", "begin", "check",
    "condition_of",
]  # fmt: skip
