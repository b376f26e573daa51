"""docs/predict.md: the examples of predict, and its failure, are what the command prints."""

import re
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run

DOCS = Path(__file__).parents[4] / "docs"
PAGE = (DOCS / "predict.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RATES, PRINTED, REFUSED, DOUBTED = [text for kind, text in BLOCKS if not kind][:4]
VGG = "gpus,gpus_per_node,batch,rate,unit\n" + "".join(
    f"{gpus},8,32,{rate},images/s\n" for gpus, rate in ((1, 144), (2, 281), (4, 549))
)


def words(text):
    return " ".join(text.split())


@pytest.mark.whole
@pytest.mark.parametrize(
    ("rates", "gpus", "shown"),
    [
        (RATES, "32,64", PRINTED),
        (RATES.replace(RATES.splitlines()[-1], ""), "32,64", REFUSED),
        (VGG, "8", DOUBTED),
    ],
    ids=["example", "one node", "failure"],
)
def test_predict_page_shows_what_predict_prints(rates, gpus, shown, laptop, capsys):
    Path("rates.csv").write_text(rates)
    assert run(["import", "rates.csv", "study=mine"]) == 0
    capsys.readouterr()
    run(["predict", "mine", f"gpus={gpus}"])
    printed = words(capsys.readouterr().out)
    for part in re.split(r"\n(?=•|ddp| )", shown.strip()):
        assert words(part) in printed
