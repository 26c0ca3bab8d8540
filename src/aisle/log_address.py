"""Where the log is and how to log in there: what every Kafka client of ours is told first.

A plain string of bootstrap servers is an address too: of a log that asks for no login.
"""

from typing import Any

import msgspec

from aisle.config import Config


class LogAddress(msgspec.Struct, frozen=True):
    servers: str
    security: str = "plaintext"
    sasl_mechanism: str = ""
    username: str = ""
    password: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def __str__(self) -> str:
        return self.servers

    __repr__ = __str__  # the password is in no error and in no log line


Address = LogAddress | str


def log_address(config: Config) -> LogAddress:
    return LogAddress(
        config.kafka,
        config.kafka_security,
        config.kafka_sasl_mechanism,
        config.kafka_username,
        config.kafka_password,
        config.kafka_ca_file,
        config.kafka_cert_file,
        config.kafka_key_file,
    )


def client_settings(address: Address) -> dict[str, Any]:
    """In librdkafka's words. Certificates and host names are always checked."""
    if isinstance(address, str):
        return {"bootstrap.servers": address}
    settings: dict[str, Any] = {"bootstrap.servers": address.servers, "security.protocol": address.security.upper()}
    if address.security.startswith("sasl"):
        settings["sasl.mechanism"] = address.sasl_mechanism
        settings["sasl.username"], settings["sasl.password"] = address.username, address.password
    files = {"ssl.ca.location": address.ca_file, "ssl.certificate.location": address.cert_file}
    files["ssl.key.location"] = address.key_file
    return settings | {name: path for name, path in files.items() if path}
