import os
import socket

import pytest

from kt_tui.net import bind_problem, client_url, free_port, is_listening, is_loopback, port_owner

ALL = "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        (ALL, "http://127.0.0.1:1"),
        ("", "http://127.0.0.1:1"),
        ("*", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("[::]", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("localhost", "http://localhost:1"),
        ("fe80::1%eth0", "http://[fe80::1%eth0]:1"),
        ("example.org", "http://example.org:1"),
    ],
)
def test_a_client_never_uses_a_bind_all_address(host, url):
    assert client_url(host, 1) == url


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "Box.LOCALHOST")),
        *((host, False) for host in (ALL, "::", "192.168.1.5", "example.org", "", "localhost.evil.org")),
    ],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_names_its_owner_and_a_free_one(taken):
    problem = bind_problem("127.0.0.1", taken)
    assert f"port {taken} is in use by process {os.getpid()}" in problem
    assert "is free" in problem
    assert port_owner(taken).pid == os.getpid()
    assert is_listening(ALL, taken)


def test_a_free_port_is_no_problem_and_stays_free(taken):
    port = free_port("127.0.0.1", taken + 1)
    assert port > taken
    assert bind_problem("127.0.0.1", port) is None
    assert bind_problem("127.0.0.1", port) is None
    assert not is_listening("127.0.0.1", port)


def test_a_port_taken_on_all_addresses_is_taken_on_this_one():
    with socket.create_server((ALL, 0)) as server:
        assert "in use" in bind_problem("127.0.0.1", server.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("127.0.0.1", 0, "not a port"),
        ("127.0.0.1", 70000, "not a port"),
        ("192.0.2.77", 34567, "not an address of this machine"),
        ("no such host.invalid", 34567, "has no address here"),
    ],
)
def test_other_problems_in_words(host, port, words):
    assert words in bind_problem(host, port)
