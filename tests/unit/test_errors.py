"""The error tree is a promise: codes, statuses and the drawing in the module's docstring stay as they are."""

import copy
import math
import pickle
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from windlass import errors
from windlass.errors import (
    IdTaken,
    InvalidJob,
    InvalidPayload,
    JobNotFound,
    KeyBusy,
    KeyReused,
    Misconfigured,
    Retry,
    Snooze,
    TooLarge,
    TooManyNames,
    TooManyRequests,
    Unauthorized,
    UnknownType,
    WindlassError,
    WrongMedia,
    WrongMethod,
)

# Clients compare these: change one only with a new major version.
CODES = {
    "WindlassError": ("error", 500, 1, False),
    "RequestError": ("bad_request", 400, 2, False),
    "InvalidJob": ("invalid_job", 422, 2, False),
    "InvalidPayload": ("invalid_payload", 422, 2, False),
    "InvalidId": ("invalid_id", 422, 2, False),
    "UnknownType": ("unknown_type", 422, 2, False),
    "TooManyNames": ("too_many_names", 422, 2, False),
    "BeyondQuota": ("beyond_quota", 422, 2, False),
    "InvalidQuery": ("invalid_query", 422, 2, False),
    "InvalidField": ("invalid_field", 422, 2, False),
    "JobNotFound": ("job_not_found", 404, 4, False),
    "UserNotFound": ("user_not_found", 404, 4, False),
    "KeyNotFound": ("key_not_found", 404, 4, False),
    "WorkerNotFound": ("worker_not_found", 404, 4, False),
    "MailNotFound": ("mail_not_found", 404, 4, False),
    "NoSuchPath": ("no_such_path", 404, 4, False),
    "WrongMethod": ("wrong_method", 405, 2, False),
    "NotPossible": ("not_possible", 409, 5, False),
    "IdTaken": ("id_taken", 409, 5, False),
    "KeyReused": ("idempotency_key_reused", 422, 2, False),
    "KeyBusy": ("idempotency_key_busy", 409, 5, True),
    "NameTaken": ("name_taken", 409, 5, False),
    "Unauthorized": ("unauthorized", 401, 7, False),
    "Forbidden": ("forbidden", 403, 7, False),
    "TooLarge": ("too_large", 413, 2, False),
    "WrongMedia": ("wrong_media", 415, 2, False),
    "TooSlow": ("too_slow", 408, 2, True),
    "TooManyRequests": ("too_many_requests", 429, 6, True),
    "QuotaExceeded": ("quota_exceeded", 429, 6, True),
    "JobFailed": ("job_failed", 409, 1, False),
    "JobCancelled": ("job_cancelled", 409, 1, False),
    "ResultNotStored": ("result_not_stored", 409, 1, False),
    "ResultMismatch": ("result_mismatch", 409, 1, False),
    "LeaseLost": ("lease_lost", 409, 1, False),
    "Unavailable": ("unavailable", 503, 6, True),
    "Contended": ("contended", 503, 6, True),
    "NoPartition": ("no_partition", 503, 6, True),
    "Misconfigured": ("misconfigured", 500, 3, False),
    "InUse": ("in_use", 500, 3, False),
    "SchemaMismatch": ("schema_mismatch", 500, 3, False),
    "Corrupt": ("corrupt", 500, 1, False),
}


def tree(root: type[WindlassError]) -> list[type[WindlassError]]:
    return [root, *(below for child in root.__subclasses__() for below in tree(child))]


OURS = [error for error in tree(WindlassError) if error.__module__ == errors.__name__]


def test_codes_statuses_and_exit_codes_are_stable() -> None:
    assert {each.__name__: (each.code, each.http_status, each.exit_code, each.retryable) for each in OURS} == CODES


def test_no_two_errors_share_a_code() -> None:
    assert len({each.code for each in OURS}) == len(OURS)


def test_the_docstring_draws_exactly_the_tree_there_is() -> None:
    shape = re.compile(r"^([│├└─ ]*)([A-Z]\w+)(?: {2,}(\d{3})?|$)", re.MULTILINE)
    drawn = [(len(lines) // 4, name, status) for lines, name, status in shape.findall(errors.__doc__ or "")]
    expected: list[tuple[int, str]] = []

    def walk(error: type[WindlassError], depth: int) -> None:
        expected.append((depth, error.__name__))
        for child in error.__subclasses__():
            if child in OURS:
                walk(child, depth + 1)

    walk(WindlassError, 0)
    assert [(depth, name) for depth, name, _ in drawn] == expected
    for _, name, status in drawn:
        assert not status or int(status) == getattr(errors, name).http_status


@pytest.mark.parametrize(
    "error",
    [
        InvalidJob("tags[3]", "must be a text"),
        InvalidPayload("payload.a", "is nan"),
        JobNotFound("0198"),
        IdTaken("0198"),
        KeyReused("k"),
        KeyBusy("k"),
        UnknownType("emial", ["email"]),
        TooManyNames("queue", "queue", "made-up", 1000),
        WrongMethod("PUT", ["GET", "HEAD"]),
        WrongMedia(None, ["application/json"]),
        TooLarge(1_048_576),
        TooManyRequests(2.5),
        Unauthorized(),
        Misconfigured("change X"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_a_process_boundary(error: WindlassError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert (str(twin), vars(twin)) == (str(error), vars(error))


def test_an_invalid_job_says_field_and_problem() -> None:
    error = InvalidJob("tags[3]", "must be a text")
    assert str(error) == "tags[3]: must be a text"
    assert (error.field, error.problem) == ("tags[3]", "must be a text")


@pytest.mark.parametrize(
    ("given", "delay_s"),
    [(0, 0.0), (1.5, 1.5), (timedelta(minutes=1), 60.0), (Decimal("0.5"), 0.5)],
)
def test_a_handler_says_its_delay_in_seconds_or_as_a_timedelta(given: Any, delay_s: float) -> None:
    assert (Retry(given).delay_s, Snooze(given).delay_s) == (delay_s, delay_s)
    assert Retry().delay_s is None


@pytest.mark.parametrize("asked", [Retry, Snooze])
@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (-1, ValueError),
        (-0.1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (10**400, ValueError),
        (timedelta(seconds=-1), ValueError),
        ("a", TypeError),
        ("1", TypeError),
        (True, TypeError),
        ([], TypeError),
    ],
)
def test_a_delay_that_is_none_is_refused_in_the_handler(asked: Any, given: Any, refused: type[Exception]) -> None:
    with pytest.raises(refused, match="a delay is"):
        asked(given)


@pytest.mark.parametrize("said", [Retry(2, "busy"), Retry(), Snooze(3)])
def test_what_a_handler_says_survives_a_process_boundary(said: Retry | Snooze) -> None:
    for twin in (pickle.loads(pickle.dumps(said)), copy.copy(said)):
        assert (type(twin), twin.delay_s, str(twin)) == (type(said), said.delay_s, str(said))
