"""The command line: `storenode`. Reads flags, starts what they ask for, says how it ended."""
