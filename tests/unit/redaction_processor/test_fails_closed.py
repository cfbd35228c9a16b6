"""What cannot be redacted as its tenant's policy says waits in quarantine, whole, and can be sent
through again once it can."""

from pathlib import Path

import pytest

from schemas import codec, topics
from schemas.settings import RedactionSettings
from tests.unit.redaction_processor import parts
from tests.unit.redaction_processor.captures import exchange, record
from tests.unit.redaction_processor.parts import Redaction

JANE = "jane.roe@mail.example.org"
ARABIC = "مرحبا، أريد تغيير موعد رحلتي إلى يوم الأحد من فضلك"


def restarted(redaction: Redaction, patch: pytest.MonkeyPatch, settings: RedactionSettings) -> None:
    patch.setattr(parts, "RedactionSettings", lambda **_: settings)
    redaction.restart()


@pytest.mark.parametrize(
    ("policy", "text", "reason"),
    [
        ('otherwise = "quarantine"\n', "hi", "policy_missing"),
        ('[tenants.acme]\ntier = "fast"\n', ARABIC, "unsupported_language"),
    ],
)
async def test_it_waits_whole_and_is_a_step_once_the_policy_is_there(
    redaction: Redaction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    policy: str, text: str, reason: str,
) -> None:  # fmt: skip
    file = tmp_path / "policies.toml"
    file.write_text(policy)
    restarted(redaction, monkeypatch, RedactionSettings(tier="regex", policy_file=file))
    messages = [{"role": "user", "content": f"{text} {JANE}"}]
    await redaction.send(exchange(messages, {"role": "assistant", "content": "yo"}, "a"))
    (waiting,) = redaction.events(topics.QUARANTINE)
    assert waiting.reason == reason
    assert redaction.events(topics.STEPS) == []
    assert JANE.encode() not in redaction.clean_bytes()

    file.write_text('[tenants.acme]\ntier = "regex"\n')
    restarted(redaction, monkeypatch, RedactionSettings(tier="regex", policy_file=file))
    await redaction.send(record(codec.decode(waiting.value), 1))
    (step,) = redaction.events(topics.STEPS)
    assert step.step_id == "step-a"
    assert {span.kind for span in step.governance.redactions} == {"EMAIL_ADDRESS"}
    assert JANE.encode() not in redaction.clean_bytes()
