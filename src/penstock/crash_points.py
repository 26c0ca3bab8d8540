"""A switch for tests: PENSTOCK_CRASH_AT=<name> kills the process as kill -9 would, when it reaches that point.

Points, in the order a transaction meets them:
    after_begin           the record says Ongoing, no partition knows of it yet
    after_enrol           partitions may be written to, the client has no answer yet
    after_pending         offsets wait in the group, the client has no answer yet
    after_fence           a new instance shut an old one out, its transaction is prepared to abort
    after_prepare         the outcome is decided, no marker is written
    after_some_markers    the first round trip of markers is done
    after_markers         all markers are written, waiting offsets are not moved
    after_offsets         all is done but the record does not say so
    after_complete        the record says so, the client has no answer yet
Never set it in production; without it nothing happens.
"""

import os
import signal

VARIABLE = "PENSTOCK_CRASH_AT"


def crash_point(name: str) -> None:
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
