"""An engine that answers with exactly the tokens that a test lays out, and a front end before it.

Both run in threads of the test's process, over real sockets, so that a test sees what the engine
was asked for.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import openai
import uvicorn
import zmq

from rose import wire
from rose.protocol import (
    Abort,
    EngineInfo,
    EngineStats,
    FinishReason,
    Heartbeat,
    Hello,
    OutputBatch,
    Rejected,
    Request,
    RequestOutput,
    TokenLogprobs,
)
from rose.server.app import FrontEnd, create_app
from rose.server.detokenize import TextCodec
from rose.server.engine_client import EngineClient
from rose.server.policy import Policy
from tests.engine_processes import PATIENCE_S

MODEL = "played"
NANO = Path(__file__).resolve().parents[1] / "rose" / "assets" / "nano"


@dataclass
class Script:
    """What a sequence writes.

    Attributes:
        steps: ids a step.
        finish: with the last step. None: the engine goes on for ever, and says nothing more.
        rejection: refuse the request with this message instead.
    """

    steps: list[list[int]]
    finish: FinishReason | None = FinishReason.STOP
    rejection: Rejected | None = None


@dataclass
class PlaybackEngine:
    """The engine's side of the wire.

    Attributes:
        scripts: by sequence index; the last serves all further ones.
        requests: all that came.
        aborts: all that came.
    """

    codec: TextCodec
    model_path: Path
    max_model_len: int = 4096
    scripts: list[Script] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    aborts: list[Abort] = field(default_factory=list)
    num_cached: int = 0

    def play(self, *texts: str, finish: FinishReason | None = FinishReason.STOP, step=1) -> None:
        """Answer with these texts, one a sequence; names of special tokens become those."""
        self.scripts = [self.script(text, finish, step) for text in texts]

    def script(self, text: str, finish: FinishReason | None, step: int = 1) -> Script:
        """A text's tokens; as a model that stops does, it ends with a stop token."""
        stops = ("<|return|>", "<|call|>", "<|endoftext|>")
        if finish is FinishReason.STOP and not text.endswith(stops):
            text += "<|endoftext|>"
        ids = self.codec.encode(text)
        return Script([ids[at : at + step] for at in range(0, len(ids), step)], finish)

    def refuse(self, message: str, param: str) -> None:
        self.scripts = [Script([], None, Rejected("", message, param))]

    def aborted(self, request: Request) -> bool:
        """Whether it, or a sequence of it, was to end early."""
        return any(abort.request_id == request.request_id for abort in list(self.aborts))

    def prompt(self) -> str:
        """The text of the last request's prompt."""
        return self.codec.decode(self.requests[-1].prompt_token_ids, skip_special_tokens=False)

    def run(self, socket: zmq.Socket, ending: threading.Event) -> None:
        while not ending.is_set():
            if not socket.poll(20):
                continue
            front_end, *frames = socket.recv_multipart()
            for answer in self._answers(wire.decode(frames)):
                socket.send_multipart([front_end, *wire.encode(answer)])

    def _answers(self, message: wire.Message) -> Iterator[wire.Message]:
        if isinstance(message, Hello):
            yield EngineInfo(
                model=MODEL,
                model_path=str(self.model_path),
                max_model_len=self.max_model_len,
                vocab_size=2560,
                eos_token_ids=(),
                max_num_seqs=8,
                description="playback",
            )
            yield Heartbeat(EngineStats())
        elif isinstance(message, Abort):
            self.aborts.append(message)
        elif isinstance(message, Request):
            self.requests.append(message)
            yield from self._outputs(message)

    def _outputs(self, request: Request) -> Iterator[wire.Message]:
        for index in range(request.sampling.n):
            script = self.scripts[min(index, len(self.scripts) - 1)]
            if script.rejection is not None:
                yield Rejected(request.request_id, script.rejection.message, script.rejection.param)
                return
            for number, ids in enumerate(script.steps, 1):
                output = RequestOutput(
                    request.request_id,
                    index,
                    ids,
                    script.finish if number == len(script.steps) else None,
                    logprobs=self._logprobs(request, ids),
                    num_prompt_tokens=len(request.prompt_token_ids),
                    num_cached_tokens=self.num_cached,
                )
                yield OutputBatch([output])

    def _logprobs(self, request: Request, ids: list[int]) -> list[TokenLogprobs] | None:
        count = request.sampling.logprobs
        if count is None:
            return None
        return [TokenLogprobs(i, -i / 8, 1, [(i, -i / 8), (0, -9.0)][:count]) for i in ids]


@dataclass
class Played:
    """A front end before a playback engine."""

    engine: PlaybackEngine
    url: str
    client: openai.OpenAI

    def chat(self, *texts: str, finish=FinishReason.STOP, **body: object):
        """Post a chat that the engine answers with these texts."""
        if texts:
            self.engine.play(*texts, finish=finish)
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]} | body
        return self.client.chat.completions.create(**body)

    def stream(self, *texts: str, finish=FinishReason.STOP, **body: object) -> list:
        """The same, streamed."""
        return list(self.chat(*texts, finish=finish, stream=True, **body))


@contextmanager
def playing(
    folder: Path,
    chat_format: str | None = None,
    policy: Policy | None = None,
    api_key: str = "none",
) -> Iterator[Played]:
    """Serve the checkpoint's tokenizer (or nano's, if it has none) before a playback engine."""
    codec = TextCodec.load(folder) or TextCodec.load(NANO)
    assert codec is not None
    engine = PlaybackEngine(codec, folder)
    ending = threading.Event()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        playback = threading.Thread(target=engine.run, args=(socket, ending))
        playback.start()
        front_end = _FrontEndThread(f"tcp://127.0.0.1:{port}", chat_format, policy)
        try:
            url = front_end.start()
            with openai.OpenAI(base_url=url + "/v1", api_key=api_key, max_retries=0) as client:
                yield Played(engine, url, client)
        finally:
            front_end.stop()
            ending.set()
            playback.join(PATIENCE_S)


class _FrontEndThread:
    def __init__(self, endpoint: str, chat_format: str | None, policy: Policy | None) -> None:
        self._policy = policy
        self._endpoint = endpoint
        self._chat_format = chat_format
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._server: uvicorn.Server | None = None

    async def _serve(self) -> None:
        # No pause of the machine is to look like the engine's death, or to close a connection.
        async with EngineClient(self._endpoint, dead_after_s=600.0) as client:
            await client.wait_ready()
            front_end = FrontEnd(client, None, self._chat_format, self._policy)
            config = uvicorn.Config(
                create_app(front_end),
                port=0,
                log_level="warning",
                lifespan="off",
                timeout_keep_alive=600,
            )
            self._server = uvicorn.Server(config)
            await self._server.serve()

    def start(self) -> str:
        self._thread.start()
        end = time.monotonic() + PATIENCE_S
        while self._server is None or not self._server.started:
            assert time.monotonic() < end, "the front end did not start"
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(PATIENCE_S)
