"""The engine is killed while many answers stream: each ends with an error, and serving goes on."""

import json
import threading

from tests import patient_http
from tests.engine_processes import PATIENCE_S, eventually
from tests.playback_engine import NANO

NUM_STREAMS = 50
PATHS = {
    "/v1/completions": {"prompt": [5, 6, 7], "max_tokens": 1500, "return_token_ids": True},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1500},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1500},
}


class Reader:
    """A client that reads a stream to its end.

    Attributes:
        events: the data of those that came.
    """

    def __init__(self, url: str, path: str) -> None:
        self.events: list[str] = []
        self.status = 0
        self._url, self._path = url, path
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        body = {"model": "fake", "stream": True, "temperature": 0} | PATHS[self._path]
        with patient_http.stream("POST", self._url + self._path, json=body) as response:
            self.status = response.status_code
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.events.append(line.removeprefix("data: "))

    def last_error(self) -> str:
        """The message of the event that ended the stream."""
        last = json.loads(self.events[-1])
        if self._path == "/v1/responses":
            assert last["type"] == "response.failed"
            return last["response"]["error"]["message"]
        return last["error"]["message"]


def test_every_stream_ends_with_an_error_and_the_engine_is_started_again(start_server):
    server = start_server(
        "--tokenizer-folder", str(NANO), step_s=0.1, vocab_size=2560, max_num_seqs=NUM_STREAMS
    ).ready()
    paths = list(PATHS)
    readers = [Reader(server.url, paths[n % len(paths)]) for n in range(NUM_STREAMS)]
    eventually(lambda: all(reader.events for reader in readers))
    server.kill_engine()
    for reader in readers:
        reader.thread.join(PATIENCE_S)
        assert not reader.thread.is_alive(), "a stream goes on without an engine"
        assert reader.status == 200
        assert "SIGKILL" in reader.last_error()
    eventually(lambda: server.get("/health").status_code == 200)
    assert server.post(max_tokens=4).status_code == 200
    eventually(lambda: server.running() == 0)
