"""What tenants ask for: tiers, words and patterns of their own, and what comes without a policy."""

from pathlib import Path

import pytest

from schemas.errors import ConfigError, QuarantineError, Reason
from schemas.settings import RedactionSettings
from streams.redaction.policies import load_policies
from streams.redaction.tenants import Tenants

ROOT = bytes(range(32))
POLICIES = r"""
otherwise = "quarantine"

[tenants.acme]
tier = "fast"
deny = ["Project Nightjar", "X-99"]

[[tenants.acme.patterns]]
kind = "NATIONAL_ID"
expression = 'EMP-\d{6}'

[tenants.plain]
"""


@pytest.fixture
def tenants(tmp_path: Path) -> Tenants:
    return made(tmp_path, POLICIES)


def made(folder: Path, policies: str) -> Tenants:
    file = folder / "policies.toml"
    file.write_text(policies, encoding="utf-8")
    return Tenants(ROOT, RedactionSettings(tier="regex", policy_file=file))


def redacted(tenants: Tenants, tenant_id: str, text: str) -> str:
    return tenants.get(tenant_id).redactor.text(text).text


def test_words_and_patterns_are_a_tenants_own(tenants: Tenants) -> None:
    text = "Badge EMP-123456 opens the PROJECT NIGHTJAR room with x-99."
    ours = redacted(tenants, "acme", text)
    assert "EMP-123456" not in ours
    assert "NIGHTJAR" not in ours
    assert "x-99" not in ours
    assert ours.startswith("Badge <NATIONAL_ID_")
    assert ours.endswith(">.")
    assert redacted(tenants, "acme", ours) == ours
    assert redacted(tenants, "plain", text) == text


def test_a_tier_is_a_tenants_own(tenants: Tenants) -> None:
    text = "Yesterday Anna Kowalski called."
    assert "Kowalski" not in redacted(tenants, "acme", text)
    assert redacted(tenants, "plain", text) == text


def test_the_version_says_what_was_asked_for(tenants: Tenants, tmp_path: Path) -> None:
    versions = {tenants.get(each).policy_version for each in ("acme", "plain")}
    changed = made(tmp_path, POLICIES.replace("X-99", "X-98")).get("acme").policy_version
    assert len(versions | {changed}) == 3
    assert "Nightjar" not in "".join(versions)


def test_a_tenant_without_a_policy_waits_in_quarantine(tenants: Tenants) -> None:
    with pytest.raises(QuarantineError) as caught:
        tenants.get("stranger")
    assert caught.value.reason is Reason.POLICY_MISSING


def test_without_a_file_all_tenants_are_alike() -> None:
    tenants = Tenants(ROOT, RedactionSettings(tier="regex"))
    assert tenants.get("anyone").policy_version == tenants.get("other").policy_version


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("[tenants.a]\ntier = 'magic'", "tier"),
        ("[tenants.a]\ndeny = ['  x']", "two characters"),
        ("[[tenants.a.patterns]]\nkind = 'PERSON'\nexpression = '('", "not a regular expression"),
        ("[[tenants.a.patterns]]\nkind = 'PERSON'\nexpression = 'x*'", "everywhere"),
        ("[[tenants.a.patterns]]\nkind = 'SHOE'\nexpression = 'x'", "no such kind"),
        ("[tenants.a]\nunknown = 1", "unknown"),
        ("[tenants", "not valid"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(
    tmp_path: Path, written: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        made(tmp_path, written)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"redaction\.policy_file"):
        load_policies(tmp_path / "none.toml")


def test_the_name_of_old_means_the_same() -> None:
    settings = RedactionSettings.model_validate({"tier": "presidio"})
    assert settings.tier == "accurate"
