"""The `aisle` command. Each verb is a few lines that read the settings and call the room that does the work.

Bad input of any kind ends here: one line on standard error, exit code 2, nothing changed.
"""

import argparse
import asyncio
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from aisle import __version__
from aisle.accounts.command import mount_account
from aisle.cli_audit import mount_audit
from aisle.cli_backup import mount_backup
from aisle.cli_bench import mount_bench
from aisle.cli_demo import mount_demo
from aisle.cli_dlq import mount_dlq
from aisle.cli_inspect import mount_inspect
from aisle.cli_operate import mount_operate
from aisle.cli_store import mount_store
from aisle.collector import collect_seldom
from aisle.config import Config, read_config
from aisle.door.command import mount_ticket_keys
from aisle.embedded.errors import EmbeddedError
from aisle.errors import StartupError


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    try:
        sys.exit(arguments.verb(arguments))
    except (StartupError, EmbeddedError) as error:
        print(f"aisle: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aisle", description="Ticketing for the seated on-sale.")
    parser.add_argument("--version", action="version", version=f"aisle {__version__}")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    up = verbs.add_parser("up", help="start everything on this machine and stop it on Ctrl-C")
    up.add_argument("--demo", action="store_true", help="load the demonstration, with logins that everybody knows")
    up.set_defaults(verb=_up)

    scale = verbs.add_parser("scale", help="the same on Apache Kafka, a store cluster and two processes a role")
    scale.add_argument("--demo", action="store_true", help="load the demonstration, with logins that everybody knows")
    scale.add_argument(
        "--kafka-jars", default=".cache/kafka", metavar="DIR", help="jars of Apache Kafka 4 (default .cache/kafka)"
    )
    scale.set_defaults(verb=_scale)

    serve = verbs.add_parser("serve", help="run roles of the platform against given servers")
    serve.add_argument("--roles", default="api,booking,reservation,ticketing", help="comma-separated; all by default")
    serve.set_defaults(verb=_serve)

    migrate = verbs.add_parser("migrate", help="bring the database schema up to date")
    migrate.set_defaults(verb=_migrate)

    mount_account(verbs)
    mount_ticket_keys(verbs)
    mount_store(verbs)
    mount_inspect(verbs)
    mount_dlq(verbs)
    mount_audit(verbs)
    mount_operate(verbs)
    mount_backup(verbs)
    mount_demo(verbs)
    mount_bench(verbs)
    return parser


def _up(arguments: argparse.Namespace) -> int:
    from aisle.up import up

    return up(read_config(os.environ), demo=arguments.demo)


def _scale(arguments: argparse.Namespace) -> int:
    from aisle.one_box import scale

    return scale(read_config(os.environ), jars=Path(arguments.kafka_jars), demo=arguments.demo)


def _serve(arguments: argparse.Namespace) -> int:
    from aisle.app import ROLES, serve
    from aisle.logs import configure_logs

    roles = [role.strip() for role in arguments.roles.split(",") if role.strip()]
    unknown = [role for role in roles if role not in ROLES]
    if unknown or not roles:
        raise StartupError(f"unknown role {', '.join(unknown) or '(none)'}; choose from {', '.join(ROLES)}")
    config = _with_servers(read_config(os.environ))
    configure_logs(config.log_level)
    _allow_many_connections()
    collect_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(config, roles))
    return 0


def _allow_many_connections() -> None:
    """Every viewer is an open file, and the usual soft limit of 1,024 is meant for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _migrate(arguments: argparse.Namespace) -> int:
    from aisle.migrate import migrate

    config = read_config(os.environ)
    if not config.database_url:
        raise StartupError("AISLE_DATABASE_URL is not set; `aisle up` migrates the embedded database by itself")
    applied = asyncio.run(migrate(config))
    print(f"applied {', '.join(applied)}" if applied else "the schema is up to date")
    return 0


def _with_servers(config: Config) -> Config:
    if not config.database_url:
        raise StartupError("AISLE_DATABASE_URL is not set; `aisle up` starts an embedded PostgreSQL")
    if not config.store_url:
        raise StartupError("AISLE_STORE_URL is not set; `aisle up` starts an embedded Valkey")
    if not config.kafka:
        raise StartupError("AISLE_KAFKA is not set; `aisle up` starts an embedded Penstock")
    return config
