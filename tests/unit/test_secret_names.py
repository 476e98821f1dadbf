"""Names of secrets in the spellings that people use, and names that only look like them."""

import json
from time import process_time

import pytest

from windlass.known_keys import MASK
from windlass.masking import masked, masked_text
from windlass.redaction import redact
from windlass.secret_names import STEMS, is_secret

_SECRETS = """
    password Password PASSWORD passwd pwd pass passphrase passcode passwort kennwort contraseña senha motDePasse wachtwoord
    passwordConfirm password_confirmation confirmPassword password2 passwordRepeat new_password old-password user.password
    passwordHash password_salt encryptedPassword password_hint passwordconfirm userpassword dbpassword smtpPassword
    PGPASSWORD MYSQL_PWD MYSQL_ROOT_PASSWORD POSTGRES_PASSWORD REDIS_PASSWORD REDISCLI_AUTH SSHPASS SMTP_PASS dbpass
    db_passwd ldapPassword keystorePassword trust_store_password htpasswd LDAP_BIND_PW_PASSWORD ansible_become_pass
    secret secrets secret_key secretKey secret_key_base SECRET_KEY_BASE client_secret clientSecret app_secret appSecret
    shared-secret webhookSecret jwt_secret AWS_SECRET_ACCESS_KEY aws_secret_access_key_eu consumerSecret secretValue
    token access_token accessToken refresh_token id_token authToken auth_token authtoken bearerToken csrf_token csrfToken
    X-Auth-Token X-CSRF-Token session_token GITHUB_TOKEN NPM_TOKEN slack_bot_token vault-token sasToken api_token tokenValue
    api_key apiKey API_KEY apikey X-Api-Key x_api_key api-key api_key_prod apiKeyV2 API_KEY_1 APIKEYS stripe_api_key
    private_key privateKey private_key_pem PRIVATE_KEY_DATA ssh_private_key signing_key encryptionKey master_key RAILS_MASTER_KEY
    APP_KEY account_key storageAccountKey SharedAccessKey access_key accessKey licenseKey deploy_key client-key-data
    Ocp-Apim-Subscription-Key x-functions-key connection_string ConnectionString
    authorization Authorization Proxy-Authorization auth authHeader auth_header basicAuth cookie Set-Cookie session_cookie
    sessionid session_id PHPSESSID JSESSIONID credential credentials awsCredentials user_credentials GOOGLE_CREDENTIALS
    signature X-Hub-Signature-256 sig otp totp otp_code mfaCode verification_code recovery_codes backupCodes seed_phrase mnemonic
    cvv cvc cvv2 card_number cardPin security_code hmac dsn SENTRY_DSN netrc kubeconfig пароль 密码 パスワード
"""

_INNOCENTS = """
    token_count max_token_count token_type tokenizer tokenization token_limit token_holder tokens_used secret_name secretary
    keyboard key keys primary_key foreign_key public_key publicKey sort_key cache_key idempotency_key routing_key partition_key
    key_id private_key_id access_key_id monkey turkey keynote hockey passenger compass bypass passed passing passport_country
    password_length password_min_length password_policy password_changed_at passwordless password_expires password_reset_url
    secret_id secret_arn secret_version author authority authors auth_method auth_type auth_url authenticated oauth_provider
    cookie_policy cookie_consent signal design assignment signature_required session session_count session_length
    credential_type basic basics digest header time timezone card discard backup backup_path connection conn_count magic
    phrase recovery verification security securityLevel opinion pin spinner pin_code timecode conn pwd_policy jwt_algorithm
    name title email status user_id created_at code country_code zip_code error_code
"""
SECRETS, INNOCENTS = _SECRETS.split(), _INNOCENTS.split()


def test_the_tables_are_as_long_as_was_promised() -> None:
    assert (len(set(SECRETS)) >= 80, len(set(INNOCENTS)) >= 30) == (True, True)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_hidden_whatever_its_name_looks_like(name: str) -> None:
    assert is_secret(name)
    assert "s3cr3t" not in masked("any", json.dumps({name: "s3cr3t"}))
    assert any(stem in name.lower() for stem in STEMS)


@pytest.mark.parametrize("name", INNOCENTS)
def test_what_is_none_is_shown(name: str) -> None:
    assert not is_secret(name)
    assert json.loads(masked("any", json.dumps({name: "plain"}))) == {name: "plain"}


@pytest.mark.parametrize("name", [name for name in SECRETS if name.isascii()])
def test_a_secret_is_hidden_in_a_line_of_text_too(name: str) -> None:
    assert "s3cr3t-v4lue" not in masked_text(f"export {name}=s3cr3t-v4lue")


@pytest.mark.parametrize("name", ["PGPASSWORD", "passwordConfirm", "password_confirmation", "password2", "db_passwd"])
def test_a_password_is_hidden_in_a_line_of_the_log(name: str) -> None:
    for line in (f"{name}=s3cr3t", json.dumps({name: "s3cr3t", "b": 1}), f"{name}: 's3cr3t'"):
        assert "s3cr3t" not in redact(line)


# Keys that are known by how they begin: made up, of the right shape.
KEYS = [
    *("AKIA" + "IOSFODNN7EXAMPLE", "ASIA" + "IOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9, "gho_" + "a1B2" * 9),
    *(
        "github_pat_" + "a1B2" * 15,
        "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
        "xoxb-" + "1234567890-abcdefghij",
        "xapp-1-" + "A1b2" * 6,
    ),
    *(
        "sk_live_" + "a1B2" * 6,
        "rk_test_" + "a1B2" * 6,
        "sk-" + "a1B2" * 8,
        "sk-ant-api03-" + "a1-B" * 8,
        "sk-proj-" + "a1_B" * 8,
    ),
    *("AIza" + "a1B2c" * 7, "ya29." + "a1B2" * 6, "SG." + "a1B2" * 5 + "." + "a1B2" * 8, "npm_" + "a1B2" * 9),
    *("pypi-AgEIcHlwaS5vcmc" + "a1B2" * 6, "dop_v1_" + "a1b2" * 16, "shpat_" + "a1b2" * 8, "hf_" + "a1B2" * 8),
    *("whsec_" + "a1B2" * 8, "hvs." + "a1B2" * 6, "tskey-auth-" + "a1B2" * 4, "lin_api_" + "a1B2" * 8),
    *("gsk_" + "a1B2" * 8, "rubygems_" + "a1b2" * 12, "figd_" + "a1B2" * 8, "sntrys_" + "a1B2" * 8),
    "AGE-SECRET-KEY-1" + "QPZRY9X8" * 6,
    "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0" + "." + "dBjftJeZ4CVPmB92K27uhbUJU1p1r_wW",
    "https://hooks.slack.com/services/" + "T00000000/B00000000/" + "a1B2" * 6,
    "https://discord.com/api/webhooks/" + "123456789012345678/" + "a1B2" * 15,
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:12])
def test_a_well_known_key_is_hidden_wherever_it_stands(key: str) -> None:
    for text in (key, f"deploying with {key}, please", f'{{"note":"{key}"}}', f"x={key}"):
        assert key not in masked_text(text)
        assert key not in redact(text)
        assert key not in masked("any", json.dumps({"note": text}))
        assert MASK in masked_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "risk_live_music in the park and a task-force-of-many-people-here",
        "npm_config and hf_ and AKIA and sk- are beginnings of keys",
        "https://hooks.slack.com/services/ is where they go",
        "eyJust a word. eyJanother one.",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    ],
)
def test_what_only_begins_like_a_key_is_shown(text: str) -> None:
    assert masked_text(text) == text
    assert redact(text) == text
    assert json.loads(masked("any", json.dumps({"note": text}))) == {"note": text}


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA "])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n"])
def test_a_private_key_in_pem_is_hidden(kind: str, line_end: str) -> None:
    body = line_end.join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"] * 4)
    text = f"before -----BEGIN {kind}PRIVATE KEY-----{line_end}{body}{line_end}-----END {kind}PRIVATE KEY----- after"
    for shown in (masked_text(text), redact(text), json.loads(masked("any", json.dumps({"note": text})))["note"]):
        assert shown == f"before -----BEGIN {kind}PRIVATE KEY-----{MASK}-----END {kind}PRIVATE KEY----- after"
    assert "MIIE" not in masked_text(text[:100])  # cut off before its end


def test_a_key_of_pgp_is_hidden() -> None:
    text = "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----"
    assert "lQOYBF" not in masked_text(text)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "-----BEGIN PRIVATE KEY-----",
            "-----BEGIN ",
            "eyJ",
            "eyJa.eyJ",
            "sk-",
            "sk-a-",
            "xoxb-1-",
            "AKIA",
            "ghp_a",
            "SG.a.",
        ),
        *(
            "passwordpassword",
            "PGPASSWORD=",
            "passwordConfirm: ",
            "api_key_",
            "https://hooks.slack.com/services/",
            "time=",
        ),
    ],
)
def test_no_text_of_names_and_keys_takes_long(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    began_s = process_time()
    masked_text(text)
    redact(text)
    masked("webhook", json.dumps({"note": text, text[:100_000]: "x"}))
    assert process_time() - began_s < 4
