// A team of two ranks on the first GPU, made in C: what kernels get by value are the bytes that this prints the
// sizes of. Kernels that use them are in put_signal.cu.
//
// A program of a CUDA toolkit includes cuda.h or cuda_runtime.h; this one needs none, and asks the driver by hand.
//
//   cc team.c $(pkg-config --cflags --libs causeway) -ldl -o team
//   causeway run -- ./team
#include <causeway/causeway_comm.h>
#include <causeway/team.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

enum { RANKS = 2, BYTES = 4096 };

static int give_up(void) {
    fprintf(stderr, "team: %s\n", causeway_comm_error());
    return 1;
}

// A team is made where the GPU is in use.
static int use_first_gpu(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) return fprintf(stderr, "team: %s\n", dlerror()), 0;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    void *context;
    if (init(0) != 0 || retain(&context, 0) != 0 || use(context) != 0)
        return fprintf(stderr, "team: the first GPU cannot be used\n"), 0;
    return 1;
}

int main(void) {
    const int devices[RANKS] = {0, 0};
    if (causeway_comm_version() != CAUSEWAY_COMM_VERSION) {
        fprintf(stderr, "team: libcauseway_comm.so is of another version than the headers\n");
        return 1;
    }
    if (!use_first_gpu()) return 1;
    causeway_team *team = causeway_team_create(RANKS, devices, NULL);
    if (team == NULL) return give_up();
    int window = causeway_window_create(team, CAUSEWAY_ON_DEVICE, BYTES);
    if (window < 0) return give_up();
    uint64_t address[RANKS] = {0};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        uint64_t of_team[3], of_window[4];
        if (causeway_team_handle(team, rank, of_team) != 0) return give_up();
        if (causeway_window_handle(team, window, rank, of_window) != 0) return give_up();
        address[rank] = of_window[0];
    }
    if (address[0] == 0 || address[0] == address[1]) {
        fprintf(stderr, "team: the ranks have no memory of their own\n");
        return 1;
    }
    printf("PASS team: %d ranks, each with %d bytes of its own on the GPU\n", RANKS, BYTES);
    causeway_team_destroy(team);
    return 0;
}
