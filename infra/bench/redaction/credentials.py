"""Credentials as their issuers document them and as files and commands hold them.

Written from what vendors publish, not from the recognisers' expressions: what is not found here is
a form that nobody thought of.
"""

import base64
import json
import random
import string
import uuid
from collections.abc import Callable
from typing import Final

_LETTERS: Final = string.ascii_letters + string.digits
_HEX: Final = "0123456789abcdef"
_BASE64: Final = _LETTERS + "+/"

#: A line of text, and what of it is the secret.
Credential = tuple[str, str]


def credential(rng: random.Random) -> Credential:
    """One of the forms below, with a secret of its own."""
    return rng.choice(FORMS)(rng)


def _run(rng: random.Random, count: int, alphabet: str = _LETTERS) -> str:
    return "".join(rng.choices(alphabet, k=count))


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _words_password(rng: random.Random) -> str:
    words = rng.sample(("Tulip", "granite", "Otter", "violin", "Harbor", "copper", "Meadow"), 3)
    return "-".join(words) + str(rng.randrange(10, 99)) + rng.choice("!$#?")


def _of(line: str, secret: Callable[[random.Random], str]) -> Callable[[random.Random], Credential]:
    def make(rng: random.Random) -> Credential:
        made = secret(rng)
        return line.replace("@@", made), made

    return make


def _jwt(rng: random.Random) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": _run(rng, 12), "iat": rng.randrange(10**9)})
    coded = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join((*coded, _run(rng, 43, _LETTERS + "-_")))


def _basic(rng: random.Random) -> str:
    return base64.b64encode(f"deploy:{_run(rng, 16)}".encode()).decode()


#: Each under its issuer's or its program's way to write it down.
FORMS: Final[tuple[Callable[[random.Random], Credential], ...]] = (
    _of("AWS_SECRET_ACCESS_KEY=@@", lambda r: _run(r, 40, _BASE64)),
    _of("aws_session_token = @@", lambda r: "IQoJb3JpZ2luX2Vj" + _run(r, 120, _BASE64) + "=="),
    _of(
        "DefaultEndpointsProtocol=https;AccountName=files;AccountKey=@@;EndpointSuffix=core",
        lambda r: _run(r, 86, _BASE64) + "==",
    ),
    _of("postgresql://app:@@@db.internal:5432/orders", lambda r: _run(r, 18)),
    _of("redis://:@@@cache:6379/0", lambda r: _run(r, 24)),
    _of("mongodb+srv://svc:@@@cluster0.example.net/?retryWrites=true", _words_password),
    _of("Authorization: Bearer @@", _jwt),
    _of("curl -H 'Authorization: Basic @@' https://api.example.com/v2/jobs", _basic),
    _of("//registry.example.com/:_authToken=@@", _uuid),
    _of("machine git.example.com login ci password @@", lambda r: _run(r, 20)),
    _of("docker login -u ci -p @@ registry.example.com", lambda r: _run(r, 22)),
    _of("mysql -h db -u root -p@@ shop", lambda r: _run(r, 14)),
    _of("sshpass -p '@@' ssh ops@host", _words_password),
    _of("git clone https://oauth2:@@@git.example.com/team/app.git", lambda r: _run(r, 26)),
    _of("export GITLAB_TOKEN=@@", lambda r: "glpat-" + _run(r, 20, _LETTERS + "_-")),
    _of("STRIPE_SECRET_KEY: @@", lambda r: "sk_live_" + _run(r, 24)),
    _of("SENDGRID_API_KEY=@@", lambda r: "SG." + _run(r, 22) + "." + _run(r, 43)),
    _of("TELEGRAM_BOT=@@", lambda r: _run(r, 10, "123456789") + ":AA" + _run(r, 33)),
    _of("ANTHROPIC_API_KEY=@@", lambda r: "sk-ant-api03-" + _run(r, 93, _LETTERS + "_-") + "AA"),
    _of("HF_TOKEN=@@", lambda r: "hf_" + _run(r, 34, string.ascii_letters)),
    _of("DATABRICKS_TOKEN: @@", lambda r: "dapi" + _run(r, 32, _HEX)),
    _of('"client_secret": "@@"', lambda r: _run(r, 3) + "8Q~" + _run(r, 34, _LETTERS + "_.~-")),
    _of("-----BEGIN PRIVATE KEY-----\n@@\n-----END PRIVATE KEY-----",
        lambda r: _run(r, 64, _BASE64)),
    _of("https://hooks.slack.com/services/@@",
        lambda r: f"T{_run(r, 8).upper()}/B{_run(r, 8).upper()}/{_run(r, 24)}"),
    _of("SENTRY_DSN=https://@@@o42.ingest.example.io/7", lambda r: _run(r, 32, _HEX)),
    _of("password for the router is @@", _words_password),
    _of("the wifi passphrase: @@", lambda r: _run(r, 12)),
    _of("OTP seed otpauth://totp/shop:ops?secret=@@&issuer=shop",
        lambda r: _run(r, 32, string.ascii_uppercase + "234567")),
    _of("X-Api-Key: @@", lambda r: _run(r, 32)),
    _of("api_key=@@&q=boots", lambda r: _run(r, 28)),
    _of("token @@ expires tomorrow", lambda r: _run(r, 40, _HEX)),
    _of("kubeadm join 10.0.0.7:6443 --token @@ ",
        lambda r: _run(r, 6, _HEX) + "." + _run(r, 16, _HEX)),
    _of("VAULT_TOKEN=@@", lambda r: "hvs." + _run(r, 90, _LETTERS + "_-")),
    _of("ops:@@:19000:0:99999:7:::",
        lambda r: "$6$" + _run(r, 16) + "$" + _run(r, 86, _LETTERS + "./")),
    _of("admin:@@", lambda r: "$2y$10$" + _run(r, 53, _LETTERS + "./")),
)  # fmt: skip
