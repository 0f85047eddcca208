// Each way in which a kernel may get the address of host memory: the program has asked for the device pointer of many pieces,
// and finds what kernels wrote in whichever a kernel could reach, as the kernel finds what the program wrote.
#include "check.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

constexpr size_t PIECE = 4096;
constexpr uintptr_t TAG = uintptr_t{0xa5} << 56;

__constant__ int *constant_pointer;
__device__ int *device_pointer;

__global__ void add(int *where) { *where += 1; }
__global__ void add_behind(int *where) { where[1] += 1; }
__global__ void add_before(int *where) { where[-1] += 1; }
__global__ void add_tagged(uintptr_t where) { *(int *)(where & ~TAG) += 1; }
__global__ void add_in_constant() { *constant_pointer += 1; }
__global__ void add_in_variable() { *device_pointer += 1; }
__global__ void add_in_table(int **table, int entry) { *table[entry] += 1; }
__global__ void keep(int **table, int *where) { table[0] = where; }

struct __attribute__((packed)) Packed {
    char kind;
    int *where;
};
__global__ void add_packed(Packed packed) { *packed.where += packed.kind; }
__global__ void add_packed_at(const Packed *packed) { *packed->where += packed->kind; }

struct Node {
    Node *next;
    int value;
};
__global__ void add_to_list(Node *node) {
    for (; node; node = node->next) node->value += 1;
}

struct Piece {
    int *here, *there;
};

// A new piece, whose first words have numbers of its own.
static Piece fresh() {
    static int pieces = 0;
    Piece piece;
    CHECK_CUDA(cudaHostAlloc(&piece.here, PIECE, cudaHostAllocMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&piece.there, piece.here, 0));
    for (size_t at = 0; at < PIECE / sizeof(int); at++) piece.here[at] = 1000 * pieces;
    pieces++;
    return piece;
}

static void require_one_more(const Piece &piece, int before, const char *what, size_t at = 0) {
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(piece.here[at] == before + 1, "%s: %d instead of %d", what, piece.here[at], before + 1);
}

static void parameters() {
    for (int round = 0; round < 2; round++) {
        Piece piece = fresh();
        int before = piece.here[0];
        add<<<1, 1>>>(piece.there);
        require_one_more(piece, before, "a parameter");
        piece = fresh(), before = piece.here[0];
        add_behind<<<1, 1>>>(piece.there - 1);
        require_one_more(piece, before, "an address before the memory");
        piece = fresh(), before = piece.here[0];
        add_before<<<1, 1>>>(piece.there + PIECE / sizeof(int));
        require_one_more(piece, before, "an address behind the memory", PIECE / sizeof(int) - 1);
        piece = fresh(), before = piece.here[0];
        add_packed<<<1, 1>>>(Packed{1, piece.there});
        require_one_more(piece, before, "a parameter at an odd place");
        piece = fresh(), before = piece.here[0];
        add_tagged<<<1, 1>>>((uintptr_t)piece.there | TAG);
        require_one_more(piece, before, "a parameter with a tag");
    }
}

static void copies(cudaStream_t stream) {
    Piece piece = fresh();
    int before = piece.here[0];
    CHECK_CUDA(cudaMemcpyToSymbol(constant_pointer, &piece.there, sizeof piece.there));
    add_in_constant<<<1, 1>>>();
    require_one_more(piece, before, "a constant");
    piece = fresh(), before = piece.here[0];
    CHECK_CUDA(cudaMemcpyToSymbol(device_pointer, &piece.there, sizeof piece.there));
    add_in_variable<<<1, 1>>>();
    require_one_more(piece, before, "a variable");

    // Short, at an odd place, long, with gaps, and through other memory of the device.
    constexpr size_t MOST = 1 << 20;
    char *device, *other;
    CHECK_CUDA(cudaMalloc(&device, MOST));
    CHECK_CUDA(cudaMalloc(&other, MOST));
    std::vector<char> bytes(MOST);
    for (size_t length : {size_t{8}, size_t{4096}, size_t{100000}, MOST}) {
        piece = fresh(), before = piece.here[0];
        size_t at = length / 2 / 8 * 8 - (length == 8 ? 0 : 8);
        if (length == 8) at = 0;
        memcpy(&bytes[at], &piece.there, 8);
        CHECK_CUDA(cudaMemcpyAsync(device, bytes.data(), length, cudaMemcpyHostToDevice, stream));
        add_in_table<<<1, 1, 0, stream>>>((int **)device, (int)(at / 8));
        require_one_more(piece, before, "a copy");
    }
    piece = fresh(), before = piece.here[0];
    Packed packed{1, piece.there};
    CHECK_CUDA(cudaMemcpy(device, &packed, sizeof packed, cudaMemcpyHostToDevice));
    add_packed_at<<<1, 1>>>((const Packed *)device);
    require_one_more(piece, before, "a copy with an address at an odd place");
    piece = fresh(), before = piece.here[0];
    memcpy(&bytes[256], &piece.there, 8);
    CHECK_CUDA(cudaMemcpy2D(device, 8, bytes.data(), 256, 8, 2, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(other, device, 16, cudaMemcpyDeviceToDevice));
    add_in_table<<<1, 1>>>((int **)other, 1);
    require_one_more(piece, before, "rows of a copy");

    // A host function writes what a copy behind it reads.
    struct Late {
        int **source;
        int *there;
    };
    static Late late;
    CHECK_CUDA(cudaHostAlloc(&late.source, 8, cudaHostAllocDefault));
    *late.source = nullptr;
    piece = fresh(), before = piece.here[0];
    late.there = piece.there;
    CHECK_CUDA(cudaLaunchHostFunc(stream, [](void *) { *late.source = late.there; }, nullptr));
    CHECK_CUDA(cudaMemcpyAsync(device, late.source, 8, cudaMemcpyHostToDevice, stream));
    add_in_table<<<1, 1, 0, stream>>>((int **)device, 0);
    require_one_more(piece, before, "a copy of what a host function writes");

    // A kernel finds later what another one has kept.
    piece = fresh(), before = piece.here[0];
    keep<<<1, 1>>>((int **)device, piece.there);
    CHECK_CUDA(cudaDeviceSynchronize());
    piece.here[0] = before = 77;
    add_in_table<<<1, 1>>>((int **)device, 0);
    require_one_more(piece, before, "what a kernel has kept");

    // Memory of a name that the device has already.
    std::vector<int *> table;
    std::vector<Piece> pieces;
    for (int each = 0; each < 8; each++) pieces.push_back(fresh()), table.push_back(pieces.back().there);
    CHECK_CUDA(cudaMemcpy(device, table.data(), 8 * table.size(), cudaMemcpyHostToDevice));
    for (auto &each : pieces) CHECK_CUDA(cudaFreeHost(each.here));
    for (int each = 0; each < 8; each++) {
        piece = fresh(), before = piece.here[0];
        for (size_t entry = 0; entry < table.size(); entry++) {
            if (table[entry] != piece.there) continue;
            add_in_table<<<1, 1>>>((int **)device, (int)entry);
            require_one_more(piece, before, "an address that the device has from before");
        }
    }
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(other));
}

// The program writes addresses into memory that a kernel reaches.
static void memory_of_the_program() {
    Piece table = fresh(), further = fresh(), last = fresh();
    int before = last.here[0];
    ((int **)table.here)[5] = last.there;
    add_in_table<<<1, 1>>>((int **)table.there, 5);
    require_one_more(last, before, "mapped memory");
    // A list through pieces, of which the launch names the first.
    Piece first = fresh();
    std::vector<Piece> pieces{first, further, fresh(), fresh(), fresh()};
    for (size_t each = 0; each < pieces.size(); each++) {
        auto *node = (Node *)pieces[each].here;
        node->next = each + 1 < pieces.size() ? (Node *)pieces[each + 1].there : nullptr;
        node->value = (int)each;
    }
    add_to_list<<<1, 1>>>((Node *)first.there);
    CHECK_CUDA(cudaDeviceSynchronize());
    for (size_t each = 0; each < pieces.size(); each++) {
        int value = ((Node *)pieces[each].here)->value;
        REQUIRE(value == (int)each + 1, "node %zu: %d", each, value);
    }
    Node *nodes[6];
    for (int each = 0; each < 6; each++) {
        CHECK_CUDA(cudaMallocManaged(&nodes[each], sizeof(Node)));
        *nodes[each] = Node{each ? nodes[each - 1] : nullptr, 10 * each};
    }
    add_to_list<<<1, 1>>>(nodes[5]);
    CHECK_CUDA(cudaDeviceSynchronize());
    for (int each = 0; each < 6; each++) REQUIRE(nodes[each]->value == 10 * each + 1, "%d", nodes[each]->value);
}

// Commands that name the memory, without a kernel.
static void commands(cudaStream_t stream) {
    Piece piece = fresh();
    CHECK_CUDA(cudaMemsetAsync(piece.there, 1, 4, stream));
    require_one_more(piece, 0x01010100, "a fill");
    int *device;
    CHECK_CUDA(cudaMalloc(&device, 4));
    piece = fresh();
    CHECK_CUDA(cudaMemsetAsync(device, 1, 4, stream));
    CHECK_CUDA(cudaMemcpyAsync(piece.there, device, 4, cudaMemcpyDeviceToDevice, stream));
    require_one_more(piece, 0x01010100, "a copy within the device");
    piece = fresh();
    CHECK_CUDA(cudaMemcpyAsync(piece.here, device, 4, cudaMemcpyDeviceToHost, stream));
    require_one_more(piece, 0x01010100, "a copy to the host");

    piece = fresh();
    int before = piece.here[0];
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add<<<1, 1, 0, stream>>>(piece.there);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (int launch = 0; launch < 3; launch++) {
        CHECK_CUDA(cudaGraphLaunch(executable, stream));
        require_one_more(piece, before + launch, "a graph");
    }
    CHECK_CUDA(cudaFree(device));
}

int main() {
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    parameters();
    memory_of_the_program();
    commands(stream);
    copies(stream);
    return pass();
}
