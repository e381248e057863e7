"""The HTTP surface: bytes to requests, requests to actors, answers to bytes. It decides nothing.

`listener` accepts connections, `connection` turns bytes into exchanges in order (llhttp), `head`
refuses what is ambiguous, `routes` is the one table of routes, `surface` starts and stops it all.
Ordinary routes are Tornado handlers (`handler` and what stands on it); the hot ones and the probes
are lean delegates along the same seams of Tornado.
"""
