"""Client of storenode over its wire protocol.

`Client` blocks, `AsyncClient` is awaited; both multiplex any number of requests over one
connection. See the README of this package for a tour.
"""

from storeclient import errors, search
from storeclient.answers import Answer, Result, ResultKind
from storeclient.async_client import AsyncClient
from storeclient.backups import Backup
from storeclient.blocking import (
    Cache,
    Client,
    Consumer,
    Database,
    Delivery,
    Group,
    Lease,
    Mirror,
    Moment,
    Publisher,
    Reader,
    Seal,
    Topic,
    Transaction,
    Vault,
    Watch,
)
from storeclient.cache import NEVER, AsyncCache, AsyncLease
from storeclient.changes import Change, Commit, Position
from storeclient.database import AsyncDatabase
from storeclient.errors import (
    Closed,
    LoadFailed,
    OutcomeUnknown,
    ProtocolBroken,
    Refused,
    StoreError,
    Unreachable,
)
from storeclient.events import ConnectionEvent
from storeclient.exchange import Welcome
from storeclient.groups import AsyncConsumer, AsyncDelivery, AsyncGroup, Settled
from storeclient.messages import Message
from storeclient.mirrors import AsyncMirror, Copied
from storeclient.moments import AsyncMoment
from storeclient.names import quote_name
from storeclient.objects import into
from storeclient.texts import json_default
from storeclient.topics import AsyncPublisher, AsyncReader, AsyncTopic, Published
from storeclient.transactions import AsyncTransaction
from storeclient.values import NONE, NoneValue, RecordId
from storeclient.vaults import AsyncSeal, AsyncVault, Revealed, Written
from storeclient.version import VERSION
from storeclient.watches import AsyncWatch

__version__ = VERSION

__all__ = [
    "AsyncClient", "Client", "AsyncDatabase", "Database", "AsyncMoment", "Moment",
    "AsyncTransaction", "Transaction",
    "AsyncWatch", "Watch", "Change", "Commit", "Position", "AsyncMirror", "Mirror", "Copied",
    "ConnectionEvent",
    "AsyncCache", "Cache", "AsyncLease", "Lease", "NEVER",
    "AsyncTopic", "Topic", "AsyncPublisher", "Publisher", "AsyncReader", "Reader",
    "AsyncGroup", "Group", "AsyncConsumer", "Consumer", "AsyncDelivery", "Delivery",
    "Message", "Published", "Settled",
    "AsyncVault", "Vault", "AsyncSeal", "Seal", "Revealed", "Written",
    "Answer", "Result", "ResultKind", "Welcome", "Backup",
    "NONE", "NoneValue", "RecordId", "quote_name", "into", "json_default",
    "StoreError", "Refused", "OutcomeUnknown", "LoadFailed", "Unreachable", "ProtocolBroken",
    "Closed", "errors", "search", "__version__",
]  # fmt: skip
