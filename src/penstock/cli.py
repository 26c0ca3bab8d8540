"""The `penstock` command: serve, inspect, bench. Bad input is one line on standard error and exit code 2."""

import argparse
import asyncio
import getpass
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence

import structlog

import respline
from penstock import inspection, limits
from penstock.config import Address, BadConfig, Config
from penstock.sasl import Credential
from penstock.serve import serve_until_signal


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    _log_to_stderr(arguments.log_level)
    try:
        return int(arguments.run(arguments))
    except (BadConfig, respline.BadUrl) as error:
        return _complain(str(error))
    except respline.ResplineError as error:
        return _complain(f"the store does not answer: {error}")
    except OSError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", description="A Kafka broker over Redis, Valkey or Kvrocks.")
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="run a broker"))
    _add_inspect(commands.add_parser("inspect", help="show what a store holds"))
    _add_user(commands.add_parser("user", help="make a line for the file of users"))
    _add_bench(commands.add_parser("bench", help="measure a broker on this machine"))
    return parser


def _add_serve(serve: argparse.ArgumentParser) -> None:
    serve.set_defaults(run=_serve)
    serve.add_argument("--listen", required=True, metavar="HOST:PORT", help="port 0 takes a free one and prints it")
    # A URL may hold a password, and command lines are visible to everybody on the machine; environments are not.
    store = os.environ.get("PENSTOCK_STORE")
    serve.add_argument(
        "--store",
        default=store,
        required=store is None,
        metavar="URL",
        help="redis://, valkey://, unix:// or redis+cluster://; default: the variable PENSTOCK_STORE",
    )
    serve.add_argument("--advertise", metavar="HOST:PORT", help="what clients are told to connect to")
    serve.add_argument("--keyspace", default="penstock", help="prefix of every key (default: %(default)s)")
    serve.add_argument("--node-id", type=int, default=1, help="unique among the brokers of one store")
    serve.add_argument("--no-auto-create", action="store_true", help="do not make topics that clients mention")
    serve.add_argument("--default-partitions", type=int, default=1, metavar="N")
    serve.add_argument("--store-timeout", type=float, default=5.0, metavar="SECONDS")
    serve.add_argument("--acks-replicas", type=int, default=0, metavar="N", help="acks=all waits for N store replicas")
    serve.add_argument("--acks-fsync", action="store_true", help="acks=all waits for the store's fsync (WAITAOF)")
    serve.add_argument(
        "--fetch-gather", type=int, default=0, metavar="MS", help="serve the tail of a log to a consumer once in MS"
    )
    serve.add_argument("--retention-interval", type=float, default=30.0, metavar="SECONDS")
    serve.add_argument(
        "--group-initial-delay", type=float, default=3.0, metavar="SECONDS", help="wait for more members"
    )
    serve.add_argument("--group-session-min", type=float, default=6.0, metavar="SECONDS")
    serve.add_argument(
        "--offsets-retention", type=float, default=7 * 86400.0, metavar="SECONDS", help="of empty groups"
    )
    serve.add_argument("--max-connections", type=int, default=limits.CONNECTIONS_MAX, metavar="N")
    serve.add_argument("--max-frame-bytes", type=int, default=limits.FRAME_BYTES_MAX, metavar="N")
    serve.add_argument("--max-in-flight-bytes", type=int, default=limits.IN_FLIGHT_BYTES_MAX, metavar="N")
    serve.add_argument("--tls-certificate", metavar="FILE", help="speak TLS with this certificate chain")
    serve.add_argument("--tls-key", metavar="FILE")
    serve.add_argument("--sasl-users", metavar="FILE", help="clients must log in; lines made by `penstock user`")
    serve.add_argument("--metrics-listen", metavar="HOST:PORT", help="serve /metrics, /livez and /readyz there")


def _add_inspect(inspect: argparse.ArgumentParser) -> None:
    inspect.set_defaults(run=_inspect)
    inspect.add_argument("view", choices=list(inspection.VIEWS))
    inspect.add_argument("name", nargs="?", help="one topic, group or transactional id")
    inspect.add_argument("--store", required=True, metavar="URL")
    inspect.add_argument("--keyspace", default="penstock")
    inspect.add_argument("--json", action="store_true", help="one JSON object instead of a table")


def _add_user(user: argparse.ArgumentParser) -> None:
    user.set_defaults(run=_user)
    user.add_argument("name", help="the password is asked for, or read from standard input")


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_bench)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--records", type=int, default=1_000_000, metavar="N")
    parser.add_argument(
        "--consumers", type=int, default=1_000, metavar="N", help="idle ones, with nine partitions each"
    )
    parser.add_argument("--store", metavar="URL", help="use this store; else one is started")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="do the same work there and print the ratios")


def _serve(arguments: argparse.Namespace) -> int:
    config = Config(
        listen=Address.parse(arguments.listen),
        store_url=arguments.store,
        advertise=Address.parse(arguments.advertise) if arguments.advertise else None,
        keyspace=arguments.keyspace,
        node_id=arguments.node_id,
        auto_create_topics=not arguments.no_auto_create,
        default_partitions=arguments.default_partitions,
        store_timeout_s=arguments.store_timeout,
        acks_replicas=arguments.acks_replicas,
        acks_fsync=arguments.acks_fsync,
        retention_interval_s=arguments.retention_interval,
        fetch_gather_ms=arguments.fetch_gather,
        group_initial_delay_ms=int(arguments.group_initial_delay * 1000),
        group_session_min_ms=int(arguments.group_session_min * 1000),
        offsets_retention_ms=int(arguments.offsets_retention * 1000),
        connections_max=arguments.max_connections,
        frame_bytes_max=arguments.max_frame_bytes,
        in_flight_bytes_max=arguments.max_in_flight_bytes,
        tls_certificate=arguments.tls_certificate,
        tls_key=arguments.tls_key,
        sasl_users=arguments.sasl_users,
        metrics_listen=Address.parse(arguments.metrics_listen) if arguments.metrics_listen else None,
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve_until_signal(config, _announce))
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        rows = runner.run(inspection.inspect(arguments.store, arguments.keyspace, arguments.view, arguments.name))
    text = json.dumps({arguments.view: rows}) + "\n" if arguments.json else inspection.table(rows)
    sys.stdout.write(text)
    return 0


def _user(arguments: argparse.Namespace) -> int:
    if not arguments.name or set(arguments.name) & set(": \t\n"):
        raise BadConfig("a name is a word without colons or spaces")
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        raise BadConfig("the password is empty")
    sys.stdout.write(Credential.of(password).line(arguments.name) + "\n")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from penstock.bench import bench  # confluent-kafka is loaded only when it is needed

    if arguments.records < 1:
        raise BadConfig("--records must be at least 1")
    if not 0 <= arguments.consumers <= limits.BENCH_CONSUMERS_MAX:
        raise BadConfig(f"--consumers must be 0 to {limits.BENCH_CONSUMERS_MAX}")
    figures = bench(arguments.records, arguments.consumers, arguments.store, arguments.kafka)
    lines = [f"{name}: {value}\n" for name, value in figures.items()]
    sys.stdout.write(json.dumps(figures) + "\n" if arguments.json else "".join(lines))
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def _announce(address: Address) -> None:
    sys.stdout.write(f"penstock: listening, advertised as {address.host}:{address.port}\n")
    sys.stdout.flush()


def _complain(message: str) -> int:
    sys.stderr.write(f"penstock: {message}\n")
    return 2


def _log_to_stderr(level: str) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
