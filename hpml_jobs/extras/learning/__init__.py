"""What training learns: Table 4, loss by iteration, counted iterations."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    tables={
        "iterations": Part("extras.learning.iterations:iterations", after="scaling"),
        "table4": Part("extras.learning.quality:table4", after="iterations"),
    },
    training_pictures={"loss": Part("extras.learning.picture:loss", after="")},
    text_files={
        "curves.csv": Part("extras.learning.curves_file:curves_csv", after="cells.csv")
    },
)
