"""The licence of every package that Aisle runs with, read from what is installed. Run by `make sbom`.

`tests/test_supply_chain.py` refuses a package whose licence nobody has looked at.
"""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Families that go together with Apache-2.0 as we use them: unchanged, as libraries.
ACCEPTED = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla Public|Lesser General Public|PostgreSQL)"
)


def runtime_pins() -> list[str]:
    return re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)


def licences() -> Iterator[tuple[str, str, str]]:
    """Name, version and licence of each; those for other systems are not installed and left out."""
    for name in runtime_pins():
        try:
            found = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue
        classified = [c.rpartition(" :: ")[2] for c in found.get_all("Classifier") or () if c.startswith("License ::")]
        said = found.get("License-Expression") or ", ".join(classified) or (found.get("License") or "").split("\n")[0]
        yield name, found["Version"], said or "not said"


if __name__ == "__main__":
    for name, version, licence in licences():
        print(f"{name} {version}: {licence}")
