"""The clients of the command line on a real node."""
