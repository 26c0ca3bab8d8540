"""Reading URLs, and what is said about bad ones."""

import pytest

from respline import BadUrl, Settings, open_cluster, open_line, open_listener
from respline.address import Address, host_and_port, is_cluster, parse_url, parse_urls
from respline.options import Options


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", Address("localhost", 6379)),
        ("valkey://h:1234/7", Address("h", 1234, db=7)),
        ("redis://[::1]:7000/1", Address("::1", 7000, db=1)),
        ("redis://h/?db=2", Address("h", 6379, db=2)),
        ("redis://ann:p%40%2F%3A@h:1/0", Address("h", 1, username="ann", password="p@/:")),
        ("redis://:pw@h", Address("h", 6379, password="pw")),
        ("rediss://h?ssl_ca_certs=/ca.pem", Address("h", 6379, tls=True, tls_files=(("ssl_ca_certs", "/ca.pem"),))),
        ("valkeys://h", Address("h", 6379, tls=True)),
        ("unix:///run/v.sock?db=3", Address(path="/run/v.sock", db=3)),
        ("unix://u:p@/run/v.sock", Address(path="/run/v.sock", username="u", password="p")),
    ],
)
def test_urls_that_are_understood(url: str, address: Address) -> None:
    assert parse_url(url) == address


def test_a_cluster_url_names_several_hosts() -> None:
    url = "valkeys+cluster://u:p@a:1,b:2,[::1]:3"
    assert is_cluster(url)
    assert [(each.host, each.port, each.password, each.tls) for each in parse_urls(url)] == [
        ("a", 1, "p", True),
        ("b", 2, "p", True),
        ("::1", 3, "p", True),
    ]
    assert host_and_port("::1:7000") == ("::1", 7000)
    assert host_and_port(":7000") == ("", 7000)


@pytest.mark.parametrize(
    "url",
    [
        "http://:hunter2@h",
        "redis://:hunter2@h:port",
        "redis://:hunter2@h:99999",
        "redis://:hunter2@h/zero",
        "redis://:hunter2@h/0?tiemout=3",
        "redis://hunter2@h",
        "redis://:hunter2@h#x",
        "redis://:hunter2@[h",
        "redis://:hunter2@a,b",
        "redis+cluster://:hunter2@a/1",
        "rediss://:hunter2@h?ssl_ca_certs=/does/not/exist",
        "unix://:hunter2@host/path",
        "unix://",
        "hunter2",
        "",
    ],
)
async def test_a_bad_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        await (open_cluster([url]) if is_cluster(url) else open_line(url))
    assert "hunter2" not in str(refused.value)


async def test_other_doors_refuse_bad_addresses_too() -> None:
    for urls in ([], ["unix:///run/v.sock"]):
        with pytest.raises(BadUrl, match="cluster"):
            await open_cluster(urls)
    with pytest.raises(BadUrl):
        await open_listener("ftp://x", lambda channel, payload: None, lambda: None)


@pytest.mark.parametrize(
    "settings", [{"protocol": 4}, {"timeout": 0}, {"in_flight_max": 1}, {"connect_timeout": -1}, {"reply_max_bytes": 0}]
)
def test_settings_out_of_range_are_refused(settings: Settings) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Options(**settings)
