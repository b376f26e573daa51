"""Hydra's own pages: `--cfg job`, `--info`, shell completion; they submit nothing."""

import hydra
from omegaconf import DictConfig

from hpml_jobs.core.paths import conf_folder
from hpml_jobs.errors import HpmlError


@hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="config")
def show(_config: DictConfig) -> None:
    """Fail: Hydra prints its page and does not call this."""
    raise HpmlError("--cfg, --info and --shell-completion only show pages: leave -m out")
