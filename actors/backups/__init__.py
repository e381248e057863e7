"""Backups that are taken while the node serves: the folder they go to, and who takes them."""
