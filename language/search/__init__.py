"""Text search without a store: analyzers, queries, matches and passages.

An analyzer (`analysis.py`) cuts a text into terms. A query value (`query.py`) becomes a tree of
terms by the same analyzer. `matching.py` decides if texts match such a tree, and `passages.py`
marks the matches in them. All of it depends on its arguments alone.
"""
