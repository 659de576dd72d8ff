"""Drives the PrimeRuntime of verifiers 0.4.0, as a rollout of a trainer does.

`story NAME ADDRESS` plays one runtime through everything it offers; the two are the one web server that
machines can reach. `many COUNT` plays as many rollouts at once. Prints one JSON object: for each step what
it has seen, or `error`. Run by verifiers.test.ts in a virtual environment with that package.
"""

import asyncio
import json
import sys
import time
import traceback

from verifiers.v1.runtimes import PrimeConfig
from verifiers.v1.runtimes.prime import PrimeRuntime

SMALL = {"memory": 0.5, "disk": 2.0, "image": "python:3.11-slim"}
FETCH = "import sys, urllib.request; print(urllib.request.urlopen('http://' + sys.argv[1], timeout=8).read().decode())"


async def fetches(runtime, host):
    result = await runtime.run(["python3", "-c", FETCH, host], {})
    return "outside sees" in result.stdout


async def story(name, address):
    steps = {}
    runtime = PrimeRuntime(PrimeConfig(**SMALL, allow=[name], labels=["story"]))
    runtime.env["FROM_TASK"] = "task"

    async def step(title, body):
        try:
            steps[title] = await body()
        except Exception:
            steps[title] = {"error": traceback.format_exc()[-1500:]}

    async def start():
        await runtime.start()
        return {"id": runtime.info.id, "cached": runtime.info.image_cached, "alive": await runtime.alive()}

    async def run():
        script = 'echo "$FROM_TASK $MINE $PWD"; echo oops >&2; exit 3'
        result = await runtime.run(["sh", "-c", script], {"MINE": "mine"})
        return {"code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}

    async def write_and_read():
        data = bytes(range(256)) * 1000
        await runtime.write("new/folder/data.bin", data)
        same = await runtime.read("/app/new/folder/data.bin") == data
        begin = await runtime.read("new/folder/data.bin", max_bytes=len(data)) == data
        try:
            await runtime.read("/no/such/file")
            missing = ""
        except Exception as error:
            missing = type(error).__name__
        return {"same": same, "begin": begin, "missing": missing}

    async def background():
        await runtime.run_background(["sh", "-c", "echo begun; sleep 1; echo done"], {}, "/tmp/log")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            log = (await runtime.run(["cat", "/tmp/log"], {})).stdout
            if "done" in log:
                return {"log": log}
            await asyncio.sleep(0.3)
        return {"log": "never done"}

    async def live():
        process = await runtime.open_process(["cat"], {})
        await process.write(b"to and fro\n")
        got = await asyncio.wait_for(anext(process.stdout), 60)
        await process.terminate()
        return {"got": got.decode(), "ended": await asyncio.wait_for(process.wait(), 60) != 0}

    async def as_user():
        user = runtime.with_user("nobody", home="/tmp")
        result = await user.run(["sh", "-c", "id -un; echo $HOME"], {})
        await user.write("/tmp/of-nobody", b"text")
        owner = await runtime.run(["stat", "-c", "%U", "/tmp/of-nobody"], {})
        return {"who": result.stdout, "owner": owner.stdout, "read": (await user.read("/tmp/of-nobody")).decode()}

    async def egress():
        before = [await fetches(runtime, name), await fetches(runtime, address)]
        await runtime.prepare_execution([])
        allowed = [await fetches(runtime, name), await fetches(runtime, address)]
        runtime.config = runtime.config.model_copy(update={"allow": [], "block": ["*"]})
        await runtime.prepare_execution([])
        blocked = [await fetches(runtime, name), await fetches(runtime, address)]
        await runtime.prepare_execution([f"http://{address}/v1"])
        routed = [await fetches(runtime, name), await fetches(runtime, address)]
        await runtime.prepare_execution(None)
        opened = [await fetches(runtime, name), await fetches(runtime, address)]
        return {"before": before, "allowed": allowed, "blocked": blocked, "routed": routed, "opened": opened}

    async def stop():
        await runtime.stop()
        from prime_sandboxes import APIClient, SandboxClient

        return {"status": SandboxClient(APIClient()).get(runtime.info.id).status}

    await step("start", start)
    for body in (run, write_and_read, background, live, as_user, egress):
        await step(body.__name__, body)
    await step("stop", stop)
    return steps


async def many(count):
    async def rollout(number):
        runtime = PrimeRuntime(PrimeConfig(**SMALL))
        try:
            await runtime.start()
            await runtime.write("prompt.txt", str(number).encode())
            result = await runtime.run(["sh", "-c", "echo $(($(cat prompt.txt) * 7)) | tee answer.txt"], {})
            answer = await runtime.read("answer.txt")
            return {"id": runtime.info.id, "code": result.exit_code, "answer": int(answer)}
        finally:
            await runtime.stop()

    begin = time.monotonic()
    rollouts = await asyncio.gather(*(rollout(number) for number in range(count)), return_exceptions=True)
    return {
        "seconds": time.monotonic() - begin,
        "rollouts": [one if isinstance(one, dict) else {"error": repr(one)} for one in rollouts],
    }


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    print(json.dumps(asyncio.run(story(*rest) if mode == "story" else many(int(rest[0])))))
