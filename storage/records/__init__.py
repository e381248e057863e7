"""Records of tables, their history, builds of their indexes, and the changes that feeds send."""

PUBLIC = ("change_notes", "commit_changes", "history", "index_builds", "index_checks", "records")
