"""Links between the nodes of the cluster: listener and dialler.

| file | contents |
|---|---|
| `tls.py` | TLS 1.3, a certificate on each side, verified by fingerprint; bytes to bytes |
| `messages.py` | bytes to messages, each within its size limit |
| `connection.py` | one connection: handshake, link, end |
| `surface.py` | listener and dialler, connection limits, disconnecting peers whose trust ends |
| `greeting.py` | first messages of both sides; known and unknown peers |
"""
