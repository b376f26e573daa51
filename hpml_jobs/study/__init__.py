"""The folder of a study: its paths, manifest, attempts and atomic files."""
