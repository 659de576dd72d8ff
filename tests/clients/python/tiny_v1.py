"""A tiny environment of verifiers 0.4.0 for `vf-eval tiny-v1`: its agent is a few lines of Python that run in
the sandbox, ask the model once through the trainer's interception server, and leave the answer in a file;
the reward reads that file from the sandbox. Needs nothing beyond Python in the image. Used by verifiers.test.ts.
"""

import verifiers.v1 as vf

__all__ = ["TinyHarness", "TinyTaskset"]

AGENT = """
import json, sys, urllib.request
endpoint, secret, model, prompt = sys.argv[1:]
body = {'model': model, 'messages': [{'role': 'user', 'content': prompt}]}
request = urllib.request.Request(endpoint + '/chat/completions', json.dumps(body).encode(),
    {'authorization': 'Bearer ' + secret, 'content-type': 'application/json'})
answer = json.load(urllib.request.urlopen(request, timeout=120))
open('/app/answer', 'w').write(answer['choices'][0]['message']['content'])
"""


class TinyData(vf.TaskData):
    answer: str


class TinyTask(vf.Task[TinyData]):
    @vf.reward(weight=1.0)
    async def reward(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        return float((await runtime.read("/app/answer")).decode() == self.data.answer)


class TinyConfig(vf.TasksetConfig):
    pass


class TinyTaskset(vf.Taskset[TinyTask, TinyConfig]):
    def load(self) -> list[TinyTask]:
        # The model of the test answers "hello" to everything.
        wanted = {"Say hello.": "hello", "Say goodbye.": "goodbye"}
        return [
            TinyTask(TinyData(prompt=prompt, answer=answer), self.config.task)
            for prompt, answer in wanted.items()
        ]


class TinyHarnessConfig(vf.HarnessConfig):
    pass


class TinyHarness(vf.Harness[TinyHarnessConfig]):
    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        argv = ["python3", "-c", AGENT, endpoint, secret, ctx.model, data.prompt]
        return await runtime.run_program(argv, {})
