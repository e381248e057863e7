"""Bytes to requests, answers to bytes: the wire, HTTP and the command line decide nothing."""
