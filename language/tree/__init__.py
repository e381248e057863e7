"""Abstract syntax tree (AST). Nodes are frozen and know nothing about execution; lists are tuples.

Positions (`at`) are offsets into the script's text and do not take part in equality. Parse → print
→ parse is therefore the identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from language.tree.analyzers import AnalyzerFilter, DefineAnalyzer, DropAnalyzer
from language.tree.backups import Backup, BackupForm, RestoreScript
from language.tree.cluster import (
    AlterReplica,
    CreateJoinToken,
    DefineFailover,
    DefineReplica,
    DropFailover,
    DropReplica,
    RevokeCertificate,
)
from language.tree.expressions import (
    Array,
    Attribute,
    Binary,
    BinaryOperator,
    Call,
    Choice,
    Closure,
    Collected,
    Constant,
    Each,
    Expression,
    Index,
    Name,
    Nearest,
    Object,
    Parameter,
    Range,
    RecordLiteral,
    Subquery,
    Unary,
    UnaryOperator,
    collects,
)
from language.tree.fields import (
    AlterField,
    AlterTable,
    ArrayType,
    DefineField,
    DropField,
    FieldType,
    Kind,
    LiteralType,
    OptionType,
    PlainType,
    RecordType,
    UnionType,
)
from language.tree.flow import (
    Begin,
    Block,
    Cancel,
    Commit,
    Evaluate,
    For,
    If,
    Let,
    ReturnStatement,
    Throw,
)
from language.tree.functions import DefineFunction, DropFunction, FunctionParameter
from language.tree.indexes import (
    CheckIndex,
    DefineIndex,
    DropIndex,
    Explain,
    FullText,
    MeasureIndex,
    MeasureOver,
    RebuildIndex,
    VectorIndex,
)
from language.tree.node import (
    AlterUser,
    DefineNode,
    DefineUser,
    DropUser,
    Grant,
    Info,
    InfoEntries,
    InfoHistory,
    InfoSubject,
    Kill,
    LeadStore,
    Revoke,
    SecurableRef,
)
from language.tree.places import (
    DefineDatabase,
    DefineNamespace,
    DefineTable,
    DropDatabase,
    DropNamespace,
    DropTable,
    Exists,
    OnChange,
    Use,
)
from language.tree.records import (
    Assignment,
    Column,
    Content,
    Create,
    Data,
    Delete,
    ExpressionTarget,
    Insert,
    Merge,
    Order,
    RecordRange,
    Return,
    Select,
    Set,
    TableTarget,
    Target,
    Unset,
    Update,
    Upsert,
)
from language.tree.spaces import (
    DefineSpace,
    DeleteKey,
    DropKeys,
    DropSpace,
    ExpireKey,
    GetKey,
    IncrKey,
    ListKeys,
    LockKey,
    PersistKey,
    SetKey,
    SwapKey,
    UnlockKey,
)
from language.tree.topics import (
    Ack,
    AlterGroup,
    AlterReader,
    AlterTopic,
    CommitReader,
    DefineGroup,
    DefineReader,
    DefineTopic,
    DropGroup,
    DropReader,
    DropTopic,
    Extend,
    GiveUp,
    GroupSetting,
    Nack,
    Position,
    Publish,
    ReadTopic,
    Redrive,
    Take,
    TopicSetting,
    TrimTopic,
)
from language.tree.vaults import (
    AlterVault,
    DefineVault,
    DropVault,
    EraseSecret,
    InfoTrail,
    ListSecrets,
    RevealSecret,
    RotateVault,
    WriteSecret,
)

Answering = (
    Create | Insert | Upsert | Update | Delete | Select | If | GetKey | SetKey | SwapKey | IncrKey
    | DeleteKey | ExpireKey | PersistKey | LockKey | UnlockKey | ListKeys | TrimTopic | Publish
    | ReadTopic | Take | Ack | Nack | Extend | GiveUp | Redrive
)  # fmt: skip
"""Statements whose result LET and RETURN accept."""


Statement = (
    Create | Insert | Upsert | Update | Delete | Select | Let | ReturnStatement | Evaluate | If
    | For | Throw | Begin | Commit | Cancel | Use | DefineNamespace | DefineDatabase | DefineTable
    | DropNamespace | DropDatabase | DropTable | DefineSpace | DropSpace | GetKey | SetKey | SwapKey
    | IncrKey | DeleteKey | ExpireKey | PersistKey | LockKey | UnlockKey | ListKeys | DropKeys
    | DefineTopic | AlterTopic | DropTopic | TrimTopic | Publish | ReadTopic | DefineReader
    | CommitReader | AlterReader | DropReader | DefineGroup | AlterGroup | DropGroup | Take | Ack
    | Nack | Extend | GiveUp | Redrive
    | DefineField | AlterTable | AlterField | DropField
    | DefineIndex | DropIndex | RebuildIndex | CheckIndex | MeasureIndex | Explain
    | DefineFunction | DropFunction | DefineAnalyzer | DropAnalyzer
    | DefineUser | AlterUser | DropUser | Grant | Revoke | DefineNode | Info | InfoEntries
    | InfoHistory | Kill | LeadStore | Backup | RestoreScript
    | DefineVault | AlterVault | DropVault | RotateVault | WriteSecret | RevealSecret | EraseSecret
    | ListSecrets | InfoTrail
    | DefineReplica | AlterReplica | DropReplica | CreateJoinToken | RevokeCertificate
    | DefineFailover | DropFailover
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed script. `text` is kept to show the line of an error."""

    statements: tuple[Statement, ...]
    text: str = field(default="", compare=False, repr=False)
    current: bool = False
    """True if any SELECT in the script is CURRENT."""

    def position(self, at: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        before = self.text[:at]
        return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


Node = Any
"""Any AST node, for generic traversals."""


__all__ = [
    "Ack", "AlterField", "AlterGroup", "AlterReader", "AlterReplica", "AlterTable", "AlterTopic",
    "AlterUser", "AlterVault", "AnalyzerFilter", "Answering", "Array", "ArrayType", "Assignment",
    "Attribute", "Backup", "BackupForm", "Begin", "Binary", "BinaryOperator", "Block", "Call",
    "Cancel", "CheckIndex", "Choice", "Closure", "Collected", "Column", "Commit", "CommitReader",
    "Constant",
    "Content", "Create", "CreateJoinToken", "Data", "DefineAnalyzer", "DefineDatabase",
    "DefineFailover", "DefineField", "DefineFunction", "DefineGroup", "DefineIndex",
    "DefineNamespace", "DefineNode", "DefineReader", "DefineReplica", "DefineSpace", "DefineTable",
    "DefineTopic", "DefineUser", "DefineVault", "Delete", "DeleteKey", "DropAnalyzer",
    "DropDatabase", "DropFailover", "DropField", "DropFunction", "DropGroup", "DropIndex",
    "DropKeys", "DropNamespace", "DropReader", "DropReplica", "DropSpace", "DropTable", "DropTopic",
    "DropUser", "DropVault", "Each", "EraseSecret", "Evaluate", "Exists", "ExpireKey", "Explain",
    "Expression", "ExpressionTarget", "Extend", "FieldType", "For", "FullText", "FunctionParameter",
    "GetKey", "GiveUp", "Grant", "GroupSetting", "If", "IncrKey", "Index", "Info", "InfoEntries",
    "InfoHistory", "InfoSubject", "InfoTrail", "Insert", "Kill", "Kind", "LeadStore", "Let",
    "ListKeys", "ListSecrets", "LiteralType", "LockKey", "MeasureIndex", "MeasureOver", "Merge",
    "Nack", "Name", "Nearest", "Node", "Object",
    "OnChange", "OptionType", "Order", "Parameter", "PersistKey", "PlainType", "Position",
    "Publish", "Range", "ReadTopic", "RebuildIndex", "RecordLiteral", "RecordRange", "RecordType",
    "Redrive", "RestoreScript", "Return", "ReturnStatement", "RevealSecret", "Revoke",
    "RevokeCertificate", "RotateVault", "Script", "SecurableRef", "Select", "Set", "SetKey",
    "Statement", "Subquery", "SwapKey", "TableTarget", "Take", "Target", "Throw", "TopicSetting",
    "TrimTopic", "Unary", "UnaryOperator", "UnionType", "UnlockKey", "Unset", "Update", "Upsert",
    "Use", "VectorIndex", "WriteSecret", "collects",
]  # fmt: skip
