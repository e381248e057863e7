"""Maps the clause of a DEFINE for an existing name to the store's enumeration."""

from __future__ import annotations

from typing import Final

from language import tree
from storage.catalog.places import IfExists

IF_TAKEN: Final = {
    tree.Exists.REFUSE: IfExists.REFUSE,
    tree.Exists.SKIP: IfExists.SKIP,
    tree.Exists.OVERWRITE: IfExists.OVERWRITE,
}
