"""A user of prime-sandboxes over https; run by tls.test.ts. Prints one JSON object of what it saw."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from prime_sandboxes import APIClient, AsyncSandboxClient, CreateSandboxRequest, SandboxClient

image, mode = sys.argv[1:]
client = SandboxClient(APIClient())
request = CreateSandboxRequest(name="tls", docker_image=image, environment_vars={"FROM": "create"})
sandbox = client.create(request)
told = {}


async def typed():
    """A live process: its stream and what is typed go both ways at once."""
    async with AsyncSandboxClient() as live:
        process = await live.open_process(sandbox.id, "head -n 1 | tr a-z A-Z")
        await process.write_stdin(b"typed\n")
        out = b"".join([part async for part in process.stdout])
        return [out.decode(), await process.wait()]


try:
    if mode == "without-ca":
        try:
            client.execute_command(sandbox.id, "echo hello")
        except Exception as error:
            chain = []
            while error is not None:
                chain.append(f"{type(error).__name__}: {error}")
                error = error.__cause__ or error.__context__
            told["failure"] = " <- ".join(chain)
    else:
        client.wait_for_creation(sandbox.id)
        done = client.execute_command(sandbox.id, "cat; echo $FROM; echo oops >&2; exit 3")
        told["exec"] = [done.stdout, done.stderr, done.exit_code]
        # Larger than any window or buffer on the way.
        content = bytes(range(256)) * 40_000
        with tempfile.TemporaryDirectory() as folder:
            up, down = Path(folder, "up"), Path(folder, "down")
            up.write_bytes(content)
            client.upload_file(sandbox.id, "/tmp/file", str(up))
            client.download_file(sandbox.id, "/tmp/file", str(down))
            told["file"] = down.read_bytes() == content
        told["size"] = client.execute_command(sandbox.id, "stat -c %s /tmp/file").stdout.strip()
        job = client.run_background_job(sandbox.id, "sleep 1; echo in the background", timeout=120)
        told["job"] = [job.completed, job.exit_code, job.stdout]
        told["process"] = asyncio.run(asyncio.wait_for(typed(), 120))
finally:
    client.delete(sandbox.id)
told["status"] = client.get(sandbox.id).status
print(json.dumps(told))
