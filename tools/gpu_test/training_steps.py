"""training_steps.py N: N steps of the yardstick's transformer, eagerly, each waited for."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "yardstick"))
import torch_bench  # noqa: E402

model = torch_bench.gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
text = torch.randint(0, 50257, (8, 257), generator=torch.Generator().manual_seed(2))
for _ in range(int(sys.argv[1])):
    x = text.cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        scores = model(x[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.view(-1, scores.shape[-1]), x[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
