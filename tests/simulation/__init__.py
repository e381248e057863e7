"""The doors of the node in their stepped, seeded and faulty forms."""
