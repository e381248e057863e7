"""Segments of FULLTEXT indexes: their form, and how fresh records become segments.

Segments are derived from records by each node for itself: they are in no frame, backup or hash.
"""

PUBLIC = ("checking", "folding", "kept", "postings", "segments")
