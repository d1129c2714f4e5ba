"""Flags of serving: refused in one line before anything starts, or in force over real HTTP."""

import contextlib
import json
import ssl
import subprocess
import sys
import time

import httpx
import pytest
from click.testing import CliRunner

from rose.cli import main
from tests import patient_http
from tests.engine_processes import PATIENCE_S, environment, eventually


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    words = [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(words, check=True, capture_output=True)
    return folder


@contextlib.contextmanager
def front_end(folder, *words):
    """`rose front-end` before an engine that never comes; its URL and its log."""
    log = folder / "log"
    command = [sys.executable, "-m", "rose", "front-end", f"ipc://{folder}/nobody", "--port", "0"]
    with log.open("w") as stderr:
        process = subprocess.Popen([*command, *words], env=environment(), stderr=stderr)
    try:
        end = time.monotonic() + PATIENCE_S
        while "Listening on" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end
            time.sleep(0.02)
        yield log.read_text().split()[2].rstrip(";"), log
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_https_with_keys_origins_and_a_log(certificate, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nfrom-file\n")
    words = ["--tls-cert", certificate / "cert.pem", "--tls-key", certificate / "key.pem"]
    words += ["--api-key", "given", "--api-key-file", keys, "--cors-origin", "*", "--access-log"]
    trusted = ssl.create_default_context(cafile=certificate / "cert.pem")
    with front_end(tmp_path, *map(str, words)) as (url, log):
        assert url.startswith("https://127.0.0.1:")
        with patient_http.Client(base_url=url, verify=trusted) as client:
            health = client.get("/health", headers={"Origin": "https://a.example"})
            assert health.status_code == 503
            assert health.headers["Access-Control-Allow-Origin"] == "*"
            for key, status in (("given", 503), ("from-file", 503), ("# ours", 401)):
                headers = {"Authorization": f"Bearer {key}"}
                assert client.get("/v1/models", headers=headers).status_code == status
        eventually(lambda: log.read_text().count("\n") == 5)
        found = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert [line["status"] for line in found] == [503, 503, 503, 401]


def test_an_idle_connection_is_closed_in_time(tmp_path):
    seconds = 6  # one more than uvicorn's default
    never = httpx.Limits(keepalive_expiry=None)  # by the client itself
    with (
        front_end(tmp_path, "--keep-alive", str(seconds)) as (url, _),
        patient_http.Client(base_url=url, limits=never) as client,
    ):
        began = time.monotonic()
        client.get("/version")
        [connection] = client._transport._pool.connections
        eventually(connection.has_expired)
        assert time.monotonic() - began > seconds - 0.1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--api-key", ""], "an API key must be"),
        (["--api-key", "a b"], "must hold no spaces"),
        (["--api-key-file", "/nowhere"], "/nowhere: No such file"),
        (["--tls-cert", "cert.pem"], "needs both --tls-cert and --tls-key"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "/nowhere: No such file"),
        (["--cors-origin", "https://a.example/path"], "without a path"),
        (["--cors-origin", "a.example"], "an origin such as"),
        (["--chat-format", "chatml"], "one of harmony, template"),
        (["--max-queue", "0"], "--max-queue"),
        (["--request-timeout", "0"], "--request-timeout"),
    ],
)
def test_flags_that_cannot_be(words, says):
    result = CliRunner().invoke(main, ["front-end", "ipc:///tmp/nobody", *words])
    assert result.exit_code in (1, 2)
    assert says in result.stderr.splitlines()[-1]


def test_files_that_are_no_certificate(certificate, tmp_path):
    encrypted = tmp_path / "encrypted.pem"
    source = ["-in", certificate / "key.pem", "-out", encrypted]
    command = ["openssl", "rsa", "-aes128", "-passout", "pass:secret", *source]
    subprocess.run(command, check=True, capture_output=True)
    cert = certificate / "cert.pem"
    for key in (cert, encrypted):
        words = ["front-end", "ipc:///tmp/nobody", "--tls-cert", str(cert), "--tls-key", str(key)]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 1
        assert "must be a certificate and its key" in result.stderr
