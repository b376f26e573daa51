"""The measures of tests/benchmarks/house.py, and that hpml_jobs has no circle of imports."""

from tests.benchmarks.house import (
    PACKAGE,
    ROOT,
    DenseList,
    Module,
    by_density,
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


def dense(name, tokens=100):
    """Return a module with a function of so many tokens in its fifth line."""
    sums = " + ".join(["x"] * (tokens // 2))
    return Module(
        "m", f"def {name}(x):\n    x = 1\n    x = 1\n    x = 1\n    return {sums}\n"
    )


def test_module_is_counted_without_comments_docstrings_and_line_ends():
    module = Module("m", TEXT)
    assert (module.lines, module.comments) == (8, 1)
    assert module.tokens == {3: 4, 4: 4, 6: 6, 8: 12}
    assert [f[1:4] for f in module.functions] == [("f", 3, 3)]


def test_import_of_a_module_from_its_package_needs_the_package():
    texts = {
        "p": "from p import a",
        "p.a": "from p import b",
        "p.b": "def f():\n    import p.a",
    }
    whole = {name: Module(name, text) for name, text in texts.items()}
    assert circles(whole) == [["p", "p.a"]]
    whole["p.a"] = Module("p.a", "import p.b")
    assert circles(whole) == []


def test_new_dense_function_is_refused_and_a_listed_one_may_move():
    listed = DenseList(10.0, ("21.40 f",))
    assert listed.new_in(by_density([dense("f")])) == []
    assert [
        f.name for f in listed.new_in(by_density([dense("f"), dense("f", 200)]))
    ] == ["f"]
    assert [
        f.name for f in listed.new_in(by_density([dense("g"), dense("h", 10)]))
    ] == ["g"]
    assert listed.shrunk(by_density([dense("f", 10)])).lines == ()


def test_package_has_no_circle_of_imports_and_no_new_dense_function():
    assert "no circle of imports" in check(read(ROOT / PACKAGE))
