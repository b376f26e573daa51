"""Python API for notebooks: `hpml_jobs.open_study`."""

from hpml_jobs.core.features import Feature

FEATURE = Feature(
    api={
        "HpmlError": "extras.notebook.study:HpmlError",
        "OpenStudy": "extras.notebook.study:OpenStudy",
        "open_study": "extras.notebook.study:open_study",
    }
)
