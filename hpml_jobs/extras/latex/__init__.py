"""The tables as LaTeX: `tables.tex`."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    text_files={"tables.tex": Part("extras.latex.document:document", after="tables.md")}
)
