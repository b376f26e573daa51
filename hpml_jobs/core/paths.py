"""Where the configs that come with the program lie."""

from pathlib import Path


def conf_folder() -> Path:
    """conf/: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "conf"  # a wheel
    return inside if inside.is_dir() else package.parent / "conf"
