"""Trains a small transformer on several GPUs: torchrun --nproc-per-node 2 examples/train.py [ddp | fsdp] [STEPS]

Knows nothing of Causeway: the same command runs on local GPUs. Needs PyTorch with CUDA."""

import os
import sys
import time

import torch
import torch.distributed as distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def batch(generator, size=16, length=64):
    """Sequences that count upwards from anywhere, so that there is something to learn."""
    start = torch.randint(0, 200, (size, 1), generator=generator)
    return (start + torch.arange(length + 1)) % 256


class Model(torch.nn.Module):
    def __init__(self, width=256, depth=4):
        super().__init__()
        self.embed = torch.nn.Embedding(256, width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, 256)

    def forward(self, tokens):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.embed(tokens), mask=mask, is_causal=True))


def main():
    way = sys.argv[1] if len(sys.argv) > 1 else "ddp"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.manual_seed(1)
    model = Model().cuda()
    if way == "fsdp":
        for layer in model.layers.layers:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(distributed.get_rank())
    for step in range(steps):
        if step == steps // 2:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        tokens = batch(generator).cuda()
        scores = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    took = (time.perf_counter() - begun) / (steps - steps // 2) * 1e3
    distributed.all_reduce(loss.detach(), op=distributed.ReduceOp.AVG)
    if distributed.get_rank() == 0:
        print(f"{way}, {distributed.get_world_size()} GPUs: loss {loss.item():.6f} after {steps} steps, {took:.1f} ms a step")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
