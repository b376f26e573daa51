"""Forms of secrets, and texts that are none."""

import pytest

from hpml_jobs.study.redaction import Names, Redactor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "curl -H 'Authorization: Basic YWRhOmh1bnRlcg=='",
            "Authorization: Basic [removed]'",
        ),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "[removed]"),
        ("npm_abcdefghij1234567890abcdefghij123456", "[removed]"),
        ("pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAw", "[removed]"),
        ("dckr_pat_abcdefghijklmnopqrstuv1", "[removed]"),
        ("sk_live_abcdefghijkl1", "[removed]"),
        ("hvs.CAESIabcdefghijklmnopqrstuv", "[removed]"),
        ("https://hooks.slack.com/services/T000/B000/XXXXXXXX", "services/[removed]"),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK-----",
            "[re",
        ),
        (
            r"HF\_TOKEN=abcd1234, ghp\_abcdefghijklmnopqrstuv",
            r"HF\_TOKEN=[removed], [removed]",
        ),
        (r"cluster.account=pr\_77\_general", "cluster.account=account"),
        ("token: 12345678", "token: [removed]"),
        *(
            (text, text)
            for text in (
                "commit 0123456789abcdef0123456789abcdef01234567",
                "ddp-4gpu-b512-digits-1a2b3c and sha256 " + "0a" * 32,
                "1,200 tokens/s; token: 4,096 per GPU",
                "sk-learn, npm_config, pypi-server, hf_home, secret_santa",
                "wandb login failed",
            )
        ),
    ],
)
def test_forms_of_secrets_and_texts_that_are_none(text, expected):
    redactor = Redactor(Names(frozenset(), frozenset(), ()), anonymous=False)
    shown = redactor.text(text, "a")
    assert expected in shown
    assert redactor.text(shown, "a") == shown
