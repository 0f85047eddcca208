"""forks.py CAUSEWAY [GIB]: a language model that is loaded, forked with its session, and generates in both.

By itself it needs the program `causeway` with the client's libraries beside it, the Python package
`causeway_gpu` (`packaging/python`, or the path in FORKS_PACKAGE), PyTorch and a GPU. GIB is memory that the
model has besides. Prints the time of the fork, the memory of both sessions, and whether what both generate is
what the program generates natively."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

TOKENS = 48
LAYERS, WIDTH, HEADS, VOCABULARY = 8, 512, 8, 1024


def model(gib):
    """A decoder with weights by a seed, and memory that it does not use."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    layers = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0, batch_first=True),
        LAYERS,
        enable_nested_tensor=False,
    )
    parts = nn.ModuleDict(
        {"embed": nn.Embedding(VOCABULARY, WIDTH), "layers": layers, "head": nn.Linear(WIDTH, VOCABULARY)}
    )
    ballast = (
        torch.randint(0, 256, (int(gib * (1 << 30)),), dtype=torch.uint8, device="cuda") if gib else None
    )
    return parts.cuda().eval(), ballast


def generate(parts, prompt):
    """Tokens, each with the greatest logit."""
    import torch

    tokens = torch.tensor([[prompt, prompt + 1, prompt + 2]], device="cuda")
    with torch.no_grad():
        for _ in range(TOKENS):
            mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device="cuda")
            logits = parts["head"](parts["layers"](parts["embed"](tokens), mask=mask, is_causal=True)[:, -1])
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    return tokens[0].tolist()


def program(gib, is_forked):
    """What is run: natively, all prompts in one process; otherwise half of them in a fork."""
    import torch

    torch.set_num_threads(1)
    started = time.monotonic()
    parts, ballast = model(gib)
    ballast_sum = int(ballast[:: 1 << 20].long().sum()) if ballast is not None else 0
    report = {"first": generate(parts, 1), "load_s": time.monotonic() - started}
    if not is_forked:
        report |= {"second": generate(parts, 5), "third": generate(parts, 9), "sum": ballast_sum}
        print(json.dumps(report))
        return
    import causeway_gpu

    torch.cuda.synchronize()
    reads, writes = os.pipe()
    started = time.monotonic()
    child = causeway_gpu.fork()
    taken = time.monotonic() - started
    if child == 0:
        started = time.monotonic()
        second = generate(parts, 5)
        ballast_sum = int(ballast[:: 1 << 20].long().sum()) if ballast is not None else 0
        if ballast is not None:
            # The parent must not see it.
            ballast.zero_()
            torch.cuda.synchronize()
        result = {
            "second": second,
            "child_fork_s": taken,
            "first_tokens_s": time.monotonic() - started,
            "sum": ballast_sum,
        }
        os.write(writes, json.dumps(result).encode())
        time.sleep(3)
        os._exit(0)
    os.close(writes)
    report |= {"parent_fork_s": taken, "third": generate(parts, 9)}
    with os.fdopen(reads, "rb") as pipe:
        report |= json.loads(pipe.read(1 << 20) or b"{}")
    if ballast is not None:
        report["parent_sum"] = int(ballast[:: 1 << 20].long().sum())
    _, status = os.waitpid(child, 0)
    report["child_status"] = status
    print(json.dumps(report))


def watch(process, causeway, address):
    """Runs until the program has ended; the GPU's memory in use at most, and the sessions then."""
    from gpu_test.commands import run

    peak, sessions = 0, []
    while process.poll() is None:
        listed = run([causeway, "sessions", "--json", "--on", address], 60)
        found = json.loads(listed.output)["sessions"] if listed.status == 0 else []
        if len(found) >= len(sessions):
            sessions = [(session["session"], session["parent"]) for session in found]
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        try:
            used = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
            peak = max(peak, int(used[0]))
        except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
            pass
        time.sleep(0.2)
    return peak, sessions


def main():
    if sys.argv[1] in ("native", "forked"):
        return program(float(sys.argv[2]), sys.argv[1] == "forked")
    from gpu_test.server import Server

    causeway = pathlib.Path(sys.argv[1]).resolve()
    gib = sys.argv[2] if len(sys.argv) > 2 else "0"
    script = [sys.executable, __file__]
    package = os.environ.get(
        "FORKS_PACKAGE", pathlib.Path(__file__).resolve().parents[2] / "packaging" / "python"
    )
    environment = os.environ | {"CAUSEWAY_FORK": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    environment["PYTHONPATH"] = f"{package}:{environment.get('PYTHONPATH', '')}"
    failed = 0
    native = None
    if os.environ.get("FORKS_NATIVE", "1") == "1":
        output = subprocess.run(
            [*script, "native", gib], env=environment, check=True, capture_output=True, text=True
        ).stdout
        native = json.loads(output.splitlines()[-1])
        print(f"native: loaded and generated in {native['load_s']:.2f} s", flush=True)
    for via in ("tcp", "shm"):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "server.log")
            server = Server(
                causeway, os.environ.get("FORKS_GPU", "auto"), log, arguments=["--log-level", "debug"]
            )
            try:
                command = [
                    causeway,
                    "run",
                    "--on",
                    server.address,
                    "--via",
                    via,
                    "--",
                    *script,
                    "forked",
                    gib,
                ]
                process = subprocess.Popen(
                    [str(word) for word in command],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                peak, sessions = watch(process, causeway, server.address)
                output, errors = process.communicate()
            finally:
                server.stop()
            lines = [
                line
                for line in log.read_text().splitlines()
                if "the session's state" in line or "fork" in line
            ]
        if process.returncode != 0 or not output.strip():
            failed += 1
            print(f"FAILED {via}: it ended with {process.returncode}: {errors.strip()[-900:]}")
        else:
            report = json.loads(output.splitlines()[-1])
            reference = native or report
            same = all(report.get(name) == reference[name] for name in ("first", "second", "third"))
            sums = {report.get("sum"), report.get("parent_sum", report.get("sum"))}
            same = same and report["child_status"] == 0 and len(sums) == 1
            failed += not same
            print(
                f"{'ok    ' if same else 'FAILED'} {via}: loaded in {report['load_s']:.2f} s, forked in "
                f"{report['parent_fork_s']:.3f} s (parent), {report.get('child_fork_s', -1):.3f} s (child), "
                f"the child's first tokens after {report.get('first_tokens_s', -1):.3f} s; {peak} MiB of the "
                f"GPU in use at most; sessions with their parents: {sessions}",
                flush=True,
            )
        for line in lines[-24:]:
            print(f"    {line[:300]}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
