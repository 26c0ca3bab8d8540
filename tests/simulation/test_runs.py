"""A long run leaves no seed out, runs none twice, and goes on where it was ended."""

from tests.simulation.runs import PORTION, add, not_yet, read, run_into


def pretend(first: int, histories: int) -> dict[str, object]:
    return {
        "commit": "c", "modified": False, "machine": "m", "first_seed": first, "histories": histories, "violations": 0,
        "cpu_seconds": 1.0, "started_at": "t", "seeds": [], "sometimes": {"met": histories},
    }  # fmt: skip


def test_every_seed_is_run_once_by_several_processes(tmp_path):
    file = tmp_path / "simulation.json"
    kept = run_into(file, pretend, 7, 5 * PORTION + 3, processes=2)
    assert [(run["first_seed"], run["histories"]) for run in kept["runs"]] == [(7, 5 * PORTION + 3)]
    assert kept["sometimes"] == {"met": 5 * PORTION + 3}


def test_what_the_file_has_is_not_run_again(tmp_path):
    file = tmp_path / "simulation.json"
    add(file, pretend(10, 5))
    add(file, pretend(30, 5))
    assert list(not_yet(read(file), 8, 30)) == [(8, 2), (15, 15), (35, 3)]
