"""A server with OpenAI's API whose latencies are known: it keeps when it wrote what.

Run as a program it prints its port. What it does is by the model that is asked for:

- plain: the first token after --ttft, one each --itl; bunches: three tokens a chunk;
- burst: all tokens at once, after --ttft;
- early: half the tokens asked for; breaks: the connection is closed half way; fails: an error in
  the stream; busy: status 503; hangs: after the tokens the stream does not end;
- strict: 400 that names ignore_eos, stream_options and token ids from 2560 on.

GET /log gives what it has seen: a list of {model, prompt, received, sent}, the times by
`time.monotonic`, which all processes of a machine share. POST /stall {"after", "seconds"} makes it
block, process and all, at the so manieth request from now; its beginning and end are in the log as
{"stall": [from, to]}. GET /streaming gives how many streams have begun and not ended.
"""

import argparse
import asyncio
import json
import time

from aiohttp import web

MODELS = ["plain", "bunches", "burst", "early", "breaks", "fails", "busy", "hangs", "strict"]
STRICT_FIELDS = ("ignore_eos", "stream_options")
STRICT_VOCABULARY = 2560


class Scripted:
    def __init__(self, ttft: float, itl: float) -> None:
        self.ttft, self.itl = ttft, itl
        self.log: list[dict] = []
        self.until_stall: int | None = None
        self.stall_s = 0.0
        self.open: list[dict] = []

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.add_routes(
            [
                web.get("/v1/models", self.models),
                web.get("/version", self.version),
                web.get("/log", self.get_log),
                web.get("/streaming", self.get_streaming),
                web.post("/stall", self.set_stall),
                web.post("/v1/completions", self.complete),
                web.post("/v1/chat/completions", self.complete),
            ]
        )
        return app

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": m, "owned_by": "scripted"} for m in MODELS]})

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "1.2"})

    async def get_log(self, request: web.Request) -> web.Response:
        log, self.log = self.log, []
        return web.json_response(log)

    async def get_streaming(self, request: web.Request) -> web.Response:
        return web.json_response(sum(bool(entry["sent"]) for entry in self.open))

    async def set_stall(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.until_stall, self.stall_s = body["after"], body["seconds"]
        return web.Response()

    def maybe_stall(self) -> None:
        if self.until_stall is None:
            return
        self.until_stall -= 1
        if self.until_stall < 0:
            began = time.monotonic()
            time.sleep(self.stall_s)  # nothing else is answered, either
            self.log.append({"stall": [began, time.monotonic()]})
            self.until_stall = None

    async def complete(self, request: web.Request) -> web.StreamResponse:
        received = time.monotonic()
        body = json.loads(await request.read())
        prompt = body.get("prompt") or body["messages"][0]["content"]
        entry = {"model": body["model"], "prompt": prompt, "received": received, "sent": []}
        entry["body"] = {k: v for k, v in body.items() if k not in ("prompt", "messages")}
        entry["authorization"] = request.headers.get("Authorization")
        self.log.append(entry)
        self.maybe_stall()
        refusal = self.refusal(body)
        if refusal is not None:
            return refusal
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.open.append(entry)
        try:
            await self.stream(request, response, body, entry)
        finally:
            self.open.remove(entry)
        return response

    def refusal(self, body: dict) -> web.Response | None:
        error = None
        if body["model"] == "busy":
            return web.json_response({"error": {"message": "come back later"}}, status=503)
        if body["model"] == "strict":
            error = next((f"unknown field {f}" for f in STRICT_FIELDS if f in body), None)
            if error is None and max(body["prompt"]) >= STRICT_VOCABULARY:
                error = f"token id {max(body['prompt'])} is out of the vocabulary"
        return (
            None if error is None else web.json_response({"error": {"message": error}}, status=400)
        )

    async def stream(
        self, request: web.Request, response: web.StreamResponse, body: dict, entry: dict
    ) -> None:
        model, asked = body["model"], body["max_tokens"]
        total = asked // 2 if model in ("early", "breaks", "fails") else asked
        step = 3 if model == "bunches" else 1
        for number, first in enumerate(range(0, total, step)):
            itl = 0.0 if model == "burst" else self.itl
            due = entry["received"] + self.ttft + number * itl
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            text = "ab" * min(step, total - first)
            await self.write(response, self.chunk(body, text), entry)
        if model == "breaks":
            assert request.transport is not None
            request.transport.abort()
            return
        if model == "fails":
            await self.write(response, {"error": {"message": "out of luck"}}, None)
            return
        if model == "hangs":
            await asyncio.sleep(60)
        if "stream_options" in body:
            usage = {"prompt_tokens": len(entry["prompt"]), "completion_tokens": total}
            await self.write(response, {"choices": [], "usage": usage}, None)
        await response.write(b"data: [DONE]\n\n")

    def chunk(self, body: dict, text: str) -> dict:
        if "messages" in body:
            return {"choices": [{"index": 0, "delta": {"content": text}}]}
        return {"choices": [{"index": 0, "text": text}]}

    async def write(self, response: web.StreamResponse, data: dict, entry: dict | None) -> None:
        encoded = b"data: " + json.dumps(data).encode() + b"\n\n"
        if entry is not None:
            entry["sent"].append(time.monotonic())
        await response.write(encoded)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--ttft", type=float, default=0.05)
    arguments.add_argument("--itl", type=float, default=0.01)
    given = arguments.parse_args()

    async def run() -> None:
        runner = web.AppRunner(Scripted(given.ttft, given.itl).app())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        print(runner.addresses[0][1], flush=True)  # noqa: T201  # the test reads it
        await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    main()
