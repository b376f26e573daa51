"""Studies in and out: timings from CSV files, DataFrames for notebooks, files of other tools."""
