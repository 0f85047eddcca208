"""moved_training.py STEPS MODE: trains a small model, prints each step and at the end a digest of all.

Among the words of MODE: `gpt`, `mlp` or `conv` is the model, `pin` takes batches from pinned memory, `graph`
captures the step, `compile` has the model compiled by Triton, and a number is so many GiB of further memory,
which is a part of the digest."""

import hashlib
import os
import sys
import time

import torch

steps, mode = int(sys.argv[1]), sys.argv[2].split()
VOCABULARY, WIDTH = 512, 128
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 256, dropout=0.1, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x))).view(-1, VOCABULARY)


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 256), torch.nn.GELU(), torch.nn.Linear(256, WIDTH))


def conv():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Conv2d(32, 8, 3),
        torch.nn.Flatten(), torch.nn.LazyLinear(WIDTH),
    )  # fmt: skip


MODELS = {"mlp": mlp, "conv": conv, "gpt": Gpt}
kind = next(word for word in mode if word in MODELS)
model = MODELS[kind]().cuda()
if kind == "conv":
    model(torch.zeros(2, 3, 32, 32, device="cuda"))
ballast = [torch.randint(0, 1 << 30, (1 << 28,), device="cuda", dtype=torch.int32)
           for word in mode if word.isdigit() for _ in range(int(word))]  # fmt: skip
if "compile" in mode:
    model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(2)
pin = "pin" in mode


def batch():
    if kind == "mlp":
        pair = [torch.randn(64, WIDTH, generator=generator) for _ in range(2)]
    elif kind == "conv":
        pair = [torch.randn(shape, generator=generator) for shape in ((16, 3, 32, 32), (16, WIDTH))]
    else:
        pair = [torch.randint(0, VOCABULARY, (8, 64), generator=generator) for _ in range(2)]
    pair = [part.pin_memory() if pin else part for part in pair]
    return [part.cuda(non_blocking=pin) for part in pair]


def backward(x, y):
    scores = model(x)
    if kind in ("mlp", "conv"):
        loss = torch.nn.functional.mse_loss(scores, y)
    else:
        loss = torch.nn.functional.cross_entropy(scores, y.view(-1))
    optimizer.zero_grad(set_to_none="graph" not in mode)
    loss.backward()
    return loss


def captured():
    """A function that takes a batch and does the step as one graph."""
    x, y = batch()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            backward(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = backward(x, y)

    def replay(new_x, new_y):
        x.copy_(new_x)
        y.copy_(new_y)
        graph.replay()
        return loss

    return replay


step_of = captured() if "graph" in mode else backward
digest = hashlib.sha256()
for step in range(steps):
    loss = step_of(*batch())
    optimizer.step()
    print("step", step, loss.item(), flush=True)
    digest.update(repr(loss.item()).encode())
    time.sleep(float(os.environ.get("STEP_S", "0")))
for tensor in [*model.parameters(), *ballast]:
    digest.update(tensor.detach().cpu().numpy().tobytes())
print("digest", digest.hexdigest(), flush=True)
