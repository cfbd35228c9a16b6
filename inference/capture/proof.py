"""What the worker that answered says about the weights it answered with. Malformed is absent."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from inference.capture.headers import OURS
from schemas import ids

VERSION = f"{OURS}policy-version"
_POLICY = f"{OURS}policy"
_ROOT = f"{OURS}weights-root"
#: Any number of so many digits fits into 64 bits.
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Proof:
    """The policy line, the version and the root. A root says nothing without its version."""

    policy: str | None = None
    policy_version: int | None = None
    weights_root: str | None = None

    def fields(self) -> dict[str, Any]:
        """What of it is known, as fields of the exchange."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def proof_of(answer: Mapping[str, str]) -> Proof:
    """The proof in the headers of an answer."""
    policy, version, root = (answer.get(name, "") for name in (_POLICY, VERSION, _ROOT))
    is_version = _DIGITS.fullmatch(version) is not None
    return Proof(
        policy=policy if ids.is_safe_id(policy) else None,
        policy_version=int(version) if is_version else None,
        weights_root=root if is_version and _HEX.fullmatch(root) else None,
    )
