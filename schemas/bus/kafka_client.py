"""What every client of librdkafka shares: its configuration, and what its errors mean for us."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from schemas.bus.access import KafkaAccess
from schemas.errors import ConfigError, HeadraceError, PermanentError, Reason, TransientError

Client = TypeVar("Client")

_UNVERIFIED = "certificate verify failed"
_NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "a topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "a consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
}

# librdkafka writes a line to stderr for each failed connect; a logger of our own keeps them quiet
# below warning level and in the log's format.
_log = logging.getLogger("headrace.bus")
_log.setLevel(logging.CRITICAL)


class Refusals:
    """What one client was last refused for.

    librdkafka tries a refused connection again and again and tells callers only that time ran
    out; the reason comes on the side, through a callback that runs while the client is polled.
    """

    def __init__(self, access: KafkaAccess) -> None:
        self._access = access
        self._sentence: str | None = None
        self._hint = ""
        self._last = ""

    def config(self) -> dict[str, Any]:
        """Configuration of one client that reports here."""
        return {**self._access.for_librdkafka(), "logger": _log, "error_cb": self._note}

    @property
    def is_refused(self) -> bool:
        """True once the cluster refused the credentials, or we its certificate."""
        return self._sentence is not None

    def trouble(self) -> str:
        """What the client was told on the side since the cluster last answered."""
        return self._sentence or (f"{self._last}{self._hint}" if self._last else "")

    def forget(self) -> None:
        """The cluster answered: what was refused before is so no more."""
        self._sentence, self._hint, self._last = None, "", ""

    def of_delivery(self, error: Any) -> HeadraceError:
        """The outcome for a record that was not delivered: worth another try for all but rights
        and size, since a password may be changed on the cluster first and here a moment later."""
        outcome = self.translate(error)
        if self._sentence is not None and error.code() not in _NOT_ALLOWED:
            return TransientError(self._sentence)
        return outcome

    def translate(self, error: Any) -> HeadraceError:
        """The outcome that an error means for us, given what was refused before."""
        code = error.code()
        if code in _NOT_ALLOWED:
            return ConfigError(self._not_allowed(_NOT_ALLOWED[code]))
        outcome = translate(error)
        if not isinstance(outcome, TransientError):
            return outcome
        if self._sentence is not None:
            return ConfigError(self._sentence)
        return TransientError(f"{outcome}{self._hint}")

    def _note(self, error: Any) -> None:
        code, text = error.code(), str(error.str())
        self._last = str(translate(error))
        if code == KafkaError._AUTHENTICATION:
            self._sentence = (
                f"Kafka at {self._access.bootstrap_servers} refuses the user "
                f"{self._access.user!r} with {self._access.mechanism}. Correct kafka.sasl_user, "
                "kafka.sasl_password_file and kafka.sasl_mechanism."
            )
        elif code == KafkaError._SSL and _UNVERIFIED in text:
            self._sentence = (
                f"The certificate of Kafka at {self._access.bootstrap_servers} is not trusted: no "
                "known authority signed it, or it names another host. Set kafka.ca_file to the "
                "authority's certificate (PEM), or correct kafka.bootstrap_servers."
            )
        elif "SSL routines" in text or "SSL handshake" in text:
            self._hint = (
                " (TLS fails: compare kafka.secure, kafka.certificate_file and the port with what "
                "the broker asks for)"
            )

    def _not_allowed(self, what: str) -> str:
        prefix = self._access.prefix
        names = f"names beginning with `{prefix}`" if prefix else "the names in docs/topics.md"
        return (
            f"Kafka does not allow the user {self._access.user!r} what it asks of {what}. Grant "
            f"it on {names}; docs/deploy.md lists the rights that each service needs."
        )


def make_client(kind: Callable[[dict[str, Any]], Client], config: dict[str, Any]) -> Client:
    """A client of the library. ConfigError for a certificate or a key that it cannot use."""
    try:
        return kind(config)
    except KafkaException as error:
        raise ConfigError(
            f"The settings of `kafka` cannot be used: {error.args[0].str()}. Correct "
            "kafka.ca_file, kafka.certificate_file or kafka.key_file."
        ) from None


def translate(error: Any) -> HeadraceError:
    """The outcome that a librdkafka error means for us, taken by itself."""
    code = error.code()
    if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return PermanentError(Reason.OVERSIZED)
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return ConfigError("A topic does not exist. `headrace up` creates all topics.")
    return TransientError(f"Kafka: {error.name()}")
