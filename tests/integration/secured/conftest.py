"""A broker that asks who is there, and an authority that nobody has heard of."""

from collections.abc import Iterator

import pytest

from tests import secure_kafka
from tests.certificates import Authority
from tests.secure_kafka import SecureKafka


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka.running(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="package")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "somebody else")
