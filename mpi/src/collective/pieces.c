// Collective calls on memory anywhere, by way of pieces of the host's memory: while the MPI works on one, the
// next one is copied from the GPU, and the one before it to the GPU.

#include <stdlib.h>
#include <string.h>

#include "places.h"

enum { PIECE = 1 << 20, SLOTS = 2 };

// Elements from `first` on, as the MPI has them.
struct slot {
    MPI_Count first;
    int count;
    unsigned char *out, *in;
    void *out_holder, *in_holder;
    MPI_Request request;
};

unsigned char *take_piece(const struct between *between, uint64_t bytes, void **holder) {
    const void *near = between->from != NULL ? between->from : between->to;
    unsigned char *memory = NULL;
    *holder = NULL;
    if (causeway_comm_on_gpu(near)) memory = causeway_comm_allocate_host(near, bytes, holder);
    if (memory == NULL) memory = malloc(bytes);
    if (memory == NULL) abort();
    return memory;
}

void give_back_piece(unsigned char *memory, void *holder) {
    if (holder != NULL)
        causeway_comm_release_host(holder);
    else
        free(memory);
}

int copy_any(const struct between *between, void *to, const void *from, uint64_t bytes) {
    bool on_gpu = causeway_comm_on_gpu(to) || causeway_comm_on_gpu(from);
    if (!on_gpu) memmove(to, from, bytes);
    if (!on_gpu || causeway_comm_copy(to, from, bytes) == 0) return MPI_SUCCESS;
    return error_code(between->call, causeway_comm_error());
}

// Keeps the first error.
static void note(int *first, int error) {
    if (*first == MPI_SUCCESS) *first = error;
}

static bool gives(const struct between *between) {
    return between->what != COLLECTIVE_Bcast || between->rank == between->root;
}

static bool gets(const struct between *between) {
    return (between->what == COLLECTIVE_Bcast) == (between->rank != between->root);
}

// A copy that fails is this rank's error. It takes part in what the others wait for all the same.
static void start_piece(const struct between *between, struct slot *slot, int *error) {
    const char *from = (const char *)between->from + (uint64_t)slot->first * between->extent;
    if (gives(between))
        note(error, copy_any(between, slot->out, from, (uint64_t)slot->count * between->extent));
    switch (between->what) {
    case COLLECTIVE_Bcast:
        note(error, PMPI_Ibcast(slot->out, slot->count, between->type, between->root, between->comm,
                                &slot->request));
        return;
    default:
        note(error, PMPI_Ireduce(slot->out, slot->in, slot->count, between->type, between->op, between->root,
                                 between->comm, &slot->request));
    }
}

static void end_piece(const struct between *between, struct slot *slot, int *error) {
    if (slot->count == 0) return;
    note(error, PMPI_Wait(&slot->request, MPI_STATUS_IGNORE));
    char *to = (char *)between->to + (uint64_t)slot->first * between->extent;
    const unsigned char *from = between->what == COLLECTIVE_Bcast ? slot->out : slot->in;
    if (gets(between) && *error == MPI_SUCCESS)
        note(error, copy_any(between, to, from, (uint64_t)slot->count * between->extent));
    slot->count = 0;
}

static MPI_Count elements_of_piece(const struct between *between) {
    MPI_Count most = (MPI_Count)(PIECE / between->extent);
    return most < between->count ? most : between->count;
}

int make_in_pieces(const struct between *between) {
    int error = MPI_SUCCESS;
    struct slot slots[SLOTS];
    MPI_Count most = elements_of_piece(between);
    uint64_t bytes = (uint64_t)most * between->extent;
    for (int at = 0; at < SLOTS; at++) {
        struct slot *slot = &slots[at];
        *slot = (struct slot){.request = MPI_REQUEST_NULL};
        slot->out = take_piece(between, bytes, &slot->out_holder);
        if (between->what != COLLECTIVE_Bcast) slot->in = take_piece(between, bytes, &slot->in_holder);
    }
    int turn = 0;
    for (MPI_Count first = 0; first < between->count; first += most, turn++) {
        MPI_Count left = between->count - first;
        struct slot *slot = &slots[turn % SLOTS];
        slot->first = first;
        slot->count = (int)(left < most ? left : most);
        start_piece(between, slot, &error);
        end_piece(between, &slots[(turn + 1) % SLOTS], &error);
    }
    end_piece(between, &slots[(turn + 1) % SLOTS], &error);
    for (int at = 0; at < SLOTS; at++) {
        give_back_piece(slots[at].out, slots[at].out_holder);
        if (slots[at].in != NULL) give_back_piece(slots[at].in, slots[at].in_holder);
    }
    return error;
}

int hand_over_in_pieces(const struct between *between, int from, int to) {
    if ((between->rank != from && between->rank != to) || between->count == 0) return MPI_SUCCESS;
    if (from == to) {
        uint64_t bytes = (uint64_t)between->count * between->extent;
        return between->from == between->to ? MPI_SUCCESS
                                            : copy_any(between, between->to, between->from, bytes);
    }
    int error = MPI_SUCCESS;
    MPI_Count most = elements_of_piece(between);
    void *holder;
    unsigned char *piece = take_piece(between, (uint64_t)most * between->extent, &holder);
    for (MPI_Count first = 0; first < between->count; first += most) {
        MPI_Count left = between->count - first, count = left < most ? left : most;
        uint64_t offset = (uint64_t)first * between->extent, bytes = (uint64_t)count * between->extent;
        if (between->rank == from) {
            note(&error, copy_any(between, piece, (const char *)between->from + offset, bytes));
            note(&error, PMPI_Send(piece, (int)count, between->type, to, 0, between->comm));
        } else {
            note(&error, PMPI_Recv(piece, (int)count, between->type, from, 0, between->comm,
                                   MPI_STATUS_IGNORE));
            if (error == MPI_SUCCESS)
                note(&error, copy_any(between, (char *)between->to + offset, piece, bytes));
        }
    }
    give_back_piece(piece, holder);
    return error;
}
