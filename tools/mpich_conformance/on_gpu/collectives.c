// Collective calls: where their data lie is what the interposer says, too.

#include "on_gpu.h"

struct sides {
    struct moved *out, *in;
};

// Moves what a call sends and receives, and has the call name it.
static struct sides move_sides(struct call *call) {
    struct layout out, in;
    struct sides sides = {NULL, NULL};
    if (lay_out(call, &out, &in) != MPI_SUCCESS) {
        free(out.blocks);
        free(in.blocks);
        return sides;
    }
    // A program that gives one place twice gives one place on the GPU twice.
    // What these send is more than what they receive.
    bool is_scatter = call->what == COLLECTIVE_Scatter || call->what == COLLECTIVE_Scatterv ||
                      call->what == COLLECTIVE_Reduce_scatter ||
                      call->what == COLLECTIVE_Reduce_scatter_block;
    struct side *whole = is_scatter ? &call->out : &call->in, *part = is_scatter ? &call->in : &call->out;
    struct layout *of_whole = is_scatter ? &out : &in, *of_part = is_scatter ? &in : &out;
    struct moved **moved_whole = is_scatter ? &sides.out : &sides.in;
    struct moved **moved_part = is_scatter ? &sides.in : &sides.out;
    of_whole->is_written = true;
    *moved_whole = move(whole->address, *of_whole);
    const struct moved *around = *moved_whole;
    if (lies_within(*moved_whole, part->address, of_part))
        free(of_part->blocks);
    else
        around = *moved_part = move(part->address, *of_part);
    part->address = moved_address(around, part->address);
    whole->address = moved_address(*moved_whole, whole->address);
    return sides;
}

static int end_call(int error, struct sides sides) {
    end_moved(sides.out);
    end_moved(sides.in);
    return error;
}

#define CALL(name, parameters, large) \
    {COLLECTIVE_##name, .is_large = large, parameters##_FILL, .comm = comm}
#define FORMS(name, lower, parameters, suffix, N, A, large)                                               \
    EXPORT int MPI_##name##suffix(parameters##_PARAMETERS(N, A), MPI_Comm comm) {                         \
        struct call call = CALL(name, parameters, large), *c = &call;                                     \
        struct sides sides = move_sides(c);                                                               \
        return end_call(NEXT(MPI_##name##suffix)(parameters##_ARGUMENTS(N, A), comm), sides);             \
    }                                                                                                     \
    EXPORT int MPI_I##lower##suffix(parameters##_PARAMETERS(N, A), MPI_Comm comm, MPI_Request *request) { \
        struct call call = CALL(name, parameters, large), *c = &call;                                     \
        struct sides sides = move_sides(c);                                                               \
        int error = NEXT(MPI_I##lower##suffix)(parameters##_ARGUMENTS(N, A), comm, request);              \
        remember(*request, error, false, sides.out, sides.in);                                            \
        return error;                                                                                     \
    }
#define OFTEN(name, parameters, suffix, N, A, large)                                                    \
    EXPORT int MPI_##name##_init##suffix(parameters##_PARAMETERS(N, A), MPI_Comm comm, MPI_Info info,   \
                                         MPI_Request *request) {                                        \
        struct call call = CALL(name, parameters, large), *c = &call;                                   \
        struct sides sides = move_sides(c);                                                             \
        int error = NEXT(MPI_##name##_init##suffix)(parameters##_ARGUMENTS(N, A), comm, info, request); \
        remember(*request, error, true, sides.out, sides.in);                                           \
        return error;                                                                                   \
    }

#define ALL_FORMS(name, lower, parameters, ...) FORMS(name, lower, parameters, , int, int, false)
COLLECTIVE_CALLS(ALL_FORMS)
FORMS(Neighbor_alltoallw, neighbor_alltoallw, TYPES_BOTH, , int, MPI_Aint, false)

EXPORT int MPI_Reduce_local(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o) {
    struct call call = {COLLECTIVE_Reduce_local, .is_large = false, REDUCTION_FILL, .comm = MPI_COMM_SELF};
    struct sides sides = move_sides(&call);
    return end_call(NEXT(MPI_Reduce_local)(call.out.address, call.in.address, n, t, o), sides);
}

#if HAS_PERSISTENT
#define ALL_OFTEN(name, lower, parameters, ...) OFTEN(name, parameters, , int, int, false)
COLLECTIVE_CALLS(ALL_OFTEN)
OFTEN(Neighbor_alltoallw, TYPES_BOTH, , int, MPI_Aint, false)
#endif

#if MPI_VERSION >= 4
#define ALL_LARGE(name, lower, parameters, ...)                   \
    FORMS(name, lower, parameters, _c, MPI_Count, MPI_Aint, true) \
    OFTEN(name, parameters, _c, MPI_Count, MPI_Aint, true)
COLLECTIVE_CALLS(ALL_LARGE)
FORMS(Neighbor_alltoallw, neighbor_alltoallw, TYPES_BOTH, _c, MPI_Count, MPI_Aint, true)
OFTEN(Neighbor_alltoallw, TYPES_BOTH, _c, MPI_Count, MPI_Aint, true)
#endif
