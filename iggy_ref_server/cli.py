"""The command line of ``iggy-server``.

    iggy-server                start
    iggy-server check DIR      report what is wrong with a data directory
    iggy-server repair DIR     repair a data directory
    iggy-server defaults       print the default configuration

The flags are those of Apache Iggy 0.8; the three commands are additions. Nothing heavy is imported
here, so that ``--help`` and ``--version`` are quick.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence


# The flags of a start, as the command line gives them.


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFlags:
    """The flags of a start.

    Attributes:
        fresh: delete the data directory first.
        with_default_root_credentials: create the root user as ``iggy`` with password ``iggy``.
        follower: report this node as a follower.
    """

    fresh: bool = False
    with_default_root_credentials: bool = False
    follower: bool = False


USAGE: Final = """\
iggy-server [-f] [--with-default-root-credentials] [--follower]
       iggy-server check DIR
       iggy-server repair DIR
       iggy-server defaults"""

SPOKEN: Final = "speaks Apache Iggy 0.7 to 0.10"
"""For people, as in the banner of a start."""

DESCRIPTION: Final = "A server for the clients of Apache Iggy 0.7 to 0.10, in Python."

EPILOG: Final = """\
configuration:
  A TOML file, whose path is in IGGY_CONFIG_PATH; every key has an environment variable as well:
  system.segment.size is IGGY_SYSTEM_SEGMENT_SIZE. Both may come from a file named .env.
  RUST_LOG sets the log levels, such as "info,iggy=debug".

examples:
  iggy-server                                          start with the configuration
  iggy-server --fresh --with-default-root-credentials  a new server for experiments
  IGGY_TCP_ADDRESS=0.0.0.0:8090 iggy-server            listen on every interface
  IGGY_SYSTEM_PATH=data iggy-server                    keep the data in ./data
  iggy-server defaults > server.toml                   a file to start from
  IGGY_CONFIG_PATH=server.toml iggy-server             start with it
  iggy-server check local_data                         check a data directory
"""


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """Start the server."""

    flags: StartFlags


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """Report what is wrong with a data directory."""

    directory: Path


@dataclass(frozen=True, slots=True)
class RepairCommand:
    """Repair a data directory."""

    directory: Path


@dataclass(frozen=True, slots=True)
class DefaultsCommand:
    """Print the default configuration."""


CliCommand: TypeAlias = ServeCommand | CheckCommand | RepairCommand | DefaultsCommand


def parse_arguments(arguments: Sequence[str] | None = None) -> CliCommand:
    """Read the command line.

    Args:
        arguments: without the program's name; ``sys.argv`` by default.

    Raises:
        SystemExit: help or version was printed (0), or the arguments are wrong (2).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    flags = StartFlags(
        fresh=options.fresh,
        with_default_root_credentials=options.with_default_root_credentials,
        follower=options.follower,
    )
    if options.command is None:
        return ServeCommand(flags)
    if flags != StartFlags():
        parser.error(f"{options.command} takes no flags of a start")
    if options.command == "defaults":
        return DefaultsCommand()
    return (CheckCommand if options.command == "check" else RepairCommand)(options.directory)


def package_version() -> str:
    """Return the version of this server; the import is slow, so it is made here."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("iggy-python")
    except PackageNotFoundError:
        return "unknown"


class _VersionAction(argparse.Action):
    """Prints the version and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{parser.prog} {package_version()}, {SPOKEN}\n")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="iggy-server",
        usage=USAGE,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", nargs=0, action=_VersionAction, help="print the version")
    _add_start_flags(parser)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog="iggy-server"
    )
    check = commands.add_parser("check", help="report what is wrong with a data directory")
    repair = commands.add_parser("repair", help="repair a data directory that no server uses")
    for command in (check, repair):
        command.add_argument("directory", metavar="DIR", type=Path, help="such as local_data")
    commands.add_parser("defaults", help="print the default configuration as TOML")
    return parser


def _add_start_flags(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group("start")
    flags.add_argument(
        "-c",
        "--config-provider",
        choices=("file",),
        default="file",
        help='where the configuration comes from; only "file" is supported',
    )
    flags.add_argument(
        "-f", "--fresh", action="store_true", help="DELETE the data directory, then start"
    )
    flags.add_argument(
        "--with-default-root-credentials",
        action="store_true",
        help="create the root user of a new data directory as iggy with password iggy; "
        "for development only",
    )
    flags.add_argument(
        "--follower",
        action="store_true",
        help="report this node to clients as a follower, to test how they find the leader",
    )
