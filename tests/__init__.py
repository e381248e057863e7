"""The suite. Real sockets, files and processes; fakes only for the doors."""
