"""An engine process that computes nothing: it writes tokens for all requests at a steady rate.

It speaks the wire as the engine does, one batch of outputs a step and one token a sequence in it.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

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
    Request,
    RequestOutput,
    Shutdown,
)
from rose.server.detokenize import TextCodec

MODEL = "load"
HEARTBEAT_S = 0.5
HEAD = "<|channel|>final<|message|>"
WORDS = "The rose has 12 petals, and readers who count them go to Paris by train. "


@dataclass
class Running:
    """A request in the making.

    Attributes:
        client: the ZeroMQ identity of its front end.
        count: tokens to write.
        written: so far.
    """

    client: bytes
    count: int
    written: int = 0


def script(codec: TextCodec, length: int) -> list[int]:
    """A turn of so many tokens. After its header each makes a chunk, so that every gap is a stall.

    (Between reasoning and an answer stand seven tokens of markup, in which nothing can be told.)
    """
    ids = codec.encode(HEAD) + codec.encode(WORDS) * length
    return [*ids[: length - 1], *codec.encode("<|return|>")]


class LoadEngine:
    """The engine's side of the wire.

    Args:
        socket: a bound ROUTER.
        folder: holds tokenizer.json.
        tokens_per_s: of all sequences together.
    """

    def __init__(self, socket: zmq.Socket[bytes], folder: Path, tokens_per_s: float) -> None:
        codec = TextCodec.load(folder)
        if codec is None:
            raise SystemExit(f"no tokenizer.json in {folder}")
        self._codec = codec
        self._socket = socket
        self._folder = folder
        self._tokens_per_s = tokens_per_s
        self._running: dict[str, Running] = {}
        self._scripts: dict[int, list[int]] = {}
        self._clients: set[bytes] = set()
        self._generated = 0

    def run(self) -> None:
        """Serve until a front end says Shutdown, or this process is killed."""
        next_step = next_heartbeat = time.monotonic()
        while True:
            due = min(next_heartbeat, next_step if self._running else next_heartbeat)
            if self._socket.poll(max(0.0, due - time.monotonic()) * 1000):
                client, *frames = self._socket.recv_multipart()
                if not self._take(client, wire.decode(frames)):
                    return
            now = time.monotonic()
            if now >= next_heartbeat:
                next_heartbeat = now + HEARTBEAT_S
                stats = EngineStats(running=len(self._running), generated_tokens=self._generated)
                for client in self._clients:
                    self._send(client, Heartbeat(stats))
            if self._running and now >= next_step:
                # A late step is not made up for, nor are there bursts after a pause.
                next_step = max(next_step, now - 0.05) + len(self._running) / self._tokens_per_s
                self._step()

    def _take(self, client: bytes, message: wire.Message) -> bool:
        if isinstance(message, Hello):
            self._clients.add(client)
            self._send(client, self._info())
        elif isinstance(message, Request):
            count = message.sampling.max_tokens or 16
            self._running[message.request_id] = Running(client, count)
            if count not in self._scripts:
                self._scripts[count] = script(self._codec, count)
        elif isinstance(message, Abort):
            self._running.pop(message.request_id, None)
        return not isinstance(message, Shutdown)

    def _info(self) -> EngineInfo:
        return EngineInfo(
            model=MODEL,
            model_path=str(self._folder),
            max_model_len=1 << 20,
            vocab_size=1 << 18,
            eos_token_ids=(),
            max_num_seqs=1 << 12,
            description=f"{self._tokens_per_s:g} tokens/s",
        )

    def _step(self) -> None:
        outputs: dict[bytes, list[RequestOutput]] = {}
        for request_id, running in list(self._running.items()):
            token_id = self._scripts[running.count][running.written]
            running.written += 1
            reason = FinishReason.STOP if running.written == running.count else None
            if reason:
                del self._running[request_id]
            output = RequestOutput(request_id, 0, [token_id], reason)
            outputs.setdefault(running.client, []).append(output)
        self._generated += sum(len(batch) for batch in outputs.values())
        for client, batch in outputs.items():
            self._send(client, OutputBatch(batch))

    def _send(self, client: bytes, message: wire.Message) -> None:
        self._socket.send_multipart([client, *wire.encode(message)])


def main() -> None:
    """Run the engine."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("endpoint")
    arguments.add_argument("tokenizer_folder", type=Path)
    arguments.add_argument("--tokens-per-s", type=float, default=10_000)
    given = arguments.parse_args()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.set(zmq.SNDHWM, 0)
        socket.bind(given.endpoint)
        LoadEngine(socket, given.tokenizer_folder, given.tokens_per_s).run()


if __name__ == "__main__":
    main()
