"""The settings of one process: a frozen struct read once from the environment and passed down.

`AISLE_` + the field's name in capitals is the variable. A variable with that prefix that is no setting is an error, so
a typo cannot silently leave a default in force. `AISLE_..._FILE` names a file that holds the value, as orchestrators
hand out secrets. `docs/reference/settings.md` is generated from this struct.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from aisle.errors import StartupError

PREFIX = "AISLE_"
IN_A_FILE = "_FILE"

Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Annotated[str, Meta(description="Address the HTTP server listens on.", min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(description="Port of the HTTP server; 0 chooses a free one.", ge=0, le=65535)] = 8080
    data_dir: Annotated[str, Meta(description="Where the embedded servers keep data, logs and secrets.")] = ".aisle"

    database_url: Annotated[
        str, Meta(description="PostgreSQL 15 or newer, `postgresql://user:password@host/db`. Empty: embedded.")
    ] = ""
    database_read_url: Annotated[
        str,
        Meta(description="A read replica for browsing and searching events, never for decisions. Empty: none."),
    ] = ""
    database_pool_size: Annotated[
        int, Meta(description="Most PostgreSQL connections of one process.", ge=1, le=500)
    ] = 20
    database_timeout: Annotated[
        Seconds, Meta(description="Longest wait for PostgreSQL to connect or answer, in s.")
    ] = 10

    store_url: Annotated[
        str,
        Meta(description="Hot store: `redis://`, `valkey://`, `unix://` or `valkey+cluster://a,b,c`. Empty: embedded."),
    ] = ""
    store_prefix: Annotated[
        str,
        Meta(description="Put in front of every store key; isolates installations.", pattern="^[A-Za-z0-9_.:-]{0,32}$"),
    ] = ""
    store_pool_size: Annotated[
        int,
        Meta(
            description="Most store connections of one process: one carries the data, the rest blocking reads.",
            ge=2,
            le=1000,
        ),
    ] = 50
    store_timeout: Annotated[Seconds, Meta(description="Longest wait for an answer of the store, in s.")] = 5
    store_connect_timeout: Annotated[Seconds, Meta(description="Longest wait for a store connection, in s.")] = 5
    store_keepalive: Annotated[bool, Meta(description="TCP keep-alive on store connections.")] = True
    store_health_check: Annotated[
        Seconds, Meta(description="Silence on a store connection before it is probed, in s.")
    ] = 30
    store_breaker_seconds: Annotated[
        Seconds, Meta(description="How long a store that did not answer is left alone before it is tried again, in s.")
    ] = 30

    kafka: Annotated[
        str, Meta(description="Kafka bootstrap servers, `host:port[,host:port]`. Empty: embedded Penstock.")
    ] = ""

    kafka_security: Annotated[
        Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"],
        Meta(description="How to talk to Kafka: openly, by TLS (`ssl`), and with a login (`sasl_...`)."),
    ] = "plaintext"
    kafka_sasl_mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="How to log in to Kafka.")
    ] = "SCRAM-SHA-512"
    kafka_username: Annotated[str, Meta(description="User name at Kafka, where it asks for one.")] = ""
    kafka_password: Annotated[str, Meta(description="Password at Kafka.")] = ""
    kafka_ca_file: Annotated[
        str, Meta(description="Certificates that Kafka's own is checked against. Empty: those of the system.")
    ] = ""
    kafka_cert_file: Annotated[str, Meta(description="Our certificate, where Kafka asks for one (PEM).")] = ""
    kafka_key_file: Annotated[str, Meta(description="The key of our certificate (PEM).")] = ""

    hold_seconds: Annotated[int, Meta(description="How long a hold lasts.", ge=5, le=86_400)] = 600
    hold_seconds_max: Annotated[
        int, Meta(description="Longest a hold may last with all its extensions.", ge=5, le=86_400)
    ] = 1800
    accept_wait_seconds: Annotated[
        Seconds, Meta(description="An order that could be written only later than this is refused with a 503, in s.")
    ] = 2
    processing_seconds: Annotated[
        int, Meta(description="How long a booking waits for its seats before it fails.", ge=10, le=86_400)
    ] = 300
    payment_seconds: Annotated[int, Meta(description="How long a booking waits for its payment.", ge=5, le=86_400)] = (
        900
    )
    seats_per_booking_max: Annotated[int, Meta(description="Most seats or places in one booking.", ge=1, le=100)] = 10

    payment_provider: Annotated[
        Literal["sandbox", "stripe"], Meta(description="Who takes the money: `sandbox` takes none, `stripe` is real.")
    ] = "sandbox"
    payment_verdict_seconds: Annotated[
        int,
        Meta(description="How long a provider, or a buyer's confirmation, may take before seats go.", ge=5, le=3600),
    ] = 300
    provider_timeout: Annotated[
        float, Meta(description="Longest wait for one answer of the payment provider, in s.", gt=0, le=9)
    ] = 8
    refund_hours_before: Annotated[
        int,
        Meta(description="Buyers get refunds until so many hours before the event starts; -1: never.", ge=-1, le=8760),
    ] = 0
    sandbox_webhook_secret: Annotated[
        str, Meta(description="Signs webhooks of the sandbox provider. Empty: nobody outside the process can send one.")
    ] = ""
    sandbox_late_seconds: Annotated[
        Seconds, Meta(description="How long the sandbox's `card_late` leaves a payment undecided, in s.")
    ] = 5
    stripe_secret_key: Annotated[str, Meta(description="Secret key of the Stripe account.")] = ""
    stripe_webhook_secret: Annotated[str, Meta(description="Signing secret of the Stripe webhook endpoint.")] = ""
    stripe_account: Annotated[str, Meta(description="Webhooks of a connected account must name this one.")] = ""
    stripe_api_base: Annotated[str, Meta(description="Where Stripe's API is.")] = "https://api.stripe.com"

    retention_days: Annotated[
        int,
        Meta(
            description="Bookings that came to nothing, without money, are forgotten after so many days.",
            ge=1,
            le=36_500,
        ),
    ] = 365

    secret_key: Annotated[
        str,
        Meta(
            description="Signs sessions and tokens: at least 32 bytes as hex or base64; after a comma, older ones that "
            "still count. Empty: made once and kept in PostgreSQL."
        ),
    ] = ""
    session_idle_seconds: Annotated[Seconds, Meta(description="A session nobody uses ends after this long, in s.")] = (
        7200
    )
    session_seconds_max: Annotated[Seconds, Meta(description="A session ends after this long, used or not, in s.")] = (
        43_200
    )
    password_threads: Annotated[
        int, Meta(description="Password checks at the same time; each takes a core and 19 MiB.", ge=1, le=64)
    ] = 2
    password_queue: Annotated[
        int, Meta(description="Password checks that may wait; more are told to come back.", ge=0, le=10_000)
    ] = 32
    logins_per_address: Annotated[
        int, Meta(description="Log-in attempts of one client address per minute.", ge=1, le=1_000_000)
    ] = 100
    logins_per_email: Annotated[
        int, Meta(description="Log-in attempts for one e-mail address per minute.", ge=1, le=1_000_000)
    ] = 10
    registrations_per_address: Annotated[
        int, Meta(description="Registrations from one client address per minute.", ge=1, le=1_000_000)
    ] = 30
    holds_per_buyer: Annotated[
        int, Meta(description="Holds that one buyer may take per minute, given back or not.", ge=1, le=1_000_000)
    ] = 120
    trusted_proxies: Annotated[
        str,
        Meta(description="Comma-separated addresses or networks whose X-Forwarded-For is believed. Empty: nobody's."),
    ] = ""

    own_lane_from_seats: Annotated[
        int, Meta(description="Events of at least so many seats get topics and workers of their own.", ge=1)
    ] = 5_000

    reconcile_seconds: Annotated[
        int,
        Meta(
            description="How often store and tickets are compared in the background, in s; 0: never.", ge=0, le=86_400
        ),
    ] = 300

    connections_max: Annotated[
        int, Meta(description="Most connections of clients to one process; more are refused.", ge=16, le=1_000_000)
    ] = 25_000
    live_connections_max: Annotated[
        int, Meta(description="Most browsers that one process sends live updates to.", ge=1, le=1_000_000)
    ] = 20_000
    live_queue_messages: Annotated[
        int, Meta(description="Updates that may wait for a browser before it starts anew.", ge=1, le=10_000)
    ] = 64
    live_recheck_seconds: Annotated[
        float, Meta(description="How often streams of private updates are checked for a log-out, in s.", gt=0, le=60)
    ] = 30
    write_stall_seconds: Annotated[
        Seconds, Meta(description="A client that leaves a full buffer unread for so long is cut off, in s.")
    ] = 30

    body_bytes_max: Annotated[int, Meta(description="Largest HTTP request body.", ge=1024, le=64 * 1024 * 1024)] = (
        65_536
    )
    drain_seconds: Annotated[
        Seconds, Meta(description="On SIGTERM, longest wait for requests under way before the process ends, in s.")
    ] = 20
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least severe log line written.")
    ] = "info"

    def __post_init__(self) -> None:
        logs_in = self.kafka_security.startswith("sasl")
        if logs_in and not (self.kafka_username and self.kafka_password):
            raise ValueError(f"AISLE_KAFKA_SECURITY={self.kafka_security} needs AISLE_KAFKA_USERNAME and _PASSWORD")
        if not logs_in and (self.kafka_username or self.kafka_password):
            raise ValueError("AISLE_KAFKA_USERNAME and _PASSWORD need AISLE_KAFKA_SECURITY=sasl_ssl or sasl_plaintext")
        if bool(self.kafka_cert_file) != bool(self.kafka_key_file):
            raise ValueError("AISLE_KAFKA_CERT_FILE and AISLE_KAFKA_KEY_FILE go together")
        if self.hold_seconds_max < self.hold_seconds:
            raise ValueError("AISLE_HOLD_SECONDS_MAX is shorter than AISLE_HOLD_SECONDS")
        if self.payment_provider == "stripe" and not (self.stripe_secret_key and self.stripe_webhook_secret):
            raise ValueError(
                "AISLE_PAYMENT_PROVIDER=stripe needs AISLE_STRIPE_SECRET_KEY and AISLE_STRIPE_WEBHOOK_SECRET"
            )


def read_config(environ: Mapping[str, str]) -> Config:
    """Read and validate every setting; raise StartupError with one sentence on the first that is wrong."""
    fields = {PREFIX + name.upper(): name for name in Config.__struct_fields__}
    given: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX):
            continue
        if variable in fields:
            given[fields[variable]] = value.strip()
        elif variable.removesuffix(IN_A_FILE) not in fields:
            raise StartupError(f"unknown setting {variable}{_did_you_mean(variable, fields)}")
        elif value.strip():
            setting = variable.removesuffix(IN_A_FILE)
            if setting in environ:
                raise StartupError(f"{setting} and {variable} are both set: which one counts?")
            given[fields[setting]] = _read_value(variable, Path(value.strip()))
    try:
        return msgspec.convert(given, Config, strict=False)
    except msgspec.ValidationError as error:
        raise StartupError(_name_the_variable(str(error))) from None


def _read_value(variable: str, path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StartupError(f"{variable}: cannot read {path}: {reason}") from None


def environment_of(config: Config) -> dict[str, str]:
    """The variables that give another process these settings; those at their default are left out.

    A child inherits the environment: a file that this process has read must not contradict what it passes on.
    """
    defaults = Config()
    values = {name: getattr(config, name) for name in Config.__struct_fields__}
    given = {PREFIX + name.upper(): str(value) for name, value in values.items() if value != getattr(defaults, name)}
    return {**given, **{name + IN_A_FILE: "" for name in given}}


def _did_you_mean(variable: str, known: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(variable, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _name_the_variable(message: str) -> str:
    # msgspec says "Expected `int` >= 1 - at `$.port`"; an operator knows the variable, not the path.
    text, _, path = message.partition(" - at `$.")
    return f"{PREFIX}{path.rstrip('`').upper()}: {text}" if path else message
