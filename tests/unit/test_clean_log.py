"""What `running_stage` looks for in the log of every module: that it would find it."""

import pytest

from aisle.accounts.tokens import Kind, Signer, new_signing_key
from tests.stage import require_clean_log


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "login_refused", "email": "ada@example.com"}',
        f'{{"cookie": "{Signer([new_signing_key()]).issue(Kind.SESSION, 10**13).text}"}}',
        '{"hash": "$argon2id$v=19$m=19456"}',
        '{"card": "4242 4242 4242 4242"}',
        '{"card": "378282246310005"}',
    ],
    ids=["address", "session", "hash", "card", "short card"],
)
def test_what_must_not_be_in_a_log_is_found(line):
    with pytest.raises(AssertionError, match="in the log"):
        require_clean_log(line)


def test_what_may_be_there_is_not():
    require_clean_log('{"booking": "0193a1b2-1234-7123-8123-123456789012", "at_ms": 1763236800123, "event": 4242}')
