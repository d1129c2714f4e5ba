"""Finding checkpoints: folders, and downloads from a small Hub on this machine."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rose.config import ConfigError
from rose.models.hub import find_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 40,
    "tokenizer.json": b'{"a": 1}',
    "chat_template.jinja": b"{{ x }}",
    "README.md": b"# not needed",
    "original/model.safetensors": b"much too large",
    "original/config.json": b"{}",
    "metal/model.bin": b"also",
}


PATIENT = {"HF_HUB_DOWNLOAD_TIMEOUT": "60", "HF_HUB_ETAG_TIMEOUT": "60"}


class Hub(BaseHTTPRequestHandler):
    """The few routes of the Hub that a download uses, for the one model org/tiny."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, _, _ = self.path.partition("?")
        parts = path.strip("/").split("/")
        if parts[:4] == ["api", "models", "org", "tiny"]:
            tree = [self._entry(name) for name in FILES]
            info = {"id": "org/tiny", "sha": COMMIT, "siblings": [{"rfilename": n} for n in FILES]}
            self._reply(json.dumps(tree if "tree" in parts else info).encode())
        elif parts[:3] == ["org", "tiny", "resolve"] and "/".join(parts[4:]) in FILES:
            name = "/".join(parts[4:])
            self.server.served.append(name)
            self._reply(FILES[name], {"ETag": f'"{_oid(name)}"', "X-Repo-Commit": COMMIT})
        elif "gated" in parts:
            self._reply(b"{}", {"X-Error-Code": "GatedRepo"}, status=403)
        else:
            self._reply(b"{}", {"X-Error-Code": "RepoNotFound"}, status=404)

    def _entry(self, name):
        return {"type": "file", "path": name, "size": len(FILES[name]), "oid": _oid(name)}

    def _reply(self, body, headers=None, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format, *args):
        pass


def _oid(name):
    return hashlib.sha1(FILES[name]).hexdigest()


@pytest.fixture(scope="module")
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.served = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


def find_elsewhere(model, home, **environment):
    """What find_checkpoint says in a process of its own: the client reads its settings once."""
    script = (
        "import sys\n"
        "from rose.config import ConfigError\n"
        "from rose.models.hub import find_checkpoint\n"
        "try: print(find_checkpoint(sys.argv[1]))\n"
        "except ConfigError as error: print('ConfigError:', error)\n"
    )
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    inherited = {k: v for k, v in os.environ.items() if k.lower() not in proxies}
    done = subprocess.run(
        [sys.executable, "-c", script, model],
        env=inherited | {"HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"} | PATIENT | environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    return done.stdout.strip()


def test_a_local_folder_is_itself(tmp_path):
    assert find_checkpoint(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "gpt-oss", "a/b/c"])
def test_neither_folder_nor_id(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no such folder, nor is this a Hugging Face id"):
        find_checkpoint(name)


def test_a_file(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ConfigError, match="is a file; name the folder"):
        find_checkpoint(str(file))


def test_download_takes_what_is_needed_and_then_the_cache_will_do(hub, tmp_path):
    endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
    folder = Path(find_elsewhere("org/tiny", tmp_path, HF_ENDPOINT=endpoint))
    wanted = ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(path.name for path in folder.rglob("*")) == wanted
    assert all((folder / name).read_bytes() == FILES[name] for name in wanted)
    assert set(hub.served) == set(wanted)
    again = find_elsewhere("org/tiny", tmp_path, HF_HUB_OFFLINE="1")
    assert again == str(folder)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("org/unknown", "the Hugging Face Hub knows no such model"),
        ("org/gated", "access to this model must be asked for"),
        ("org/bad..name", "the download failed"),
    ],
)
def test_the_hub_refuses(hub, tmp_path, model, message):
    endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
    said = find_elsewhere(model, tmp_path, HF_ENDPOINT=endpoint)
    assert said.startswith(f"ConfigError: {model}: ")
    assert message in said
    assert "\n" not in said


def test_offline(tmp_path):
    said = find_elsewhere("org/tiny", tmp_path, HF_HUB_OFFLINE="1")
    assert said.startswith("ConfigError: org/tiny: no such folder, the local cache does not hold")
    assert "\n" not in said


def test_no_connection(tmp_path):
    said = find_elsewhere("org/tiny", tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert said.startswith("ConfigError: org/tiny: ")
    assert "cannot be reached" in said
