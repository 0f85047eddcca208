"""Training of a small GPT over all GPUs: DDP, FSDP2 with checkpointed activations, pipeline and tensor parallel, a step as a graph.

Each way trains for STEPS steps (200 if not given) with RANKS processes (all GPUs, 4 at most). The digest of the losses
is compared with a native run to the last bit; the time of a step is a note. Needs two GPUs."""

import functools
import hashlib
import os
import statistics
import time

from checks import main, need_torch, note, require, skipped_if, test
from process_group import run_group

# Kernels of cuBLAS that give the same bits each time.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
torch = need_torch()
nn, functional, distributed = torch.nn, torch.nn.functional, torch.distributed
need_two = skipped_if(lambda: torch.cuda.device_count() < 2, "there is one GPU")
STEPS = int(os.environ.get("STEPS", "200"))
RANKS = int(os.environ.get("RANKS", "0")) or min(4, torch.cuda.device_count())

WORDS, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 2048, 512, 8, 4, 128, 8
LEARNING_RATE = 3e-4
# Steps before the first one that is timed.
WARM_UP = 20


class Block(nn.Module):
    """A layer of a transformer: causal attention, then two linear layers, each added to what came in."""

    def __init__(self, heads=HEADS):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_linear = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        normal = self.before_attention(x)
        # A rank of tensor parallel has some of the heads.
        parts = (layer(normal).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        together = functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(together)
        return x + self.narrow(functional.gelu(self.wide(self.before_linear(x))))


class Gpt(nn.Sequential):
    """Words to scores, as a sequence of layers that a pipeline can cut."""

    def __init__(self):
        super().__init__(nn.Embedding(WORDS, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, WORDS))


def seeded_model():
    """The same weights on every rank. Attention by plain products: the fused kernels' gradients differ from run to run."""
    torch.manual_seed(7)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    return Gpt().cuda()


def texts(rank):
    """Random texts that follow a rule, so that the loss falls: every word is its forerunner times three, or a random one."""
    generator = torch.Generator().manual_seed(1000 + rank)
    while True:
        text = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
        for place in range(1, LENGTH + 1, 2):
            text[:, place] = text[:, place - 1] * 3 % WORDS
        yield text.cuda()


def loss_of(scores, text):
    return functional.cross_entropy(scores.float().view(-1, WORDS), text[:, 1:].reshape(-1))


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, **options)


def train(step, texts_of_rank):
    """The losses of all steps, and the median time of one in us; each step is waited for, as a program that logs does."""
    losses, times = [], []
    for number in range(STEPS):
        text = next(texts_of_rank)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        loss = step(text)
        torch.cuda.synchronize()
        if number >= WARM_UP:
            times.append(time.perf_counter() - begun)
        losses.append(loss.detach().clone() if loss is not None else torch.zeros(()))
    return [float(loss).hex() for loss in losses], statistics.median(times) * 1e6 if times else 0.0


def eager_step(model, optimizer, amp):
    """A step of a model that averages gradients by itself."""

    def step(text):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = loss_of(model(text[:, :-1]), text)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def ddp_rank(rank, size):
    model = nn.parallel.DistributedDataParallel(seeded_model(), device_ids=[rank])
    return train(eager_step(model, adamw(model), amp=True), texts(rank))


def fsdp2_rank(rank, size):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = seeded_model()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    shard = functools.partial(
        fully_shard, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    )
    for layer in model:
        shard(layer)
    shard(model)
    return train(eager_step(model, adamw(model), amp=False), texts(rank))


def tensor_parallel_rank(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = seeded_model(), init_device_mesh("cuda", (size,))
    cut = {name: ColwiseParallel() for name in ("query", "key", "value", "wide")}
    cut |= {name: RowwiseParallel() for name in ("out", "narrow")}
    for layer in model:
        if isinstance(layer, Block):
            parallelize_module(layer, mesh, cut)
    # All ranks read the same texts: the model is cut, not the batch. Some parameters are cut and some are not, which
    # one call for many of them refuses.
    return train(eager_step(model, adamw(model, foreach=False), amp=False), texts(0))


def pipeline_rank(rank, size):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    layers = list(seeded_model())
    cuts = [len(layers) * part // size for part in range(size + 1)]
    model = nn.Sequential(*layers[cuts[rank] : cuts[rank + 1]])
    schedule = ScheduleGPipe(
        PipelineStage(model, rank, size, torch.device("cuda", rank)),
        n_microbatches=4,
        loss_fn=lambda scores, words: functional.cross_entropy(scores.view(-1, WORDS), words.reshape(-1)),
    )
    optimizer = adamw(model)

    def step(text):
        optimizer.zero_grad(set_to_none=True)
        losses = []
        own = {"target": text[:, 1:].contiguous(), "losses": losses} if rank == size - 1 else {}
        schedule.step(*([text[:, :-1].contiguous()] if rank == 0 else []), **own)
        optimizer.step()
        return torch.stack(losses).mean() if losses else None

    return train(step, texts(0))


def graph_rank(rank, size):
    """The whole step, its collective call too, is captured once and replayed."""
    model = seeded_model()
    optimizer = adamw(model, capturable=True)
    text = next(texts(rank)).clone()
    gradients = torch.zeros(sum(parameter.numel() for parameter in model.parameters()), device="cuda")
    place = 0
    for parameter in model.parameters():
        parameter.grad = gradients[place : place + parameter.numel()].view_as(parameter)
        place += parameter.numel()

    def whole():
        gradients.zero_()
        loss = loss_of(model(text[:, :-1]), text)
        loss.backward()
        distributed.all_reduce(gradients)
        gradients.div_(size)
        optimizer.step()
        return loss.detach()

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            whole()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = whole()

    def step(new):
        text.copy_(new)
        graph.replay()
        return loss

    return train(step, texts(rank))


def report(name, work):
    """Runs a way of training, and prints what must be the same on every run."""
    for rank, (losses, took) in enumerate(run_group(work, RANKS)):
        values = [float.fromhex(loss) for loss in losses]
        if any(values):  # of a pipeline only the last rank has losses
            fell = statistics.mean(values[-10:]) < statistics.mean(values[:10])
            require(fell or STEPS < 100, f"rank {rank} of {name} does not learn: {values[:3]} to {values[-3:]}")
        digest = hashlib.sha256(" ".join(losses).encode()).hexdigest()[:16]
        print(f"{name}, rank {rank} of {RANKS}: {STEPS} losses with the digest {digest}, the last {losses[-1]}")
        note(f"{name}, rank {rank}: {took:.0f} us a step, loss {values[0]:.4f} to {values[-1]:.4f}")


@test
@need_two
def ddp_bfloat16():
    report("DDP", ddp_rank)


@test
@need_two
def fsdp2_checkpointed():
    report("FSDP2", fsdp2_rank)


@test
@need_two
def tensor_parallel():
    report("tensor parallel", tensor_parallel_rank)


@test
@need_two
def pipeline_parallel():
    report("pipeline", pipeline_rank)


@test
@need_two
def step_as_graph():
    report("graph", graph_rank)


if __name__ == "__main__":
    main()
