"""NVML: what monitoring programs, PyTorch and NCCL ask about a device, by ctypes alone.

What does not change from one second to the next must be the same natively and through Causeway: the answers themselves, texts by
their checksums. Of sensors only the status is compared."""

import ctypes
import os
import zlib

from checks import Skipped, main, note, require, test, value

SUCCESS, INSUFFICIENT_SIZE = 0, 7

# Functions of a device that give one number, which stays.
FIXED = """Brand Index ModuleId MinorNumber BoardId MultiGpuBoard Architecture NumGpuCores MemoryBusWidth
    ComputeMode PersistenceMode DisplayMode MaxPcieLinkGeneration GpuMaxPcieLinkGeneration MaxPcieLinkWidth
    CurrPcieLinkWidth PcieLinkMaxSpeed BusType IrqNum NumFans PowerManagementMode PowerManagementDefaultLimit
    PowerManagementLimit EnforcedPowerLimit AdaptiveClockInfoStatus VirtualizationMode MaxMigDeviceCount
    InforomConfigurationChecksum DefaultEccMode AccountingMode""".split()
# Those that give one number, which may change at any moment.
SENSORS = """PowerUsage PerformanceState PowerState FanSpeed CurrPcieLinkGeneration PcieReplayCounter TotalEnergyConsumption
    CurrentClocksEventReasons SupportedClocksEventReasons RetiredPagesPendingStatus DisplayActive""".split()
# Those that give a text.
TEXTS = "Name UUID Serial BoardPartNumber VbiosVersion InforomImageVersion".split()
# Those that give two numbers, which stay.
PAIRS = """EccMode MigMode GpuOperationMode CudaComputeCapability PowerManagementLimitConstraints MinMaxFanSpeed
    AutoBoostedClocksEnabled GspFirmwareMode""".split()
CLOCKS = 4
LINKS = 18

try:
    library = ctypes.CDLL("libnvidia-ml.so.1")
except OSError as error:
    library, why = None, error


def call(name, *arguments):
    return getattr(library, f"nvml{name}")(*arguments)


def started():
    if library is None:
        raise Skipped(f"there is no libnvidia-ml.so.1: {why}")
    require(call("Init_v2") == SUCCESS, "nvmlInit_v2 fails")


def devices():
    started()
    count = ctypes.c_uint()
    require(call("DeviceGetCount_v2", ctypes.byref(count)) == SUCCESS, "the devices cannot be counted")
    for index in range(count.value):
        device = ctypes.c_void_p()
        require(call("DeviceGetHandleByIndex_v2", index, ctypes.byref(device)) == SUCCESS, f"there is no device {index}")
        yield index, device


def number(status, answer):
    """One number for both: what was answered, or minus the status."""
    return answer if status == SUCCESS else -status


def text(name, *before):
    room = ctypes.create_string_buffer(256)
    status = call(name, *before, room, len(room))
    return status, room.value


@test
def versions():
    started()
    for name in ("DriverVersion", "NVMLVersion"):
        status, answer = text(f"SystemGet{name}")
        value(name, number(status, zlib.crc32(answer)), within=0)
        note(f"{name} {answer.decode()}")


@test
def what_stays():
    for index, device in devices():
        for name in FIXED:
            answer = ctypes.c_uint()
            status = call(f"DeviceGet{name}", device, ctypes.byref(answer))
            value(f"{index}_{name}", number(status, answer.value), within=0)
        for name in TEXTS:
            status, answer = text(f"DeviceGet{name}", device)
            value(f"{index}_{name}", number(status, zlib.crc32(answer)), within=0)
        for name in PAIRS:
            pair = (ctypes.c_uint * 2)()
            status = call(f"DeviceGet{name}", device, ctypes.byref(pair), ctypes.byref(pair, 4))
            value(f"{index}_{name}", number(status, pair[0] * 10**6 + pair[1]), within=0)
        for clock in range(CLOCKS):
            answer = ctypes.c_uint()
            status = call("DeviceGetMaxClockInfo", device, clock, ctypes.byref(answer))
            value(f"{index}_MaxClockInfo_{clock}", number(status, answer.value), within=0)


@test
def sensors():
    for index, device in devices():
        for name in SENSORS:
            answer = ctypes.c_ulonglong()
            value(f"{index}_{name}_status", call(f"DeviceGet{name}", device, ctypes.byref(answer)), within=0)
            note(f"{index} {name} {answer.value}")
        for name, extra in (("Temperature", 0), ("ClockInfo", 0), ("ClockInfo", 1), ("ClockInfo", 2)):
            answer = ctypes.c_uint()
            value(f"{index}_{name}_{extra}_status", call(f"DeviceGet{name}", device, extra, ctypes.byref(answer)), within=0)
            note(f"{index} {name} {extra} {answer.value}")
        utilisation = (ctypes.c_uint * 2)()
        value(f"{index}_Utilization_status", call("DeviceGetUtilizationRates", device, utilisation), within=0)


@test
def memory():
    for index, device in devices():
        older, newer = (ctypes.c_ulonglong * 3)(), (ctypes.c_ulonglong * 5)(2 << 24 | 40)
        require(call("DeviceGetMemoryInfo", device, older) == SUCCESS, "nvmlDeviceGetMemoryInfo fails")
        require(call("DeviceGetMemoryInfo_v2", device, newer) == SUCCESS, "nvmlDeviceGetMemoryInfo_v2 fails")
        require(older[0] == newer[1] and older[1] + older[2] == older[0], f"{list(older)} and {list(newer)}")
        value(f"{index}_memory", older[0], within=0)


@test
def links_and_neighbours():
    found = dict(devices())
    for index, device in found.items():
        for link in range(LINKS):
            active, peer = ctypes.c_uint(), ctypes.create_string_buffer(68)
            status = call("DeviceGetNvLinkState", device, link, ctypes.byref(active))
            value(f"{index}_link_{link}", number(status, active.value), within=0)
            status = call("DeviceGetNvLinkRemotePciInfo_v2", device, link, peer)
            value(f"{index}_link_{link}_peer", number(status, zlib.crc32(peer.raw[36:].split(b"\0")[0])), within=0)
        for other, neighbour in found.items():
            level, state = ctypes.c_uint(), ctypes.c_uint()
            status = call("DeviceGetTopologyCommonAncestor", device, neighbour, ctypes.byref(level))
            value(f"{index}_{other}_level", number(status, level.value), within=0)
            status = call("DeviceGetP2PStatus", device, neighbour, 0, ctypes.byref(state))
            value(f"{index}_{other}_p2p", number(status, state.value), within=0)
        fabric = ctypes.create_string_buffer((2 << 24 | 36).to_bytes(4, "little"), 64)
        value(f"{index}_fabric_status", call("DeviceGetGpuFabricInfoV", device, fabric), within=0)


@test
def the_same_device_by_every_name():
    for _, device in devices():
        _, uuid = text("DeviceGetUUID", device)
        pci = ctypes.create_string_buffer(68)
        require(call("DeviceGetPciInfo_v3", device, pci) == SUCCESS, "nvmlDeviceGetPciInfo_v3 fails")
        address = pci.raw[36:].split(b"\0")[0]
        for function, name in (("DeviceGetHandleByUUID", uuid), ("DeviceGetHandleByPciBusId_v2", address)):
            again = ctypes.c_void_p()
            require(call(function, name, ctypes.byref(again)) == SUCCESS, f"{function} does not find {name}")
            require(again.value == device.value, f"{function} finds another device")


@test
def processes_are_listed_or_counted():
    for _, device in devices():
        count, room = ctypes.c_uint(0), (ctypes.c_ulonglong * (3 * 256))()
        status = call("DeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), None)
        require(status in (SUCCESS, INSUFFICIENT_SIZE), f"counting answers {status}")
        count.value = 256
        require(call("DeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), room) == SUCCESS, "no list")
        pids = [room[3 * i] & 0xFFFFFFFF for i in range(count.value)]
        note(f"processes {pids}, this is {os.getpid()}")


if __name__ == "__main__":
    main()
