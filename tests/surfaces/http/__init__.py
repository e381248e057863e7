"""The HTTP surface, over real sockets and a real node."""
