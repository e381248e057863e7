"""`make compiled`: the hot modules as C, by mypyc, in a copy of the tree.

Nothing of the node imports this. The choice of modules, and the gain: docs/decisions/compiled.md.
"""
