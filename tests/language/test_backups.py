"""BACKUP: what it says, and what is refused before anything is looked up."""

from __future__ import annotations

import pytest

from language import tree
from language.parser import parse
from language.printing import print_script
from protocol.errors import NameRefused, Refusal, TooLarge, UnexpectedToken

SHOP = tree.SecurableRef("NAMESPACE", ("shop",))
MAIN = tree.SecurableRef("DATABASE", ("shop", "main"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("BACKUP", tree.Backup()),
        ("backup state", tree.Backup("STATE")),
        ("BACKUP LOG", tree.Backup("LOG")),
        ("BACKUP FROM 7", tree.Backup("LOG", 7)),
        ("BACKUP LOG FROM 7", tree.Backup("LOG", 7)),
        ("BACKUP FROM 9223372036854775807", tree.Backup("LOG", 2**63 - 1)),
        ("BACKUP SCRIPT", tree.Backup("SCRIPT")),
        ("BACKUP STATE OF NAMESPACE shop", tree.Backup("STATE", places=(SHOP,))),
        ("BACKUP OF shop.main", tree.Backup("STATE", places=(MAIN,))),
        ("BACKUP SCRIPT OF NAMESPACE shop, shop.main", tree.Backup("SCRIPT", None, (SHOP, MAIN))),
        ("BACKUP TO 'a/b.storesnap'", tree.Backup(to="a/b.storesnap")),
        ("BACKUP FROM 3 TO 'x'", tree.Backup("LOG", 3, (), "x")),
        ("BACKUP LOG TO 'x'", tree.Backup("LOG", to="x")),
        ("BACKUP SCRIPT OF shop.main TO 'x'", tree.Backup("SCRIPT", None, (MAIN,), "x")),
        ("BACKUP OF shop.main TO '../x'", tree.Backup("STATE", None, (MAIN,), "../x")),
        (
            "BACKUP OF `namespace`.`to`",
            tree.Backup("STATE", places=(tree.SecurableRef("DATABASE", ("namespace", "to")),)),
        ),
    ],
)
def test_forms(text: str, wanted: tree.Backup) -> None:
    script = parse(text)
    assert script.statements == (wanted,)
    assert parse(print_script(script)) == script


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("BACKUP STATE FROM 3", "`FROM`"), ("BACKUP SCRIPT FROM 3", "`FROM`"),
        ("BACKUP OF shop.main FROM 3", "`FROM`"), ("BACKUP LOG OF shop.main", "`OF`"),
        ("BACKUP LOG FROM 3 OF NAMESPACE shop", "`OF`"), ("BACKUP FROM 3 OF shop.main", "`OF`"),
        ("BACKUP FROM x", "`x`"), ("BACKUP FROM 'x'", "`'x'`"), ("BACKUP FROM 1.5", "`1.5`"),
        ("BACKUP FROM -1", "`-`"), ("BACKUP FROM 0", "`0`"), ("BACKUP FROM $n", "`$n`"),
        ("BACKUP FROM 1h", "`1h`"), ("BACKUP FROM 9223372036854775808", "`9223372036854775808`"),
        ("BACKUP FROM 99999999999999999999999999", "`99999999999999999999999999`"),
        ("BACKUP FROM", "the end of the script"), ("BACKUP LOG FROM;", "`;`"),
        ("BACKUP OF shop.main, shop.other", "`,`"),
        ("BACKUP STATE OF NAMESPACE shop, NAMESPACE other", "`,`"),
        ("BACKUP OF shop", "the end of the script"), ("BACKUP OF", "the end of the script"),
        ("BACKUP SCRIPT OF shop.main,", "the end of the script"), ("BACKUP TO x", "`x`"),
        ("BACKUP TO $name", "`$name`"), ("BACKUP TO", "the end of the script"),
        ("BACKUP TO 'x' FROM 3", "`FROM`"), ("BACKUP TO 'x' TO 'y'", "`TO`"),
        ("BACKUP STATE LOG", "`LOG`"), ("BACKUP EVERYTHING", "`EVERYTHING`"),
        ("LET $x = BACKUP STATE", "`STATE`"),
    ],
)  # fmt: skip
def test_refusals(text: str, found: str) -> None:
    with pytest.raises(UnexpectedToken, match="expected") as refused:
        parse(text)
    assert refused.value.detail["found"] == found


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("BACKUP OF `a b`.main", NameRefused),
        ("BACKUP SCRIPT OF " + ", ".join(["a.b"] * 5000), TooLarge),
    ],
)
def test_other_refusals(text: str, error: type[Refusal]) -> None:
    with pytest.raises(error):
        parse(text)


def test_the_word_still_names_other_things() -> None:
    script = parse("SELECT backup FROM backup; CREATE backup:1 SET backup = backup:2")
    assert parse(print_script(script)) == script
    assert print_script(script).startswith("SELECT backup FROM backup")
