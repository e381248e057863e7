"""Index entries: derived from records, written with each commit and rebuilt by a replay."""

PUBLIC = (
    "check",
    "derived",
    "entries",
    "index_rows",
    "text_markers",
    "text_options",
    "fresh_markers",
    "vector_markers",
    "vector_options",
)
