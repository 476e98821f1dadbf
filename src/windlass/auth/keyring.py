"""The keys that tokens are signed and verified with: one algorithm, chosen by the configuration and never by a token.

Under HS256 there is one secret and no key has a name. Under EdDSA and RS256 public keys are files KID.pem in a folder,
read once, at the start: the `kid` of a token is looked up among them in memory and never becomes a path.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from jwt import get_algorithm_by_name
from jwt.algorithms import Algorithm
from jwt.exceptions import InvalidKeyError

from windlass.config import AuthConfig
from windlass.errors import Misconfigured

secret_bytes_min: Final = 32
rsa_bits_min: Final = 2048
keys_max: Final = 100
# "changeme" repeated has 7 different characters; 32 random hexadecimal digits have fewer than 8 once in 28 million.
_distinct_min: Final = 8
_KID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_KINDS: Final[Mapping[str, tuple[type, type]]] = {
    "EdDSA": (Ed25519PrivateKey, Ed25519PublicKey),
    "RS256": (RSAPrivateKey, RSAPublicKey),
}


@dataclass(frozen=True, slots=True)
class Keyring:
    """`kid` names the key that signs; None under HS256. Keys appear in no repr."""

    algorithm: str
    kid: str | None
    _method: Algorithm = field(repr=False)
    _signing: Any = field(repr=False)
    _verifying: Mapping[str | None, Any] = field(repr=False)

    @property
    def signs(self) -> bool:
        return self._signing is not None

    def sign(self, message: bytes) -> bytes:
        if self._signing is None:
            raise Misconfigured("tokens cannot be signed here: set WINDLASS_AUTH_PRIVATE_KEY")
        return self._method.sign(message, self._signing)

    def verify(self, kid: str | None, message: bytes, signature: bytes) -> bool:
        """A key is tried only under the name the token gives; a flood of unknown names costs a look-up each."""
        key = self._verifying.get(kid)
        return key is not None and self._method.verify(message, key, signature)


def keyring(config: AuthConfig) -> Keyring:
    """The keys of the configuration, or Misconfigured with what to change. Reads the folder of public keys."""
    if config.auth_algorithm == "HS256":
        return _shared(config)
    return _pairs(config)


def _shared(config: AuthConfig) -> Keyring:
    if config.auth_private_key or config.auth_public_keys:
        raise Misconfigured("WINDLASS_AUTH_PRIVATE_KEY and _PUBLIC_KEYS need WINDLASS_AUTH_ALGORITHM = EdDSA or RS256")
    if not config.auth_secret:
        raise Misconfigured(
            "WINDLASS_AUTH_SECRET is not set: tokens are signed with it. Make one with `openssl rand -hex 32`, give "
            "the same to every API process, and keep it from everyone else"
        )
    secret = config.auth_secret.encode()
    if len(secret) < secret_bytes_min:
        raise Misconfigured(f"WINDLASS_AUTH_SECRET is too short: {len(secret)} bytes; at least {secret_bytes_min}")
    if len(set(secret)) < _distinct_min:
        raise Misconfigured("WINDLASS_AUTH_SECRET can be guessed: make one with `openssl rand -hex 32`")
    method = get_algorithm_by_name("HS256")
    try:
        key = method.prepare_key(secret)
    except InvalidKeyError:  # a public key as a secret: everyone could sign
        raise Misconfigured("WINDLASS_AUTH_SECRET is a key or certificate, not a secret") from None
    return Keyring("HS256", None, method, key, {None: key})


def _pairs(config: AuthConfig) -> Keyring:
    algorithm = config.auth_algorithm
    if config.auth_secret:
        raise Misconfigured(f"WINDLASS_AUTH_SECRET is for HS256; under {algorithm} set WINDLASS_AUTH_PRIVATE_KEY")
    if not _KID.fullmatch(config.auth_kid):
        raise Misconfigured("WINDLASS_AUTH_KID: must be 1 to 64 of A-Z a-z 0-9 _ . -, and not begin with a dot")
    public = _folder(Path(config.auth_public_keys), algorithm) if config.auth_public_keys else {}
    private = _private(config.auth_private_key, algorithm) if config.auth_private_key else None
    if private is not None:
        own = private.public_key()
        if public.setdefault(config.auth_kid, own) != own:
            raise Misconfigured(
                f"WINDLASS_AUTH_PRIVATE_KEY does not belong to {config.auth_kid}.pem in WINDLASS_AUTH_PUBLIC_KEYS: "
                "every token signed with it would be refused"
            )
    if not public:
        raise Misconfigured(f"{algorithm} needs WINDLASS_AUTH_PRIVATE_KEY, or WINDLASS_AUTH_PUBLIC_KEYS, or both")
    return Keyring(algorithm, config.auth_kid, get_algorithm_by_name(algorithm), private, dict(public))


def _private(text: str, algorithm: str) -> Any:
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError):  # TypeError: it has a passphrase
        raise Misconfigured("WINDLASS_AUTH_PRIVATE_KEY is no private key in PEM without a passphrase") from None
    return _fit(key, _KINDS[algorithm][0], algorithm, "WINDLASS_AUTH_PRIVATE_KEY")


def _folder(folder: Path, algorithm: str) -> dict[str | None, Any]:
    """Every KID.pem. One that cannot be used refuses the start: silently without it, its tokens would be refused
    later."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".pem")
        texts = {path.stem: path.read_bytes() for path in files[: keys_max + 1]}
    except OSError as error:
        raise Misconfigured(f"WINDLASS_AUTH_PUBLIC_KEYS = {str(folder)!r} cannot be read: {error.strerror}") from None
    if not 1 <= len(texts) <= keys_max:
        raise Misconfigured(f"WINDLASS_AUTH_PUBLIC_KEYS = {str(folder)!r}: must hold 1 to {keys_max} files KID.pem")
    keys: dict[str | None, Any] = {}
    for kid, text in texts.items():
        where = f"{kid}.pem in WINDLASS_AUTH_PUBLIC_KEYS"
        if not _KID.fullmatch(kid):
            raise Misconfigured(f"{where}: a name has 1 to 64 of A-Z a-z 0-9 _ . -, and does not begin with a dot")
        try:
            key = load_pem_public_key(text)
        except ValueError:
            raise Misconfigured(f"{where} is no public key in PEM") from None
        keys[kid] = _fit(key, _KINDS[algorithm][1], algorithm, where)
    return keys


def _fit(key: Any, kind: type, algorithm: str, where: str) -> Any:
    if not isinstance(key, kind):
        raise Misconfigured(f"{where} is no key for {algorithm}")
    if isinstance(key, RSAPrivateKey | RSAPublicKey) and key.key_size < rsa_bits_min:
        raise Misconfigured(f"{where} is too short: {key.key_size} bits; at least {rsa_bits_min}")
    return key
