"""Nothing that a job names leads to where jobs may not go: listeners stand there, and hear nothing."""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.certificates import Authority
from tests.jobs.receiver import Heard, Receiver, receiving, said
from tests.jobs.targets import PLAIN, every, hidden, resolve
from tests.pressure import Stopwatch
from tests.worker.placed import Placed
from windlass.config import JobsConfig
from windlass.errors import Misconfigured
from windlass.jobs.addresses import is_public, networks, ports
from windlass.jobs.egress import Egress, EgressRefused, Unreached
from windlass.jobs.home import Means, using
from windlass.model import Status

HERE = networks("127.0.0.0/8,::1")
PUBLIC = ("8.8.8.8", "1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001:82a::200e", "64:ff9b::808:808")


@pytest.fixture
async def canaries() -> AsyncIterator[list[Receiver]]:
    """Listeners at every address of this machine, all at one port."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(receiving("127.0.0.1"))
        others = ["127.0.0.2", "127.1.2.3", *_own_addresses()]
        yield [first, *[await stack.enter_async_context(receiving(each, first.port)) for each in others]]


def _own_addresses() -> list[str]:
    """Where this machine can be reached, as far as a listener can be there."""
    found = []
    names = [str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None)]
    for address in dict.fromkeys(["::1", "192.0.2.2", "fd00::2", *names]):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
        if not address.startswith("127."):
            found.append(address)
    return found


def heard(canaries: Sequence[Receiver]) -> int:
    return sum(each.connections for each in canaries)


async def test_no_webhook_reaches_a_listener_inside_however_it_is_written(
    worker: Placed, canaries: list[Receiver]
) -> None:
    urls = every(canaries[0].port)
    assert len(urls) >= 150
    egress = Egress(ports=None, timeout_s=5, resolve=resolve)
    with using(Means(JobsConfig(), egress)):
        ids = [await worker.enqueue("webhook", {"url": url, "body": {}}, max_attempts=1) for url in urls]
        jobs = [await worker.reaches(job_id, Status.COMPLETED, Status.FAILED, timeout_s=60) for job_id in ids]
    went = {url: job.error for url, job in zip(urls, jobs, strict=True) if job.status is not Status.FAILED}
    assert went == {}
    assert heard(canaries) == 0
    kinds = [job.error.type.rpartition(".")[2] for job in jobs if job.error]
    assert kinds.count("EgressRefused") >= len(urls) - 15, "nearly all are refused, not merely out of reach"


async def test_the_listeners_would_have_heard(canaries: list[Receiver]) -> None:
    allowed = Egress(networks("0.0.0.0/0,::/0"), None, 5)
    for each in canaries:
        assert (await allowed.request("GET", each.url, keep_bytes=10)).status == 200
    assert heard(canaries) == len(canaries)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs a network of its own")
def test_in_a_network_where_every_address_answers_none_is_reached() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-m", "tests.jobs.everywhere"],
        cwd=root, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("needs a network of its own")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["controls"] == 8
    assert len(told["refused"]) >= 150
    assert set(told["refused"].values()) <= {"EgressRefused", "Unreached"}
    assert told["got_out"] == []
    # A name that changes under our eyes: each request looked once, and went where it had looked, or nowhere.
    assert told["looks"] == 40
    assert told["turns"] == ["200", "EgressRefused"] * 20
    assert told["reached"] == ["::ffff:8.8.8.8"]


async def test_a_name_that_changes_its_address_is_looked_up_once_and_reached_where_it_was_judged() -> None:
    answers = iter([["127.0.0.2"], ["127.0.0.1"]] * 25)
    looks = 0

    async def rebinding(host: str, port: int) -> Sequence[str]:
        nonlocal looks
        looks += 1
        return next(answers)

    async with receiving("127.0.0.1") as inside, receiving("127.0.0.2", inside.port) as outside:
        egress = Egress(networks("127.0.0.2"), None, 5, resolve=rebinding)
        for turn in range(50):
            asked = egress.request("POST", f"http://rebinding.test:{inside.port}/", body=b"x", keep_bytes=10)
            if turn % 2:
                with pytest.raises(EgressRefused):
                    await asked
            else:
                assert (await asked).status == 200
        assert looks == 50
        assert (inside.connections, outside.connections) == (0, 25)
        assert {each.headers["host"] for each in outside.heard} == {f"rebinding.test:{inside.port}"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_inside_is_not_followed(status: int, worker: Placed) -> None:
    async with receiving("127.0.0.1") as inside, receiving("127.0.0.2") as outside:
        outside.reply = said(status, Location=f"{inside.url}/latest/meta-data/")
        with using(Means(JobsConfig(), Egress(networks("127.0.0.2"), None, 5))):
            job = await worker.run("webhook", {"url": outside.url})
        assert job.status is Status.FAILED
        assert job.attempt == 1, "a redirect is final"
        assert inside.connections == 0


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving("127.0.0.1") as proxy, receiving("127.0.0.2") as outside:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert (await Egress(networks("127.0.0.2"), None, 5).request("GET", outside.url, keep_bytes=9)).status == 200
        assert (proxy.connections, outside.connections) == (0, 1)


async def test_only_the_ports_of_the_settings_are_reached() -> None:
    async with receiving() as here:
        egress = Egress.of(JobsConfig(egress_allow="127.0.0.0/8"))
        for port in (here.port, 22, 25, 6379, 0, 65_536, 8080):
            with pytest.raises(EgressRefused, match="port"):
                await egress.request("GET", f"http://127.0.0.1:{port}/", keep_bytes=9)
        named = Egress.of(JobsConfig(egress_allow="127.0.0.0/8", egress_ports=f"443, {here.port}"))
        assert (await named.request("GET", here.url, keep_bytes=9)).status == 200
        assert here.connections == 1


async def test_a_private_address_is_reached_where_the_settings_name_it() -> None:
    async with receiving("127.0.0.2") as here, receiving("127.0.0.1", here.port) as other:
        egress = Egress.of(JobsConfig(egress_allow="[fd00::]/8, 127.0.0.2", egress_ports="*"))
        assert (await egress.request("GET", here.url, keep_bytes=9)).body == b"ok"
        mapped = f"http://[::ffff:127.0.0.2]:{here.port}/"
        assert (await egress.request("GET", mapped, keep_bytes=9)).status == 200
        with pytest.raises(EgressRefused):
            await egress.request("GET", other.url, keep_bytes=9)
        assert other.connections == 0


async def test_the_refusal_does_not_tell_what_a_name_means_inside() -> None:
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["10.20.30.40"]

    with pytest.raises(EgressRefused) as refused:
        await Egress(resolve=inside).request("GET", "http://secret.corp/", keep_bytes=9)
    assert "10.20" not in str(refused.value)


async def test_a_submitter_cannot_tell_a_name_inside_from_one_that_does_not_exist(
    worker: Placed, caplog: pytest.LogCaptureFixture
) -> None:
    async def split_horizon(host: str, port: int) -> Sequence[str]:
        if host == "none.corp":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return {"here.corp": ["10.20.30.40"], "half.corp": ["93.184.216.34", "10.20.30.40"]}.get(host, [])

    with using(Means(JobsConfig(), Egress(resolve=split_horizon))):
        hosts = ("here.corp", "half.corp", "none.corp", "void.corp")
        jobs = {host: await worker.run("webhook", {"url": f"http://{host}/"}) for host in hosts}
    shown = set()
    for host, job in jobs.items():
        assert job.error is not None
        told = (job.status, job.attempt, job.error.type, job.error.message, job.error.traceback)
        shown.add(tuple(str(each).replace(host, "HOST") for each in told))
    assert len(shown) == 1, shown
    assert {status for status, *_ in shown} == {str(Status.FAILED)}
    for line in (
        "here.corp is 10.20.30.40",
        "none.corp, which a job names, does not resolve: Name or service not known",
    ):
        assert line in caplog.text


async def test_names_that_cannot_be_resolved_just_now_are_tried_again() -> None:
    async def away(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(Unreached, match="just now"):
        await Egress(resolve=away).request("GET", "http://a.example/", keep_bytes=9)


# Time and size. -----------------------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


async def _silent(_: Heard, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _dribbling_head(_: Heard, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-A: b\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def _continuing(_: Heard, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.001)


async def _dribbling_body(_: Heard, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def _endless(_: Heard, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def _bomb(_: Heard, writer: asyncio.StreamWriter) -> None:
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join([packed.compress(bytes(1 << 20)) for _ in range(50)]) + packed.flush()
    writer.write(HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def _huge_head(_: Heard, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"b" * 10_000_000 + b"\r\n\r\n")


@pytest.mark.parametrize("reply", [_silent, _dribbling_head, _continuing])
async def test_a_server_that_does_not_answer_is_given_up_after_the_whole_time(
    reply: Callable[[Heard, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    async with receiving() as here:
        here.reply = reply
        watch = Stopwatch()
        with pytest.raises(Unreached):
            await Egress(HERE, None, 0.5).request("GET", here.url, keep_bytes=1000)
        assert watch.free_s < 3


async def test_an_answer_whose_body_dawdles_counts_and_is_cut() -> None:
    async with receiving() as here:
        here.reply = _dribbling_body
        answer = await Egress(HERE, None, 0.5).request("POST", here.url, keep_bytes=1000)
        assert (answer.status, answer.cut) == (200, True)
        with pytest.raises(Unreached):
            await Egress(HERE, None, 0.5).request("GET", here.url, keep_bytes=1000, whole=True)


async def test_an_endless_body_is_read_up_to_the_limit() -> None:
    async with receiving() as here:
        here.reply = _endless
        answer = await Egress(HERE, None, 20).request("GET", here.url, keep_bytes=100_000)
        assert (len(answer.body), answer.cut) == (100_000, True)


async def test_a_compressed_body_stays_compressed() -> None:
    async with receiving() as here:
        here.reply = _bomb
        answer = await Egress(HERE, None, 20).request("GET", here.url, keep_bytes=65_536)
        assert len(answer.body) <= 65_536
        assert here.heard[0].headers["accept-encoding"] == "identity"


async def test_a_huge_head_is_refused() -> None:
    async with receiving() as here:
        here.reply = _huge_head
        with pytest.raises(Unreached):
            await Egress(HERE, None, 20).request("GET", here.url, keep_bytes=1000)


# TLS. ---------------------------------------------------------------------------------------------------------------


async def test_over_tls_the_name_is_kept_and_the_certificate_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server("hooks.test")
    names: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)

    async def named(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with receiving(tls=server) as here:
        trusting = Egress(HERE, None, 10, resolve=named, tls=authority.client)
        answer = await trusting.request("GET", f"https://hooks.test:{here.port}/", keep_bytes=9)
        assert (answer.status, names) == (200, ["hooks.test"])
        assert here.heard[0].headers["host"] == f"hooks.test:{here.port}"
        with pytest.raises(Unreached, match="certificate"):
            await trusting.request("GET", f"https://other.test:{here.port}/", keep_bytes=9)
        strict = Egress(HERE, None, 10, resolve=named, tls=ssl.create_default_context)
        with pytest.raises(Unreached, match="certificate"):
            await strict.request("GET", f"https://hooks.test:{here.port}/", keep_bytes=9)
        assert len(here.heard) == 1


# Addresses. ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*PLAIN, *hidden()])
def test_an_address_inside_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_outside_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@given(st.ip_addresses(v=4))
def test_wrapping_an_address_makes_nothing_public(address: IPv4Address) -> None:
    inner = int(address)
    honest = [(0xFFFF << 32) | inner, (0x0064_FF9B << 96) | inner]
    assert {is_public(IPv6Address(each)) for each in honest} == {is_public(address)}
    assert not any(is_public(IPv6Address(each)) for each in (inner, (0x2002 << 112) | (inner << 80)))


@pytest.mark.parametrize("setting", ["10.0.0.0/33", "10.0.0.1/8", "localhost", "10.0.0.0/8;x"])
def test_a_network_that_is_none_is_named(setting: str) -> None:
    with pytest.raises(Misconfigured, match="WINDLASS_EGRESS_ALLOW"):
        networks(setting)


@pytest.mark.parametrize("setting", ["http", "0", "70000", "80-90", "٣"])
def test_a_port_that_is_none_is_named(setting: str) -> None:
    with pytest.raises(Misconfigured, match="WINDLASS_EGRESS_PORTS"):
        ports(setting)
