"""Every setting of every service: a TOML file, then `HEADRACE_*` from the environment.

Precedence, lowest first: defaults here, `headrace.toml` (or the file in `HEADRACE_CONFIG`),
environment. A nested name uses two underscores: `HEADRACE_GATEWAY__PORT=8400`.
An unknown name is refused at every level, so a misspelt setting never passes silently.
"""

import json
import os
import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.errors import ConfigError
from schemas.gateway_settings import GatewaySettings, UpstreamSettings
from schemas.settings_section import Section

__all__ = [
    "PREFIX",
    "AssemblySettings",
    "BatchingSettings",
    "ClickHouseSettings",
    "GatewaySettings",
    "KafkaSettings",
    "PromotionSettings",
    "RedactionSettings",
    "Settings",
    "SinkSettings",
    "TracingSettings",
    "TrainerSettings",
    "UpstreamSettings",
    "WorkerSettings",
    "load_settings",
]

PREFIX = "HEADRACE_"
#: Names the environment may hold that are not settings: where the file is, a client's own key,
#: and test plumbing.
NOT_SETTINGS = ("HEADRACE_CONFIG", "HEADRACE_SHARED_DATA", "HEADRACE_KEY")
TEST_PREFIX = "HEADRACE_TEST_"


class KafkaSettings(Section):
    """Where the bus is and how a client proves there who it is.

    `secure` means TLS. `ca_file` holds the certificates (PEM) that are trusted; without it those
    of the system are. `certificate_file` and `key_file` are for clusters that ask for a client
    certificate. The three `sasl_` settings belong together. `topic_prefix` is put before the name
    of every topic and every group, so that several deployments may share one cluster.

    A processor handles records together that come within `linger_seconds` of the first: more of it
    takes less CPU, and each hop takes that much longer.
    """

    bootstrap_servers: str = "127.0.0.1:9092"
    num_partitions: int = Field(4, ge=1, le=1024)
    replication_factor: int = Field(1, ge=1)
    max_record_bytes: int = Field(900_000, ge=10_000, le=1_000_000)
    topic_prefix: str = Field("", pattern=r"^([a-z0-9][a-z0-9.-]*)?$", max_length=60)
    linger_seconds: float = Field(0.01, ge=0, le=5)
    secure: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_user: str | None = None
    sasl_password_file: Path | None = None


class ClickHouseSettings(Section):
    """Where the store is. The password is read from a file, never from the command line.

    `secure` means TLS. `ca_file` holds the certificates (PEM) that are trusted; without it those
    of the system are.
    """

    host: str = "127.0.0.1"
    port: int = 8123
    user: str = "headrace"
    password_file: Path | None = None
    database: str = "headrace"
    secure: bool = False
    ca_file: Path | None = None


class RedactionSettings(Section):
    """How private data is found and how long a call may wait for the call before it.

    A call waits for what arrives at the broker within `hold_seconds`, however far behind the
    worker is (ADR 0014).

    `tier` trades time for names: `regex` finds what has a form, `fast` adds names by lists,
    `accurate` adds a model (`presidio`, its name of old, means the same).

    `model` is the package of another model for that tier than the one of the extra
    (docs/redaction.md compares two).

    `tokenizers` maps a policy to its `tokenizer.json`: tokens of calls that were redacted are then
    kept without what was redacted, else withheld (docs/redaction.md).
    """

    tier: Literal["regex", "fast", "accurate"] = "accurate"
    #: Tiers, words and patterns of single tenants; see docs/redaction.md.
    policy_file: Path | None = None
    model: str | None = None
    tokenizers: dict[str, Path] = Field(default_factory=dict)
    language: str = "en"
    #: Languages of the accurate tier's models, the first for what has none; [] means `language`.
    languages: tuple[str, ...] = Field((), max_length=20)
    #: Texts in other languages: `read` as the first, `known` sets aside those in scripts whose
    #: names no tier knows, `quarantine` sets all aside (docs/redaction.md).
    other_languages: Literal["read", "known", "quarantine"] = "known"
    hold_seconds: float = Field(5.0, ge=0)
    max_held_events: int = Field(10_000, ge=1)
    cache_bytes: int = Field(128 * 1024**2, ge=0)

    @field_validator("tier", mode="before")
    @classmethod
    def _renamed(cls, value: object) -> object:
        return "accurate" if value == "presidio" else value


class AssemblySettings(Section):
    """When a trajectory counts as closed and which reward counts."""

    idle_seconds: float = Field(1800.0, gt=0)
    tick_seconds: float = Field(5.0, gt=0)
    #: A sample waits until no new event of its trajectory came for this long.
    settle_seconds: float = Field(10.0, ge=0)
    reward_policy: str = "latest_final/1"
    retention_hours: float = Field(24 * 14, gt=0)


class BatchingSettings(Section):
    """Which samples are trained, and how they are put together.

    A micro-batch goes out with `batch_sequences` sequences, with `batch_tokens` tokens, or when its
    first sample has waited `max_wait_seconds`. While several tenants wait, none fills more than
    `tenant_share` of a batch. Samples of tokens more than `max_staleness` versions old are dropped,
    and so are those longer than `max_sample_tokens`. At most `max_tokens_ahead` tokens are sent
    that the trainer has not used, as its manifests say; it has to be more than the trainer gathers
    for one version. `max_waiting` samples wait at most, then no more are read.

    A reward of `success_reward` or more is a success. With `retrain`, samples that a replay makes
    again are trained where nothing was decided of them before. `demonstrations` and `preferences`
    that came as feedback are trained unless they are switched off here.
    """

    batch_sequences: int = Field(32, ge=1)
    batch_tokens: int = Field(65_536, ge=1)
    max_wait_seconds: float = Field(2.0, ge=0)
    tenant_share: float = Field(0.5, gt=0, le=1)
    max_staleness: int = Field(16, ge=0)
    max_sample_tokens: int = Field(65_536, ge=1)
    max_tokens_ahead: int = Field(2_000_000, ge=1)
    max_waiting: int = Field(1_000, ge=1)
    success_reward: float = 0.5
    retrain: bool = False
    demonstrations: bool = True
    preferences: bool = True


class SinkSettings(Section):
    """How rows are batched into the store."""

    max_batch_rows: int = Field(2_000, ge=1, le=2_000)
    max_batch_wait_seconds: float = Field(0.25, gt=0)


class WorkerSettings(Section):
    """A process that serves one policy with vLLM and follows its versions.

    `model` is a Hugging Face checkpoint folder, or a hub name; versions of the policy have the
    same tensors. Of `rings` it follows the first that has an assignment. `python` is the
    interpreter of an environment with vLLM; without it the worker's own is used where vLLM is
    installed. `engine_args` are given to vLLM as they are. `address` is the base URL under which
    gateways reach it, where that is not host and port.

    `pause_mode` says what becomes of answers under way when weights are written. `wait`: they are
    finished first, at most for `pause_wait_seconds`, while new requests wait, so each answer has
    one version. `keep`: they stand still, and go on with the new weights.

    The last `num_undo` versions can be taken back without reading anything again.

    With `max_lora_rank` versions may be LoRA adapters up to that rank, which costs some speed for
    all of them. It goes with `wait`: answers under way keep the adapter that they began with.
    """

    id: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]{1,64}$")
    policy: str = Field("main", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    rings: tuple[str, ...] = ("default",)
    model: str | None = None
    served_model_name: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(8500, ge=1, le=65_535)
    address: str | None = None
    python: Path | None = None
    engine_args: tuple[str, ...] = ()
    kv_cache_gib: int = Field(1, ge=1)
    num_threads: int = Field(1, ge=1)
    pause_mode: Literal["wait", "keep"] = "wait"
    pause_wait_seconds: float = Field(60.0, gt=0)
    heartbeat_seconds: float = Field(2.0, gt=0)
    start_seconds: float = Field(300.0, gt=0)
    num_undo: int = Field(20, ge=1)
    max_lora_rank: int | None = Field(None, ge=1, le=512)

    @model_validator(mode="after")
    def _requires_rest_for_adapters(self) -> Self:
        if self.max_lora_rank is not None and self.pause_mode != "wait":
            raise ValueError("max_lora_rank needs pause_mode = 'wait'; leave one of them out")
        return self


class PromotionSettings(Section):
    """Who decides which version is served. `auto` accepts what a trainer proposes by itself;
    `manual` waits for `headrace promote`.
    """

    mode: Literal["auto", "manual"] = "auto"


#: How settings name a function of one's own.
_FUNCTION = r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*"


class TrainerSettings(Section):
    """A process that learns one policy from its micro-batches and publishes versions.

    `model` is the checkpoint folder that version 1 is made of; `python` an interpreter with torch
    and transformers, where the trainer's own has none. A step of the optimizer waits for
    `min_trajectories`. `kl` pulls to the weights at the start (`anchor`). Credit fades by
    `discount` for each turn that follows. `temperature` is the one that agents sample with: the
    engine's log-probabilities are after it. Tokens of versions older than `max_version_lag` are
    left out. A corrected reward is applied when it changes by `revision_min_change` at least and
    was trained at most `revision_max_steps` ago, else it corrects the baseline alone. Of the last
    `num_kept_versions` the weights are kept, to compare log-probabilities with the engine's.

    `objective` is `reinforce_tracker`, `decoupled_ppo`, `grpo`, `gspo`, `supervised`, or a function
    of your own as `package.module:function`; `reward` is a function of your own that makes the
    reward which is learned of the one that was given. Both lie on the path of `python`, or in the
    folder `code`. `tensorboard` writes event files beside `steps.jsonl`, `mlflow` is the address of
    a tracking server. `dpo_beta` is how strongly preferences are held to the weights at the start.

    With `lora_rank` an adapter learns beside the linear layers that `lora_targets` names, weighted
    by `lora_alpha` / `lora_rank`; versions are adapters then, which workers take with
    `worker.max_lora_rank`. `num_processes` on this machine split the weights among them.
    """

    policy: str = Field("main", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    ring: str = Field("default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    model: Path | None = None
    python: Path | None = None
    objective: str = Field(
        "reinforce_tracker",
        pattern=rf"^(reinforce_tracker|decoupled_ppo|grpo|gspo|supervised|{_FUNCTION})$",
    )
    reward: str | None = Field(None, pattern=rf"^{_FUNCTION}$")
    code: Path | None = None
    tensorboard: bool = False
    mlflow: str | None = None
    lora_rank: int | None = Field(None, ge=1, le=512)
    lora_alpha: int = Field(16, ge=1)
    lora_targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    learning_rate: float = Field(1e-5, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    max_gradient_norm: float = Field(1.0, gt=0)
    passes: int = Field(1, ge=1)
    temperature: float = Field(1.0, gt=0)
    min_trajectories: int = Field(32, ge=1)
    micro_batch_tokens: int = Field(16_384, ge=1)
    kl: float = Field(1e-3, ge=0)
    anchor: Literal["start", "none"] = "start"
    discount: float = Field(1.0, gt=0, le=1)
    dpo_beta: float = Field(0.1, gt=0)
    binary_rewards: bool = True
    baseline_memory: float = Field(64.0, ge=1)
    deviation_floor: float = Field(0.1, gt=0)
    max_version_lag: int = Field(16, ge=0)
    revision_min_change: float = Field(0.25, ge=0)
    revision_max_steps: int = Field(50, ge=0)
    train_approximate: bool = False
    publish_every_steps: int = Field(1, ge=1)
    num_kept_versions: int = Field(4, ge=1)
    agreement_sequences: int = Field(8, ge=0)
    seed: int = 0
    num_threads: int = Field(1, ge=1)
    num_processes: int = Field(1, ge=1)


class TracingSettings(Section):
    """OpenTelemetry traces of the services' own work; off without `otlp_url`.

    `otlp_url` is a collector's OTLP/HTTP address. `share` of the calls begin a trace; what belongs
    to a traced call is traced in every service that has `otlp_url` set.
    """

    otlp_url: str | None = None
    share: float = Field(1.0, ge=0, le=1)


class Settings(BaseSettings):
    """All of it. Services read their own section and the shared ones."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    data_dir: Path = Path(".headrace")
    secret_file: Path | None = None
    #: Signs manifests of weights. Where it is set, versions without its signature are refused.
    weights_key_file: Path | None = None
    blob_uri: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    #: Where a processor answers /metrics and /health; without a port nowhere.
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    #: A process that commits nothing for so long, although records wait, is not healthy. Longer
    #: than `redaction.hold_seconds`.
    stalled_after_seconds: float = Field(60.0, gt=0)
    worker_name: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]{1,64}$")
    training_eligible_tenants: tuple[str, ...] = ()
    kafka: KafkaSettings = KafkaSettings()
    clickhouse: ClickHouseSettings = ClickHouseSettings()
    gateway: GatewaySettings = GatewaySettings()
    redaction: RedactionSettings = RedactionSettings()
    assembly: AssemblySettings = AssemblySettings()
    batching: BatchingSettings = BatchingSettings()
    sink: SinkSettings = SinkSettings()
    worker: WorkerSettings = WorkerSettings()
    promotion: PromotionSettings = PromotionSettings()
    trainer: TrainerSettings = TrainerSettings()
    tracing: TracingSettings = TracingSettings()

    @property
    def root_secret_file(self) -> Path:
        """File of the root secret that gateway and redaction share."""
        return self.secret_file or self.data_dir / "secrets" / "root"

    @property
    def blobs(self) -> str:
        """fsspec URI under which claim checks lie."""
        return self.blob_uri or (self.data_dir / "blobs").absolute().as_uri()

    @property
    def original_blobs(self) -> str:
        """fsspec URI of the claim checks with original text: bodies too large for a record."""
        return f"{self.blobs.removesuffix('/')}/.original"

    @property
    def clickhouse_password(self) -> str:
        """The store's password; empty where no file is configured or generated."""
        path = self.clickhouse.password_file or self.data_dir / "secrets" / "clickhouse"
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            if self.clickhouse.password_file is not None:
                raise ConfigError(f"clickhouse.password_file {path} does not exist.") from None
            return ""


def load_settings(file: Path | None = None, **overrides: Any) -> Settings:
    """Read file and environment. Any fault is a ConfigError that names the setting to change.

    `overrides` are top-level settings given on a command line; they win over everything.
    """
    values = _read_file(file)
    _refuse_unknown_environment()
    from_environment = _environment_over(values)
    try:
        return Settings(**{**from_environment, **overrides})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        hint = "no such setting" if first["type"] == "extra_forbidden" else first["msg"]
        raise ConfigError(
            f"Setting `{name}`: {hint}. See docs/settings.md for all names."
        ) from None


def _read_file(file: Path | None) -> dict[str, Any]:
    named = file or (
        Path(os.environ["HEADRACE_CONFIG"]) if "HEADRACE_CONFIG" in os.environ else None
    )
    path = named or Path("headrace.toml")
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        if named is not None:
            raise ConfigError(f"The configuration file {path} does not exist.") from None
        return {}
    except OSError as error:
        raise ConfigError(
            f"The configuration file {path} cannot be read ({error.strerror}). Give this user the "
            "right to, or set HEADRACE_CONFIG to another file."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None


def _is_setting(name: str) -> bool:
    upper = name.upper()
    ours = upper.startswith(PREFIX) and not upper.startswith(TEST_PREFIX)
    return ours and upper not in NOT_SETTINGS


def _refuse_unknown_environment() -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in os.environ:
        if _is_setting(name) and name.upper().split("__", 1)[0] not in known:
            raise ConfigError(
                f"The environment holds {name}, which is no setting. Unset it or correct its name; "
                "nested names use two underscores, as in HEADRACE_GATEWAY__PORT."
            )


def _environment_over(values: dict[str, Any]) -> dict[str, Any]:
    """Merge the environment's nested values over the file's, section by section."""
    merged: dict[str, Any] = _copy(values)
    for name, text in os.environ.items():
        if not _is_setting(name) or "__" not in name:
            continue
        path = name.upper().removeprefix(PREFIX).lower().split("__")
        target = merged
        for part in path[:-1]:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ConfigError(f"{name} goes below `{part}`, which is not a section.")
        target[path[-1]] = _listed(name, text)
    given = {name.upper() for name in os.environ}
    for name in Settings.model_fields:
        if f"{PREFIX}{name.upper()}" in given:
            merged.pop(name, None)  # the plain variable wins over the file; pydantic reads it
    return merged


def _listed(name: str, text: str) -> Any:
    """A list or a table is JSON, as at the top level; all else is text that pydantic reads."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ConfigError(
            f'{name} is not valid JSON. Write a list as in ["a", "b"], a table as in {{"a": "b"}}.'
        ) from None


def _copy(value: Any) -> Any:
    return {k: _copy(v) for k, v in value.items()} if isinstance(value, dict) else value
