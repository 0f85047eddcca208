// The part of a call in two levels that the leaders of all hosts make together: by channels where they all
// reach each other over a network and have their memory on GPUs, and by the MPI in pieces otherwise.

#include "levels.h"

// After what the MPI has done: does a leader have nothing right?
static void tell_of_errors(struct levels *levels) {
    int has_failed = levels->error != MPI_SUCCESS, have_failed = 0;
    note(levels, PMPI_Allreduce(&has_failed, &have_failed, 1, MPI_INT, MPI_MAX, levels->places->leaders));
    if (have_failed && levels->error == MPI_SUCCESS) note_words(levels, ELSEWHERE);
}

// Each leader puts a part of the elements together, and gives it to the others. So it sends and receives no
// more than it must, which the non-blocking calls of MPIs do not always see to, and all leaders get the same
// bits.
static void allreduce_in_portions(struct levels *levels, const void *from, void *to) {
    uint32_t hosts = levels->places->count, me = levels->places->own;
    struct causeway_comm_range given[hosts], got[hosts];
    struct portion parts[hosts], results[hosts];
    uint64_t first = 0;
    for (uint32_t host = 0; host < hosts; host++) {
        uint64_t end = levels->count * (host + 1) / hosts, bytes = (end - first) * levels->extent;
        uint64_t offset = first * levels->extent;
        given[host] = (struct causeway_comm_range){(char *)from + offset, bytes};
        got[host] = (struct causeway_comm_range){(char *)to + offset, bytes};
        parts[host] = (struct portion){1, &given[host], bytes};
        results[host] = (struct portion){1, &got[host], bytes};
        first = end;
    }
    struct between between = between_of(levels, COLLECTIVE_Allreduce, false, 0, from, to);
    note(levels, exchange_in_pieces(&between, hosts, parts, &results[me]));
    note(levels, exchange_in_pieces(&between, hosts, results, NULL));
}

void lead(struct levels *levels, enum collective what, uint32_t root, const void *from, void *to) {
    if (!levels->places->is_leader) return;
    int made = 1;
    if (levels->places->use_network) {
        bool is_well = levels->error == MPI_SUCCESS;
        const void *given = is_well ? from : NULL;
        void *taken = is_well ? to : NULL;
        if (what == COLLECTIVE_Bcast)
            made = causeway_comm_broadcast(&levels->leaders, taken, levels->bytes, root);
        else if (what == COLLECTIVE_Reduce)
            made = causeway_comm_reduce(&levels->leaders, given, taken, levels->count, levels->element,
                                        levels->operation, root);
        else
            made = causeway_comm_allreduce(&levels->leaders, given, taken, levels->count, levels->element,
                                           levels->operation);
    }
    levels->by_channels = made == 0;
    if (is_made(levels, made)) return;
    if (what == COLLECTIVE_Allreduce) {
        allreduce_in_portions(levels, from, to);
    } else {
        struct between between = between_of(levels, what, false, (int)root, from, to);
        note(levels, make_in_pieces(&between));
    }
    tell_of_errors(levels);
}

// The blocks of the ranks of each place, in the order of places and then of ranks.
static void order_blocks(const struct levels *levels, const struct causeway_comm_range *blocks,
                         struct causeway_comm_range *ordered, struct portion *portions) {
    const struct places *places = levels->places;
    for (uint32_t place = 0; place < places->count; place++) {
        struct portion *portion = &portions[place];
        *portion = (struct portion){.ranges = ordered};
        for (uint32_t rank = 0; rank < levels->ranks; rank++) {
            if (places->ranks[rank].place != place) continue;
            ordered[portion->count++] = blocks[rank];
            portion->bytes += blocks[rank].bytes;
        }
        ordered += portion->count;
    }
}

// The block of a place in a round; of no bytes where it has none.
static struct causeway_comm_range block_in(const struct portion *portion, uint32_t round) {
    return round < portion->count ? portion->ranges[round] : (struct causeway_comm_range){NULL, 0};
}

// One block of each place in turn. Says whether that was it: else all leaders have heard that one cannot.
static bool gather_by_channels(struct levels *levels, const struct portion *portions) {
    uint32_t hosts = levels->places->count, me = levels->places->own, rounds = 0;
    struct causeway_comm_range gives[hosts], takes[hosts];
    for (uint32_t host = 0; host < hosts; host++)
        rounds = portions[host].count > rounds ? portions[host].count : rounds;
    for (uint32_t round = 0; round < rounds; round++) {
        struct causeway_comm_range own = block_in(&portions[me], round);
        if (levels->error != MPI_SUCCESS) own.address = NULL;
        for (uint32_t host = 0; host < hosts; host++) {
            gives[host] = own;
            takes[host] = host == me ? own : block_in(&portions[host], round);
        }
        if (!is_made(levels, causeway_comm_exchange(&levels->leaders, gives, takes, levels->bytes)))
            return false;
    }
    return true;
}

void lead_gathering(struct levels *levels, const struct causeway_comm_range *blocks) {
    if (!levels->places->is_leader) return;
    struct causeway_comm_range ordered[levels->ranks];
    struct portion portions[levels->places->count];
    order_blocks(levels, blocks, ordered, portions);
    levels->by_channels = levels->places->use_network && gather_by_channels(levels, portions);
    if (levels->by_channels) return;
    struct between between = between_of(levels, COLLECTIVE_Allgather, false, 0, ordered[0].address, NULL);
    note(levels, exchange_in_pieces(&between, levels->places->count, portions, NULL));
    tell_of_errors(levels);
}

// By a call of the leaders that knows elements that lie one behind the other alone.
static bool scatter_by_channels(struct levels *levels, const struct causeway_comm_range *blocks,
                                const struct portion *portions, const struct portion *result) {
    const struct places *places = levels->places;
    uint64_t counts[places->count];
    for (uint32_t rank = 1; rank < levels->ranks; rank++)
        if (places->ranks[rank].place < places->ranks[rank - 1].place) return false;
    for (uint32_t host = 0; host < places->count; host++)
        counts[host] = portions[host].bytes / levels->extent;
    const void *from = levels->error == MPI_SUCCESS ? blocks[0].address : NULL;
    int made = causeway_comm_reduce_scatter(&levels->leaders, from, result->ranges[0].address, counts,
                                            levels->element, levels->operation);
    return is_made(levels, made);
}

void lead_scattering(struct levels *levels, const struct causeway_comm_range *blocks, void *elsewhere) {
    if (!levels->places->is_leader) return;
    struct causeway_comm_range ordered[levels->ranks];
    struct portion portions[levels->places->count];
    order_blocks(levels, blocks, ordered, portions);
    struct portion result = portions[levels->places->own];
    struct causeway_comm_range other = {elsewhere, result.bytes};
    if (elsewhere != NULL) result = (struct portion){1, &other, result.bytes};
    levels->by_channels =
        levels->places->use_network && scatter_by_channels(levels, blocks, portions, &result);
    if (levels->by_channels) return;
    struct between between =
        between_of(levels, COLLECTIVE_Reduce_scatter, false, 0, blocks[0].address, NULL);
    note(levels, exchange_in_pieces(&between, levels->places->count, portions, &result));
    tell_of_errors(levels);
}
