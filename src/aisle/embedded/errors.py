"""The one error of this package. The command line prints it on one line and exits 2."""


class EmbeddedError(Exception):
    """An embedded server cannot run. The text is one sentence that says what is wrong and where to look."""
