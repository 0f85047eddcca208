// What may other threads, and other streams, do while a stream is being captured?
#include "capture_scenes.h"
#include <thread>

static void begun_by_thread_that_is_gone() {
    const char *names[] = {"global", "local", "relaxed"};
    for (int mode = 0; mode < 3; mode++) {
        std::thread([&] { begin((cudaStreamCaptureMode)mode); }).join();
        printf("%s: mode %s\n", scene_name, names[mode]);
        state("origin", origin);
        SAY(launch(origin));
        SAY(cudaStreamSynchronize(other));
        end();
        state("origin after", origin);
        if (mode < 2) {
            CHECK_CUDA(cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking));
        }
    }
}

static void threads_modes() {
    for (int capture = 0; capture < 3; capture++) {
        for (int own = 0; own < 3; own++) {
            for (int same = 0; same < 2; same++) {
                CHECK_CUDA(cudaStreamBeginCapture(origin, (cudaStreamCaptureMode)capture));
                cudaError_t sync = cudaErrorUnknown, memory = cudaErrorUnknown, query = cudaErrorUnknown;
                auto action = [&] {
                    cudaStreamCaptureMode mode = (cudaStreamCaptureMode)own;
                    cudaThreadExchangeStreamCaptureMode(&mode);
                    void *block = nullptr;
                    memory = cudaMalloc(&block, 64);
                    query = cudaStreamQuery(other);
                    sync = cudaDeviceSynchronize();
                    cudaThreadExchangeStreamCaptureMode(&mode);
                    (void)cudaGetLastError();
                };
                if (same) action();
                else std::thread(action).join();
                printf("%s: capture %d, %s thread in %d: malloc %s,", scene_name, capture, same ? "same" : "other", own, name_of(memory));
                printf(" query %s,", name_of(query));
                printf(" device synchronize %s", name_of(sync));
                cudaStreamCaptureStatus status;
                cudaStreamIsCapturing(origin, &status);
                printf(", then %d, end %s\n", status, name_of(cudaStreamEndCapture(origin, &graph)));
                fflush(stdout);
            }
        }
    }
}

// Memory is neither allocated nor freed in the legacy default stream while another stream's capture forbids what may wait. In the local
// mode another thread may allocate, and the capturing one may not free. As seen on an H100 (driver 580).
static void allocation_in_the_legacy_stream() {
    const char *names[] = {"global", "local", "relaxed"};
    for (int mode = 0; mode < 3; mode++) {
        begin((cudaStreamCaptureMode)mode);
        printf("%s: mode %s\n", scene_name, names[mode]);
        void *memory = nullptr;
        std::thread([&] { SAY(cudaMallocAsync(&memory, 64, cudaStreamLegacy)); }).join();
        if (memory) SAY(cudaFreeAsync(memory, cudaStreamLegacy));
        state("origin", origin);
        end();
        begin((cudaStreamCaptureMode)mode);
        memory = nullptr;
        SAY(cudaMallocAsync(&memory, 64, cudaStreamLegacy));
        if (memory) SAY(cudaFreeAsync(memory, cudaStreamLegacy));
        state("origin", origin);
        end();
    }
    void *memory = nullptr;
    SAY(cudaMallocAsync(&memory, 64, cudaStreamLegacy));
    SAY(cudaFreeAsync(memory, cudaStreamLegacy));
}

static const Scene SCENES[] = {
    SCENE(begun_by_thread_that_is_gone), SCENE(threads_modes), SCENE(allocation_in_the_legacy_stream),
};

int main() {
    play_all(SCENES);
    return pass();
}
