"""The root secret: made once, kept private; one key per tenant and purpose."""

import stat
from itertools import product
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from schemas.secrets import (
    ROOT_BYTES,
    create_root_secret,
    load_root_secret,
    load_weights_key,
    tenant_key,
)


def test_it_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "root"
    create_root_secret(path)
    first = load_root_secret(path)
    create_root_secret(path)
    assert load_root_secret(path) == first
    assert len(first) == ROOT_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_deployments_have_different_secrets(tmp_path: Path) -> None:
    for name in ("a", "b"):
        create_root_secret(tmp_path / name)
    assert load_root_secret(tmp_path / "a") != load_root_secret(tmp_path / "b")


def test_a_missing_or_short_secret_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="headrace up"):
        load_root_secret(tmp_path / "absent")
    (tmp_path / "short").write_bytes(b"x" * (ROOT_BYTES - 1))
    with pytest.raises(ConfigError, match="shorter than 32 bytes"):
        load_root_secret(tmp_path / "short")


def test_every_tenant_and_purpose_has_a_key_of_its_own() -> None:
    pairs = list(product(["acme", "acm", "e", ""], ["alias", "digest", "ealias"]))
    keys = {tenant_key(b"r" * 32, tenant, purpose) for tenant, purpose in pairs}
    assert len(keys) == len(pairs)
    assert {len(key) for key in keys} == {32}
    assert tenant_key(b"r" * 32, "acme", "alias") != tenant_key(b"s" * 32, "acme", "alias")


def test_the_key_of_weights_is_optional_but_never_half_there(tmp_path: Path) -> None:
    assert load_weights_key(None) is None
    path = tmp_path / "weights"
    with pytest.raises(ConfigError, match="headrace up"):
        load_weights_key(path)
    for half in (b"", b"short"):
        path.write_bytes(half)
        with pytest.raises(ConfigError, match=r"shorter than 32 bytes.*remove it and run"):
            load_weights_key(path)
    path.unlink()
    create_root_secret(path)
    assert load_weights_key(path) == path.read_bytes()
