"""Export of a study to other tools: offline runs and files, written after the fact."""
