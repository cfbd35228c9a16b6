"""python -m infra.local.secrets: make the secrets of a deployment that nothing else makes.

Makes, in the data directory, the root secret that gateway and redaction share, and a password for
the store's two users; and the key of `weights_key_file`, where that is set. What exists stays as it
is.
"""

import sys

from infra.local.passwords import ensure_password
from schemas.errors import ConfigError
from schemas.secrets import create_root_secret
from schemas.settings import Settings, load_settings


def make_secrets(settings: Settings) -> None:
    """Files with mode 0600; nothing is printed."""
    create_root_secret(settings.root_secret_file)
    if settings.weights_key_file is not None:
        create_root_secret(settings.weights_key_file)
    for user in ("clickhouse", "clickhouse-ro"):
        ensure_password(settings.data_dir / "secrets" / user)


def main() -> int:
    """0 when all exist, 2 for a setting to correct."""
    try:
        make_secrets(load_settings())
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the process is a program of its own
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
