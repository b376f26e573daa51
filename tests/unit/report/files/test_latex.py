"""tables.tex: all tables, escaped, as wide as the page."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hpml_jobs.report.files import latex
from hpml_jobs.report.report import make_report
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study
from tests.unit.study_builder import write_tables


@pytest.fixture
def gallery(tmp_path):
    """The report of the gallery's study, whose tables have words and many columns."""
    packed = Path(__file__).parents[4] / "docs" / "gallery" / "cifar10.tar.gz"
    shutil.unpack_archive(packed, tmp_path / "unpacked", filter="data")
    cells = Study(tmp_path / "unpacked" / "cifar10").cells()
    return make_report("cifar10", read_snapshots(cells), ())


def test_latex_tables_are_complete_and_escaped(incomplete_study):
    write_tables(incomplete_study.collect(), incomplete_study.study.report)
    text = (incomplete_study.study.report / "tables.tex").read_text()
    assert text.isascii()
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 13
    assert r"failed: 100 \% of \$HOME \& more\_\#" in text
    assert not re.search(r"(?<!\\)[_%&#$](?!-\$|\\)", _captions(text))
    assert r"\multicolumn{2}{c}{batch 32 per GPU}" in text
    for body, columns in re.findall(
        r"(\\begin\{tabular\}\{l([lr]+)\}.*?\\end\{tabular\})", text, re.S
    ):
        for row in re.findall(r"^(.*) \\\\$", body, re.M):
            spans = sum(
                int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d)\}", row)
            )
            assert row.count(" & ") + row.startswith("& ") + spans == len(columns), row


DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,margin=2.5cm]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\begin{document}
\input{tables}
\end{document}
"""


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
@pytest.mark.parametrize("name", ["incomplete", "gallery"])
def test_latex_tables_compile_and_fit_on_a4(name, incomplete_study, gallery, tmp_path):
    report = incomplete_study.collect() if name == "incomplete" else gallery
    (tmp_path / "tables.tex").write_text(latex.document(report))
    (tmp_path / "document.tex").write_text(DOCUMENT)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "document.pdf").stat().st_size > 10_000
    assert [
        w
        for w in re.findall(r"Overfull \\hbox \(([\d.]+)pt", done.stdout)
        if float(w) > 1
    ] == []


def _captions(text):
    return "\n".join(re.findall(r"^\\(?:caption|item)\b.*$", text, re.M))
