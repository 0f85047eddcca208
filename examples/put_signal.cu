// Two ranks on one GPU: each kernel puts its numbers into the other's memory and adds up what it gets,
// without coming back to the host in between.
#include <causeway/device.cuh>
#include <causeway/team.h>
#include <cstdio>

using namespace causeway;

constexpr int COUNT = 1000;

__global__ void exchange(Team team, Window numbers, Window signals, int *sum) {
    int *own = reinterpret_cast<int *>(numbers.base), *received = own + COUNT;
    for (int at = threadIdx.x; at < COUNT; at += blockDim.x) own[at] = (team.rank + 1) * at;
    // All threads of the block call together. Behind the numbers goes a signal.
    u32 peer = (team.rank + 1) % team.ranks;
    u64 bytes = sizeof(int) * COUNT;
    put_signal<Block>(team, peer, numbers, bytes, numbers, 0, bytes, signals, 0, 1);
    if (signal_wait<Block>(team, signals, 0, Compare::equal, 1) != Status::ok) return;
    for (int at = threadIdx.x; at < COUNT; at += blockDim.x) atomicAdd(sum, received[at]);
}

int main() {
    int *sums = nullptr;
    cudaMallocManaged(&sums, 2 * sizeof(int));
    causeway_team *team = causeway_team_create(2, nullptr, nullptr);
    if (team == nullptr) return printf("%s\n", causeway_comm_error()), 1;
    int numbers = causeway_window_create(team, CAUSEWAY_ON_DEVICE, 2 * sizeof(int) * COUNT);
    int signals = causeway_window_create(team, CAUSEWAY_ON_DEVICE, 8);
    for (int rank = 0; rank < 2; rank++) {
        Team ours;
        Window data, cells;
        causeway_team_handle(team, rank, &ours);
        if (causeway_window_handle(team, numbers, rank, &data) != 0)
            return printf("%s\n", causeway_comm_error()), 1;
        causeway_window_handle(team, signals, rank, &cells);
        cudaStream_t stream; // The ranks wait for each other, so each has a stream of its own.
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        exchange<<<1, 128, 0, stream>>>(ours, data, cells, sums + rank);
    }
    cudaDeviceSynchronize();
    if (causeway_team_check(team) != 0) return printf("%s\n", causeway_comm_error()), 1;
    printf("rank 0 received %d, rank 1 received %d\n", sums[0], sums[1]);
    causeway_team_destroy(team);
}
