"""Secrets of payloads are encrypted on their way into the store and come out as they were."""

import json
from typing import Any

import pytest

from windlass.config import load
from windlass.errors import InvalidPayload, Misconfigured
from windlass.sealing import NO_KEYS, PayloadKeys, PayloadLocked, has_secrets, opening

FIRST, SECOND = "a" * 16 + "first-key-of-this-test", "b" * 16 + "second-key-of-this-test"
SECRET = "Bearer s3cr3t-v4lue"


def hook(**headers: Any) -> str:
    return json.dumps({"url": "https://example.org/", "headers": headers, "body": {"n": 10**30, "x": 1.5, "é": None}})


@pytest.mark.parametrize("value", [SECRET, "x", "é ü", "a" * 8_192, "sealed:v1:00000000:AAAA"])
def test_what_was_sealed_is_opened(value: str) -> None:
    keys, text = PayloadKeys(FIRST), hook(**{"X-Token": value, "Content-Type": "a/b"})
    stored = keys.seal("webhook", text)
    assert value == "x" or value not in stored
    assert json.loads(stored)["headers"]["Content-Type"] == "a/b"
    assert json.loads(keys.open("webhook", stored)) == json.loads(text)
    assert keys.seal("webhook", text) != stored, "the same secret twice looks like two"


@pytest.mark.parametrize(
    "text", ["null", "[]", '{"url":"x"}', '{"headers":null}', '{"headers":["a"]}', '{"headers":{}}']
)
def test_what_has_no_headers_stays_as_it_is(text: str) -> None:
    assert PayloadKeys(FIRST).seal("webhook", text) == text
    assert not has_secrets("webhook", text)


def test_the_first_key_seals_and_all_open() -> None:
    old = PayloadKeys(FIRST).seal("webhook", hook(A=SECRET))
    both = PayloadKeys(f"{SECOND} {FIRST}")
    assert json.loads(both.open("webhook", old))["headers"] == {"A": SECRET}
    new = both.seal("webhook", hook(A=SECRET))
    assert json.loads(PayloadKeys(SECOND).open("webhook", new))["headers"] == {"A": SECRET}
    for keys in (PayloadKeys(FIRST), NO_KEYS):
        with pytest.raises(PayloadLocked, match="WINDLASS_PAYLOAD_KEYS"):
            keys.open("webhook", new)


def test_what_was_stored_plain_before_there_were_keys_is_opened_as_it_is() -> None:
    assert PayloadKeys(FIRST).open("webhook", hook(A=SECRET)) == hook(A=SECRET)


def test_a_secret_that_was_changed_or_put_under_another_name_is_not_opened() -> None:
    keys = PayloadKeys(FIRST)
    stored = json.loads(keys.seal("webhook", hook(A=SECRET, B="other")))
    headers = stored["headers"]
    for wrong in (
        {"B": headers["A"]},
        {"A": headers["A"][:-4] + "AAAA"},
        {"A": headers["A"][:-1]},
        {"A": "sealed:v1:x"},
    ):
        with pytest.raises(PayloadLocked):
            keys.open("webhook", json.dumps({**stored, "headers": wrong}))


def test_without_keys_what_looks_sealed_is_refused() -> None:
    sealed = PayloadKeys(FIRST).seal("webhook", hook(A=SECRET))
    with pytest.raises(InvalidPayload, match=r"payload\.headers"):
        has_secrets("webhook", sealed)
    assert has_secrets("webhook", hook(A=SECRET))
    assert not has_secrets("webhook", hook(Accept="a/b"))


def test_a_handlers_arguments_are_opened() -> None:
    keys = PayloadKeys(FIRST)
    arguments = opening(json.loads, "webhook", keys)
    assert arguments(keys.seal("webhook", hook(A=SECRET)))["headers"] == {"A": SECRET}
    assert arguments(hook(A=SECRET))["headers"] == {"A": SECRET}


def test_a_key_that_is_too_short_is_refused_and_not_shown() -> None:
    with pytest.raises(Misconfigured, match="WINDLASS_PAYLOAD_KEYS: key 2 has 5 characters") as told:
        load({"WINDLASS_PAYLOAD_KEYS": f"{FIRST} short"})
    assert FIRST not in str(told.value)
    assert "short" not in str(told.value)
