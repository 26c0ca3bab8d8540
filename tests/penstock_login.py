"""A Penstock that asks for a login over TLS, for tests of those who have to log in."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from aisle.log import log_answers
from aisle.log_address import LogAddress
from tests import children

USER, PASSWORD = "aisle", "correct horse, battery=staple"


class Guarded(NamedTuple):
    address: LogAddress
    settings: dict[str, str]


@contextmanager
def guarded_penstock(folder: Path, store_url: str, keyspace: str) -> Iterator[Guarded]:
    """Yields its address with the login, and the same as settings of Aisle."""
    key, chain = certificate(folder)
    users = folder / "users"
    made = [sys.executable, "-m", "penstock.cli", "user", USER]
    users.write_text(children.run(made, input=PASSWORD + "\n", capture_output=True, text=True, check=True).stdout)
    settings = {
        "kafka": f"127.0.0.1:{free_port()}", "kafka_security": "sasl_ssl", "kafka_sasl_mechanism": "SCRAM-SHA-256",
        "kafka_username": USER, "kafka_password": PASSWORD, "kafka_ca_file": chain,
    }  # fmt: skip
    address = LogAddress(settings["kafka"], "sasl_ssl", "SCRAM-SHA-256", USER, PASSWORD, chain)
    command = [sys.executable, "-m", "penstock", "serve", "--listen", address.servers, "--keyspace", keyspace]
    command += ["--sasl-users", str(users), "--tls-certificate", chain, "--tls-key", key, "--group-initial-delay", "0"]
    with Supervisor(folder / "broker", log=lambda line: None) as supervisor:
        env = {"PENSTOCK_STORE": store_url}
        supervisor.start_program("penstock", command, env, ready=lambda: log_answers(address))
        yield Guarded(address, settings)


def certificate(folder: Path) -> tuple[str, str]:
    key, chain = str(folder / "key.pem"), str(folder / "chain.pem")
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", chain]
    children.run([*command, *subject], check=True, capture_output=True, timeout=60)
    return key, chain
