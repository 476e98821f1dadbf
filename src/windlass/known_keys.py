"""Keys that are known by how they are written: those of well-known services, JSON Web Tokens and private keys in PEM.

Each pattern begins with letters that are written out and has a bound, so that a text of a megabyte takes milliseconds.
Pure.
"""

import re
from typing import Final

MASK: Final = "***"

# How keys begin, and what follows. A new one is a line here and one in the table of the test.
_KEYS: Final = (
    ("AKIA ASIA", r"[0-9A-Z]{16}(?![0-9A-Za-z])"),  # AWS
    ("ghp_ gho_ ghu_ ghs_ ghr_", r"[0-9A-Za-z]{30,255}"),  # GitHub
    ("github_pat_", r"[0-9A-Za-z_]{40,255}"),
    ("glpat-", r"[0-9A-Za-z_-]{20,255}"),  # GitLab
    ("xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- xapp-", r"(?=[A-Za-z-]{0,200}[0-9])[0-9A-Za-z-]{16,255}"),  # Slack
    ("sk_live_ sk_test_ rk_live_ rk_test_", r"[0-9A-Za-z]{16,255}"),  # Stripe
    ("sk-", r"(?=[A-Za-z_-]{0,200}[0-9])[0-9A-Za-z_-]{20,255}"),  # OpenAI, Anthropic
    ("AIza", r"[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])"),  # Google
    ("ya29.", r"[0-9A-Za-z_-]{20,255}"),
    ("SG.", r"[0-9A-Za-z_-]{16,32}\.[0-9A-Za-z_-]{16,64}"),  # SendGrid
    ("npm_ hf_ gsk_ figd_ sntrys_ lin_api_ whsec_ shpat_ shpca_ shppa_ shpss_", r"[0-9A-Za-z+/=_-]{24,255}"),
    ("pypi-", r"AgEIcHlwaS5vcmc[0-9A-Za-z_-]{16,4096}"),
    ("dop_v1_ doo_v1_ dor_v1_ rubygems_", r"[0-9a-f]{32,64}(?![0-9A-Za-z])"),
    ("hvs. hvb. hvr.", r"[0-9A-Za-z_-]{20,255}"),  # Vault
    ("tskey-", r"[0-9A-Za-z-]{16,255}"),
    ("AGE-SECRET-KEY-1", r"[0-9A-Z]{40,80}"),
    ("hooks.slack.com/services/", r"[0-9A-Za-z/_-]{20,255}"),
    ("discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"[0-9]{10,30}/[0-9A-Za-z_-]{20,255}"),
)
_PEM: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = "-----END "


# A JSON Web Token by its second part: the first says only how it is signed.
_JWT: Final = r"\.(?<=[0-9A-Za-z_-]{8}\.)eyJ[0-9A-Za-z_-]{4,8192}+\.[0-9A-Za-z_-]{10,2048}+"


def _pattern() -> str:
    """Each beginning is found by its last character, if that is a rare one, and else by its first, an A: looked for by all
    their letters, half of every text would be looked at. Not in the middle of a word: that is no key (task-…, risk_live_…),
    and a text of nothing but beginnings would take seconds."""
    by_end: dict[str, list[str]] = {}
    for begins, rest in _KEYS:
        for begin in map(re.escape, begins.split()):
            rare = "" if begin[-1].isalnum() else begin[-1]
            found = f"(?<={begin})" if rare else begin
            by_end.setdefault(rare, []).append(rf"{found}(?<![0-9A-Za-z_-]{begin}){rest}")
    return "|".join((*(f"{re.escape(end)}(?:{'|'.join(each)})" for end, each in by_end.items()), _JWT))


_KEY: Final = re.compile(_pattern())


def has_known_key(text: str) -> bool:
    """Whether the text may hold one."""
    return _KEY.search(text) is not None or "-----BEGIN" in text


def without_known_keys(text: str) -> str:
    """The text with `***` for the keys in it; how they begin may still be seen."""
    text = _KEY.sub(MASK, text)
    return _without_pem(text) if "-----BEGIN" in text else text


def _without_pem(text: str) -> str:
    """Between the lines that begin and end a private key; to the end of the text where the last one is missing."""
    shown: list[str] = []
    at = 0
    while (found := _PEM.search(text, at)) is not None:
        shown += (text[at : found.end()], MASK)
        end = text.find(_PEM_END, found.end())
        at = len(text) if end < 0 else end
    return "".join((*shown, text[at:])) if shown else text
