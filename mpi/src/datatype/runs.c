// Copies of elements with gaps, to a place where their bytes lie one behind the other, and back.

#include <stdlib.h>
#include <string.h>

#include "datatype.h"

// They are kept with a type, which may be freed while something of it is under way.
struct runs {
    struct causeway_comm_runs list;
    // Divides the length of each element of a predefined type; 0 where there is none.
    uint64_t unit;
    int holders;
};

void drop_runs(struct runs *runs) {
    lock();
    bool is_last = --runs->holders == 0;
    unlock();
    if (!is_last) return;
    causeway_comm_forget_runs(runs->list.id);
    free((void *)runs->list.runs);
    free(runs);
}

static int forget(MPI_Datatype type, int key, void *runs, void *unused) {
    (void)type, (void)key, (void)unused;
    drop_runs(runs);
    return MPI_SUCCESS;
}

static struct runs *find_runs(MPI_Datatype type) {
    static uint64_t last;
    struct flat flat = {0};
    struct runs *runs = calloc(1, sizeof *runs);
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type, &lower, &extent);
    if (runs == NULL || flatten(type, &flat) != 0) {
        free(flat.runs);
        free(runs);
        return NULL;
    }
    runs->list = (struct causeway_comm_runs){++last, flat.count, flat.runs, extent};
    runs->unit = flat.unit;
    runs->holders = 1;
    return runs;
}

struct runs *hold_runs(MPI_Datatype type) {
    static int key = MPI_KEYVAL_INVALID;
    lock();
    if (key == MPI_KEYVAL_INVALID) PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget, &key, NULL);
    struct runs *runs = NULL;
    int is_known = 0;
    PMPI_Type_get_attr(type, key, &runs, &is_known);
    if (!is_known) {
        runs = find_runs(type);
        if (runs != NULL) PMPI_Type_set_attr(type, key, runs);
    }
    if (runs != NULL) runs->holders++;
    unlock();
    return runs;
}

bool may_be_whole(const struct runs *runs, uint64_t bytes) {
    return runs->unit == 0 || bytes % runs->unit == 0;
}

const char NO_RUNS[] = "the datatype is made in a way that cannot be used on a GPU "
                       "(by a call for large counts, or of more than a million pieces)";

const char *copy_runs(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack) {
    if (bytes == 0) return NULL;
    return causeway_comm_copy_runs(&runs->list, typed, packed, bytes, is_pack) == 0 ? NULL
                                                                                    : causeway_comm_error();
}

void copy_runs_on_host(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack) {
    char *element = typed, *place = packed, *end = place + bytes;
    for (; place < end; element += runs->list.extent) {
        for (uint64_t at = 0; at < runs->list.count && place < end; at++) {
            const struct causeway_comm_run *run = &runs->list.runs[at];
            uint64_t some = run->bytes < (uint64_t)(end - place) ? run->bytes : (uint64_t)(end - place);
            if (is_pack)
                memcpy(place, element + run->offset, some);
            else
                memcpy(element + run->offset, place, some);
            place += some;
        }
    }
}

MPI_Aint first_of(MPI_Datatype type) {
    MPI_Aint lower = 0, extent;
    PMPI_Type_get_true_extent(type, &lower, &extent);
    return lower;
}

bool is_on_gpu(const void *address, MPI_Datatype type) {
    if (address != MPI_BOTTOM) return causeway_comm_on_gpu(address);
    // Displacements are addresses, of a type that the program has made.
    return type != MPI_DATATYPE_NULL && causeway_comm_on_gpu((const void *)first_of(type));
}
