"""The code on a ticket: what goes in comes out, what was changed is refused, and the manual's program verifies it."""

import base64
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from aisle.door.code import CODE_CHARS_MAX, Content, Unreadable, read_code, write_code
from aisle.door.keys import Sealer, public_key

SEALER = Sealer([b"a" * 32])
KEY = SEALER.new_key()
PRIVATE = SEALER.open(KEY)
KEYS = {KEY.id: public_key(KEY)}
CODE = write_code(Content(7, 3, 300, 2), KEY.id, PRIVATE)

numbers = st.integers(0, 2**63 - 1)


@given(st.builds(Content, numbers, numbers, numbers, numbers))
def test_what_goes_in_comes_out(content):
    code = write_code(content, KEY.id, PRIVATE)
    assert len(code) <= CODE_CHARS_MAX
    assert read_code(code, KEYS) == content
    assert read_code(f" {code.lower()}\n", KEYS) == content, "scanners add line ends, people type small letters"


def test_a_usual_code_is_as_short_as_the_manual_says():
    assert len(write_code(Content(9_999, 100, 9_999, 1), KEY.id, PRIVATE)) == 120


@pytest.mark.parametrize("position", range(len(CODE)))
def test_no_character_can_be_changed(position):
    for letter in "A7Q":
        changed = CODE[:position] + letter + CODE[position + 1 :]
        if changed != CODE:
            assert isinstance(read_code(changed, KEYS), Unreadable), changed


@given(st.one_of(st.text(max_size=300), st.binary(max_size=120).map(lambda raw: base64.b32encode(raw).decode())))
def test_nonsense_is_tampered_with_or_of_a_key_unknown(text):
    assert isinstance(read_code(text, KEYS), Unreadable)


def test_another_installations_code_names_a_key_that_is_not_ours():
    other = Sealer([]).new_key()
    private = Ed25519PrivateKey.from_private_bytes(other.private)
    assert read_code(write_code(Content(7, 3, 300, 2), other.id, private), KEYS) is Unreadable.UNKNOWN_KEY
    assert read_code(write_code(Content(7, 3, 300, 2), KEY.id, private), KEYS) is Unreadable.TAMPERED


def test_a_sealed_key_opens_with_its_secret_only_and_under_its_own_id():
    assert Sealer([b"b" * 32]).open(KEY) is None
    assert Sealer([b"b" * 32, b"a" * 32]).open(KEY) is not None, "the setting was changed, the old one still counts"
    assert SEALER.open(KEY._replace(id="00000000")) is None
    assert Sealer([]).new_key().sealed_with == ""


def test_the_manuals_program_verifies_the_manuals_code(capsys):
    page = Path(__file__).parents[2] / "docs" / "reference" / "ticket-code.md"
    [program] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(program, str(page), "exec"), {})  # noqa: S102 - our own page
    assert capsys.readouterr().out.strip() == program.strip().rpartition("# ")[2]
