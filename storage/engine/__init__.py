"""The state: an ordered map of bytes on the disk (RocksDB) or in memory, folded from the log.

Both keep one protocol, `engine.Engine`; `sealed` encrypts either.
"""

PUBLIC = ("engine", "rocksdb", "sealed", "state_hash")
