"""The wire surface: the binary protocol of `docs/wire.md` on asyncio sockets.

`surface.py` starts and ends it, `refusals.py` turns away whom there is no room for, `connection.py`
is one peer, `bodies.py` reads and writes message bodies, `spaces.py` those on cache keys,
`feeds.py` those of feeds, `gate.py` is what it asks of the node. Framing and the order of messages
are in `protocol/frames.py` and `protocol/conversation.py`, free of sockets.
"""

from surfaces.wire.gate import NodeGate
from surfaces.wire.surface import WireSettings, WireSurface

__all__ = ["NodeGate", "WireSettings", "WireSurface"]
