"""Penstock's reference pages, drawn from its tables. `generate.py` writes them; nothing else calls this."""

import inspect

from penstock.dispatch import APIS
from penstock.store import group_keys, keys, offsets, txn_keys
from penstock.topic_config import INT_MAX, KNOWN, LONG_MAX, Known
from penstock.wire import entries

NO_LIMIT = (LONG_MAX, INT_MAX)


def apis_page() -> str:
    rows = [f"| {api.key} | {api.name} | {api.low} | {api.high} |" for api in APIS.values()]
    return "\n".join(
        [
            "# The APIs Penstock speaks",
            "",
            "What ApiVersions answers, generated from the table that requests are dispatched by",
            "(`src/penstock/dispatch.py`). Produce 0 to 2 are listed because older librdkafka turns compression off",
            "without them; they are refused with UNSUPPORTED_VERSION. SaslHandshake and SaslAuthenticate are listed",
            "only where users log in.",
            "",
            "| key | API | from version | to version |",
            "|---|---|---|---|",
            *rows,
            "",
            "What is not there, and what clients do without it: [guarantees.md](guarantees.md#what-is-not-there).",
            "",
        ]
    )


def topic_configs_page() -> str:
    acting = [_config_row(name, known) for name, known in KNOWN.items() if known.effect]
    kept = [_config_row(name, known) for name, known in KNOWN.items() if not known.effect]
    head = ["| config | type | default | values |", "|---|---|---|---|"]
    return "\n".join(
        [
            "# Topic configs",
            "",
            "Given to CreateTopics, changed with AlterConfigs and IncrementalAlterConfigs, shown by DescribeConfigs. A",
            "name that is not here, or a value that does not fit, is INVALID_CONFIG and changes nothing. Generated",
            "from `src/penstock/topic_config.py`.",
            "",
            "## These act",
            "",
            *head,
            *acting,
            "",
            "## These are kept and reported, and do nothing here",
            "",
            "They steer files and replicas that Penstock does not have; tools copy them from topic to topic.",
            "Batches stay compressed the way their producer did it.",
            "",
            *head,
            *kept,
            "",
        ]
    )


def keys_page() -> str:
    blocks = []
    for title, module in [
        ("Catalogue and partitions", keys),
        ("Coordinators and groups", group_keys),
        ("Committed offsets", offsets),
        ("Transactions", txn_keys),
        ("Entries of the open layout", entries),
    ]:
        blocks += [f"## {title}", "", "```", inspect.cleandoc(module.__doc__ or ""), "```", ""]
    return "\n".join(
        [
            "# The keys of Penstock",
            "",
            "Everything the broker knows is in the store under these keys; a broker that starts needs nothing else.",
            "Read them as you like. Write only to the streams of topics in the [open layout](open-layout.md): all",
            "other keys change together, inside scripts. `penstock inspect keys` lists them; the views `brokers`,",
            "`topics`, `partitions`, `groups` and `transactions` say what they mean.",
            "",
            "Generated from the modules that make the keys, under `src/penstock`.",
            "",
            *blocks,
        ]
    )


def _config_row(name: str, known: Known) -> str:
    fixed = "; fixed when the topic is made" if known.fixed else ""
    return f"| `{name}` | {known.kind.name.lower()} | `{_shown(known.default)}` | {_values(known)}{fixed} |"


def _values(known: Known) -> str:
    if known.words:
        return ", ".join(f"`{word}`" for word in known.words)
    if known.kind.name in ("BOOLEAN", "STRING", "LIST"):
        return "true, false" if known.kind.name == "BOOLEAN" else "any text"
    upper = "" if known.high in NO_LIMIT else f" to {known.high:g}"
    return f"from {known.low:g}{upper}"


def _shown(default: str) -> str:
    return default or " "
