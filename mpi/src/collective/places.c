// Which ranks of a communicator are on one host, and who speaks for them?
//
// A rank knows whom it reaches on its host, and no more: what containers share need not be the same for all
// of them. So the ranks tell each other once, when the communicator is first used for a call that may go from
// GPU to GPU, and each of them makes the same places of that. Each place has a communicator of its own, and
// so have the leaders, the first rank of each place.

#include <stdlib.h>
#include <string.h>

#include "places.h"

// What a rank says of each one: that it reaches it there; and by its own byte whether it uses a network.
enum { NEAR = 1, NETWORK = 2 };

static int key = MPI_KEYVAL_INVALID;

static void drop_places(struct places *places) {
    if (places == NULL) return;
    if (places->inside != MPI_COMM_NULL) PMPI_Comm_free(&places->inside);
    if (places->leaders != MPI_COMM_NULL) PMPI_Comm_free(&places->leaders);
    free(places->ranks);
    free(places);
}

static int forget_places(MPI_Comm comm, int which, void *places, void *unused) {
    (void)comm, (void)which, (void)unused;
    drop_places(places);
    return MPI_SUCCESS;
}

void forget_places_of_world(void) {
    forget_attribute_of_world(key);
}

// Puts each rank into the first place whose ranks all reach it, and are reached by it.
static uint32_t find_places(const unsigned char *rows, uint32_t count, struct place_of_rank *ranks) {
    uint32_t places = 0;
    for (uint32_t rank = 0; rank < count; rank++) {
        uint32_t place = 0, inside = 0;
        for (; place < places; place++) {
            bool fits = true;
            inside = 0;
            for (uint32_t other = 0; other < rank && fits; other++) {
                if (ranks[other].place != place) continue;
                fits = (rows[rank * count + other] & rows[other * count + rank] & NEAR) != 0;
                inside++;
            }
            if (fits) break;
        }
        if (place == places) inside = 0;
        ranks[rank] = (struct place_of_rank){place, inside};
        if (place == places) places++;
    }
    return places;
}

// This rank's group in its place, and that of the leaders.
static int make_groups(struct places *places, const struct members *members, MPI_Comm comm) {
    uint32_t me = members->rank, own = places->ranks[me].place;
    places->own = own;
    places->is_leader = places->ranks[me].inside == 0;
    int color = places->is_leader ? 0 : MPI_UNDEFINED;
    int error = PMPI_Comm_split(comm, (int)own, (int)me, &places->inside);
    if (error == MPI_SUCCESS) error = PMPI_Comm_split(comm, color, (int)me, &places->leaders);
    if (error != MPI_SUCCESS) return error;
    PMPI_Comm_set_errhandler(places->inside, MPI_ERRORS_RETURN);
    if (places->is_leader) PMPI_Comm_set_errhandler(places->leaders, MPI_ERRORS_RETURN);
    places->inside_members = (uint32_t *)(places->ranks + members->count);
    places->leading_members = places->inside_members + members->count;
    for (uint32_t rank = 0; rank < members->count; rank++) {
        const struct place_of_rank *of = &places->ranks[rank];
        if (of->place == own) places->inside_members[places->inside_count++] = members->ranks[rank];
        if (of->inside == 0) places->leading_members[of->place] = members->ranks[rank];
        places->is_shared |= of->inside > 0;
    }
    return MPI_SUCCESS;
}

static int make_places(MPI_Comm comm, const struct members *members, struct places **made) {
    uint32_t count = members->count;
    struct places *places = calloc(1, sizeof *places);
    unsigned char *rows = calloc(count + 1, count);
    if (places == NULL || rows == NULL) abort();
    places->inside = places->leaders = MPI_COMM_NULL;
    places->ranks = calloc(count, sizeof *places->ranks + 2 * sizeof(uint32_t));
    if (places->ranks == NULL) abort();
    // All of them have joined the job when they have come here.
    int error = PMPI_Barrier(comm);
    unsigned char *own = rows + (size_t)count * count;
    for (uint32_t rank = 0; rank < count && error == MPI_SUCCESS; rank++)
        own[rank] = causeway_comm_is_local(members->ranks[rank]) ? NEAR : 0;
    if (causeway_comm_uses_network()) own[members->rank] |= NETWORK;
    if (error == MPI_SUCCESS)
        error = PMPI_Allgather(own, (int)count, MPI_BYTE, rows, (int)count, MPI_BYTE, comm);
    if (error == MPI_SUCCESS) {
        places->count = find_places(rows, count, places->ranks);
        places->use_network = true;
        for (uint32_t rank = 0; rank < count; rank++)
            places->use_network &= (rows[(size_t)rank * count + rank] & NETWORK) != 0;
        error = make_groups(places, members, comm);
    }
    free(rows);
    if (error != MPI_SUCCESS) {
        drop_places(places);
        places = NULL;
    }
    *made = places;
    return error;
}

int places_of(MPI_Comm comm, const struct members *members, struct places **places) {
    if (find_kept(comm, &key, forget_places, places)) return MPI_SUCCESS;
    // Without the lock: other threads go on while this rank waits for the others.
    int error = make_places(comm, members, places);
    if (error == MPI_SUCCESS) error = PMPI_Comm_set_attr(comm, key, *places);
    return error;
}
