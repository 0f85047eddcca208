// Jacobi's method on two ranks of an MPI program with a GPU each, which send each other a row at every step:
// by the kernel itself, by MPI (MPI_Sendrecv of memory of the GPU), and by NCCL, in turns.
//
//   mpirun -n 2 jacobi RUNS [quick]
//
// Rows are of 16 bytes and of 512 KiB. Prints a line for each figure, as bench/device does: `row`, `jacobi`,
// the way, the bytes of a row, the points of a rank, microseconds of a step, `us`, with tabs between. After
// every run all points are compared with what the host has computed. NCCL is libnccl.so.2, if the loader
// finds it, or the file that CAUSEWAY_JACOBI_NCCL names. MPI_Sendrecv takes memory of the GPU where `causeway
// mpirun` starts the program.
#include "jacobi.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <causeway/team.h>
#include <dlfcn.h>
// MPI's functions in C alone.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

using namespace jacobi;

[[noreturn]] static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("jacobi: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

#define REQUIRE(condition, ...)                                                                              \
    do {                                                                                                     \
        if (!(condition)) fail(__VA_ARGS__);                                                                 \
    } while (0)

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t error_ = (call);                                                                         \
        if (error_ != cudaSuccess) fail("%s: %s", #call, cudaGetErrorString(error_));                        \
    } while (0)

// The little of NCCL that is needed, loaded at run time: as in nccl.h since its version 2.7.
class Nccl {
  public:
    // Whether it is here; all ranks come to the same answer.
    bool open(int rank, std::string &why) {
        const char *named = getenv("CAUSEWAY_JACOBI_NCCL");
        void *library = dlopen(named != nullptr ? named : "libnccl.so.2", RTLD_NOW);
        int is_here = library != nullptr, are_all;
        if (!is_here) why = dlerror();
        MPI_Allreduce(&is_here, &are_all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (!are_all) return false;
        auto number = find<int (*)(Id *)>(library, "ncclGetUniqueId");
        auto join = find<int (*)(void **, int, Id, int)>(library, "ncclCommInitRank");
        begin = find<int (*)()>(library, "ncclGroupStart");
        end = find<int (*)()>(library, "ncclGroupEnd");
        send = find<int (*)(const void *, size_t, int, int, void *, cudaStream_t)>(library, "ncclSend");
        receive = find<int (*)(void *, size_t, int, int, void *, cudaStream_t)>(library, "ncclRecv");
        leave = find<int (*)(void *)>(library, "ncclCommDestroy");
        Id id = {};
        if (rank == 0) must(number(&id), "ncclGetUniqueId");
        MPI_Bcast(id.bytes, sizeof id.bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
        int code = join(&communicator, 2, id, rank), worst;
        // Two ranks on one GPU are refused.
        MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (worst != 0) why = "ncclCommInitRank says " + std::to_string(worst);
        return worst == 0;
    }

    void exchange(const double *own, double *peers, u32 count, int peer, cudaStream_t stream) const {
        constexpr int DOUBLE = 8;
        must(begin(), "ncclGroupStart");
        must(send(own, count, DOUBLE, peer, communicator, stream), "ncclSend");
        must(receive(peers, count, DOUBLE, peer, communicator, stream), "ncclRecv");
        must(end(), "ncclGroupEnd");
    }

    void close() {
        if (communicator != nullptr && leave != nullptr) leave(communicator);
    }

  private:
    struct Id {
        char bytes[128];
    };

    template <class Function> static Function find(void *library, const char *name) {
        void *found = dlsym(library, name);
        REQUIRE(found != nullptr, "NCCL has no %s", name);
        return reinterpret_cast<Function>(found);
    }

    static void must(int code, const char *what) { REQUIRE(code == 0, "%s says %d", what, code); }

    void *communicator = nullptr;
    int (*begin)() = nullptr, (*end)() = nullptr, (*leave)(void *) = nullptr;
    int (*send)(const void *, size_t, int, int, void *, cudaStream_t) = nullptr;
    int (*receive)(void *, size_t, int, int, void *, cudaStream_t) = nullptr;
};

// Both parts of the grid, as the host computes them.
static std::vector<double> computed(const Part &part, u32 steps) {
    u32 rows = 2 * part.rows, columns = part.columns;
    std::vector<double> in(static_cast<size_t>(columns) * (rows + 2), EDGE);
    for (u32 row = 1; row <= rows; row++)
        for (u32 at = 0; at < columns; at++)
            in[static_cast<size_t>(row) * columns + at] = first_number(row, at);
    std::vector<double> out = in;
    for (u32 step = 0; step < steps; step++) {
        for (u32 row = 1; row <= rows; row++) {
            const double *here = &in[static_cast<size_t>(row) * columns];
            double *there = &out[static_cast<size_t>(row) * columns];
            for (u32 at = 0; at < columns; at++) {
                double left = at > 0 ? here[at - 1] : EDGE, right = at + 1 < columns ? here[at + 1] : EDGE;
                double sides = left + right,
                       ends = here[static_cast<long>(at) - columns] + here[at + columns];
                there[at] = (sides + ends) * 0.25;
            }
        }
        in.swap(out);
    }
    return in;
}

// A grid that is shared by two ranks, and how its steps are made.
class Grid {
  public:
    Grid(int rank, causeway_team *team, Part part, u32 blocks, u32 steps, Nccl *nccl)
        : rank(rank), team(team), part(part), blocks(blocks), steps(steps), nccl(nccl),
          right(computed(part, steps)) {
        memory = take<double>(2 * part.bytes());
        counters = take<u32>(2 * sizeof *counters);
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        REQUIRE(causeway_team_handle(team, static_cast<u32>(rank), &handle) == 0, "%s",
                causeway_comm_error());
        data = window(2 * part.bytes());
        cells = window(64);
    }

    // Microseconds of a step, of the rank that takes longer.
    double by_kernel() {
        start(reinterpret_cast<double *>(data.base));
        double taken = time([&] {
            relax_and_send(stream, blocks, handle, data, cells, part, steps, counters);
            CHECK(cudaStreamSynchronize(stream));
        });
        REQUIRE(causeway_team_check(team) == 0, "%s", causeway_comm_error());
        compare("by the kernel", reinterpret_cast<double *>(data.base));
        return taken;
    }

    double by_mpi() {
        start(memory);
        double taken = time([&] {
            for (u32 step = 0; step < steps; step++) {
                double *out = one_step(step);
                CHECK(cudaStreamSynchronize(stream));
                double *own = out + u64{own_row(part, rank)} * part.columns;
                double *peers = out + u64{row_of_peer(part, rank)} * part.columns;
                MPI_Sendrecv(own, static_cast<int>(part.columns), MPI_DOUBLE, 1 - rank, 0, peers,
                             static_cast<int>(part.columns), MPI_DOUBLE, 1 - rank, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
            }
        });
        compare("MPI", memory);
        return taken;
    }

    double by_nccl() {
        start(memory);
        double taken = time([&] {
            for (u32 step = 0; step < steps; step++) {
                double *out = one_step(step);
                nccl->exchange(out + u64{own_row(part, rank)} * part.columns,
                               out + u64{row_of_peer(part, rank)} * part.columns, part.columns, 1 - rank,
                               stream);
            }
            CHECK(cudaStreamSynchronize(stream));
        });
        compare("NCCL", memory);
        return taken;
    }

    // Nothing is sent: what the steps alone take, each in a kernel.
    double alone() {
        start(memory);
        return time([&] {
            for (u32 step = 0; step < steps; step++) one_step(step);
            CHECK(cudaStreamSynchronize(stream));
        });
    }

  private:
    template <class Type> static Type *take(u64 bytes) {
        void *taken;
        CHECK(cudaMalloc(&taken, bytes));
        return static_cast<Type *>(taken);
    }

    causeway::Window window(u64 bytes) const {
        causeway::Window found;
        int id = causeway_window_create(team, CAUSEWAY_ON_DEVICE, bytes);
        REQUIRE(id >= 0, "%s", causeway_comm_error());
        REQUIRE(causeway_window_handle(team, static_cast<u32>(id), static_cast<u32>(rank), &found) == 0, "%s",
                causeway_comm_error());
        return found;
    }

    // Both buffers of a way get the first numbers, with what the peer has in the row that is its.
    void start(double *buffers) const {
        std::vector<double> first(part.bytes() / 8, EDGE);
        for (u32 row = 0; row < part.rows + 2; row++) {
            u64 place = u64{static_cast<u32>(rank)} * part.rows + row;
            if (place == 0 || place == 2 * u64{part.rows} + 1) continue;
            for (u32 at = 0; at < part.columns; at++)
                first[static_cast<size_t>(row) * part.columns + at] = first_number(place, at);
        }
        for (u64 buffer = 0; buffer < 2; buffer++)
            CHECK(cudaMemcpy(buffers + buffer * first.size(), first.data(), part.bytes(),
                             cudaMemcpyHostToDevice));
        CHECK(cudaMemset(counters, 0, 2 * sizeof *counters));
        CHECK(cudaMemset(reinterpret_cast<void *>(cells.base), 0, 64));
        CHECK(cudaDeviceSynchronize());
    }

    double *one_step(u32 step) const {
        double *in = memory + step % 2 * (part.bytes() / 8),
               *out = memory + (step + 1) % 2 * (part.bytes() / 8);
        relax(stream, blocks, in, out, part);
        return out;
    }

    double time(const std::function<void()> &run) const {
        MPI_Barrier(MPI_COMM_WORLD);
        double before = MPI_Wtime();
        run();
        double taken = (MPI_Wtime() - before) / steps * 1e6, longest;
        CHECK(cudaGetLastError());
        MPI_Allreduce(&taken, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return longest;
    }

    void compare(const char *way, const double *buffers) const {
        std::vector<double> found(part.bytes() / 8);
        CHECK(cudaMemcpy(found.data(), buffers + steps % 2 * found.size(), part.bytes(),
                         cudaMemcpyDeviceToHost));
        // With the peer's row: that came, too.
        const double *wanted = right.data() + static_cast<size_t>(rank) * part.rows * part.columns;
        auto differs = std::mismatch(found.begin(), found.end(), wanted);
        REQUIRE(differs.first == found.end(), "%s, rows of %llu bytes: number %zu is %.17g and must be %.17g",
                way, part.row_bytes(), static_cast<size_t>(differs.first - found.begin()), *differs.first,
                *differs.second);
    }

    const int rank;
    causeway_team *const team;
    const Part part;
    const u32 blocks, steps;
    Nccl *const nccl;
    const std::vector<double> right;
    double *memory = nullptr;
    u32 *counters = nullptr;
    cudaStream_t stream = nullptr;
    causeway::Team handle;
    causeway::Window data, cells;
};

static causeway_team *join(int rank) {
    unsigned char drawn[16];
    char nonce[33] = {};
    if (rank == 0) {
        FILE *source = fopen("/dev/urandom", "r");
        REQUIRE(source != nullptr && fread(drawn, sizeof drawn, 1, source) == 1, "nothing can be drawn");
        fclose(source);
        for (int at = 0; at < 16; at++) snprintf(nonce + 2 * at, 3, "%02x", drawn[at]);
    }
    MPI_Bcast(nonce, sizeof nonce, MPI_CHAR, 0, MPI_COMM_WORLD);
    // A machine that is busy is no peer that has ended.
    causeway_team_options options = {0, 0, 0, 20000};
    causeway_team *team = causeway_team_join(nonce, static_cast<u32>(rank), 2, &options);
    REQUIRE(team != nullptr, "%s", causeway_comm_error());
    return team;
}

int main(int count, char **arguments) {
    // A kernel that is loaded later than another one waits for it may never run.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    MPI_Init(&count, &arguments);
    int rank, ranks, devices;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int runs = count >= 2 ? atoi(arguments[1]) : 0;
    bool is_quick = count == 3 && strcmp(arguments[2], "quick") == 0;
    REQUIRE(runs > 0 && (count == 2 || is_quick), "usage: %s RUNS [quick]", arguments[0]);
    REQUIRE(ranks == 2, "there are two ranks, and not %d", ranks);
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(rank % devices));
    CHECK(cudaFree(nullptr));
    causeway_team *team = join(rank);
    Nccl nccl;
    std::string why;
    bool has_nccl = nccl.open(rank, why);
    if (!has_nccl && rank == 0) printf("skipped\tjacobi by NCCL\t%s\n", why.c_str());
    u32 many = most_blocks(), steps = is_quick ? 5 : 1000, fewer = is_quick ? 4 : 100;
    Part narrow = is_quick ? Part{6, 2} : Part{512, 2}, wide = is_quick ? Part{3, 512} : Part{64, 65536};
    std::vector<std::unique_ptr<Grid>> grids;
    grids.push_back(std::make_unique<Grid>(rank, team, narrow, 1, steps, &nccl));
    grids.push_back(std::make_unique<Grid>(rank, team, wide, many, fewer, &nccl));
    const Part parts[] = {narrow, wide};
    struct Way {
        const char *name;
        double (Grid::*run)();
    };
    std::vector<Way> ways = {
        {"by the kernel", &Grid::by_kernel}, {"MPI", &Grid::by_mpi}, {"compute alone", &Grid::alone}};
    if (has_nccl) ways.push_back({"NCCL", &Grid::by_nccl});
    // The first run does not count, as nothing is warm then.
    for (int run = 0; run <= runs; run++) {
        for (size_t at = 0; at < grids.size(); at++) {
            u64 points = u64{parts[at].rows} * parts[at].columns;
            for (const Way &way : ways) {
                double found = (grids[at].get()->*way.run)();
                if (rank == 0 && run > 0)
                    printf("row\tjacobi\t%s\t%llu\t%llu\t%.6g\tus\n", way.name, parts[at].row_bytes(), points,
                           found);
            }
        }
    }
    if (has_nccl) nccl.close();
    MPI_Barrier(MPI_COMM_WORLD);
    causeway_team_destroy(team);
    MPI_Finalize();
    return 0;
}
