"""Links between nodes, on real sockets with real certificates."""
