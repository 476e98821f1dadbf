"""What is refused, and what is not."""

import json
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import forgeries
from tests.unit.forgeries import CLAIMS, HEADER, NOW, SECRET, b64, hs256, token
from windlass.auth import tokens
from windlass.auth.keyring import keyring
from windlass.auth.tokens import TYPES, Actor, Signer, Typ, Verifier, revocable
from windlass.config import AuthConfig
from windlass.errors import Forbidden, Misconfigured, RequestError, Unauthorized

SHARED = AuthConfig(auth_secret=SECRET)
FORGERIES = forgeries.all_of_them()


def verifier(config: AuthConfig = SHARED, now_s: float = NOW) -> Verifier:
    return Verifier(keyring(config), config, now=lambda: now_s)


def signer(config: AuthConfig = SHARED, now_s: float = NOW) -> Signer:
    return Signer(keyring(config), config, now=lambda: now_s)


def pem(key: Any) -> str:
    """A key as people keep it."""
    if hasattr(key, "private_bytes"):
        return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    return str(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


PAIRS: dict[str, Any] = {
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
}


def paired(algorithm: str, **said: Any) -> AuthConfig:
    return AuthConfig(auth_algorithm=algorithm, auth_private_key=pem(PAIRS[algorithm]), **said)


# Forgeries. ---------------------------------------------------------------------------------------------------------


def test_the_token_that_forgeries_differ_from_is_good() -> None:
    actor = verifier().verify(token())
    assert actor.subject == "user:ann"
    assert actor.scopes == {"submit", "read"}
    assert actor.expires_at == datetime.fromtimestamp(NOW + 600, UTC)


def test_there_are_many_forgeries() -> None:
    assert len(FORGERIES) >= 150


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_or_broken_token_is_refused_always_in_the_same_words(forged: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        verifier().verify(forged)
    assert str(refused.value) == str(Unauthorized())
    assert refused.value.__dict__ == {}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forgery_is_none_the_better_for_being_tried_again(forged: str) -> None:
    judge = verifier()
    for _ in range(3):
        with pytest.raises(Unauthorized):
            judge.verify(forged)
    assert judge.verify(token()).subject == "user:ann"


@given(st.text(max_size=300))
def test_whatever_is_sent_is_judged_without_an_error_of_ours(text: str) -> None:
    with pytest.raises(Unauthorized):
        verifier().verify(text)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_is_signed_is_judged_without_an_error_of_ours(header: bytes, claims: bytes) -> None:
    for forged in (token(header, claims), token(HEADER, claims), token(header, CLAIMS)):
        with pytest.raises(Unauthorized):
            verifier().verify(forged)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([*sorted(CLAIMS), "sid", "epoch", "nbf", "x"]), _JSON)
def test_whatever_a_claim_holds_the_answer_is_an_actor_or_a_refusal(name: str, value: Any) -> None:
    try:
        actor = verifier().verify(token(claims=CLAIMS | {name: value}))
    except Unauthorized:
        return
    assert not {"Cc", "Cs", "Zl", "Zp"} & set(map(unicodedata.category, actor.subject))
    assert actor.expires_s > NOW
    assert actor.scopes <= {"submit", "read", "operate", "admin"}


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_passes(place: int, change: int) -> None:
    data = bytearray(token().encode())
    data[place % len(data)] ^= change
    with pytest.raises(Unauthorized):
        verifier().verify(data.decode("latin-1"))


# Pairs of keys. -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", PAIRS)
def test_a_pair_of_keys_signs_and_verifies(algorithm: str) -> None:
    config = paired(algorithm)
    signed = signer(config).sign("user:ann", ["read"], 60)
    assert jwt.get_unverified_header(signed) == {"alg": algorithm, "typ": "at+jwt", "kid": "main"}
    assert verifier(config).verify(signed).subject == "user:ann"


@pytest.mark.parametrize("algorithm", PAIRS)
@pytest.mark.parametrize("kid", ["main", None, ...])
def test_the_public_key_is_no_secret_to_sign_with(algorithm: str, kid: Any) -> None:
    public = pem(PAIRS[algorithm].public_key())
    for text in (public, public.strip(), public.replace("\n", "")):
        for alg in ("HS256", algorithm):
            header = {"alg": alg, "typ": "at+jwt"} | ({} if kid is ... else {"kid": kid})
            forged = token(header, sign=partial(hs256, secret=text.encode()))
            with pytest.raises(Unauthorized):
                verifier(paired(algorithm)).verify(forged)


@pytest.mark.parametrize("algorithm", PAIRS)
@pytest.mark.parametrize(
    "kid", [..., None, "", "other", "main.pem", "../main", "/etc/passwd", 0, ["main"], {"main": 1}]
)
def test_a_key_is_used_under_its_own_name_alone(algorithm: str, kid: Any) -> None:
    config = paired(algorithm)
    header = {"alg": algorithm, "typ": "at+jwt"} | ({} if kid is ... else {"kid": kid})
    with pytest.raises(Unauthorized):
        verifier(config).verify(token(header, sign=keyring(config).sign))


@pytest.mark.parametrize("algorithm", PAIRS)
def test_another_pair_signs_for_nobody(algorithm: str) -> None:
    other = ed25519.Ed25519PrivateKey.generate() if algorithm == "EdDSA" else rsa.generate_private_key(65537, 2048)
    foreign = AuthConfig(auth_algorithm=algorithm, auth_private_key=pem(other))
    with pytest.raises(Unauthorized):
        verifier(paired(algorithm)).verify(signer(foreign).sign("user:ann", ["admin"], 60))


@pytest.mark.parametrize("algorithm", PAIRS)
def test_signatures_of_strange_sizes_are_refused(algorithm: str) -> None:
    for size in (0, 1, 32, 63, 64, 65, 255, 256, 257, 1000):
        forged = token({"alg": algorithm, "typ": "at+jwt", "kid": "main"}, signature=b64(b"\0" * size))
        with pytest.raises(Unauthorized):
            verifier(paired(algorithm)).verify(forged)


def test_with_several_public_keys_the_old_one_is_good_while_it_is_there(tmp_path: Path) -> None:
    old, new = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "2025.pem").write_text(pem(old.public_key()))
    before = AuthConfig(auth_algorithm="EdDSA", auth_private_key=pem(old), auth_kid="2025")
    after = AuthConfig(
        auth_algorithm="EdDSA", auth_private_key=pem(new), auth_kid="2026", auth_public_keys=str(tmp_path)
    )
    signed = [signer(each).sign("user:ann", ["read"], 60) for each in (before, after)]
    assert {verifier(after).verify(each).subject for each in signed} == {"user:ann"}
    renamed = jwt.encode(CLAIMS, new, "EdDSA", headers={"typ": "at+jwt", "kid": "2025"})
    with pytest.raises(Unauthorized):
        verifier(after).verify(renamed)


def test_public_keys_alone_verify_and_do_not_sign(tmp_path: Path) -> None:
    (tmp_path / "main.pem").write_text(pem(PAIRS["EdDSA"].public_key()))
    config = AuthConfig(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path))
    signed = signer(paired("EdDSA")).sign("user:ann", ["read"], 60)
    assert verifier(config).verify(signed).subject == "user:ann"
    with pytest.raises(Misconfigured):
        signer(config).sign("user:ann", ["read"], 60)


# What is signed here. -----------------------------------------------------------------------------------------------


def test_others_can_read_what_is_signed_here() -> None:
    signed = signer().sign("user:ann", ["read", "submit"], 60, session="s", epoch="e")
    claims = jwt.decode(
        signed,
        SECRET,
        ["HS256"],
        audience="windlass",
        issuer="windlass",
        options={"verify_exp": False, "verify_iat": False},
    )
    assert claims.pop("jti")
    assert claims == {
        "iss": "windlass", "aud": "windlass", "sub": "user:ann", "scope": "submit read",
        "iat": NOW, "exp": NOW + 60, "sid": "s", "epoch": "e",
    }  # fmt: skip


def test_what_others_sign_as_we_ask_is_read_here() -> None:
    signed = jwt.encode(CLAIMS | {"client_id": "x", "nbf": NOW}, SECRET, "HS256", headers={"typ": "at+jwt"})
    assert verifier().verify(signed).subject == "user:ann"


@pytest.mark.parametrize("typ", TYPES)
@pytest.mark.parametrize("wanted", TYPES)
def test_a_token_is_good_for_its_own_use_alone(typ: Typ, wanted: Typ) -> None:
    signed = signer().sign("user:ann", ["admin"], 60, typ)
    judge = verifier()
    if typ == wanted:
        assert judge.verify(signed, wanted).subject == "user:ann"
        return
    judge.verify(signed, typ)  # remembered as what it is, and not as anything else
    with pytest.raises(Unauthorized):
        judge.verify(signed, wanted)


@pytest.mark.parametrize("ttl_s", [0, -1, 0.5, 3601, float("nan"), float("inf")])
def test_nothing_is_signed_that_would_be_refused(ttl_s: float) -> None:
    with pytest.raises(RequestError):
        signer().sign("user:ann", ["read"], ttl_s)


@pytest.mark.parametrize("subject", ["", " a", "a\nb", "a\0", "x" * 201, "\ud800", "\x1b[0m"])
def test_no_subject_is_signed_that_a_log_could_not_show(subject: str) -> None:
    with pytest.raises(RequestError):
        signer().sign(subject, ["read"], 60)


def test_no_two_tokens_are_the_same() -> None:
    made = [verifier().verify(signer().sign("user:ann", ["read"], 60)).token_id for _ in range(1000)]
    assert len(set(made)) == 1000


def test_scopes_of_a_newer_version_grant_nothing_here() -> None:
    actor = verifier().verify(forgeries.claims(scope="root read admin\n ADMIN administrate"))
    assert actor.scopes == {"read"}
    actor.need("read")
    with pytest.raises(Forbidden):
        actor.need("admin")


def test_an_admin_may_everything_and_nobody_else_more_than_he_may() -> None:
    for scope in ("submit", "read", "operate", "admin"):
        assert Actor("a", frozenset({"admin"})).allows(scope)
        assert Actor("a", frozenset({"operate"})).allows(scope) == (scope == "operate")


# Time. --------------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s: float = NOW

    def __call__(self) -> float:
        return self.now_s


def test_a_remembered_token_expires_to_the_second() -> None:
    clock = Clock()
    judge = Verifier(keyring(SHARED), SHARED, now=clock)
    signed = signer().sign("user:ann", ["read"], 60)
    clock.now_s = NOW + 59.999
    assert judge.verify(signed) is judge.verify(signed)
    clock.now_s = NOW + 60
    for _ in range(2):
        with pytest.raises(Unauthorized):
            judge.verify(signed)


def test_a_clock_that_is_behind_by_less_than_the_leeway_does_not_refuse_what_is_new() -> None:
    signed = signer(now_s=NOW).sign("user:ann", ["read"], 60)
    assert verifier(now_s=NOW - 29).verify(signed).subject == "user:ann"
    with pytest.raises(Unauthorized):
        verifier(now_s=NOW - 31).verify(signed)


def test_the_longest_life_is_that_of_the_use() -> None:
    config = replace(SHARED, token_ttl_s=60.0, refresh_ttl_s=600.0)
    for typ, most_s in {"access": 60, "session": 600, "refresh": 600, "login": 3600}.items():
        header = {**HEADER, "typ": TYPES[typ]}  # type: ignore[index]
        good = token(header, CLAIMS | {"iat": NOW, "exp": NOW + most_s})
        assert verifier(config).verify(good, typ)  # type: ignore[arg-type]
        with pytest.raises(Unauthorized):
            verifier(config).verify(token(header, CLAIMS | {"iat": NOW, "exp": NOW + most_s + 1}), typ)  # type: ignore[arg-type]


# What is revoked. ---------------------------------------------------------------------------------------------------


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW + seconds, UTC)


@pytest.mark.parametrize(
    "name",
    [
        lambda actor: revocable("token", actor.token_id),
        lambda actor: revocable("session", "s1"),
        lambda actor: revocable("subject", "user:ann"),
        lambda actor: revocable("subject", "user:ann", "e1"),
    ],
    ids=["its id", "its session", "its subject", "its subject as it was"],
)
def test_a_token_that_was_good_a_moment_ago_is_refused_once_it_is_revoked_by(name: Any) -> None:
    judge = verifier()
    signed = signer().sign("user:ann", ["read"], 60, session="s1", epoch="e1")
    actor = judge.verify(signed)
    judge.revoked = {name(actor): at(1), "token:unknown": at(1)}
    with pytest.raises(Unauthorized):
        judge.verify(signed)
    judge.revoked = {}
    assert judge.verify(signed) == actor


def test_a_token_or_session_never_comes_back_whatever_the_clocks_say() -> None:
    judge = verifier()
    signed = signer().sign("user:ann", ["read"], 60, session="s1")
    for name in (revocable("token", judge.verify(signed).token_id or ""), revocable("session", "s1")):
        judge.revoked = {name: at(-1000)}
        with pytest.raises(Unauthorized):
            judge.verify(signed)


def test_nobody_is_revoked_by_the_name_of_another() -> None:
    judge = verifier()
    signed = signer().sign("user:ann", ["read"], 60, session="s1", epoch="e1")
    token_id = judge.verify(signed).token_id or ""
    others = ["token:s1", f"session:{token_id}", f"subject:{token_id}", "subject:user:anne", "subject:user:ann@e2"]
    judge.revoked = dict.fromkeys([*others, "user:ann", token_id, "s1", "subject:ann", "session:user:ann"], at(1))
    assert judge.verify(signed).subject == "user:ann"


def test_a_subject_may_come_back_later_by_more_than_clocks_differ() -> None:
    judge = verifier(now_s=NOW + 40)
    judge.revoked = {revocable("subject", "user:ann", "e1"): at(0)}
    soon = signer(now_s=NOW + 20).sign("user:ann", ["read"], 60, epoch="e1")
    later = signer(now_s=NOW + 31).sign("user:ann", ["read"], 60, epoch="e1")
    with pytest.raises(Unauthorized):
        judge.verify(soon)
    assert judge.verify(later).subject == "user:ann"


# What it costs. -----------------------------------------------------------------------------------------------------


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "remembered_max", 50)
    judge = verifier()
    made = [signer().sign(f"user:{n}", ["read"], 60) for n in range(200)]
    for _ in range(2):
        assert [judge.verify(each).subject for each in made] == [f"user:{n}" for n in range(200)]
    assert len(judge._remembered) == 50


def test_forgeries_are_not_remembered() -> None:
    judge = verifier()
    for forged in FORGERIES.values():
        with pytest.raises(Unauthorized):
            judge.verify(forged)
    assert judge._remembered == {}


def test_keys_are_shown_nowhere() -> None:
    for config in (SHARED, paired("EdDSA")):
        shown = repr(keyring(config)) + repr(config)
        assert SECRET not in shown
        assert "PRIVATE" not in shown


def test_the_header_is_all_that_is_read_of_an_unsigned_token(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, read, loads = verifier(), [], json.loads

    def noted(text: str, **said: Any) -> Any:
        read.append(text)
        return loads(text, **said)

    monkeypatch.setattr("windlass.auth.tokens.json.loads", noted)
    with pytest.raises(Unauthorized):
        judge.verify(token(signature=b64(b"x" * 32)))
    assert read == [json.dumps(HEADER)]
