"""What can go wrong, told by what the caller may do next.

    NotSent         the command certainly never left this process: trying again is safe
    OutcomeUnknown  it was written and no reply came, so it may or may not have run: repeat it only if idempotent
    ServerError     the server answered with an error

Nothing in respline repeats a command on its own, except after a cluster redirection, which proves that it did not
run. No message may contain a password.
"""


class ResplineError(Exception):
    """Root of all errors raised here."""


class BadUrl(ResplineError):
    """The address cannot be understood. The message never repeats the address, since it may hold a password."""


class NotSent(ResplineError):
    """Not connected, queue full, refused or closed: the command was not executed."""


class OutcomeUnknown(ResplineError):
    """Written, but no reply will come: time-out, connection lost or garbage on the wire."""


class ServerError(ResplineError):
    """An error reply. `code` is its first word, such as WRONGTYPE, NOSCRIPT, OOM, READONLY or MOVED."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code} {self.message}".rstrip()


def server_error(text: str) -> ServerError:
    """Builds the error from a reply line; the parser calls this for every error reply, nested ones included."""
    code, _, message = text.partition(" ")
    return ServerError(code, message)
