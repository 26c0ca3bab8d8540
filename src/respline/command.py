"""Turns a command into bytes, and keeps off a shared line what would break it for everybody else.

A line pairs replies with callers by counting, so a command that answers twice or never, or that changes the state of
the connection under later callers, must not be sent by one of them.
"""

from collections.abc import Callable
from typing import Any, cast

from hiredis import pack_command

from respline.errors import NotSent

Argument = bytes | str | int | float
Command = tuple[Argument, ...]
# bytes, int, None or list; with RESP3 also float, bool and dict; error replies inside lists are ServerError values.
# `Any`, because callers know what their command answers.
Reply = Any

# The stub of hiredis describes a tuple of one.
pack = cast(Callable[[Command], bytes], pack_command)

_SUBSCRIPTIONS = "a subscription needs a connection of its own: use open_listener"
_STATEFUL = "it would change the connection under every other caller"
REFUSED = {
    **dict.fromkeys(
        ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"), _SUBSCRIPTIONS
    ),
    **dict.fromkeys(
        ("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"), "other callers share the connection: use transaction"
    ),
    **dict.fromkeys(("AUTH", "HELLO", "SELECT"), "put it into the URL, so that it is repeated after a reconnect"),
    **dict.fromkeys(("MONITOR", "SYNC", "PSYNC", "QUIT", "RESET", "ASKING", "READONLY", "READWRITE"), _STATEFUL),
}

# Names already found harmless, in the very form callers write them: one look-up per command instead of an upper().
_harmless: set[Argument] = set()
_HARMLESS_MAX = 1024


def encode(command: Command) -> bytes:
    """The command as it goes over the wire. Raises NotSent if it may not be sent, TypeError for other types."""
    if command and command[0] in _harmless:
        return pack(command)
    return _encode_unknown(command)


def _encode_unknown(command: Command) -> bytes:
    if not command:
        raise NotSent("an empty command was refused: a server does not answer it")
    word = verb(command[0])
    if word in REFUSED:
        raise NotSent(f"{word} was refused: {REFUSED[word]}")
    if word == "CLIENT":
        if len(command) > 1 and verb(command[1]) == "REPLY":
            raise NotSent(f"CLIENT REPLY was refused: {_STATEFUL}")
    elif len(_harmless) < _HARMLESS_MAX:
        _harmless.add(command[0])
    return pack(command)


def verb(word: Argument) -> str:
    """The name of a command in the one form used for comparisons."""
    return (word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)).upper()
