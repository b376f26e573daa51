"""The tables of the report, one module each."""
