"""What is shown of a payload holds no secret, and is otherwise what was stored."""

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.known_keys import MASK
from windlass.masking import header_secrets, masked, masked_text, without
from windlass.redaction import redact
from windlass.secret_names import is_secret

SECRET = "s3cr3t-v4lue"


def shown(payload: Any, type_: str = "anything") -> str:
    return masked(type_, json.dumps(payload))


@pytest.mark.parametrize(
    "payload",
    [
        {"password": SECRET},
        {"smtpPassword": SECRET},
        {"user": {"API_KEY": SECRET}},
        {"list": [{"client-secret": SECRET}]},
        {"access_token": SECRET},
        {"credentials": {"user": "ann", "value": SECRET}},
        {"auth": ["ann", SECRET]},
        {"secret": 12345, "note": "12345".replace("5", "6")},
        {"headers": {"Authorization": f"Bearer {SECRET}"}},
        {"headers": {"X-Api-Key": SECRET, "cookie": SECRET}},
        {"headers": [["Authorization", SECRET], {"name": "X-Auth-Token", "value": SECRET}]},
        {"url": f"https://user:{SECRET}@example.org/"},
        {"url": f"https://example.org/?a=1&access_token={SECRET}&b=2"},
        {"body": json.dumps({"password": SECRET})},
        {"body": json.dumps({"inner": json.dumps({"token": SECRET})})},
        {"body": f"user=ann&password={SECRET}"},
        {"text": f"Authorization: Bearer {SECRET}"},
        {"text": f"curl -H 'X-Api-Key: {SECRET}'"},
        {"deep": {"er": [{"dsn": f"postgresql://u:{SECRET}@db/x"}]}},
    ],
)
def test_a_secret_is_not_shown(payload: Any) -> None:
    assert SECRET not in shown(payload)
    assert MASK in shown(payload)
    json.loads(shown(payload))


@pytest.mark.parametrize("name", ["Authorization", "X-Whatever", "x-shop", "Cookie", "X-Hub-Signature"])
def test_a_webhooks_header_is_not_shown_whatever_its_name(name: str) -> None:
    assert SECRET not in shown({"headers": {name: SECRET, "Content-Type": "a/b"}}, "webhook")
    assert "a/b" in shown({"headers": {name: SECRET, "Content-Type": "a/b"}}, "webhook")


@pytest.mark.parametrize(
    "text",
    [
        "refused: Authorization: Bearer abcdefghijklmnop",
        "Authorization: Basic abcdefghijklmnop and more abcdefghijklmnop",
        "Cookie: a=1; session=abcdefghijklmnop; b=2",
        "{'Authorization': 'Token abcdefghijklmnop'}",
        """body='{"token": "abcdefghijklmnop"}'""",
        """{"error": "{\\"api_key\\": \\"abcdefghijklmnop\\"}"}""",
        '{"client_secret":"abcdefghijklmnop"}',
        "KeyError(token='a b abcdefghijklmnop')",
        "x-api-key: abcdefghijklmnop",
        "GET /a?page=1&access_token=abcdefghijklmnop HTTP/1.1",
        "bearer abcdefghijklmnop",
        "connect to amqp://user:abcdefghijklmnop@host",
    ],
)
def test_a_secret_in_a_message_is_not_shown(text: str) -> None:
    assert "abcdefghijklmnop" not in masked_text(text)
    assert masked_text(masked_text(text)) == masked_text(text)


def test_a_name_written_in_escapes_is_a_name() -> None:
    assert SECRET not in masked("x", rf'{{"\u0070assword": "{SECRET}"}}')
    assert SECRET not in masked("webhook", rf'{{"h\u0065aders": {{"X-A": "{SECRET}"}}}}')


@pytest.mark.parametrize(
    "payload",
    [
        {"token_count": 3, "max_tokens": 512, "secret_name": "shop", "keyboard": "de", "key": "k", "author": "Ann"},
        {"passenger": "Ann", "signal": 9, "compass": "N", "basic": "a basic understanding", "monkey": 1},
        {"password": None, "token": "", "secrets": [], "auth": False},
        {"url": "https://example.org/a?page=2#top", "time": "12:30", "note": "it did pass"},
        {"headers": {"Content-Type": "a/b"}, "header": "Hello"},
    ],
)
def test_what_is_no_secret_is_shown(payload: Any) -> None:
    assert json.loads(shown(payload)) == payload


def test_numbers_and_order_and_doubled_names_stay() -> None:
    text = '{"b":1.50,"a":123456789012345678901234567890,"c":1e400,"b":-0.0,"password":"x"}'
    assert masked("x", text) == text.replace('"x"', '"***"')


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_is_stored_stays_json_of_the_same_shape(payload: Any) -> None:
    assert type(json.loads(shown(payload))) is type(payload)
    assert masked("webhook", masked("webhook", json.dumps(payload))) == masked("webhook", json.dumps(payload))


def test_what_is_no_json_is_not_shown() -> None:
    assert masked("x", '{"password": "a') == f'"{MASK}"'


def test_known_secrets_are_taken_out_in_every_form() -> None:
    text = 'a b/c"d and a%20b%2Fc%22d and a%20b/c%22d and a b/c\\"d'
    assert without(text, ['a b/c"d']) == "*** and *** and *** and ***"
    assert without("Bearer abcdef; abcdef", ["Bearer abcdef"]) == "***; ***"
    assert without("nothing", ["", "no"]) == "nothing"
    assert header_secrets([("X-A", "1"), ("content-type", "2")]) == ["1"]


def test_names() -> None:
    assert all(map(is_secret, ["password", "X-Api-Key", "accessToken", "AWS_SECRET_ACCESS_KEY", "private_key", "JWT"]))
    assert not any(map(is_secret, ["", "name", "key", "token_type", "password_hint_count", "primary_key", "___"]))


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "a",
            "bearer ",
            "a=b ",
            "token=",
            "https://",
            "password: ",
            "a.",
            '"',
            "{",
            "\\u0070",
            "=:",
            "a://a:",
            "x@y ",
        ),
        *("postgres://a:", "postgres://a:x ", "a word and a key ", "authorization: ", "key-", "keykey", 'password="'),
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    text = "@" + piece * (1_000_000 // len(piece)) + " token="
    began_s = process_time()
    masked_text(text)
    masked("webhook", json.dumps({"headers": {}, "body": text}))
    assert process_time() - began_s < 3


@pytest.mark.parametrize("words", [1, 40])
def test_a_login_is_hidden_among_many_addresses_too(words: int) -> None:
    text = " ".join(["https://example.org/a", f"https://ann:{SECRET}@example.org/"] * words)
    assert SECRET not in masked_text(text)
    line = json.dumps({"a": [{"u": f"x://ann:{SECRET}@h"}] * words, "m": "b@c"})
    assert SECRET not in redact(line)
    assert json.loads(redact(line))["m"] == "b@c"


def test_letters_of_any_alphabet_and_case_do_not_hide_a_secret() -> None:
    for before in ("", "İİİ ", "ﬁ\u017f\u212a ", "ЖЖ "):
        assert SECRET not in masked_text(f"{before}API_KEY={SECRET} AUTHORIZATION: Basic {SECRET}")
        assert masked_text(f"{before}Api-Key: {SECRET} End") == f"{before}Api-Key: *** End"


def test_a_secret_beside_a_header_is_not_shown() -> None:
    assert SECRET not in shown({"headers": [{"name": "A", "value": "b", "password": SECRET}]})
