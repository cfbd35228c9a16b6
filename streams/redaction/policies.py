"""What each tenant has asked for: a tier, a language, words and patterns of its own.

The policies of a deployment are a TOML file (`redaction.policy_file`):

    otherwise = "default"          # tenants without a section; or "quarantine"

    [tenants.acme]
    tier = "fast"
    languages = ["en", "fr"]       # the first also for what has no language of its own
    other_languages = "quarantine" # or "known", "read"
    deny = ["Project Nightjar"]    # wherever they stand, in any case

    [[tenants.acme.patterns]]
    kind = "NATIONAL_ID"
    expression = 'EMP-\\d{6}'

Patterns are the operator's own and run as they are: their time is not bounded by us.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from schemas.errors import ConfigError
from streams.redaction.detect.by_language import Others
from streams.redaction.detect.contract import SEVERITY, Detector, ReadsAhead, Span

#: Under this kind goes what a tenant has forbidden without saying what it is.
DENIED_KIND: Final = "SECRET"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pattern(_Model):
    """An expression and the kind under which its matches are replaced."""

    kind: str
    expression: str = Field(min_length=1, max_length=500)

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in SEVERITY:
            raise ValueError(f"no such kind; there are {', '.join(SEVERITY)}")
        return value

    @field_validator("expression")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            found = re.compile(value).search("")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        if found is not None:
            raise ValueError("it matches nothing at all, which would be everywhere")
        return value


class TenantPolicy(_Model):
    """What one tenant has asked for. None stands for the deployment's setting."""

    tier: Literal["regex", "fast", "accurate"] | None = None
    language: str | None = None
    languages: tuple[str, ...] = Field((), max_length=20)
    other_languages: Others | None = None
    deny: tuple[str, ...] = Field((), max_length=1000)
    patterns: tuple[Pattern, ...] = Field((), max_length=100)

    @field_validator("deny")
    @classmethod
    def _not_blank(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(len(word.strip()) < 2 for word in value):
            raise ValueError("a word to deny has two characters or more")
        return value

    @property
    def digest(self) -> str:
        """Ten letters that differ between policies that find different things."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


class Policies(_Model):
    """The policies of all tenants."""

    otherwise: Literal["default", "quarantine"] = "default"
    tenants: dict[str, TenantPolicy] = Field(default_factory=dict)

    def of(self, tenant_id: str) -> TenantPolicy | None:
        """A tenant's policy; None where it has none and none is assumed."""
        policy = self.tenants.get(tenant_id)
        if policy is None and self.otherwise == "default":
            return TenantPolicy()
        return policy


def load_policies(path: Path | None) -> Policies:
    """The policies in a file; without one, every tenant has the deployment's settings.

    Raises ConfigError for a file that cannot be read or says what it may not.
    """
    if path is None:
        return Policies()
    try:
        return Policies.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(
            f"The policies cannot be read from {path} ({error.strerror}). Correct "
            "redaction.policy_file, or leave it out to redact for all tenants alike."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise ConfigError(f"The policies in {path} are not valid: {error}") from None


class TenantDetector:
    """A detector and the words and patterns of one tenant."""

    def __init__(self, detector: Detector, policy: TenantPolicy) -> None:
        self._detector = detector
        self._patterns = [(each.kind, re.compile(each.expression)) for each in policy.patterns]
        if policy.deny:
            words = sorted(policy.deny, key=len, reverse=True)
            denied = "|".join(re.escape(word.strip()) for word in words)
            self._patterns.append((DENIED_KIND, re.compile(denied, re.IGNORECASE)))
        self.version = f"{detector.version}+policy-{policy.digest}"

    def read_ahead(self, texts: Sequence[str]) -> None:
        """See `ReadsAhead`."""
        if isinstance(self._detector, ReadsAhead):
            self._detector.read_ahead(texts)

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        """See `Detector.detect`. Raises what the detector raises."""
        found = list(self._detector.detect(text, context=context))
        for kind, pattern in self._patterns:
            found += [Span(m.start(), m.end(), kind) for m in pattern.finditer(text) if m.group()]
        return found
