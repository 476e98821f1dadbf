"""Everything Windlass raises, as one tree.

WindlassError                      everything we raise
├── RequestError                   the caller's fault: say it once, do not retry
│   ├── InvalidJob                 422  a field of the job is wrong; names the field
│   │   ├── InvalidPayload         422  a payload that could not come back as it went in
│   │   ├── InvalidId              422  a supplied id is no UUIDv7, or not of these days
│   │   ├── UnknownType            422  no worker has ever declared the type
│   │   ├── TooManyNames           422  a queue, type or tag is new, and there are as many as there may be
│   │   └── BeyondQuota            422  more than a quota of the caller ever allows; names the quota
│   ├── InvalidField               422  a field of another request is wrong; names the field
│   │   └── InvalidQuery           422  a list was asked for in a way that cannot be answered
│   ├── JobNotFound                404
│   ├── UserNotFound               404
│   ├── KeyNotFound                404  there is no such API key
│   ├── WorkerNotFound             404  there is no such worker, or it was forgotten
│   ├── MailNotFound               404  there is no such caught mail, or none is caught
│   ├── NoSuchPath                 404  nothing is served there
│   ├── WrongMethod                405  something is, but not in this way
│   ├── NotPossible                409  the state machine says no; names the job and its state
│   ├── IdTaken                    409  the supplied id belongs to another job
│   ├── KeyReused                  422  the idempotency key was used with another body
│   ├── KeyBusy                    409  another transaction holds the idempotency key right now
│   ├── NameTaken                  409  there is a user of that name already
│   ├── Unauthorized               401  nobody we know; says no more, so that nothing can be learned from it
│   ├── Forbidden                  403  known, but not allowed to do this
│   ├── TooLarge                   413  the body is larger than is taken
│   ├── WrongMedia                 415  the body is of a kind that is not taken
│   ├── TooSlow                    408  the request did not arrive in time
│   └── TooManyRequests            429  come back later; says when
│       └── QuotaExceeded          429  a quota of the caller is used up for now; names the quota
├── Unavailable                    503  database or network: safe to repeat with the same ids or keys
│   └── Contended                  503  gave way to other transactions too often: safe to repeat
│       └── NoPartition            503  a row met a partition that is going, or one that is not made yet
├── JobFailed                      409  the result was asked of a job that failed; carries its error
├── JobCancelled                   409  the result was asked of a job that was cancelled
├── ResultNotStored                409  the job was done, but what it returned could not be stored; says why
├── ResultMismatch                 409  the job was done, but its stored result is not of the type that was expected
├── LeaseLost                      409  this attempt's lease is lost: what it does no longer counts
├── Misconfigured                  refuse to start; the message says what to change
│   ├── InUse                      another process owns the data folder
│   └── SchemaMismatch             the database's schema and this code do not fit
└── Corrupt                        500  the store holds what it must not hold: a fault of ours

Every class has a stable `code`, used in JSON, in the SDK and in logs. `retryable` says whether the same call may
simply be made again.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar


class WindlassError(Exception):
    """Base of everything Windlass raises on purpose. Can be pickled: jobs run in processes of their own, too."""

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        # By default `args` go through __init__ again, which takes other ones; process pools hang on such errors.
        return self.__class__.__new__, (self.__class__, *self.args), self.__dict__


class RequestError(WindlassError):
    code = "bad_request"
    http_status = 400
    exit_code = 2


class InvalidJob(RequestError):
    """A field of a submitted job is wrong. `field` is its path, e.g. `payload.items[3]`."""

    code = "invalid_job"
    http_status = 422

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InvalidPayload(InvalidJob):
    code = "invalid_payload"


class InvalidId(InvalidJob):
    code = "invalid_id"


class UnknownType(InvalidJob):
    """`known`: types there are that are written almost like it. `field`: what the request calls the type."""

    code = "unknown_type"

    def __init__(self, type_: str, known: Sequence[str] = (), field: str = "type") -> None:
        meant = f"; did you mean {' or '.join(known)}?" if known else ""
        super().__init__(field, f"no worker has declared the type {type_!r}{meant}")
        self.type = type_
        self.known = tuple(known)


class TooManyNames(InvalidJob):
    """`kind`: queue, type or tag; `name`: the one that would be new; `most`: how many there may be."""

    code = "too_many_names"

    def __init__(self, field: str, kind: str, name: str, most: int) -> None:
        setting = f"WINDLASS_{kind.upper()}S_MAX"
        super().__init__(
            field, f"the {kind} {name!r} would be new, and there may be {most:,} ({setting}); use one that is in use"
        )
        self.kind = kind
        self.name = name
        self.most = most


class BeyondQuota(InvalidJob):
    """To repeat it does not help. `limit`: of the quota; `current`: what was asked for."""

    code = "beyond_quota"

    def __init__(self, field: str, quota: str, limit: float, current: float, cure: str) -> None:
        super().__init__(field, f"{_plain(current)} is beyond the quota {quota} of {_plain(limit)}; {cure}")
        self.quota = quota
        self.limit = limit
        self.current = current


class InvalidField(RequestError):
    """A field of a request that is no job is wrong. `field` is its path."""

    code = "invalid_field"
    http_status = 422

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InvalidQuery(InvalidField):
    """A list was asked for in a way that cannot be answered."""

    code = "invalid_query"


class JobNotFound(RequestError):
    code = "job_not_found"
    http_status = 404
    exit_code = 4

    def __init__(self, job_id: object) -> None:
        super().__init__(f"there is no job {job_id}")
        self.job_id = job_id


class UserNotFound(RequestError):
    code = "user_not_found"
    http_status = 404
    exit_code = 4

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no user {name!r}")
        self.name = name


class KeyNotFound(RequestError):
    code = "key_not_found"
    http_status = 404
    exit_code = 4

    def __init__(self, key_id: object) -> None:
        super().__init__(f"there is no API key {key_id}")
        self.key_id = key_id


class WorkerNotFound(RequestError):
    code = "worker_not_found"
    http_status = 404
    exit_code = 4

    def __init__(self, worker_id: object) -> None:
        super().__init__(f"there is no worker {worker_id}")
        self.worker_id = worker_id


class MailNotFound(RequestError):
    code = "mail_not_found"
    http_status = 404
    exit_code = 4

    def __init__(self, mail_id: str | None) -> None:
        """`mail_id` None: no mail is caught at all."""
        none = "no mail is caught here; `windlass up` catches it where WINDLASS_SMTP_HOST is not set"
        super().__init__(none if mail_id is None else f"there is no caught mail {mail_id[:64]!a}")


class NoSuchPath(RequestError):
    code = "no_such_path"
    http_status = 404
    exit_code = 4

    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path}")
        self.path = path


class WrongMethod(RequestError):
    """`allowed` goes into the Allow header."""

    code = "wrong_method"
    http_status = 405

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{method} is not possible here; possible: {', '.join(allowed)}")
        self.method = method
        self.allowed = tuple(allowed)


class NotPossible(RequestError):
    code = "not_possible"
    http_status = 409
    exit_code = 5


class IdTaken(RequestError):
    code = "id_taken"
    http_status = 409
    exit_code = 5

    def __init__(self, job_id: object) -> None:
        super().__init__(f"id {job_id} belongs to another job; a job is repeated only with the same id and body")
        self.job_id = job_id


class KeyReused(RequestError):
    code = "idempotency_key_reused"
    http_status = 422

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} was used with another body; use a new key for a new job")
        self.key = key


class KeyBusy(RequestError):
    code = "idempotency_key_busy"
    http_status = 409
    exit_code = 5
    retryable = True

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} is held by a transaction that has not ended; try again")
        self.key = key


class NameTaken(RequestError):
    code = "name_taken"
    http_status = 409
    exit_code = 5

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a user {name!r} already")
        self.name = name


class Unauthorized(RequestError):
    """Always the same words: whether a user exists, or how a token is wrong, is nobody's business."""

    code = "unauthorized"
    http_status = 401
    exit_code = 7

    def __init__(self, message: str = "who you are could not be established; send a valid token") -> None:
        super().__init__(message)


class Forbidden(RequestError):
    code = "forbidden"
    http_status = 403
    exit_code = 7


class TooLarge(RequestError):
    code = "too_large"
    http_status = 413

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the body must not be larger than {bytes_max:,} bytes")
        self.bytes_max = bytes_max


class WrongMedia(RequestError):
    code = "wrong_media"
    http_status = 415

    def __init__(self, given: str | None, taken: Sequence[str]) -> None:
        super().__init__(f"the body must be {' or '.join(taken)}, not {given or 'of no named kind'}")
        self.given = given
        self.taken = tuple(taken)


class TooSlow(RequestError):
    code = "too_slow"
    http_status = 408
    retryable = True


class TooManyRequests(RequestError):
    """`retry_after_s` goes into the Retry-After header."""

    code = "too_many_requests"
    http_status = 429
    exit_code = 6
    retryable = True

    def __init__(self, retry_after_s: float, message: str = "too many requests") -> None:
        super().__init__(f"{message}; try again in {math.ceil(retry_after_s)} s")
        self.retry_after_s = retry_after_s


class QuotaExceeded(TooManyRequests):
    """`limit`: of the quota; `current`: what counts against it."""

    code = "quota_exceeded"

    def __init__(self, quota: str, limit: float, current: float, retry_after_s: float) -> None:
        used = f"{_plain(current)} count against it"
        super().__init__(retry_after_s, f"the quota {quota} of {_plain(limit)} is used up: {used}")
        self.quota = quota
        self.limit = limit
        self.current = current


class Unavailable(WindlassError):
    code = "unavailable"
    http_status = 503
    exit_code = 6
    retryable = True


class Contended(Unavailable):
    code = "contended"


class NoPartition(Contended):
    code = "no_partition"


class JobFailed(WindlassError):
    """`error` is why: its type, message and traceback (model.Error)."""

    code = "job_failed"
    http_status = 409

    def __init__(self, job_id: object, error: Any) -> None:
        why = f": {error.type}: {error.message}" if error else ""
        super().__init__(f"job {job_id} failed{why}")
        self.job_id = job_id
        self.error = error


class JobCancelled(WindlassError):
    code = "job_cancelled"
    http_status = 409

    def __init__(self, job_id: object, error: Any) -> None:
        super().__init__(f"job {job_id} was cancelled" + (f": {error.message}" if error else ""))
        self.job_id = job_id
        self.error = error


class ResultNotStored(WindlassError):
    """`error.message` says why. The job is completed: running it again would do its work a second time."""

    code = "result_not_stored"
    http_status = 409

    def __init__(self, job_id: object, error: Any) -> None:
        super().__init__(f"job {job_id} was done, but its result was not stored: {error.message}")
        self.job_id = job_id
        self.error = error


class ResultMismatch(WindlassError):
    """`problem` names the place. `handle.job().result` and `app.handle(id).result()` give what is stored."""

    code = "result_mismatch"
    http_status = 409

    def __init__(self, job_id: object, problem: str) -> None:
        super().__init__(f"job {job_id} was done, but its result is not what its handler's signature says: {problem}")
        self.job_id = job_id
        self.problem = problem


class LeaseLost(WindlassError):
    code = "lease_lost"
    http_status = 409

    def __init__(self, job_id: object) -> None:
        super().__init__(f"the lease of this attempt at job {job_id} is lost: another attempt counts now")
        self.job_id = job_id


class Misconfigured(WindlassError):
    code = "misconfigured"
    exit_code = 3


class InUse(Misconfigured):
    code = "in_use"


class SchemaMismatch(Misconfigured):
    code = "schema_mismatch"


class Corrupt(WindlassError):
    code = "corrupt"


def _plain(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:,}"


# Raised by handlers to say what shall become of their job. ----------------------------------------------------------


class _Delayed(Exception):
    """Can be pickled and copied: by default the message would go through __init__ again, as a delay."""

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__class__.__new__, (self.__class__, *self.args), self.__dict__


class Retry(_Delayed):
    """Try this job again, after `delay_s` if given, else after its usual back-off. It counts as a failure.

    The delay is in seconds, or a timedelta.
    """

    def __init__(self, delay_s: float | timedelta | None = None, reason: str = "asked to be tried again") -> None:
        super().__init__(reason)
        self.delay_s = None if delay_s is None else _checked(delay_s)


class Snooze(_Delayed):
    """Run this job again after `delay_s`, in seconds or as a timedelta. It counts as nothing."""

    def __init__(self, delay_s: float | timedelta) -> None:
        self.delay_s = _checked(delay_s)
        super().__init__(f"snoozed for {self.delay_s:g} s")


def _checked(delay_s: Any) -> float:
    """Refused in the handler, as its failure: below zero, or not a number at all, a snooze would come back at once, for
    ever, and count as nothing each time."""
    if isinstance(delay_s, timedelta):
        delay_s = delay_s.total_seconds()
    if isinstance(delay_s, bool) or not hasattr(type(delay_s), "__float__"):
        raise TypeError(f"a delay is a number of seconds or a timedelta, not a {type(delay_s).__qualname__}")
    try:
        known_s = float(delay_s)
    except OverflowError:
        known_s = math.inf
    if not (math.isfinite(known_s) and known_s >= 0):
        raise ValueError(f"a delay is finite and not below zero, not {known_s:g}")
    return known_s


class Cancel(Exception):
    """Give this job up for good, and not as a failure."""

    def __init__(self, reason: str = "its handler gave it up") -> None:
        super().__init__(reason)


class Fail(Exception):
    """This job cannot succeed: no further attempt, straight to the dead letters."""


class MayHaveRun(Exception):
    """An earlier attempt of a job that is started once at most has begun: it is not started again."""
