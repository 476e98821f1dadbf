"""Everything Windlass raises, as one tree.

WindlassError                      everything we raise
├── RequestError                   the caller's fault: say it once, do not retry
│   ├── InvalidJob                 422  a field of the job is wrong; names the field
│   │   ├── InvalidPayload         422  a payload that could not come back as it went in
│   │   └── InvalidId              422  a supplied id is no UUIDv7, or not of these days
│   ├── InvalidQuery               422  a list was asked for in a way that cannot be answered
│   ├── JobNotFound                404
│   ├── NotPossible                409  the state machine says no; names the job and its state
│   ├── IdTaken                    409  the supplied id belongs to another job
│   ├── KeyReused                  422  the idempotency key was used with another body
│   └── KeyBusy                    409  another transaction holds the idempotency key right now
├── Unavailable                    503  database or network: safe to repeat with the same ids or keys
│   └── Contended                  503  gave way to other transactions too often: safe to repeat
│       └── NoPartition            503  a row met a partition that is going, or one that is not made yet
├── Misconfigured                  refuse to start; the message says what to change
│   ├── InUse                      another process owns the data folder
│   └── SchemaMismatch             the database's schema and this code do not fit
└── Corrupt                        500  the store holds what it must not hold: a fault of ours

Every class has a stable `code`, used in JSON, in the SDK and in logs. `retryable` says whether the same call may
simply be made again.
"""

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


class InvalidQuery(RequestError):
    code = "invalid_query"
    http_status = 422


class JobNotFound(RequestError):
    code = "job_not_found"
    http_status = 404
    exit_code = 4

    def __init__(self, job_id: object) -> None:
        super().__init__(f"there is no job {job_id}")
        self.job_id = job_id


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


class Unavailable(WindlassError):
    code = "unavailable"
    http_status = 503
    exit_code = 6
    retryable = True


class Contended(Unavailable):
    code = "contended"


class NoPartition(Contended):
    code = "no_partition"


class Misconfigured(WindlassError):
    code = "misconfigured"
    exit_code = 3


class InUse(Misconfigured):
    code = "in_use"


class SchemaMismatch(Misconfigured):
    code = "schema_mismatch"


class Corrupt(WindlassError):
    code = "corrupt"
