"""The state: an ordered map of bytes on the disk (RocksDB), in memory, or sealed in memory.

All of them keep one protocol, `engine.Engine`. The state can be rebuilt from the log.
"""

PUBLIC = ("engine", "rocksdb", "sealed", "state_hash")
