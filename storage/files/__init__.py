"""The data directory: the disk behind an interface, and the small files beside log and state.

Each small file is replaced as a whole (write, sync, rename, sync of the directory).
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
