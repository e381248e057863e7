"""The data directory: the disk behind an interface, and the small files beside log and state.

Metadata files are replaced as a whole: written, synced, then renamed into place.
"""

PUBLIC = (
    "cluster_file",
    "directory",
    "disk",
    "disk_reserve",
    "joining_file",
    "metadata_file",
    "node_file",
    "peer_file",
    "rebuild_marker",
)
