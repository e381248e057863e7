"""Command line `storenode`: parses flags, runs the command, returns the exit code."""
