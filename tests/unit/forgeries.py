"""Tokens as forgers make them, written by hand: what signs ours must have no part in them."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

NOW = 1_800_000_000
SECRET = "a secret for the tests: 0123456789abcdef"
HEADER = {"alg": "HS256", "typ": "at+jwt"}
CLAIMS = {
    "iss": "windlass",
    "aud": "windlass",
    "sub": "user:ann",
    "scope": "submit read",
    "iat": NOW - 10,
    "exp": NOW + 600,
    "jti": "token-1",
}


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def hs256(message: bytes, secret: bytes = SECRET.encode()) -> bytes:
    return hmac.new(secret, message, hashlib.sha256).digest()


def token(
    header: Any = HEADER, claims: Any = CLAIMS, sign: Callable[[bytes], bytes] = hs256, *, signature: str | None = None
) -> str:
    """Header and claims as values, or as the bytes to send; signed as if we had done it."""
    parts = [b64(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in (header, claims)]
    message = ".".join(parts)
    return f"{message}.{b64(sign(message.encode())) if signature is None else signature}"


def header(**said: Any) -> str:
    """With the right signature: only the header is wrong."""
    return token(header=_but(HEADER, said))


def claims(**said: Any) -> str:
    """With the right signature: only the claims are wrong."""
    return token(claims=_but(CLAIMS, said))


def _but(value: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """`...` takes a field away."""
    return {name: each for name, each in (value | said).items() if each is not ...}


def _raw(text: str) -> str:
    return token(claims=text.encode())


def _texts() -> Iterator[tuple[str, str]]:
    good = token()
    head, body, seal = good.split(".")
    yield "empty", ""
    yield "blank", " "
    yield "one dot", "."
    yield "two dots", ".."
    yield "three dots", "..."
    yield "no signature", f"{head}.{body}"
    yield "an empty signature", f"{head}.{body}."
    yield "an empty header", f".{body}.{seal}"
    yield "empty claims", f"{head}..{seal}"
    yield "a fourth part", f"{good}.{seal}"
    yield "five parts, as encrypted ones have", f"{good}.{seal}.{seal}"
    yield "a blank before", f" {good}"
    yield "a line end after", f"{good}\n"
    yield "a NUL after", f"{good}\0"
    yield "padding", f"{good}="
    yield "padded parts", ".".join(part + "=" * (-len(part) % 4) for part in (head, body, seal))
    yield "a line break within a part", f"{head}.{body[:8]}\n{body[8:]}.{seal}"
    yield "the other alphabet", f"{head}.{body}.{b64(hs256(b'x')).replace('_', '/').replace('-', '+')}/+"
    yield "other spare bits", f"{head}.{body}.{seal[:-1]}{_neighbour(seal[-1])}"
    yield "one bit of the signature flipped", f"{head}.{body}.{('B' if seal[0] == 'A' else 'A') + seal[1:]}"
    yield "a signature cut short", f"{head}.{body}.{b64(hs256(f'{head}.{body}'.encode())[:16])}"
    yield "a signature of nothing", f"{head}.{body}.{b64(hs256(b''))}"
    yield "the signature of another", f"{head}.{body}.{claims(sub='user:bob').split('.')[2]}"
    yield "claims of another under our signature", f"{head}.{claims(scope='admin').split('.')[1]}.{seal}"
    yield "letters that look alike", good.replace("e", "\u0435", 1)
    yield "half a character", good + "\ud800"
    yield "a megabyte", "A" * 1_000_000
    yield "a megabyte of dots", "." * 1_000_000
    yield "a good one, far too long", claims(pad="x" * 5000)


def _neighbour(letter: str) -> str:
    """The letter that differs in the bits a decoder throws away."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return letters[letters.index(letter) ^ 1]


def _headers() -> Iterator[tuple[str, str]]:
    alg: Any
    for alg in ("none", "None", "NONE", "nOnE", ""):
        yield f"alg {alg!r}, unsigned", token({**HEADER, "alg": alg}, signature="")
        yield f"alg {alg!r}, signed", header(alg=alg)
    for alg in (
        "HS384",
        "HS512",
        "RS256",
        "ES256",
        "EdDSA",
        "PS256",
        "hs256",
        "HS256 ",
        None,
        1,
        ["HS256"],
        {"a": 1},
        True,
    ):
        yield f"alg {alg!r}", header(alg=alg)
    yield "no alg", header(alg=...)
    yield "alg twice", token(b'{"alg":"none","alg":"HS256","typ":"at+jwt"}')
    for typ in ("JWT", "jwt", "session+jwt", "refresh+jwt", "login+jwt", "AT+JWT", "application/at+jwt", "", None, 1):
        yield f"typ {typ!r}", header(typ=typ)
    yield "no typ", header(typ=...)
    kids = ("main", "", "../../../../dev/null", "/dev/null", "' or '1'='1", "x; drop table", "|id", "http://evil/k.pem")
    for kid in (*kids, None, 0, ["main"], {"a": 1}, "A" * 1000):
        yield f"kid {str(kid)[:40]!r}", header(kid=kid)
    yield "crit we do not know", header(crit=["exp"])
    yield "crit that is empty", header(crit=[])
    yield "crit b64", header(crit=["b64"], b64=False)
    yield "b64", header(b64=True)
    yield "jku", header(jku="https://evil.example/keys.json")
    yield "x5u", header(x5u="https://evil.example/cert.pem")
    yield "x5c", header(x5c=["MIIB"])
    yield "jwk", header(jwk={"kty": "oct", "k": b64(SECRET.encode())})
    yield "zip", header(zip="DEF")
    yield "cty", header(cty="JWT")
    yield "enc", header(enc="A256GCM")
    for name, text in _BROKEN.items():
        yield f"a header of {name}", token(header=text)


_BROKEN = {
    "no JSON": b"alg: HS256",
    "nothing": b" ",
    "a list": b'["HS256"]',
    "a text": b'"HS256"',
    "a number": b"1",
    "null": b"null",
    "bad UTF-8": b'{"alg":"HS256","typ":"\xff"}',
    "UTF-16": '{"alg":"HS256"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(HEADER).encode(),
    "something after the end": json.dumps(HEADER).encode() + b"{}",
    "a trailing comma": b'{"alg":"HS256","typ":"at+jwt",}',
    "single quotes": b"{'alg':'HS256'}",
    "depth": b"[" * 2900,
    "depth in objects": b'{"a":' * 500,
}


def _times() -> Iterator[tuple[str, str]]:
    wrong = ("", "soon", str(NOW + 600), NOW + 600.5, float(NOW + 600), True, None, [NOW + 600], {"a": 1}, -1, 0)
    for value in (*wrong, 2**31 * 1000, 2**63, 2**64, 10**300):
        yield f"exp {str(value)[:40]!r}", claims(exp=value)
        yield f"iat {str(value)[:40]!r}", claims(iat=value)
    yield "exp NaN", _raw(json.dumps(CLAIMS | {"exp": float("nan")}))
    yield "NaN where nobody looks", _raw(json.dumps(CLAIMS | {"x": float("nan")}))
    yield "exp Infinity", _raw(json.dumps(CLAIMS | {"exp": float("inf")}))
    yield "exp 1e400", _raw(json.dumps(CLAIMS).replace(str(NOW + 600), "1e400"))
    yield "exp as 5,000 digits", _raw(json.dumps(CLAIMS).replace(str(NOW + 600), "9" * 2000))
    yield "no exp", claims(exp=...)
    yield "no iat", claims(iat=...)
    yield "expired now", claims(exp=NOW)
    yield "expired a second ago", claims(exp=NOW - 1)
    yield "expired within any leeway", claims(exp=NOW - 20)
    yield "issued in the future", claims(iat=NOW + 31, exp=NOW + 600)
    yield "not before the future", claims(nbf=NOW + 31)
    yield "not before a text", claims(nbf="0")
    yield "not before null", claims(nbf=None)
    yield "living too long", claims(exp=NOW - 10 + 3601)
    yield "living for ever", claims(iat=1, exp=2**36)
    yield "ending before it begins", claims(iat=NOW + 20, exp=NOW + 10)
    yield "exp twice", _raw(json.dumps(CLAIMS)[:-1] + f', "exp": {NOW + 600}}}')
    yield "exp twice, the second escaped", _raw(json.dumps(CLAIMS)[:-1] + f', "e\\u0078p": {NOW + 3000}}}')


def _claims() -> Iterator[tuple[str, str]]:
    value: Any
    for name in ("iss", "aud"):
        for value in (
            ...,
            "",
            "Windlass",
            "windlass ",
            "windlass\0",
            "evil",
            None,
            1,
            True,
            ["windlass"],
            {"a": "windlass"},
        ):
            yield f"{name} {value!r}", claims(**{name: value})
    yield "aud of several", claims(aud=["windlass", "other"])
    for value in (
        ...,
        "",
        None,
        1,
        ["user:ann"],
        {"a": 1},
        "a\nb",
        "a\0",
        "\x1b[31m",
        "\u2028",
        "\ud800",
        " a",
        "x" * 201,
    ):
        yield f"sub {str(value)[:40]!a}", claims(sub=value)
    for value in (..., "", None, 1, ["t"], "a b", "é", "x" * 129, "a\n"):
        yield f"jti {str(value)[:40]!a}", claims(jti=value)
    for value in (..., None, 1, ["admin"], {"admin": True}, True):
        yield f"scope {value!r}", claims(scope=value)
    for value in ("", None, 1, [], "a b", "x" * 129):
        yield f"sid {str(value)[:40]!r}", claims(sid=value)
        yield f"epoch {str(value)[:40]!r}", claims(epoch=value)
    yield "sub twice", _raw(json.dumps(CLAIMS)[:-1] + ', "sub": "user:root"}')
    yield "scope twice", _raw(json.dumps(CLAIMS)[:-1] + ', "scope": "admin"}')
    yield "something twice within something", _raw(json.dumps(CLAIMS)[:-1] + ', "x": {"a": 1, "a": 2}}')
    for name, text in _BROKEN.items():
        yield f"claims of {name}", token(claims=text)


def _secrets() -> Iterator[tuple[str, str]]:
    for name, secret in {
        "nothing": b"",
        "a NUL": b"\0",
        "secret": b"secret",
        "the issuer": b"windlass",
        "half of ours": SECRET.encode()[:20],
        "ours and a line end": SECRET.encode() + b"\n",
        "ours, digested": hashlib.sha256(SECRET.encode()).digest(),
    }.items():
        yield f"signed with {name}", token(sign=partial(hs256, secret=secret))
    yield "digested, not signed", token(sign=lambda message: hashlib.sha256(message).digest())
    yield "secret before, no HMAC", token(sign=lambda message: hashlib.sha256(SECRET.encode() + message).digest())
    yield "HS512 under our name", token(sign=lambda message: hmac.new(SECRET.encode(), message, "sha512").digest())


def all_of_them() -> dict[str, str]:
    """By what is wrong with each."""
    return dict([*_texts(), *_headers(), *_times(), *_claims(), *_secrets()])
