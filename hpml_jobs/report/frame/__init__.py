"""What all features of a report share: rows of numbers, tables, words and pictures."""
