"""Wire surface: the binary protocol of `docs/wire.md` on asyncio sockets.

`surface.py` starts and stops it. `refusals.py` refuses connections above the ceiling.
`connection.py` is one client connection. `bodies.py` decodes and encodes message bodies,
`spaces.py` those on cache keys, `feeds.py` those of feeds. `gate.py` is the interface to the node.
Framing and the order of messages are in `protocol/frames.py` and `protocol/conversation.py`, free
of sockets.
"""

from surfaces.wire.gate import NodeGate
from surfaces.wire.surface import WireSettings, WireSurface

__all__ = ["NodeGate", "WireSettings", "WireSurface"]
