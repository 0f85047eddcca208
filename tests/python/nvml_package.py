"""NVML through its package for Python (nvidia-ml-py), and what PyTorch asks that for."""

from checks import Skipped, main, need, need_torch, note, require, same, test

pynvml = need("pynvml")
pynvml.nvmlInit()


def devices():
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]


@test
def what_devices_are():
    print(f"driver {pynvml.nvmlSystemGetDriverVersion()}, CUDA {pynvml.nvmlSystemGetCudaDriverVersion()}")
    for device in devices():
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        require(0 < memory.used + memory.free <= memory.total, f"{memory.used} used and {memory.free} free bytes of {memory.total}")
        print(
            pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device), pynvml.nvmlDeviceGetPciInfo(device).busId, memory.total,
            pynvml.nvmlDeviceGetCudaComputeCapability(device),
        )


@test
def wrong_questions():
    for wrong in (lambda: pynvml.nvmlDeviceGetHandleByIndex(99), lambda: pynvml.nvmlDeviceGetHandleByUUID("GPU-of-somebody-else")):
        try:
            wrong()
        except pynvml.NVMLError as error:
            print(type(error).__name__)
        else:
            raise AssertionError("a wrong question was answered")


@test
def what_pytorch_asks_for():
    torch = need_torch()
    same(torch.cuda.device_count(), len(devices()), "PyTorch's number of devices")
    x = torch.ones(1000, device="cuda")
    try:
        note(f"{torch.cuda.utilization()} % busy, {torch.cuda.temperature()} degrees, {torch.cuda.clock_rate()} MHz")
        note(torch.cuda.list_gpu_processes().replace("\n", "; "))
    except ModuleNotFoundError as error:
        raise Skipped(f"PyTorch does not find NVML's package: {error}") from None
    same(x.sum().item(), 1000.0, "a sum")


if __name__ == "__main__":
    main()
