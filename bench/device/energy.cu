// What a message costs in energy: the GPU's own, as NVML counts it, while two kernels play ping-pong.
//
// The paper that compared a GPU's work requests with a CPU's left the question open. NVML's counter moves
// every few hundredths of a second, so each figure is of half a second and more.
#include <dlfcn.h>

#include "pingpong.h"

namespace bench {

// The little of NVML that is needed, loaded at run time.
class Meter {
  public:
    // Whether this GPU counts; `why` says why not.
    bool open(std::string &why) {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (library == nullptr) return why = "there is no libnvidia-ml.so.1", false;
        auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
        auto find = reinterpret_cast<int (*)(const char *, void **)>(
            dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
        read =
            reinterpret_cast<int (*)(void *, u64 *)>(dlsym(library, "nvmlDeviceGetTotalEnergyConsumption"));
        if (init == nullptr || find == nullptr || read == nullptr)
            return why = "libnvidia-ml.so.1 has no count of energy", false;
        char bus[32];
        CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
        u64 now;
        int code = init();
        if (code == 0) code = find(bus, &device);
        if (code == 0) code = read(device, &now);
        why = "NVML counts no energy of this GPU: code " + std::to_string(code);
        return code == 0;
    }

    // Joules since the driver was loaded.
    double joules() const {
        u64 millijoules = 0;
        int code = read(device, &millijoules);
        REQUIRE(code == 0, "NVML says %d when it is asked for the energy", code);
        return static_cast<double>(millijoules) / 1e3;
    }

  private:
    void *device = nullptr;
    int (*read)(void *, u64 *) = nullptr;
};

void measure_energy(const Settings &settings) {
    static Meter meter;
    std::string why;
    if (!meter.open(why)) return skip("energy", why.c_str());
    u64 most = settings.is_quick ? 4096 : 1 << 20;
    double least = settings.is_quick ? 0.01 : 0.6;
    PingPong pair(most, settings);
    Cases cases(settings);
    auto add = [&](const char *way, u64 bytes, u32 rounds, std::function<void()> run) {
        cases.add("energy", way, bytes, 1, "uJ", [=] {
            u64 messages = 0;
            double start = now(), before = meter.joules();
            do {
                run();
                messages += 2 * rounds;
            } while (now() - start < least);
            return (meter.joules() - before) / static_cast<double>(messages) * 1e6;
        });
    };
    for (u64 bytes : {u64{8}, most}) {
        u32 rounds = settings.is_quick ? 5 : bytes == 8 ? 20000 : 2000, fewer = settings.is_quick ? 5 : 2000;
        for (const Way &way : {DIRECT, PROXY, PROXY_IN_HOST})
            add(way.name, bytes, rounds, [=, &pair] { pair.rounds(way, bytes, rounds); });
        add("hybrid", bytes, fewer, [=, &pair] { pair.rounds_by_host(bytes, fewer); });
        add("host transfer", bytes, fewer, [=, &pair] { pair.transfers(bytes, fewer); });
    }
    // Of a GPU that does nothing, in watts: what the figures above have in common.
    cases.add("power", "idle", 0, 1, "W", [=] {
        double start = now(), before = meter.joules();
        while (now() - start < least) {
        }
        return (meter.joules() - before) / (now() - start);
    });
    cases.measure();
}

} // namespace bench
