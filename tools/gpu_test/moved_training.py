"""moved_training.py STEPS MODE: trains a small model, prints each step and at the end a digest of all.

Among the words of MODE: `gpt` or `mlp` is the model, `pin` takes batches from pinned memory, `graph` captures
the step."""

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


model = (mlp() if "mlp" in mode else Gpt()).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(2)
pin = "pin" in mode


def batch():
    if "mlp" in mode:
        pair = [torch.randn(64, WIDTH, generator=generator) for _ in range(2)]
    else:
        pair = [torch.randint(0, VOCABULARY, (8, 64), generator=generator) for _ in range(2)]
    pair = [part.pin_memory() if pin else part for part in pair]
    return [part.cuda(non_blocking=pin) for part in pair]


def backward(x, y):
    scores = model(x)
    if "mlp" in mode:
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
for parameter in model.parameters():
    digest.update(parameter.detach().cpu().numpy().tobytes())
print("digest", digest.hexdigest(), flush=True)
