// What the report of CAUSEWAY_COMM_EXPLAIN says of a collective call.

#include <stdlib.h>

#include "collective.h"

static uint64_t bytes_of_layout(const struct layout *layout) {
    uint64_t bytes = 0;
    for (int at = 0; at < layout->count; at++)
        bytes += bytes_of(layout->blocks[at].count, layout->blocks[at].type);
    return bytes;
}

uint64_t bytes_of_layouts(const struct layout *out, const struct layout *in) {
    return bytes_of_layout(out) + bytes_of_layout(in);
}

void count_for_report(const struct call *call, const struct choice *choice) {
    if (!causeway_comm_explains()) return;
    struct layout out, in;
    if (lay_out(call, &out, &in) == MPI_SUCCESS)
        causeway_comm_count_call(name_of(call), choice->algorithm, choice->hosts, choice->is_leader,
                                 bytes_of_layouts(&out, &in));
    free(out.blocks);
    free(in.blocks);
}
