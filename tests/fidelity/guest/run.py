"""Runs probes in a place of the fidelity table and prints a JSON line for each: {"id", "value", "ms"}.

`run.py FOLDER [ID…]`: FOLDER holds `probes.json` ([[id, kind, seconds], …]), the programs, and is where this file lies.
Every probe gets a fresh folder on the root file system, a fixed environment, no input, and a deadline.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

VALUE_MAX = 256 * 1024
SCRATCH = "/var/tmp/fidelity"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root", "LANG": "C.UTF-8", "TERM": "xterm", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash",
}


def command(folder, name, kind):
    if kind == "c":
        return [f"{folder}/probe", name]
    if kind == "list":
        return ["python3", f"{folder}/listings.py", name]
    return ["bash", f"{folder}/tools.sh", name]


def run(folder, name, kind, seconds):
    scratch = os.path.join(SCRATCH, name)
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    begun = time.monotonic()
    try:
        child = subprocess.Popen(
            command(folder, name, kind), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=scratch, env=ENVIRONMENT, start_new_session=True,
        )
    except OSError as error:
        return {"id": name, "value": f"cannot run: {error.strerror}", "ms": 0}
    try:
        output, errors = child.communicate(timeout=seconds)
        value = output[:VALUE_MAX].decode("utf-8", "replace").strip()
        if child.returncode < 0:
            value = f"{value} ended by {signal.Signals(-child.returncode).name}".strip()
        if value == "":
            last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["nothing"]
            value = f"exit {child.returncode}: {last[0][:120]}"
    except subprocess.TimeoutExpired:
        value = f"no end within {seconds} s"
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    child.stdout.close()
    child.stderr.close()
    child.wait()
    os.chdir("/")
    if os.path.ismount(f"{scratch}/m"):
        subprocess.run(["umount", "-R", "-l", f"{scratch}/m"], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(scratch, ignore_errors=True)
    return {"id": name, "value": value, "ms": round((time.monotonic() - begun) * 1000)}


def main():
    folder, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    with open(f"{folder}/probes.json", encoding="utf-8") as file:
        probes = json.load(file)
    for name, kind, seconds in probes:
        if wanted and name not in wanted:
            continue
        print(f"probe {name}", file=sys.stderr, flush=True)
        try:
            result = run(folder, name, kind, seconds)
        except Exception as error:  # A probe may break the place itself; the others still count.
            result = {"id": name, "value": f"the place failed: {error}", "ms": 0}
        print(json.dumps(result), flush=True)
    print(json.dumps({"id": "end", "value": "", "ms": 0}), flush=True)


main()
