"""HTTP surface: bytes to requests, requests to actors, responses to bytes. It decides nothing.

`listener` accepts connections, `connection` turns bytes into exchanges in order (llhttp), `head`
refuses ambiguous requests, `routes` is the table of routes, `surface` starts and stops it all.
Ordinary routes are Tornado handlers (`handler` and its subclasses). Hot routes and probes are lean
delegates that use the same interfaces of Tornado.
"""
