"""Every command of every page is run by a test, or its page says why not; and all of them parse.

A block marked ``bash`` is run, in its order: by tests/deploy/test_runbooks.py, and those of two
pages by tests of their own. A block marked ``console`` is not, and its first line says so with the
reason (`tests.page_commands.NOT_RUN`). No other mark is for commands.

What begins with `logctl` or `logservice`, in a block or in a sentence, is given to the program's
own parser: a command or an option that there is not fails here, without a cluster.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from logservice.cli.ctl.client_session import Session
from logservice.cli.logctl import logctl
from logservice.cli.main import logservice
from tests.page_commands import NOT_RUN, SENTENCE, Block, Command, blocks, commands

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs" / "operations"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        ROOT / "client" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
# The changelog names commands as they were, too.
COMMANDS = [
    (page, one)
    for page in PAGES
    if page.name not in ("commands.md", "CHANGELOG.md")
    for one in commands(page)
]


def place(page: Path, line: int) -> str:
    return f"{page.relative_to(ROOT)}:{line}"


def fault(page: Path, block: Block) -> str:
    """What is wrong with the mark of a block of commands."""
    if block.mark == "bash":
        return "" if page.parent == OPERATIONS else "no test runs this page: mark it console"
    if block.mark == "console":
        first = block.lines[0].strip() if block.lines else ""
        reason = first.removeprefix(NOT_RUN)
        return "" if first != reason and len(reason) > 8 else f"begin it with '{NOT_RUN}<reason>'"
    if block.mark in ("sh", "shell", "zsh") or (not block.mark and block.has_commands()):
        return "commands are marked bash (a test runs them) or console (none does, and why)"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_of_commands_is_run_or_says_why_not(page: Path) -> None:
    found = [
        f"{place(page, one.line)}: {fault(page, one)}" for one in blocks(page) if fault(page, one)
    ]
    assert not found, "\n".join(found)


def problem(command: Command) -> str:
    """What the program's parser says of the command, if it does not take it."""
    group: click.Command = logctl if command.words[0] == "logctl" else logservice
    try:
        context = group.make_context(
            command.words[0], list(command.words[1:]), resilient_parsing=True
        )
        rest = [*context._protected_args, *context.args]
        context.resilient_parsing = False
        context.obj = Session("h:1", 1.0)
        while isinstance(group, click.Group) and rest:
            name, found, rest = group.resolve_command(context, rest)
            assert found is not None
            group = found
            context = group.make_context(name, list(rest), parent=context)
            rest = [*context._protected_args, *context.args]
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        return ""
    except click.MissingParameter as error:
        # A sentence names a command without what it is given; what it gives has to have a place.
        _, left, _ = group.make_parser(click.Context(group)).parse_args(list(rest))
        return "" if command.where == SENTENCE and not left else error.format_message()
    except click.BadParameter as error:
        kind = error.param.type if error.param is not None else None
        placeholder = any(word in error.format_message() for word in command.placeholders)
        excused = placeholder or isinstance(kind, click.Path | click.File)
        return "" if excused else error.format_message()
    except click.BadOptionUsage as error:
        # A sentence may also name an option without its value.
        named = command.where == SENTENCE and not isinstance(error, click.NoSuchOption)
        return "" if named else error.format_message()
    except click.UsageError as error:
        excused = any(repr(word) in error.message for word in command.placeholders)
        return "" if excused else error.format_message()
    return ""


def test_every_command_of_every_page_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a log needs no cluster here."""
    monkeypatch.setattr(Session, "run", lambda _session, _work: SimpleNamespace(shard_id=1))
    said = [
        f"{place(page, one.line)}: {' '.join(one.words)}: {text}"
        for page, one in COMMANDS
        if (text := problem(one))
    ]
    assert not said, "\n".join(said)


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) > 500
    assert {one.words[0] for _, one in COMMANDS} == {"logctl", "logservice"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```bash\nuntil logctl dcotor; do sleep 1; done\n```\n", "No such command"),
        ("```bash\nid=$(logctl shard create --nmae x)\n```\n", "No such option"),
        ("```bash\nlogctl shard close\n```\n", "Missing argument"),
        ("Type `logservice store check-config store.toml` first.\n", "Missing option"),
        ("`logctl stores drain store-1 --wait soon`\n", "expected a time"),
        ("`logctl stores drain STORE --wait TIME`, `logctl shard delete`\n", ""),
        ('```bash\nlogctl append 1 "$(date)" $x | cat  # and `logctl` more\n```\n', ""),
    ],
)
def test_what_the_parser_says(
    text: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "run", lambda _session, _work: SimpleNamespace(shard_id=1))
    page = tmp_path / "page.md"
    page.write_text(text)
    said = [problem(one) for one in commands(page)]
    assert said
    assert any(said) is bool(wrong)
    assert wrong in "".join(said)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("```console\n# Not run by the tests: it needs Kubernetes.\nkubectl get pods\n```\n", True),
        ("```console\nkubectl get pods\n```\n", False),
        ("```console\n# Not run by the tests:\nkubectl get pods\n```\n", False),
        ("```sh\nmake test\n```\n", False),
        ("```\nmake test\n```\n", False),
        ("```bash\nmake test\n```\n", False),
        ("```\nsome output\n```\n", True),
    ],
)
def test_how_a_block_is_marked(text: str, right: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert (not any(fault(page, one) for one in blocks(page))) is right
