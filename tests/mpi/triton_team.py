"""Two ranks of one process whose kernels communicate, in Triton: the operations are linked to the kernel as LLVM's
bitcode. Then kernels post work requests to a queue pair in the GPU's memory, and poll a completion, where this program
takes the part of the network card. Prints `ok` when both ranks have what they were sent, in many rounds, and the requests
are those that were asked for.

    python3 triton_team.py build/cuda/causeway_device.bc

Ends with 77 where there is no Triton or no PyTorch."""

import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mpi" / "python"))
try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
import causeway_team  # noqa: E402
import causeway_triton  # noqa: E402
from verbs_queues import BYTES, QUEUE_PAIR, Queues  # noqa: E402

NUMBERS, ROUNDS = 1024, 20

ops = causeway_triton.operations(sys.argv[1])
put_signal, signal_wait, barrier = ops.put_signal, ops.signal_wait, ops.barrier
post_send, try_post_send, post_recv = ops.post_send, ops.try_post_send, ops.post_recv
poll_cq, wait_cq = ops.poll_cq, ops.wait_cq


@triton.jit
def exchange(arguments, numbers, statuses, COUNT: tl.constexpr, TIMES: tl.constexpr):
    """Every round writes numbers, puts them behind the peer's own, waits for the peer's, and adds those up."""
    team = tl.load(arguments)
    peer = tl.load(arguments + 1).to(tl.int32)
    data = tl.load(arguments + 2)
    cells = tl.load(arguments + 3)
    seed = tl.load(arguments + 4)
    at = tl.arange(0, COUNT)
    failed = 0
    for turn in range(1, TIMES + 1):
        tl.store(numbers + at, seed * turn + at)
        failed |= put_signal(team, peer, data, COUNT * 8, data, 0, COUNT * 8, cells, 0, turn, 0)
        failed |= signal_wait(team, cells, 0, 2, turn)
        # Nobody writes again before both have read.
        came = tl.load(numbers + COUNT + at, volatile=True)
        tl.store(numbers + 2 * COUNT + at, tl.load(numbers + 2 * COUNT + at) + came)
        failed |= barrier(team, 0)
    tl.store(statuses, failed)


def main():
    torch.zeros(1, device="cuda")
    seeds = torch.randint(1, 1 << 20, (2,)).tolist()
    with causeway_team.Team.create(2, limit_milliseconds=60_000) as team:
        parts = [torch.zeros(3 * NUMBERS, dtype=torch.int64, device="cuda") for _ in range(2)]
        data = team.register([part.data_ptr() for part in parts], 3 * 8 * NUMBERS)
        words = [torch.zeros(8, dtype=torch.int64, device="cuda") for _ in range(2)]
        cells = team.register([part.data_ptr() for part in words], 64)
        statuses = [torch.full((1,), 99, dtype=torch.int32).cuda() for _ in range(2)]

        def kept(handle):
            return torch.frombuffer(bytearray(handle), dtype=torch.int64).cuda()

        handles = [[kept(part.handle(rank)) for part in (team, data, cells)] for rank in range(2)]
        arguments = [
            torch.tensor(
                [of_rank[0].data_ptr(), 1 - rank, *(part.data_ptr() for part in of_rank[1:]), seeds[rank]]
            ).cuda()
            for rank, of_rank in enumerate(handles)
        ]
        streams = [torch.cuda.Stream() for _ in range(2)]
        given = {"COUNT": NUMBERS, "TIMES": ROUNDS, "num_warps": 4, "extern_libs": ops.extern_libs}

        def launch(rank):
            with torch.cuda.stream(streams[rank]):
                exchange[(1,)](
                    *(arguments[rank], parts[rank], statuses[rank]),
                    **given,
                )

        # Compiled before a kernel waits for another one; it is loaded at its first launch.
        exchange.warmup(
            *(arguments[0], parts[0], statuses[0]),
            grid=(1,),
            **given,
        )
        torch.cuda.synchronize()
        for rank in range(2):
            launch(rank)
        for stream in streams:
            stream.synchronize()
        team.check()
        at, rounds = torch.arange(NUMBERS), torch.arange(1, ROUNDS + 1).sum()
        for rank in range(2):
            assert statuses[rank].item() == 0, f"rank {rank}: status {statuses[rank].item()}, seeds {seeds}"
            came, added = parts[rank].cpu().view(3, NUMBERS)[1:]
            other = seeds[1 - rank]
            assert (came == other * ROUNDS + at).all(), f"rank {rank} has {came}, seeds {seeds}"
            assert (added == other * rounds + at * ROUNDS).all(), f"rank {rank} added {added}, seeds {seeds}"


OK, AGAIN = 0, 1
RDMA_WRITE, SEND_SIGNALED = tl.constexpr(0x08), tl.constexpr(2)


@triton.jit
def post(arguments, statuses):
    """Fills the queue, and finds no completion."""
    qp, cq = tl.load(arguments), tl.load(arguments + 1)
    address, completions = tl.load(arguments + 2), tl.load(arguments + 3)
    status = post_send(qp, RDMA_WRITE, SEND_SIGNALED, 77, address, 24, 0x11, 0x2000, 0x22, 0, 0, 0)
    tl.store(statuses, status)
    status = post_send(qp, RDMA_WRITE, SEND_SIGNALED, 78, address, 24, 0x11, 0x3000, 0x22, 0, 0, 0)
    tl.store(statuses + 1, status)
    status = try_post_send(qp, RDMA_WRITE, SEND_SIGNALED, 79, address, 24, 0x11, 0x4000, 0x22, 0, 0, 0)
    tl.store(statuses + 2, status)
    tl.store(statuses + 3, post_recv(qp, 5, address + 64, 32, 0x11))
    tl.store(statuses + 4, poll_cq(cq, 4, completions))


@triton.jit
def poll(arguments, statuses):
    """Waits for the completion of the first request, after which there is room for one more."""
    qp, cq = tl.load(arguments), tl.load(arguments + 1)
    address, completions = tl.load(arguments + 2), tl.load(arguments + 3)
    tl.store(statuses, wait_cq(cq, completions))
    tl.store(statuses + 1, poll_cq(cq, 4, completions + 40))
    status = try_post_send(qp, RDMA_WRITE, SEND_SIGNALED, 79, address, 24, 0x11, 0x4000, 0x22, 0, 0, 0)
    tl.store(statuses + 2, status)


def verbs():
    """Posts and polls with queues in memory that no card looks at."""
    memory = torch.zeros(BYTES, dtype=torch.uint8, device="cuda")

    def write(offset, value):
        memory[offset : offset + len(value)].copy_(torch.frombuffer(bytearray(value), dtype=torch.uint8))

    def read(offset, count):
        return memory[offset : offset + count].cpu().numpy().tobytes()

    queues = Queues(memory.data_ptr(), read, write)
    completions = torch.zeros(160, dtype=torch.uint8, device="cuda")
    statuses = torch.full((5,), 99, dtype=torch.int32).cuda()
    addresses = [queues.at[name] for name in ("qp", "cq", "data")]
    arguments = torch.tensor([*addresses, completions.data_ptr()]).cuda()
    post[(1,)](arguments, statuses, num_warps=4, extern_libs=ops.extern_libs)
    found = statuses.cpu().tolist()
    assert found == [OK, OK, AGAIN, OK, 0], f"posts came to {found}"
    queues.check_posts()
    queues.complete_first()
    poll[(1,)](arguments, statuses, num_warps=4, extern_libs=ops.extern_libs)
    found = statuses.cpu().tolist()[:3]
    assert found == [OK, 0, OK], f"polls came to {found}"
    number, syndrome, _, operation, queue_pair = struct.unpack_from(
        "<QIIII", completions.cpu().numpy().tobytes()
    )
    assert (number, queue_pair, operation, syndrome) == (77, QUEUE_PAIR, 8, 0), completions


main()
verbs()
print("ok")
