"""Segments of FULLTEXT and VECTOR indexes: their form, and how fresh records become segments.

Segments are derived from records by each node for itself: they are in no frame, backup or hash.
"""

PUBLIC = (
    "caches", "centroids", "checking", "contents", "folding", "postings", "recall", "recall_rows",
    "segments", "training", "trainings", "vector_checking", "vectors",
)  # fmt: skip
