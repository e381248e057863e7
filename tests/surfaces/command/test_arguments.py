"""Every form of the command line, and every refusal of one."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from surfaces.command import commands, flags
from surfaces.command.addresses import Address
from surfaces.command.arguments import (
    CheckHealth,
    EtcdOptions,
    FirstOwner,
    Invitation,
    Join,
    Peers,
    RunFile,
    Serve,
    ShowHelp,
    ShowVersion,
    understand,
)
from surfaces.command.flags import UsageRefused


def serving(line: str, **environment: str) -> Serve:
    command = understand(line.split(), environment)
    assert isinstance(command, Serve)
    return command


def test_serve_both_surfaces() -> None:
    assert serving("d --serve :8001 --http 0.0.0.0:8000") == Serve(
        directory="d",
        http=Address("0.0.0.0", 8000),
        wire=Address("127.0.0.1", 8001),
        cert=None,
        cert_key=None,
        backup_dir=None,
        unseal_for=timedelta(minutes=10),
        first_owner=None,
    )


def test_where_other_nodes_reach_it() -> None:
    there = serving("d --serve :1 --peer 0.0.0.0:3", STORE_PEER=":2").peers
    assert there == Peers(Address("0.0.0.0", 3))
    assert serving("d --serve :1", STORE_PEER=":2").peers == Peers(Address("127.0.0.1", 2))
    assert serving("d --serve :1").peers is None
    given = serving("d --serve :1 --peer :2 --peer-cert c --peer-key k").peers
    assert given == Peers(Address("127.0.0.1", 2), "c", "k")


@pytest.mark.parametrize("line", ["d --serve :1", "--serve :1 d", "--serve=:1 -- d"])
def test_either_surface_alone_and_any_order(line: str) -> None:
    command = serving(line)
    assert (command.http, command.wire) == (None, Address("127.0.0.1", 1))


def test_the_other_forms() -> None:
    assert understand(["d", "--health"], {}) == CheckHealth("d")
    assert understand(["d", "-f", "a script.storeql"], {}) == RunFile("d", "a script.storeql")
    assert understand(["--version"], {}) == ShowVersion()
    assert understand(["--help"], {}) == ShowHelp()
    assert understand(["d", "--nonsense", "-h"], {}) == ShowHelp()
    assert understand(["restore", "--help"], {}) == ShowHelp("restore")


@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("serve d --http :1 --join t --key-file k", "d --http :1 --join t --key-file k"),
        ("check d --accept-clock-jump", "d --health --accept-clock-jump"),
        ("backup d f --from 3", "d --backup f --from 3"),
        ("backup --despite-damage d f --snapshot", "d --backup f --snapshot --despite-damage"),
        ("dump d f", "d --dump f"),
        ("verify --backup-key-file=k f", "--verify f --backup-key-file k"),
        ("restore d --upto 3 f --reading", "d --restore f --upto 3 --reading"),
        ("join d t", "d --join t"),
        ("run -- d -s", "d -f=-s"),
        ("make-key f", "--make-key f"),
        ("./check --health", "./check --health"),
        ("--health check", "./check --health"),
    ],
)
def test_a_command_means_its_flag_form(command: str, form: str) -> None:
    meant = repr(understand(form.split(), {}))
    assert repr(understand(command.split(), {})).replace("'check'", "'./check'") == meant


def test_flags_win_over_the_environment() -> None:
    environment = {"STORE_BACKUP_DIR": "/env", "STORE_UNSEAL_FOR": "5m"}
    by_environment = serving("d --http :1", **environment)
    assert (by_environment.backup_dir, by_environment.unseal_for) == ("/env", timedelta(minutes=5))
    by_flag = serving("d --http :1 --backup-dir /flag --unseal-for 1h30m", **environment)
    assert (by_flag.backup_dir, by_flag.unseal_for) == ("/flag", timedelta(minutes=90))


def test_environment_of_a_container_does_not_disturb_the_other_forms() -> None:
    environment = {"STORE_BACKUP_DIR": "/env", "STORE_UNSEAL_FOR": "5m", "STORE_USER": "ana"}
    assert understand(["d", "--health"], environment) == CheckHealth("d")


def test_first_owner_from_the_environment() -> None:
    command = serving("d --http :1", STORE_USER="ana", STORE_PASSWORD="correct horse")
    assert command.first_owner == FirstOwner("ana", "correct horse")
    assert "correct horse" not in repr(command)


REFUSED = [
    ("", "nothing to do"),
    ("d", "nothing to do: give --http, --serve, --health, --backup, --dump, --verify,"),
    ("--http :1", "no data directory"),
    ("--health", "no data directory"),
    ("d e --http :1", "expected one data directory, not 2: 'd', 'e'"),
    ("d --htpp :1", "unknown flag --htpp (did you mean --http?)"),
    ("d -x", "unknown flag -x"),
    ("d --http", "--http needs a value"),
    ("d --http --serve :1", "--http needs a value"),
    ("d --http= --serve :1", "--http needs a value"),
    ("d --health=yes", "--health takes no value"),
    ("d --http :1 --http :2", "--http is given twice"),
    ("d --health -f s", "--health contradicts -f"),
    ("d -f s --http :1", "-f contradicts --http"),
    ("d --health --backup-dir b", "--backup-dir applies to a serving node"),
    ("d --health --cert c --cert-key k", "--cert applies to a serving node"),
    ("d --http :1 --cert c", "--cert needs --cert-key"),
    ("d --backup a --restore b", "--backup contradicts --restore"),
    ("d --restore a --http :1", "--restore contradicts --http"),
    ("d --backup a --from 2 --snapshot", "--from contradicts --snapshot"),
    ("d --backup a --upto 2", "--upto needs --restore"),
    ("d --health --reading", "--reading needs --restore"),
    ("d --restore a --snapshot", "--snapshot needs --backup"),
    ("d --from 3", "--from needs --backup"),
    ("d --backup a --from 0", "--from: 0 is refused"),
    ("d --backup a --from 2 --despite-damage", "--from contradicts --despite-damage"),
    ("d --backup -", "--backup - is refused: it takes the name of a file"),
    ("d --dump=-", "--dump - is refused: it takes the name of a file"),
    ("d --backup a --from x", "--from: x is refused"),
    ("d --restore a --upto 99999999999999999999", "--upto: 99999999999999999999 is refused"),
    ("d --verify a", "d contradicts --verify"),
    ("--backup a", "no data directory"),
    ("d --http :1 --cert-key k", "--cert-key needs --cert"),
    ("d --http :1 --serve :1", "--http contradicts --serve: both use 127.0.0.1:1"),
    ("d --health --peer :1", "--peer applies to a serving node"),
    ("d --http :1 --peer 8002", "--peer: '8002' is not an address"),
    ("d --http :1 --peer :1", "--peer contradicts another flag: 127.0.0.1:1 is used twice"),
    ("d --http :1 --peer :2 --peer-cert c", "--peer-cert needs --peer-key"),
    ("d --http :1 --peer :2 --peer-key k", "--peer-key needs --peer-cert"),
    ("d --http :1 --peer-cert c --peer-key k", "--peer-cert needs --peer"),
    ("d --http :1 --unseal-for 0s", "--unseal-for: 0s is refused"),
    ("d --http :1 --unseal-for soon", "--unseal-for"),
    ("d --http :1 --unseal-for 53w", "--unseal-for is refused: it must be at most 366 days"),
    ("d --http 8000", "--http: '8000' is not an address"),
    ("d --serve :65536", "--serve: ':65536' is not an address: the port must be at most 65535"),
    *(
        (f"d --http {text}", "is not an address")
        for text in ("host", "::1:80", "[::1]", "[zz]:1", "[1.2.3.4]:1", "http://h:1", ":", "-h:1")
    ),
    (
        "check",
        "check: the following arguments are required: <data_dir>; a directory named check is",
    ),
    ("check --health", "a directory named check is written ./check"),
    ("check d --http :1", "--http of storenode check; a directory of that name is written ./check"),
    ("check d e", "check: unexpected argument 'e'"),
    ("restore d", "restore: the following arguments are required: <file>"),
    ("restore d f --uptoo 3", "restore: unknown flag --uptoo (did you mean --upto?)"),
    ("restore d f --upto", "restore: --upto: expected one argument"),
    ("restore d f --upto 1 --upto 2", "restore: --upto is given twice"),
    ("restore d f --key-file=", "restore: --key-file needs a value"),
    ("restore d -", "restore: <file> - is refused: it takes the name of a file"),
    ("backup d f --from 0", "backup: --from: 0 is refused"),
    ("serve d", "serve: give --http, --serve or both"),
    ("d --join t --restore f", "--restore contradicts --join"),
    ("d --join t --health", "--health contradicts --join"),
    ("d --join", "--join needs a value"),
    ("--join t", "no data directory"),
    ("d --join t --keep-log 7d", "--keep-log applies to a serving node"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused_naming_which(line: str, message: str) -> None:
    with pytest.raises(UsageRefused) as caught:
        understand(line.split(), {})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"STORE_UNSEAL_FOR": "0s"}, "STORE_UNSEAL_FOR: 0s is refused"),
        ({"STORE_UNSEAL_FOR": "x"}, "STORE_UNSEAL_FOR"),
        ({"STORE_USER": "ana"}, "STORE_USER is set without STORE_PASSWORD"),
        ({"STORE_PASSWORD": "12345678"}, "STORE_PASSWORD is set without STORE_USER"),
        (
            {"STORE_USER": "a b", "STORE_PASSWORD": "12345678"},
            "STORE_USER: invalid user name 'a b'",
        ),
        (
            {"STORE_USER": "ana", "STORE_PASSWORD": "canary"},
            "STORE_PASSWORD: a password must have",
        ),
    ],
)
def test_bad_environment_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageRefused) as caught:
        understand(["d", "--http", ":1"], environment)
    assert message in str(caught.value)
    assert "canary" not in str(caught.value)


def test_empty_environment_variables_are_unset_ones() -> None:
    names = ("STORE_BACKUP_DIR", "STORE_UNSEAL_FOR", "STORE_USER", "STORE_PASSWORD")
    command = serving("d --http :1", **dict.fromkeys(names, ""))
    assert (command.backup_dir, command.first_owner) == (None, None)


def test_help_names_every_flag_and_variable() -> None:
    text = commands.help_text()
    for flag in flags.FLAGS:
        assert f"{flag.name} " in text
    for variable in ("STORE_USER", "STORE_PASSWORD", "STORE_BACKUP_DIR", "STORE_UNSEAL_FOR"):
        assert variable in text
    assert max(map(len, text.splitlines())) <= 100


def test_help_of_a_command_names_its_flags_alone() -> None:
    forms, taken = {"--version"}, set[str]()
    for word, command in commands.COMMANDS.items():
        assert f"\n{' '.join((word, *command.arguments))} " in commands.help_text()
        shown = re.findall(r"^  (-[a-z-]+)", commands.help_text(word), re.MULTILINE)
        assert sorted(shown) == sorted(flag.name for flag in command.flags)
        taken.update(shown)
        forms.add(command.form or "--help")
    assert taken | forms == {flag.name for flag in flags.FLAGS}, "a flag belongs to no command"
    assert "--from" in commands.help_text("backup")
    assert "--from" not in commands.help_text("restore")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("20GiB", 20 << 30),
        ("500", 500),
    ],
)
def test_keep_log(text: str, kept: timedelta | int) -> None:
    assert serving(f"d --http :1 --keep-log {text}").keep_log == kept
    assert serving("d --http :1").keep_log is None


@pytest.mark.parametrize("text", ["0", "0s", "-5m", "-1", "5x", "7d 1GiB", "many"])
def test_keep_log_refused(text: str) -> None:
    with pytest.raises(UsageRefused, match="--keep-log"):
        understand(["d", "--http", ":1", f"--keep-log={text}"], {})
    with pytest.raises(UsageRefused, match="--keep-log applies to a serving node"):
        understand(["d", "--health", "--keep-log", "7d"], {})


def test_what_is_logged() -> None:
    assert (serving("d --http :1").log_level, serving("d --http :1").slow) == (
        "info",
        timedelta(seconds=1),
    )
    told = serving("d --http :1 --log-level warning --slow 200ms")
    assert (told.log_level, told.slow) == ("warning", timedelta(milliseconds=200))
    environment = {"STORE_LOG_LEVEL": "debug", "STORE_SLOW": "5s"}
    set_there = understand(["d", "--http", ":1", "--slow", "1m"], environment)
    assert isinstance(set_there, Serve)
    assert (set_there.log_level, set_there.slow) == ("debug", timedelta(minutes=1))
    for words in (["--log-level", "loud"], ["--slow", "0s"], ["--slow", "soon"]):
        with pytest.raises(UsageRefused, match=words[0]):
            understand(["d", "--http", ":1", *words], {})
    with pytest.raises(UsageRefused, match="STORE_LOG_LEVEL"):
        understand(["d", "--http", ":1"], {"STORE_LOG_LEVEL": "INFO"})


def test_how_etcd_lets_it_in() -> None:
    assert serving("d --http :0").etcd == EtcdOptions()
    words = "d --http :0 --etcd-ca a --etcd-cert c --etcd-key k --etcd-login l"
    assert serving(words).etcd == EtcdOptions("a", "c", "k", "l")
    told = serving("d --http :0", STORE_ETCD_USER="ana", STORE_ETCD_PASSWORD="secret").etcd
    assert told == EtcdOptions(credential=("ana", "secret")) and "secret" not in repr(told)
    refused: list[tuple[str, dict[str, str], str]] = [
        ("d --http :0 --etcd-cert c", {}, "--etcd-cert needs --etcd-key"),
        ("d --http :0 --etcd-key c", {}, "--etcd-key needs --etcd-cert"),
        ("d --health --etcd-ca a", {}, "--etcd-ca applies to a serving node"),
        ("d --http :0", {"STORE_ETCD_USER": "a"}, "STORE_ETCD_USER is set without"),
        ("d --http :0", {"STORE_ETCD_PASSWORD": "a"}, "STORE_ETCD_PASSWORD is set without"),
    ]
    for line, environment, why in refused:
        with pytest.raises(UsageRefused, match=why):
            understand(line.split(), environment)


def test_join_by_itself_and_beside_what_serves() -> None:
    assert understand(["d", "--join", "t"], {}) == Join("d", Invitation("t"))
    assert serving("d --http :0 --join t").invitation == Invitation("t")
    both = serving("d --http :0 --join t", STORE_JOIN_TOKEN="n2.secret").invitation
    assert both == Invitation("t")
    told = serving("d --http :0", STORE_JOIN_TOKEN="n2.secret").invitation
    assert told == Invitation(None, "n2.secret") and "secret" not in repr(told)
    assert serving("d --http :0").invitation == Invitation()


@pytest.mark.parametrize("text", ["", "  ", "\n"])
@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("STORE_JOIN_TOKEN", "--join t"),
        ("STORE_KEY_FILE", "--key-file k"),
        ("STORE_PEER", "--peer :1"),
        ("STORE_ETCD_USER", "--etcd-login l"),
        ("STORE_ETCD_PASSWORD", "--etcd-login l"),
    ],
)
def test_a_variable_that_was_to_be_filled_in_is_no_other_node(
    name: str, flag: str, text: str
) -> None:
    with pytest.raises(UsageRefused, match=f"{name} is set but empty"):
        understand(["d", "--http", ":0"], {name: text})
    assert serving(f"d --http :0 {flag}", **{name: text}).http is not None, "the flag wins"
