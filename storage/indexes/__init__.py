"""Index entries: derived from records, written with each commit and rebuilt by a replay."""

PUBLIC = (
    "check",
    "derived",
    "entries",
    "fresh_markers",
    "index_rows",
    "text_markers",
    "text_options",
    "vector_markers",
    "vector_options",
)
