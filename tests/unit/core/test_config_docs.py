"""Keys of our configs as --help and completion read them, compared with OmegaConf's."""

import pytest
from omegaconf import OmegaConf

from hpml_jobs.cli.help import keys
from hpml_jobs.core.paths import conf_folder

FOLDERS = ("cluster", "workload", "recipe")
FILES = [conf_folder() / "config.yaml"]
FILES += sorted(
    file for folder in FOLDERS for file in (conf_folder() / folder).glob("*.yaml")
)


def leaves(config, prefix=""):
    """Dotted keys with their values; an empty mapping is a value."""
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def plain(text):
    return OmegaConf.to_container(OmegaConf.create(text))


@pytest.mark.parametrize(
    "file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}"
)
def test_keys_and_values_are_those_that_omegaconf_reads(file):
    config = plain(file.read_text())
    for name in ("defaults", "hydra"):
        config.pop(name, None)
    values = {
        doc.key: plain(f"value: {doc.value}")["value"] for doc in keys(file.read_text())
    }
    assert dict(leaves(values)) == dict(leaves(config))
