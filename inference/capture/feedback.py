"""Feedback as clients send it: checked strictly, then made into protocol records."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from schemas import ids
from schemas.atdp import limits
from schemas.atdp.internal import KeyRecord
from schemas.atdp.types import Feedback, FeedbackTarget, RewardKind

MAX_ITEMS = 1_000
_Id = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._:@+=-]+$")]


def _storable(time: datetime) -> datetime:
    if not limits.EARLIEST <= time < limits.LATEST:
        raise ValueError(f"it must lie between {limits.EARLIEST.year} and {limits.LATEST.year}")
    return time


_Time = Annotated[AwareDatetime, AfterValidator(_storable)]
_RULES = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class InvalidError(ValueError):
    """A body that is not what the route takes. `field` names the first bad field."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class TargetBody(BaseModel):
    """What is rated; exactly one id."""

    model_config = _RULES
    trajectory_id: _Id | None = None
    step_id: _Id | None = None
    response_id: _Id | None = None

    @property
    def named(self) -> tuple[str, str]:
        """Kind of the id, and the id."""
        given = {name: value for name, value in self if value is not None}
        return next(iter(given.items()))

    @model_validator(mode="after")
    def _one(self) -> "TargetBody":
        if sum(value is not None for _, value in self) != 1:
            raise ValueError("give exactly one of trajectory_id, step_id, response_id")
        return self


class FeedbackBody(BaseModel):
    """One item of `POST /v1/feedback`."""

    model_config = _RULES
    target: TargetBody
    name: Annotated[str, Field(min_length=1, max_length=200)]
    kind: RewardKind | None = None
    value: bool | float | None = None
    label: Annotated[str, Field(max_length=10_000)] | None = None
    text: str | None = None
    feedback_id: _Id | None = None
    revision: Annotated[int, Field(ge=1, le=2**31)] = 1
    retract: bool = False
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    occurred_at: _Time | None = None
    final: bool = False
    task_key: _Id | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "FeedbackBody":
        if self.value is None and self.label is None and self.text is None and not self.retract:
            raise ValueError("give one of value, label, text")
        if self.revision > 1 and self.feedback_id is None:
            raise ValueError("a revision above 1 needs the feedback_id of what it corrects")
        return self

    @property
    def form(self) -> RewardKind:
        """The kind given, else the one that fits the field given."""
        if self.kind is not None:
            return self.kind
        if self.value is not None or self.retract:
            return RewardKind.SCALAR
        return RewardKind.LABEL if self.label is not None else RewardKind.CRITIQUE


_ONE = TypeAdapter(FeedbackBody)
_MANY = TypeAdapter(Annotated[list[FeedbackBody], Field(min_length=1, max_length=MAX_ITEMS)])


@dataclass(frozen=True, slots=True)
class Keyed:
    """An event and the Kafka key it gets."""

    event: Any
    kafka_key: bytes


def parse(body: bytes) -> list[FeedbackBody]:
    """The items of a body: one object, or a list as a batch. InvalidError names a bad field."""
    try:
        if body.lstrip()[:1] == b"[":
            return _MANY.validate_json(body)
        return [_ONE.validate_json(body)]
    except ValidationError as error:
        raise _invalid(error) from None


def parse_plain(plain: dict[str, Any]) -> FeedbackBody:
    """The same for an object that is parsed already."""
    return parse(orjson.dumps(plain))[0]


def _invalid(error: ValidationError) -> InvalidError:
    found = error.errors(include_input=False, include_url=False, include_context=False)
    # A union reports one error a branch; that a number is not finite says more than the rest.
    first = next((e for e in found if e["type"] == "finite_number"), found[0])
    parts = [part for part in first["loc"] if not _is_branch(part)]
    known = [p for p in parts if isinstance(p, int) or p in _FIELDS]
    field = ".".join(str(part) for part in known) or None
    if first["type"] == "extra_forbidden":
        return InvalidError("The feedback holds a field that does not exist.", field)
    message = first["msg"].removeprefix("Value error, ")
    if field is not None and field.endswith("value") and first["type"] != "finite_number":
        message = "it must be a number, true or false"
    if first["type"] == "json_invalid":
        return InvalidError("The body is not valid JSON.")
    if field is None:
        return InvalidError(f"The feedback is refused: {message[:200]}.")
    return InvalidError(f"The field {field} is refused: {message[:200]}.", field)


def _is_branch(part: int | str) -> bool:
    return part in ("bool", "float")


_FIELDS = set(FeedbackBody.model_fields) | set(TargetBody.model_fields)


def feedback_of(body: FeedbackBody, key: KeyRecord, received_at: datetime) -> Keyed:
    """The protocol's record. Tenant and rater are the key's; the id depends on content alone."""
    tenant_id, rater_id = key.tenant_id, key.rater_id or key.key_id
    target_kind, target_id = body.target.named
    occurred_at = body.occurred_at.astimezone(UTC) if body.occurred_at else None
    event = Feedback(
        reward_id=_reward_id(body, tenant_id, rater_id, occurred_at),
        tenant_id=tenant_id,
        target=FeedbackTarget(**{target_kind: target_id}),
        name=body.name,
        kind=body.form,
        value=body.value,
        label=body.label,
        text=body.text,
        rater_id=rater_id,
        confidence=body.confidence,
        revision=body.revision,
        retract=body.retract,
        final=body.final,
        task_key=body.task_key,
        occurred_at=occurred_at or received_at,
        received_at=received_at,
    )
    return Keyed(event, kafka_key(tenant_id, event.target))


def kafka_key(tenant_id: str, target: FeedbackTarget) -> bytes:
    """The trajectory's key where feedback names one, else a digest of what it names."""
    if target.trajectory_id is not None:
        return ids.trajectory_key(tenant_id, target.trajectory_id)
    kind = "step" if target.step_id is not None else "response"
    named = target.step_id if target.step_id is not None else target.response_id
    return ids.derive_id("feedback-target", tenant_id, kind, named).encode()


def _reward_id(
    body: FeedbackBody, tenant_id: str, rater_id: str, occurred_at: datetime | None
) -> str:
    if body.feedback_id is not None:
        return ids.derive_id("reward", tenant_id, body.feedback_id)
    kind, target = body.target.named
    when = occurred_at.isoformat() if occurred_at else None
    return ids.derive_id(
        "reward", tenant_id, kind, target, body.name, body.form.value, body.value, body.label,
        body.text, rater_id, when,
    )  # fmt: skip
