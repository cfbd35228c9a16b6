"""The four outcomes of any failure, and no other.

    HeadraceError
    ├── ConfigError       stop at start, exit 2; the text says what to change
    ├── PermanentError    this record can never succeed: dead letter, then commit
    └── TransientError    the world may heal: pause, retry, do not commit

Anything else that is raised is a bug: the process stops before it commits.
"""

from enum import StrEnum


class HeadraceError(Exception):
    """Root of every failure that headrace knows how to answer."""


class ConfigError(HeadraceError):
    """The process cannot start as configured. The text is shown to a person."""


class Reason(StrEnum):
    """Why a record went to a dead letter or to quarantine. A closed list: never free text."""

    UNDECODABLE = "undecodable"
    UNKNOWN_SCHEMA = "unknown_schema"
    WRONG_TYPE = "wrong_type"
    NOT_FINITE = "not_finite"
    OVERSIZED = "oversized"
    UNKNOWN_TENANT = "unknown_tenant"
    UNEXPECTED_EVENT = "unexpected_event"
    BLOB_MISSING = "blob_missing"
    DETECTOR_UNAVAILABLE = "detector_unavailable"
    DETECTOR_TIMEOUT = "detector_timeout"
    POLICY_MISSING = "policy_missing"
    UNSUPPORTED_LANGUAGE = "unsupported_language"
    STORE_REFUSED = "store_refused"
    BUG = "bug"


class PermanentError(HeadraceError):
    """This record can never be processed. `reason` is all that leaves the process."""

    def __init__(self, reason: Reason, field: str | None = None) -> None:
        super().__init__(f"{reason.value}{f' at {field}' if field else ''}")
        self.reason = reason
        #: Name of a schema field, never a value from the record.
        self.field = field


class TransientError(HeadraceError):
    """The attempt failed for a cause outside the record; try again after a wait."""

    def __init__(self, what: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(what)
        self.retry_after_seconds = retry_after_seconds


class QuarantineError(HeadraceError):
    """Redaction cannot be sure: the record waits in quarantine and passes nowhere else."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason
