"""Text search without a store: analyzers, queries and matches.

An analyzer (`analysis.py`) cuts a text into terms. A query value (`query.py`) becomes a tree of
terms by the same analyzer. `matching.py` decides if texts match such a tree. All of it depends on
its arguments alone.
"""
