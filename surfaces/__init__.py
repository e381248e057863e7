"""Surfaces: decode bytes into requests and encode responses. The wire, HTTP and the command line
decide nothing."""
