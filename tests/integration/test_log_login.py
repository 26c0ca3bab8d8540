"""A log that asks for TLS and a login: the product sells over it, and says clearly why it cannot."""

from collections.abc import Iterator

import msgspec
import pytest

from aisle.config import read_config
from aisle.errors import StartupError
from aisle.log import require_log
from aisle.log_address import client_settings, log_address
from tests.conftest import Servers
from tests.penstock_login import PASSWORD, Guarded, guarded_penstock
from tests.people import a_hall
from tests.running import as_environment, run_aisle
from tests.stage import Stage, running_stage


@pytest.fixture(scope="module")
def guarded(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_penstock(tmp_path_factory.mktemp("guarded"), servers.store_url, "guarded") as guarded:
        yield guarded


@pytest.fixture(scope="module")
def stage(servers: Servers, guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running_stage(servers, tmp_path_factory.mktemp("stage"), **guarded.settings) as stage:
        yield stage


def test_an_event_is_sold_over_a_log_with_tls_and_a_login(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 2, 10)))
    buyer.waits_for(buyer.books(event, 2), "PENDING_PAYMENT")
    stage.settle(event)
    listed = run_aisle("dlq", "list", env=as_environment(stage.config))
    assert listed.returncode == 0, listed.stderr


async def test_a_wrong_password_is_said_and_not_shown(guarded):
    wrong = msgspec.structs.replace(guarded.address, password="a guess")
    with pytest.raises(StartupError, match="refused the user name or password") as refusal:
        await require_log(wrong, timeout_s=5)
    assert "guess" not in str(refusal.value)
    assert PASSWORD not in repr(guarded.address)


async def test_a_certificate_that_nobody_vouches_for_is_said(guarded):
    with pytest.raises(StartupError, match="TLS failed"):
        await require_log(msgspec.structs.replace(guarded.address, ca_file=""), timeout_s=5)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"AISLE_KAFKA_SECURITY": "sasl_ssl"}, "AISLE_KAFKA_USERNAME"),
        ({"AISLE_KAFKA_USERNAME": "aisle", "AISLE_KAFKA_PASSWORD": "x"}, "AISLE_KAFKA_SECURITY"),
        ({"AISLE_KAFKA_CERT_FILE": "cert.pem"}, "AISLE_KAFKA_KEY_FILE"),
        ({"AISLE_KAFKA_SECURITY": "tls"}, "AISLE_KAFKA_SECURITY"),
    ],
)
def test_settings_that_would_leave_the_login_out_are_refused(settings, complaint):
    with pytest.raises(StartupError, match=complaint):
        read_config(settings)


def test_every_setting_reaches_the_client():
    environ = {
        "AISLE_KAFKA": "a:9093,b:9093", "AISLE_KAFKA_SECURITY": "sasl_ssl", "AISLE_KAFKA_USERNAME": "aisle",
        "AISLE_KAFKA_PASSWORD": "secret", "AISLE_KAFKA_CA_FILE": "ca.pem", "AISLE_KAFKA_CERT_FILE": "cert.pem",
        "AISLE_KAFKA_KEY_FILE": "key.pem",
    }  # fmt: skip
    assert client_settings(log_address(read_config(environ))) == {
        "bootstrap.servers": "a:9093,b:9093", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "aisle", "sasl.password": "secret", "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "cert.pem", "ssl.key.location": "key.pem",
    }  # fmt: skip
    assert client_settings("a:9092") == {"bootstrap.servers": "a:9092"}
