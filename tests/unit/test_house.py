"""The measures of tests/benchmarks/house.py, and that hpml_jobs keeps to them."""

import pytest

from tests.benchmarks.house import (
    PACKAGE,
    ROOT,
    Budget,
    Module,
    check,
    circles,
    read,
)

TEXT = '''\
"""A module."""

import a.b
from a import c  # a comment

def f(x):
    """Return it."""
    return [f"{y} {x}" for y in x if y or x]
'''


def test_module_is_counted_without_comments_docstrings_and_line_ends():
    module = Module("m", TEXT)
    assert (module.lines, module.comments) == (8, 1)
    assert module.tokens == {3: 4, 4: 4, 6: 6, 8: 12}
    assert [f[1:4] for f in module.functions] == [("f", 3, 3)]


def test_imports_in_functions_and_for_types_make_circles():
    texts = {
        "p": "",
        "p.a": "if TYPE_CHECKING:\n    from p import b",
        "p.b": "def f():\n    import p.a",
    }
    modules = {name: Module(name, text) for name, text in texts.items()}
    assert circles(modules) == [["p.a", "p.b"]]
    modules["p"] = Module("p", "from p.a import c")
    assert circles(modules) == [["p", "p.a", "p.b"]]


def test_long_file_and_too_many_entries_are_faults():
    modules = {f"p.e{n}": Module(f"p.e{n}", "\n" * 501) for n in range(15)}
    modules["p.e0.f"] = Module("p.e0.f", "def f(): ...")
    with pytest.raises(SystemExit, match=r"(?s)p.e1 has 501 lines.*15 entries"):
        check(modules)


def test_budget_of_a_folder_only_goes_down():
    budget = Budget({"core": 100, "gone": 7})
    assert budget.lowered({"core": 90}).tokens == {"core": 90}
    assert budget.lowered({"core": 110}).tokens == {"core": 100}
    assert budget.faults({"core": 100}) == []
    (fault,) = budget.faults({"core": 101})
    assert fault.startswith("core has 101 tokens, and 100 in budget.txt")


def test_package_has_no_circle_of_imports_and_is_within_its_limits():
    assert "no circle of imports" in check(read(ROOT / PACKAGE))
