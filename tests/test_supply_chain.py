"""What comes in from outside: pinned by hash, under a licence somebody has looked at; and no secret goes out."""

import json
import re
import sys
from pathlib import Path

from detect_secrets import SecretsCollection
from detect_secrets.settings import transient_settings

from tests import children

ROOT = Path(__file__).parent.parent
BASELINE = ROOT / ".secrets.baseline"
sys.path.insert(0, str(ROOT / "docs"))

from licences import ACCEPTED, licences  # noqa: E402

# Formats that are a secret whenever they occur. Guessing by entropy finds the hashes of lock files instead.
DETECTORS = [
    "AWSKeyDetector", "AzureStorageKeyDetector", "BasicAuthDetector", "GitHubTokenDetector", "GitLabTokenDetector",
    "JwtTokenDetector", "NpmDetector", "PrivateKeyDetector", "PypiTokenDetector", "SendGridDetector", "SlackDetector",
    "SquareOAuthDetector", "StripeDetector", "TwilioKeyDetector",
]  # fmt: skip
NOT_OURS = re.compile(r"requirements.*\.txt|.*package-lock\.json|.*go\.sum|bench/results/.*|.*\.(png|woff2|jpg)")


def secrets_in(files: list[str]) -> set[tuple[str, str]]:
    """File and hash of each, so that the baseline shows none and does not change with line numbers."""
    found = SecretsCollection(root=str(ROOT))
    with transient_settings({"plugins_used": [{"name": name} for name in DETECTORS], "filters_used": []}):
        for name in files:
            found.scan_file(name)
    return {(name, secret.secret_hash) for name, secret in found}


def test_no_secret_is_committed_but_the_examples_we_know():
    """A new example: look at it, then add what this test prints to `.secrets.baseline`."""
    listed = children.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found = secrets_in([name for name in listed if not NOT_OURS.fullmatch(name) and (ROOT / name).is_file()])
    known = {(name, digest) for name, digests in json.loads(BASELINE.read_text()).items() for digest in digests}
    assert found - known == set()


def test_a_secret_would_be_found(tmp_path):
    (tmp_path / "settings.py").write_text("KEY = 'sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc'\n")
    assert secrets_in([str(tmp_path / "settings.py")])


def test_every_pin_has_hashes_and_no_lock_file_names_an_index():
    for path in sorted(ROOT.glob("requirements*.txt")):
        text = path.read_text()
        pins = re.findall(r"^[A-Za-z0-9._-]+(?:\[[a-z0-9,]+\])?==\S+.*$", text, re.MULTILINE)
        assert pins, path.name
        assert all(pin.endswith("\\") for pin in pins), "a hash follows on the next line"
        assert "://" not in text


def test_every_package_that_runs_with_us_has_a_licence_that_was_accepted():
    found = list(licences())
    assert len(found) > 20
    unknown = [(name, licence) for name, _, licence in found if not ACCEPTED.search(licence)]
    assert unknown == []
