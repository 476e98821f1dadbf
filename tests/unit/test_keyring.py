"""What refuses the start."""

import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from tests.unit.forgeries import SECRET
from tests.unit.test_tokens import PAIRS, pem
from windlass.auth.gate import check_start, is_loopback
from windlass.config import ApiConfig, AuthConfig, Config
from windlass.errors import Misconfigured


def refused(host: str = "127.0.0.1", **auth: Any) -> str:
    with pytest.raises(Misconfigured) as error:
        check_start(Config(auth=AuthConfig(**auth), api=ApiConfig(host=host)))
    said = str(error.value)
    assert SECRET not in said
    assert "PRIVATE KEY-----" not in said
    return said


def check(**auth: Any) -> None:
    check_start(Config(auth=AuthConfig(**auth)))


# Secrets. -----------------------------------------------------------------------------------------------------------


def test_there_is_no_secret_by_default() -> None:
    assert "WINDLASS_AUTH_SECRET is not set" in refused()
    assert "WINDLASS_AUTH_SECRET is not set" in refused(auth_secret="")


def test_a_short_secret_is_refused_by_its_bytes() -> None:
    check(auth_secret="0123456789abcdef0123456789abcdef")
    assert "31 bytes" in refused(auth_secret="0123456789abcdef0123456789abcde")


@pytest.mark.parametrize("secret", ["x" * 64, "changeme" * 8, "secret" * 10, "0" * 32, "abcabcabc" * 9])
def test_a_secret_that_can_be_guessed_is_refused(secret: str) -> None:
    assert "guessed" in refused(auth_secret=secret)


@pytest.mark.parametrize("make", [lambda: os.urandom(16).hex(), lambda: os.urandom(32).hex()])
def test_a_random_secret_is_never_taken_for_one_that_can_be_guessed(make: Any) -> None:
    for _ in range(500):
        check(auth_secret=make())


def test_a_public_key_is_no_secret() -> None:
    assert "not a secret" in refused(auth_secret=pem(PAIRS["RS256"].public_key()))
    assert "not a secret" in refused(auth_secret="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0123456789abcdefghijkl me@here")


def test_settings_of_another_algorithm_are_not_silently_ignored(tmp_path: Path) -> None:
    assert "AUTH_ALGORITHM" in refused(auth_secret=SECRET, auth_private_key=pem(PAIRS["EdDSA"]))
    assert "AUTH_ALGORITHM" in refused(auth_secret=SECRET, auth_public_keys=str(tmp_path))
    assert "HS256" in refused(auth_secret=SECRET, auth_algorithm="EdDSA", auth_private_key=pem(PAIRS["EdDSA"]))


# Pairs. -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", PAIRS)
def test_a_pair_needs_at_least_one_of_its_keys(algorithm: str) -> None:
    check(auth_algorithm=algorithm, auth_private_key=pem(PAIRS[algorithm]))
    assert "needs WINDLASS_AUTH_PRIVATE_KEY" in refused(auth_algorithm=algorithm)


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("EdDSA", PAIRS["RS256"]),
        ("RS256", PAIRS["EdDSA"]),
        ("EdDSA", ed448.Ed448PrivateKey.generate()),
        ("RS256", ec.generate_private_key(ec.SECP256R1())),
    ],
    ids=["RSA", "Ed25519", "Ed448", "P-256"],
)
def test_a_key_is_for_its_algorithm_alone(algorithm: str, key: Any, tmp_path: Path) -> None:
    assert f"no key for {algorithm}" in refused(auth_algorithm=algorithm, auth_private_key=pem(key))
    (tmp_path / "main.pem").write_text(pem(key.public_key()))
    assert f"no key for {algorithm}" in refused(auth_algorithm=algorithm, auth_public_keys=str(tmp_path))


def test_a_short_rsa_key_is_refused() -> None:
    short = rsa.generate_private_key(65537, 1024)
    assert "1024 bits" in refused(auth_algorithm="RS256", auth_private_key=pem(short))


def test_a_private_key_that_cannot_be_read_is_refused() -> None:
    key = PAIRS["EdDSA"]
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")).decode()
    for text in ("nonsense", pem(key)[:60], pem(key.public_key()), locked):
        assert "no private key in PEM" in refused(auth_algorithm="EdDSA", auth_private_key=text)


def test_a_folder_of_public_keys_must_be_readable_and_hold_some(tmp_path: Path) -> None:
    assert "cannot be read" in refused(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path / "none"))
    assert "1 to 100 files" in refused(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path))
    (tmp_path / "notes.txt").write_text("not a key, and not looked at")
    assert "1 to 100 files" in refused(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path))
    (tmp_path / "folder.pem").mkdir()
    assert "cannot be read" in refused(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path))


def test_one_bad_public_key_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "good.pem").write_text(pem(PAIRS["EdDSA"].public_key()))
    check(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path))
    for text in ("", "nonsense", pem(PAIRS["EdDSA"])):
        (tmp_path / "bad.pem").write_text(text)
        assert "bad.pem" in refused(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path))


@pytest.mark.parametrize("kid", ["a b", "é", "x" * 65, ".hidden"])
def test_names_of_keys_are_plain(kid: str, tmp_path: Path) -> None:
    (tmp_path / f"{kid}.pem").write_text(pem(PAIRS["EdDSA"].public_key()))
    assert "1 to 64 of" in refused(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path))
    assert "1 to 64 of" in refused(auth_algorithm="EdDSA", auth_private_key=pem(PAIRS["EdDSA"]), auth_kid=kid)


def test_a_private_key_that_does_not_belong_to_its_public_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.pem").write_text(pem(ed25519.Ed25519PrivateKey.generate().public_key()))
    said = refused(auth_algorithm="EdDSA", auth_private_key=pem(PAIRS["EdDSA"]), auth_public_keys=str(tmp_path))
    assert "does not belong to main.pem" in said


# No authentication. -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_without_authentication_only_this_machine_is_served(host: str) -> None:
    assert is_loopback(host)
    check_start(Config(auth=AuthConfig(auth="off"), api=ApiConfig(host=host)))


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "10.0.0.1", "192.168.1.1", "169.254.1.1", "example.com", "", "localhost.evil.com", "127.0.0.1.nip.io",
     "0", "127.1", "2130706433", "::ffff:10.0.0.1", "0x7f000001", " 127.0.0.1"],
)  # fmt: skip
def test_without_authentication_no_other_address_is_served(host: str) -> None:
    assert "WINDLASS_AUTH = off" in refused(host, auth="off")
