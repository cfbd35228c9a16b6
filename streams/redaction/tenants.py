"""Per tenant: the redactor and the keys, derived from the root secret when first needed."""

from collections import OrderedDict
from dataclasses import dataclass

from schemas.errors import PermanentError, QuarantineError, Reason
from schemas.ids import is_tenant_id
from schemas.secrets import tenant_key
from schemas.settings import RedactionSettings
from streams.redaction.cache import CacheCounters, DigestCache
from streams.redaction.detect.budget import Budget
from streams.redaction.detect.by_language import ByLanguage
from streams.redaction.detect.contract import Detector, ReadsAhead
from streams.redaction.policies import TenantDetector, TenantPolicy, load_policies
from streams.redaction.redacting import EventRedaction
from streams.redaction.redactor import Redactor, build_detector

#: Tenants whose keys stay in memory; the least recently used is derived again.
MAX_TENANTS = 10_000

POLICY_VERSION = "default/1"


@dataclass(frozen=True, slots=True)
class Tenant:
    """What redaction needs of one tenant."""

    redactor: Redactor
    policy_version: str
    lineage_key: bytes
    alias_key: bytes
    digest_key: bytes
    fingerprint_key: bytes


class Tenants:
    """Tenants share detectors and one bounded cache; keys, placeholders and words are their own."""

    def __init__(
        self, root_secret: bytes, settings: RedactionSettings, budget: Budget | None = None
    ) -> None:
        self._root = root_secret
        self._settings = settings
        self._budget = budget or Budget()
        self._policies = load_policies(settings.policy_file)
        self._detectors: dict[tuple[str, str | None], Detector] = {}
        for policy in (TenantPolicy(), *self._policies.tenants.values()):
            self._detector(policy)  # now, since a model takes seconds to load
        self._cache = DigestCache(max_bytes=settings.cache_bytes)
        self._tenants: OrderedDict[str, Tenant] = OrderedDict()

    @property
    def cache_counters(self) -> CacheCounters:
        """How often the cache knew a text."""
        return self._cache.counters

    @property
    def read_ahead(self) -> bool:
        """Whether some detector reads many texts faster than one after the other."""
        return any(isinstance(each, ReadsAhead) for each in self._detectors.values())

    def begin_event(self) -> None:
        """The detector's time for one event runs from now."""
        self._budget.begin()

    def get(self, tenant_id: str) -> Tenant:
        """The tenant's keys and redactor.

        PermanentError for what cannot be a tenant: the id stands in keys and columns as it came,
        unlike every other id of an event, which is redacted first.
        """
        if tenant_id not in self._tenants:
            if not is_tenant_id(tenant_id):
                raise PermanentError(Reason.UNKNOWN_TENANT, "tenant_id")
            self._tenants[tenant_id] = self._derive(tenant_id)
            while len(self._tenants) > MAX_TENANTS:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(tenant_id)
        return self._tenants[tenant_id]

    def redaction(self, tenant_id: str) -> EventRedaction:
        """A fresh redaction of one event of that tenant."""
        return EventRedaction(self.get(tenant_id).redactor)

    def _languages(self, policy: TenantPolicy) -> tuple[str, ...]:
        """The languages that are listed for a tenant, or else for the deployment."""
        given = policy.languages or ((policy.language,) if policy.language else ())
        return given or self._settings.languages or (self._settings.language,)

    def _detector(self, policy: TenantPolicy) -> Detector:
        """The detector of a tier and its languages, whose parts all tenants share. ConfigError if
        impossible."""
        tier = policy.tier or self._settings.tier
        detectors = {each: self._shared(tier, each) for each in self._languages(policy)}
        others = policy.other_languages or self._settings.other_languages
        if tier == "regex" and others != "quarantine":
            return next(iter(detectors.values()))  # it knows no names and reads every language
        return ByLanguage(detectors, others)

    def _shared(self, tier: str, language: str) -> Detector:
        key = tier, language if tier == "accurate" else None
        if key not in self._detectors:
            model = self._settings.model if language == self._settings.language else None
            self._detectors[key] = build_detector(
                tier, language=language, budget=self._budget, model=model
            )
        return self._detectors[key]

    def _derive(self, tenant_id: str) -> Tenant:
        policy = self._policies.of(tenant_id)
        if policy is None:
            raise QuarantineError(Reason.POLICY_MISSING)
        detector = self._detector(policy)
        if policy.deny or policy.patterns:
            detector = TenantDetector(detector, policy)

        def key(purpose: str) -> bytes:
            return tenant_key(self._root, tenant_id, purpose)

        return Tenant(
            redactor=Redactor(
                detector=detector,
                tenant_key=key("placeholder"),
                cache=self._cache,
                policy_version=POLICY_VERSION,
                language="+".join(self._languages(policy)),
            ),
            policy_version=f"{POLICY_VERSION};{detector.version}",
            lineage_key=key("lineage"),
            alias_key=key("alias"),
            digest_key=key("digest"),
            fingerprint_key=key("fingerprint"),
        )
