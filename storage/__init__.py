"""Storage: write-ahead log, state engine, transactions, and the rules of each kind of object."""
