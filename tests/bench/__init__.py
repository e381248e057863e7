"""Tests of what measures and demonstrates the node. Nothing here looks at a clock."""
