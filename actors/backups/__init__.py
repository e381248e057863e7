"""Online backups: the backup folder, and the actors that write and list backups while the node
serves."""
