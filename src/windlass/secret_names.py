"""Which names look like those of a secret: passwordConfirm, PGPASSWORD, X-Api-Key; but not token_count or keyboard.

A name is split into words. A word that tells a secret makes the name one, unless what follows says that it is something
about the secret (its length, its type, its file). After weaker words only what is known to follow a value is taken: a
token_holder is a person. All of it is in the tables below; a spelling is added there and in the test's table. Pure.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Secret wherever they stand in a name, unless an innocent word follows.
_STRONG: Final = _words(
    """
    password passwords passwd passphrase passcode passwort kennwort passkey pwd
    secret secrets apikey apikeys privatekey secretkey accesskey clientsecret credential credentials
    contrasena senha motdepasse wachtwoord losenord adgangskode salasana haslo parola
    htpasswd netrc kubeconfig dockerconfigjson mnemonic
    """
)
# Secret as the last word of a name, or before words of _VALUE.
_WEAK: Final = _words(
    """
    pass token tokens jwt authorization authentication auth bearer cookie cookies signature sig otp totp
    cvv cvc cvv2 cvc2 csrf xsrf hmac dsn sessionid sessid jsessionid phpsessid keytab pfx
    """
)
# Two words together that are one of those above: api key, session id, recovery codes.
_KEY_OWNERS: Final = _words(
    """
    api access private secret signing encryption encrypt decryption auth account master shared ssh license storage service
    server host deploy session cookie app application consumer client root admin write hmac jwt aes rsa gpg pgp tls ssl pem
    webhook subscription functions recovery wrapping stripe sendgrid openai anthropic mailgun twilio aws gcp azure google
    """
)
_PAIRS: Final = frozenset(
    {
        *(("session", "id"), ("connection", "string"), ("conn", "string"), ("conn", "str"), ("seed", "phrase")),
        *(("recovery", "phrase"), ("recovery", "code"), ("recovery", "codes"), ("backup", "code"), ("backup", "codes")),
        *(("security", "code"), ("security", "answer"), ("verification", "code"), ("otp", "code"), ("mfa", "code")),
        *(("card", "pin"), ("card", "number"), ("magic", "link"), ("de", "passe")),
    }
)
# What follows a value's name and leaves it one.
_VALUE: Final = _words(
    """
    value values header headers string text data raw plain plaintext clear cleartext encoded base64 b64 hex hash hashed
    digest encrypted enc confirm confirmation repeat again new old current previous temp default prod production staging
    dev test live sandbox primary secondary base pem bytes json env var b c x y
    """
)
# What is about a secret, and none itself.
_INNOCENT: Final = _words(
    """
    count counts counter length len size min max limit limits type types kind name names id ids policy policies at on date time
    expires expire expiry expiration expired age ttl changed updated created modified required enabled disabled allowed
    strength score rule rules regex pattern field fields label placeholder url uri endpoint path file filename dir
    folder location arn version versions status state method mode provider scheme algorithm error errors message
    attempts tries manager page usage used total budget cost price scope scopes audience issuer user username owner
    email form screen visible protected valid store ref reference engine rotation days hours minutes seconds ms chars
    characters digits bits less ary
    """
)
# Stems of words that are written as one: PGPASSWORD, dbpasswd, authtoken; passwordconfirm, secretkeybase.
_GLUED_ENDS: Final = (
    *("password", "passwd", "passphrase", "passwort", "secret", "token", "apikey", "pwd", "credentials", "secretkey"),
)
_GLUED_BEGINNINGS: Final = ("password", "passwd", "passphrase", "apikey", "secretkey", "privatekey", "accesskey")
_GLUED_PASS: Final = _words("db ssh smtp user my key store ldap ftp mail admin root proxy redis mysql pg http basic")

# Headers whose values tell nobody anything: everything else that a webhook sends is hidden.
_HARMLESS: Final = frozenset(
    {
        *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-disposition"),
        *("content-encoding", "content-language", "content-length", "content-type", "date", "etag", "expires", "from"),
        *("host", "if-match", "if-modified-since", "if-none-match", "if-unmodified-since", "last-modified", "origin"),
        *("pragma", "prefer", "range", "retry-after", "server", "user-agent", "vary", "x-request-id", "traceparent"),
    }
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\x00-\x7f]+")
_VERSION: Final = re.compile(r"v?[0-9]{1,4}|v")
# In other letters the parts of a word cannot be told from each other: looked for in the whole name.
_ELSEWHERE: Final = ("пароль", "密码", "密碼", "パスワード", "비밀번호", "contraseña", "lösenord", "hasło")
_name_chars_max: Final = 200

# One of these is in every name above: what holds none need not be looked at. In small letters.
STEMS: Final = (
    *("pass", "pwd", "secret", "token", "jwt", "auth", "bearer", "cookie", "cred", "key", "sig", "otp", "cvv", "cvc"),
    *(
        "sess",
        "csrf",
        "xsrf",
        "hmac",
        "dsn",
        "wort",
        "contrase",
        "senha",
        "woord",
        "losenord",
        "adgangskode",
        "salasana",
    ),
    *(
        "haslo",
        "parola",
        "netrc",
        "kubeconfig",
        "dockerconfig",
        "mnemonic",
        "pfx",
        "conn",
        "phrase",
        "recovery",
        "backup",
    ),
    *("securit", "verification", "mfa", "card", "magic", *_ELSEWHERE),
)


def any_of(words: Iterable[str]) -> str:
    """A pattern that finds the beginning of a word among these, as a tree: a tenth of the time of a list of all of them."""
    tails: dict[str, list[str]] = {}
    for word in words:
        tails.setdefault(word[0], []).append(word[1:])
    parts = [re.escape(head) + ("" if "" in rest else any_of(rest)) for head, rest in sorted(tails.items())]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether what goes by this name looks like a secret."""
    name = name[-_name_chars_max:]
    words = [part for word in _WORD.findall(name) for part in _unglued(word.lower())]
    while len(words) > 1 and _VERSION.fullmatch(words[-1]):  # password2, api_key_v2
        words.pop()
    if not words:
        return False
    low = name.lower()
    if any(word in low for word in _ELSEWHERE):
        return True
    return _tells(words) or "".join(words) in _STRONG | _WEAK


def _tells(words: list[str]) -> bool:
    for at, word in enumerate(words):
        rest = words[at + 1 :]
        if word in _STRONG and not (rest and rest[-1] in _INNOCENT):
            return True
        pair = at + 1 < len(words) and _is_pair(word, words[at + 1])
        if (word in _WEAK and all(each in _VALUE for each in rest)) or (
            pair and all(each in _VALUE for each in rest[1:])
        ):
            return True
    return False


def _is_pair(first: str, second: str) -> bool:
    if second in {"key", "keys"}:
        return first in _KEY_OWNERS
    return (first, second) in _PAIRS or first + second in _WEAK


def _unglued(word: str) -> list[str]:
    """The word, or its parts where it is several written as one."""
    if word in _STRONG or word in _WEAK:
        return [word]
    for stem in _GLUED_BEGINNINGS:
        if word.startswith(stem):
            return [stem, word[len(stem) :]]
    for stem in _GLUED_ENDS:
        if word.endswith(stem):
            return [word[: -len(stem)], stem]
    if word.endswith("pass") and word[:-4] in _GLUED_PASS:
        return [word[:-4], "pass"]
    if word.endswith("key") and word[:-3] in _KEY_OWNERS:
        return [word[:-3], "key"]
    return [word]


def is_harmless_header(name: str) -> bool:
    """Whether what a webhook's header of this name holds tells nobody anything."""
    return name.strip().lower() in _HARMLESS
