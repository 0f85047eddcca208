"""JAX over two GPUs: pmap, shard_map and sharded training in one process, and two processes with a GPU each."""

import os
import socket
import subprocess
import sys
import time

from checks import Skipped, main, need, note, require, skipped_if, test

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Kernels that are chosen by measuring differ from run to run, and so do the last bits of losses.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")
jax = need("jax")
numpy = need("numpy")
jnp = jax.numpy

STEPS = int(os.environ.get("STEPS", "30"))
PROCESSES = 2
LIMIT_S = 150


def gpus():
    """GPUs of this process."""
    try:
        return jax.devices("gpu")
    except RuntimeError:
        return []


need_two = skipped_if(lambda: len(gpus()) < 2, "there is one GPU")


def mesh():
    """Both GPUs in a row."""
    return jax.sharding.Mesh(numpy.array(jax.devices()[:2]), ("part",))


def model():
    """A small perceptron's weights, the same everywhere."""
    random = numpy.random.default_rng(5)
    sizes = [64, 256, 256, 8]
    return [random.standard_normal((m, n), dtype=numpy.float32) / m**0.5 for m, n in zip(sizes, sizes[1:])]


def loss(weights, x, y):
    """Mean squared error."""
    for weight in weights[:-1]:
        x = jnp.tanh(x @ weight)
    return jnp.mean((x @ weights[-1] - y) ** 2)


@jax.jit
def step(weights, x, y):
    """A step of gradient descent; with a batch that is spread over GPUs the gradients are summed by NCCL."""
    value, gradients = jax.value_and_grad(loss)(weights, x, y)
    return [weight - 0.05 * gradient for weight, gradient in zip(weights, gradients)], value


def train(name, place):
    """Losses of some steps with weights at every GPU and batches that `place` spreads over them."""
    sharding = jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec())
    weights = [jax.make_array_from_callback(w.shape, sharding, lambda index, w=w: w[index]) for w in model()]
    random = numpy.random.default_rng(6)
    losses = []
    begun = None
    for number in range(STEPS):
        if number == 5:
            jax.block_until_ready(weights)
            begun = time.perf_counter()
        x = random.standard_normal((128, 64), dtype=numpy.float32)
        weights, value = step(weights, place(x), place(numpy.tanh(x[:, :8])))
        losses.append(value)
    losses = [float(numpy.asarray(value.addressable_data(0))) for value in losses]
    took = (time.perf_counter() - begun) / (STEPS - 5) * 1e6
    require(losses[-1] < losses[0], f"{name} does not train: {losses}")
    print(f"{name}: losses {' '.join(value.hex() for value in losses[:: max(1, STEPS // 6)])} {losses[-1].hex()}")
    note(f"{name}: {took:.0f} us a step")


def spread():
    """What spreads a batch over both GPUs."""
    sharding = jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec("part"))
    return lambda array: jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


@test
@need_two
def pmap_and_collectives():
    random = numpy.random.default_rng(7)
    for count in (1, 1000, 1 << 20):
        x = random.integers(-1000, 1000, (2, count)).astype(numpy.int32)
        summed = jax.pmap(lambda v: jax.lax.psum(v, "part"), axis_name="part", devices=jax.devices()[:2])(x)
        require(bool((numpy.asarray(summed) == x.sum(0)).all()), f"psum of {count} numbers is wrong")
        gathered = jax.pmap(lambda v: jax.lax.all_gather(v, "part"), axis_name="part", devices=jax.devices()[:2])(x)
        require(bool((numpy.asarray(gathered) == x[None]).all()), f"all_gather of {count} numbers is wrong")


@test
@need_two
def shard_map_permutes():
    spec = jax.sharding.PartitionSpec("part")
    swap = lambda v: jax.lax.ppermute(v, "part", [(0, 1), (1, 0)])  # noqa: E731
    x = numpy.random.default_rng(8).standard_normal((2, 4097), dtype=numpy.float32)
    swapped = jax.jit(jax.shard_map(swap, mesh=mesh(), in_specs=spec, out_specs=spec))(x)
    require(bool((numpy.asarray(swapped) == x[::-1]).all()), "what was swapped is wrong")


@test
@need_two
def data_parallel_training():
    train("data parallel", spread())


def process_main(rank, port):
    """One of several processes with a GPU each."""
    jax.distributed.initialize(f"127.0.0.1:{port}", PROCESSES, rank, local_device_ids=[rank])
    require(jax.device_count() == PROCESSES, f"there are {jax.device_count()} devices")
    train("two processes", spread())
    jax.distributed.shutdown()


@test
def two_processes():
    if int(subprocess.run([sys.executable, __file__, "--count"], capture_output=True, text=True).stdout or 0) < 2:
        raise Skipped("there is one GPU")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--process"]
    started = [
        subprocess.Popen([*command, str(rank), str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(PROCESSES)
    ]
    try:
        results = [process.communicate(timeout=LIMIT_S) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, results):
        require(process.returncode == 0, f"a process failed: {errors[-400:]}")
    print(results[0][0], end="")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--process"]:
        process_main(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:2] == ["--count"]:
        print(len(gpus()))
    else:
        main()
