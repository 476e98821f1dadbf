"""Texts without passwords, for everything that a person or a log may come to see.

What a job, an app or a driver says may quote an address or a connection string. It is searched as text, a line of JSON
too, which stays JSON. Rather too much is hidden than too little.
"""

import re
from typing import Final

from windlass.known_keys import without_known_keys

# A password may itself hold : / @ or a space. In a database's URL it ends at the last @ of the word, or else at the
# next one of the line; in other URLs, where an @ may be in the path, at the last one before a /, or else of the word.
# Every run of characters has a bound: without, a hostile text of a megabyte would be searched for minutes.
_URL_PASSWORDS: Final = (
    re.compile(
        r"(?i)\b((?:postgres|postgresql|rediss?|valkeys?|amqps?|mysql)(?:\+\w{1,20})?://[^\s:/@]{0,128}):"
        r"(?:\S{0,4096}|(?!\d{1,5}/)[^\"'\r\n@]{0,256}+[^\s\"']{0,1024})@"
    ),
    re.compile(
        r"(?i)\b([a-z][a-z0-9+.-]{0,30}://[^\s:/@]{0,128}):"
        r"(?:[^\s/]{0,4096}|(?!\d{1,5}(?:[/?#\s]|$))\S{0,4096})@"
    ),
)
# password=x, password = 'x', "password": "x", and the same inside a JSON text, where quotes have a backslash. A quote
# before a comma or bracket ends what is around it: in a line of JSON nothing may be hidden that holds it together.
_NAMED_PASSWORDS: Final = re.compile(
    r"""(?ix)
    ((?:password|passfile|passwd)[_-]?(?:confirm(?:ation)?|repeat|hash|new|old|[0-9])?(?:(\\?["'])\s{0,8}[:=]|\s{0,8}=(?!=)|\s{0,8}:(?=\s{0,8}\\?["']))\s{0,8})
    (?:
        (\\?")(?!:\s|[,}\]])(?:(?<=\\")(?:[^"\\]|\\\\\\"|\\\\){0,65535}\\|(?<!\\")(?:[^"\\]|\\.){0,65535})"
        |(')[^'"]{0,65535}'
        |(?:\\?["'](?!:\s|[,}\]])|(?!(?:null|none)\b))[^\s&'"\\,;(){}\[\]]+
    )
    """
)
# Each URL is looked at for some thousand characters, so a text of nothing else would take seconds. In one with more of
# them, what stands between :// and the last @ of a word is hidden, whatever it is.
_urls_max: Final = 16
_WORD: Final = re.compile(r"[^\s\"']+")
_NAMES: Final = ("password", "passfile", "passwd")


def redact(text: str) -> str:
    """The text without the passwords of URLs and connection strings, and without keys that are known by their shape."""
    text = without_known_keys(text)
    if "://" in text and "@" in text:
        if text.count("://") > _urls_max:
            text = _WORD.sub(_without_logins, text)
        else:
            for pattern in _URL_PASSWORDS:
                text = pattern.sub(r"\1:***@", text)
    low = text.lower()
    if any(name in low for name in _NAMES):
        text = _NAMED_PASSWORDS.sub(_hidden, text)
    return text


def _without_logins(word: re.Match[str]) -> str:
    said = word[0]
    begin = said.find("://") + 3
    end = said.rfind("@")
    return f"{said[:begin]}***{said[end:]}" if 2 < begin < end and ":" in said[begin:end] else said


def _hidden(found: re.Match[str]) -> str:
    """In the value's quotes; without any, in its name's: a number in a line of JSON becomes a text."""
    quote = found[3] or found[4] or found[2] or ""
    return f"{found[1]}{quote}***{quote}"
