"""Rollouts of verifiers' SandboxEnv with a model that is a small program. Called by sandbox-env.test.ts.

Reads PRIME_API_BASE_URL and PRIME_API_KEY. Prints one JSON object: the rollouts, the requests the client sent
and how they were compressed.
"""

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

EXAMPLES = 2
# What tells how the client has sent its commands.
HEARD = {
    "rest": b"/exec http/1.1",
    "connect": b"commandsession/start http/1.1",
    "gzipped": b"connect-content-encoding: gzip",
}


class Model(BaseHTTPRequestHandler):
    """An OpenAI server whose model runs the two commands of the prompt, then repeats what the last one printed."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = asked["messages"]
        commands = json.loads(messages[0]["content"])
        results = [message["content"] for message in messages if message["role"] == "tool"]
        message = {"role": "assistant", "content": None}
        if len(results) < len(commands):
            arguments = json.dumps({"command": commands[len(results)]})
            call = {"name": "bash", "arguments": arguments}
            message["tool_calls"] = [{"id": f"call-{len(results)}", "type": "function", "function": call}]
        else:
            message["content"] = results[-1]
        reason = "tool_calls" if "tool_calls" in message else "stop"
        body = json.dumps(
            {
                "id": "answer",
                "object": "chat.completion",
                "created": 0,
                "model": asked["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": reason}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Ear:
    """Passes connections on to the server and keeps what the client sent."""

    def __init__(self, host, port):
        self.target = (host, port)
        self.heard = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(self.target)
            kept = bytearray()
            self.heard.append(kept)
            threading.Thread(target=self._pass, args=(client, server, kept), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, None), daemon=True).start()

    @staticmethod
    def _pass(source, target, kept):
        try:
            while data := source.recv(65536):
                if kept is not None:
                    kept += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()

    def count(self, text):
        return sum(bytes(kept).lower().count(text) for kept in self.heard)


def main():
    server = urlsplit(os.environ["PRIME_API_BASE_URL"])
    ear = Ear(server.hostname, server.port)
    os.environ["PRIME_API_BASE_URL"] = f"http://127.0.0.1:{ear.port}"
    os.environ["MODEL_KEY"] = "none"
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()

    import verifiers as vf
    from datasets import Dataset
    from verifiers.types import ClientConfig

    def tells_answer(completion, answer):
        return 1.0 if answer in completion[-1]["content"] else 0.0

    rows = [
        {
            # What the first command leaves, the second finds: both are in one sandbox.
            "question": json.dumps([f"echo {seed} > /tmp/seed", "echo $(( $(cat /tmp/seed) * 7 )) $(id -u) $FLAVOUR"]),
            "answer": f"{seed * 7} 0 salty",
        }
        for seed in range(11, 11 + EXAMPLES)
    ]
    class MachineEnv(vf.SandboxEnv):
        """Asks for machines: then the client sends commands by Connect, not by REST."""

        def get_sandbox_request(self, state):
            changed = {"vm": True, "start_command": None}
            return super().get_sandbox_request(state).model_copy(update=changed)

    def play(kind, rollouts):
        env = kind(
            dataset=Dataset.from_list(rows),
            rubric=vf.Rubric(funcs=[tells_answer]),
            docker_image=os.environ["SANDBOX_IMAGE"],
            memory_gb=1,
            environment_vars={"FLAVOUR": "salty"},
            labels=["sandbox-env"],
            timeout_per_command_seconds=120,
        )
        before = {name: ear.count(text) for name, text in HEARD.items()}
        done = env.evaluate_sync(
            client=ClientConfig(api_base_url=f"http://127.0.0.1:{model.server_port}/v1", api_key_var="MODEL_KEY"),
            model="fake",
            num_examples=EXAMPLES,
            rollouts_per_example=rollouts,
            max_concurrent=EXAMPLES * rollouts,
        )
        outputs = done["outputs"]
        left = len(env.active_sandboxes)
        env.sandbox_client.teardown()
        return {
            "rewards": [output["reward"] for output in outputs],
            "errors": [str(output["error"]) for output in outputs if output.get("error")],
            "waits": [output["metrics"]["sandbox_ready_wait_time"] for output in outputs],
            "answers": [output["completion"][-1]["content"] for output in outputs],
            "left": left,
            **{name: ear.count(text) - before[name] for name, text in HEARD.items()},
        }

    told = {"containers": play(vf.SandboxEnv, 2), "machines": play(MachineEnv, 1)}
    print(json.dumps(told))


main()
