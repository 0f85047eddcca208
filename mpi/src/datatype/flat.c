// A list of runs of bytes, to which more are added.

#include <stdlib.h>

#include "datatype.h"

// More runs are as many bytes of a table on the GPU, times 24.
enum { MOST_RUNS = 1 << 20 };

int add_run(struct flat *flat, int64_t offset, uint64_t bytes) {
    if (bytes == 0) return 0;
    struct causeway_comm_run *last = flat->count > 0 ? &flat->runs[flat->count - 1] : NULL;
    if (last != NULL && last->offset + (int64_t)last->bytes == offset) {
        last->bytes += bytes;
        return 0;
    }
    if (flat->count == MOST_RUNS) return -1;
    if (flat->count == flat->room) {
        uint64_t room = flat->room > 0 ? 2 * flat->room : 16;
        struct causeway_comm_run *runs = realloc(flat->runs, room * sizeof *runs);
        if (runs == NULL) return -1;
        flat->runs = runs;
        flat->room = room;
    }
    flat->runs[flat->count++] = (struct causeway_comm_run){offset, bytes};
    return 0;
}

uint64_t common_divisor(uint64_t one, uint64_t other) {
    return other == 0 ? one : common_divisor(other, one % other);
}

int repeat(struct flat *to, const struct flat *from, int64_t count, int64_t start, int64_t stride) {
    if (count > 0) to->unit = common_divisor(to->unit, from->unit);
    for (int64_t at = 0; at < count; at++)
        for (uint64_t run = 0; run < from->count; run++)
            if (add_run(to, start + at * stride + from->runs[run].offset, from->runs[run].bytes) != 0) return -1;
    return 0;
}
