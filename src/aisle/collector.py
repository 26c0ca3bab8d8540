"""How seldom Python looks for garbage in a process that serves."""

import gc


def collect_seldom() -> None:
    """What is loaded by now stays, and a request leaves no cycles: looking for some took an eighth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
