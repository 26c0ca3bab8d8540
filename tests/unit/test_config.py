"""Settings: read once, validated, and a typo is an error."""

import pytest

from aisle.config import Config, read_config
from aisle.errors import StartupError
from aisle.up import child_settings


def test_defaults_are_the_documented_ones():
    config = read_config({"PATH": "/bin", "HOME": "/"})
    assert config == Config()
    assert (config.store_pool_size, config.store_timeout, config.store_connect_timeout) == (50, 5, 5)
    assert (config.store_health_check, config.store_keepalive) == (30, True)
    assert (config.hold_seconds, config.payment_seconds) == (600, 900)


def test_values_are_converted_from_text():
    config = read_config({"AISLE_PORT": " 9000 ", "AISLE_STORE_TIMEOUT": "0.5", "AISLE_STORE_KEEPALIVE": "false"})
    assert (config.port, config.store_timeout, config.store_keepalive) == (9000, 0.5, False)


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("AISLE_PROT", "1", "unknown setting AISLE_PROT (did you mean AISLE_PORT?)"),
        ("AISLE_ZZZ", "1", "unknown setting AISLE_ZZZ"),
        ("AISLE_PORT", "99999", "AISLE_PORT: Expected `int` <= 65535"),
        ("AISLE_PORT", "-1", "AISLE_PORT: Expected `int` >= 0"),
        ("AISLE_PORT", "eight", "AISLE_PORT: Expected `int`, got `str`"),
        ("AISLE_STORE_PREFIX", "a{b}", "AISLE_STORE_PREFIX: Expected `str` matching regex"),
        ("AISLE_STORE_TIMEOUT", "0", "AISLE_STORE_TIMEOUT: Expected `float` > 0"),
        ("AISLE_LOG_LEVEL", "loud", "AISLE_LOG_LEVEL: Invalid enum value 'loud'"),
        ("AISLE_HOLD_SECONDS_MAX", "5", "AISLE_HOLD_SECONDS_MAX is shorter than AISLE_HOLD_SECONDS"),
    ],
)
def test_a_wrong_setting_is_named_in_one_sentence(variable, value, sentence):
    with pytest.raises(StartupError) as refused:
        read_config({variable: value})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_settings_cannot_be_changed_after_they_were_read():
    with pytest.raises(AttributeError):
        Config().port = 1  # type: ignore[misc]


def test_a_value_is_read_from_a_file(tmp_path):
    (tmp_path / "url").write_text("postgresql://aisle:secret@db/aisle\n")
    config = read_config({"AISLE_DATABASE_URL_FILE": str(tmp_path / "url"), "AISLE_SECRET_KEY_FILE": ""})
    assert (config.database_url, config.secret_key) == ("postgresql://aisle:secret@db/aisle", "")


def test_a_file_is_refused_with_the_name_of_its_variable(tmp_path):
    path = tmp_path / "kept"
    for content, sentence in ((None, "AISLE_PORT_FILE: cannot read"), (b"\xff\xfe", "it is not text"), (b"x", "`int`")):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(StartupError, match=sentence):
            read_config({"AISLE_PORT_FILE": str(path)})


def test_a_setting_and_its_file_exclude_each_other(tmp_path):
    (tmp_path / "port").write_text("1")
    with pytest.raises(StartupError, match="AISLE_PORT and AISLE_PORT_FILE are both set"):
        read_config({"AISLE_PORT": "1", "AISLE_PORT_FILE": str(tmp_path / "port")})


def test_a_child_of_up_takes_what_it_is_told_and_not_the_file(tmp_path):
    (tmp_path / "url").write_text("postgresql://db/aisle")
    environ = {"AISLE_DATABASE_URL_FILE": str(tmp_path / "url")}
    config = read_config(environ)
    assert read_config({**environ, **child_settings(config)}).database_url == "postgresql://db/aisle"
