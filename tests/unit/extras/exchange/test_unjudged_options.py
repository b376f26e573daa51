"""archive: options whose values may be secrets, and are kept, are named."""

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.extras.exchange.unjudged import unjudged_options
from tests.unit.cli.test_secret_arguments import write_study


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("--user ada:hunter2x", ["--user"]),
        ("--run-id=8f7e6d5c", ["--run-id"]),
        ("train 40aae51b7c", ["40aa…"]),
        (
            "--model resnet50 --data /scratch/c10x/1a --lr 1e-4 --tokens 1048576 --key a1b2c3d4",
            [],
        ),
    ],
)
def test_options_that_cannot_be_judged_are_named(tmp_path, capfd, arguments, options):
    assert unjudged_options(arguments) == options
    write_study(tmp_path, {arguments: ""})
    assert (
        run(
            [
                "archive",
                "mine",
                "--to",
                str(tmp_path / "a.tar.gz"),
                "--outputs",
                str(tmp_path),
            ]
        )
        == 0
    )
    named = capfd.readouterr().err
    assert all(option in named for option in options)
    assert ("kept in args=" in named) == bool(options)
