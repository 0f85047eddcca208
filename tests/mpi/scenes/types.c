// Types of many pieces, parts of an element, types that are freed early, and one type for memory of both
// kinds.
#include <stdlib.h>

#include "scenes.h"

// So many numbers, one in each second place: made as a list of more pieces than a table has, or by a call for
// large counts.
static MPI_Datatype every_other(int count, int is_list) {
    MPI_Datatype type;
    if (is_list) {
        int *places = malloc(sizeof(int) * (size_t)count);
        for (int at = 0; at < count; at++) places[at] = 2 * at;
        MPI_Type_create_indexed_block(count, 1, places, MPI_INT, &type);
        free(places);
    } else {
#if MPI_VERSION >= 4
        MPI_Type_vector_c(count, 1, 2, MPI_INT, &type);
#else
        MPI_Type_vector(count, 1, 2, MPI_INT, &type);
#endif
    }
    MPI_Type_commit(&type);
    return type;
}

// Half of an element of so many pieces is received, when its type has been freed, and in between nothing
// changes.
static void receive_half(enum memory memory, int count, int is_list) {
    int half = count / 2;
    size_t bytes = sizeof(int) * 2 * (size_t)count;
    int *host = calloc((size_t)count, 2 * sizeof(int));
    int *elements = (int *)gpu_allocate(memory, bytes);
    for (int at = 0; rank == 0 && at < half; at++) host[at] = at + 1;
    gpu_copy(elements, host, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Send(elements, half, MPI_INT, 1, 0, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Datatype type = every_other(count, is_list);
        MPI_Request request;
        MPI_Status status;
        int told;
        MPI_Irecv(elements, 1, type, 0, 0, MPI_COMM_WORLD, &request);
        MPI_Type_free(&type);
        MPI_Wait(&request, &status);
        MPI_Get_elements(&status, MPI_INT, &told);
        must(told == half, "%d of %d elements are told of", told, half);
        gpu_copy(host, elements, bytes);
        for (int at = 0; at < 2 * count; at++) {
            int wanted = at % 2 == 0 && at < 2 * half ? at / 2 + 1 : 0;
            must(host[at] == wanted, "number %d of memory %d is %d, not %d", at, memory, host[at], wanted);
        }
    }
    gpu_free(memory, elements, bytes);
    free(host);
}

// All ranks gather blocks, of which one has such a type on its GPU.
static void gather_pieces(int count) {
    size_t block = 2 * (size_t)count;
    int *host = calloc(block, sizeof(int) * (size_t)ranks), *own = calloc((size_t)count, sizeof(int));
    size_t bytes = sizeof(int) * block * (size_t)ranks;
    int *elements = (int *)gpu_allocate(DEVICE, bytes), wanted = 0;
    for (int at = 0; at < count; at++) own[at] = rank + 1;
    gpu_copy(elements, host, bytes);
    if (rank == 0) {
        MPI_Datatype type = every_other(count, 1), whole;
        MPI_Type_create_resized(type, 0, (MPI_Aint)(sizeof(int) * block), &whole);
        MPI_Type_commit(&whole);
        MPI_Allgather(own, count, MPI_INT, elements, 1, whole, MPI_COMM_WORLD);
        gpu_copy(host, elements, bytes);
        for (int of = 0; of < ranks; of++)
            for (int at = 0; at < 2 * count; at++) {
                wanted = at % 2 == 0 ? of + 1 : 0;
                int found = host[(size_t)of * block + (size_t)at];
                must(found == wanted, "number %d of rank %d is %d, not %d", at, of, found, wanted);
            }
        MPI_Type_free(&type);
        MPI_Type_free(&whole);
    } else {
        MPI_Allgather(own, count, MPI_INT, host, count, MPI_INT, MPI_COMM_WORLD);
    }
    gpu_free(DEVICE, elements, bytes);
    free(host);
    free(own);
}

void pieces(void) {
    enum { FEW = 1000, MANY = 1100000 };
    receive_half(HOST, FEW, 0);
    receive_half(HOST, MANY, 1);
    receive_half(DEVICE, MANY, 1);
    receive_half(DEVICE, FEW, 0);
    gather_pieces(MANY);
}

// A header of the host and a payload on a GPU in one message, in both orders; packed, too.
void both_kinds(void) {
    enum { HEADER = 4, PAYLOAD = 5000 };
    for (int is_payload_first = 0; is_payload_first < 2; is_payload_first++) {
        int header[HEADER], lengths[] = {sizeof header, PAYLOAD}, other = 1 - is_payload_first;
        char *payload = filled(DEVICE, PAYLOAD, rank == 0 ? 5 : 99);
        for (int at = 0; at < HEADER; at++) header[at] = rank == 0 ? 100 + at : 0;
        MPI_Aint places[2];
        MPI_Datatype types[] = {MPI_BYTE, MPI_BYTE}, type;
        MPI_Get_address(header, &places[is_payload_first]);
        MPI_Get_address(payload, &places[other]);
        if (is_payload_first) {
            lengths[0] = PAYLOAD;
            lengths[1] = sizeof header;
        }
        MPI_Type_create_struct(2, lengths, places, types, &type);
        MPI_Type_commit(&type);
        char packed[PAYLOAD + sizeof header];
        for (int form = 0; form < 2; form++) {
            int position = 0;
            if (rank == 0 && form == 0) MPI_Send(MPI_BOTTOM, 1, type, 1, 0, MPI_COMM_WORLD);
            if (rank == 0 && form == 1) {
                MPI_Pack(MPI_BOTTOM, 1, type, packed, sizeof packed, &position, MPI_COMM_WORLD);
                MPI_Send(packed, position, MPI_PACKED, 1, 0, MPI_COMM_WORLD);
            }
            if (rank == 1) MPI_Recv(MPI_BOTTOM, 1, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank > 1) continue;
            for (int at = 0; at < HEADER; at++) must(header[at] == 100 + at, "the header is %d", header[at]);
            must_hold(payload, PAYLOAD, 5);
            if (rank == 0) continue;
            for (int at = 0; at < HEADER; at++) header[at] = 0;
            gpu_copy(payload, packed, PAYLOAD);
        }
        MPI_Type_free(&type);
        gpu_free(DEVICE, payload, PAYLOAD);
    }
}
