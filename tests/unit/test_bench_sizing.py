"""The tables of "Sizing" are those of the result files the page names, and follow from measured figures."""

from bench.sizing import BLOCK, DEMANDS, PAGE, block, read, sizes_table, unit_costs


def test_the_tables_are_those_of_the_result_files():
    found = BLOCK.search(PAGE.read_text())
    assert found, "the page has lost the marks around its tables"
    assert found[0] == block(found["files"].split()), f"python -m bench.sizing {found['files']}"


def test_twice_the_cost_takes_twice_the_processes():
    found = BLOCK.search(PAGE.read_text())
    assert found
    unit = unit_costs(read(found["files"].split()))
    dear = unit | {"told": unit["told"] * 2, "map": unit["map"] * 2}
    [once], [twice] = ([line for line in sizes_table(u) if "live processes, a core" in line] for u in (unit, dear))
    for n in range(len(DEMANDS)):
        few, many = (int(line.split("|")[2 + n].replace(",", "")) for line in (once, twice))
        assert few < many <= 2 * few
