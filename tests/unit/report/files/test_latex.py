"""tables.tex: all tables, escaped, as wide as the page."""

import re

from tests.unit.study_builder import write_tables


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


def _captions(text):
    return "\n".join(re.findall(r"^\\(?:caption|item)\b.*$", text, re.M))
