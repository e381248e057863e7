"""`make compiled`: the hot modules as C, by mypyc, in a copy of the tree. Nothing of the node
imports this. Why these modules, and what it gives: docs/decisions/compiled.md."""
