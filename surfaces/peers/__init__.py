"""What other nodes of the cluster connect to, and how this one connects to them.

| file | what it holds |
|---|---|
| `tls.py` | TLS 1.3, a certificate on each side, judged by its fingerprint; bytes to bytes |
| `messages.py` | bytes to messages, each within its ceiling |
| `connection.py` | one connection: its handshake, the link that it is, its end |
| `surface.py` | the listener and the dialling side, the counts, who is let go when trust ends |
| `greeting.py` | what either side says first, and what follows for who is known and who is not |
"""
