"""Tests that run at the same time never take each other's ports."""

from infra.local.ports import is_free
from tests.ports import block, free_ports


def test_processes_have_ports_of_their_own() -> None:
    blocks = [set(block(number, 3)) for number in range(3)]
    assert set.union(*blocks) <= set(block(0, 1))
    assert len(set.union(*blocks)) == sum(map(len, blocks)) > 3_000


def test_no_port_is_given_out_again_soon() -> None:
    first, second = free_ports(20), free_ports(20)
    assert len({*first, *second}) == 40
    assert all(map(is_free, second))


def test_there_is_room_beside_each_port() -> None:
    given = free_ports(30)
    assert all(abs(one - other) >= 10 for one in given for other in given if one != other)
