// The calls in all their forms.
#include "collectives.h"

#define LIST(...) __VA_ARGS__
#if MPI_VERSION >= 4
// The call in a form. What is repeated by a persistent request begins with the same bytes.
static void again(const struct plan *plan, MPI_Request *request) {
    MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
#ifdef MPICH
    // MPICH 4.0.2 copies what a rank has for itself when the request is made, and never again.
    if (plan->what != BCAST) {
        MPI_Request_free(request);
        return;
    }
#endif
    gpu_copy(plan->sent.address, plan->sent.before, plan->sent.bytes);
    gpu_copy(plan->received.address, plan->received.before, plan->received.bytes);
    MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
    MPI_Request_free(request);
}

#define FOUR(name, lower, arguments, large)                                 \
    case OFTEN:                                                             \
        MPI_##name##_init(arguments, plan->comm, MPI_INFO_NULL, &request);  \
        again(plan, &request);                                              \
        break;                                                              \
    case LARGE: MPI_##name##_c(large, plan->comm); break;                   \
    case LARGE_LATER: MPI_I##lower##_c(large, plan->comm, &request); break; \
    case LARGE_OFTEN:                                                       \
        MPI_##name##_init_c(large, plan->comm, MPI_INFO_NULL, &request);    \
        again(plan, &request);                                              \
        break;
#else
#define FOUR(name, lower, arguments, large)               \
    case OFTEN:                                           \
    case LARGE_OFTEN:                                     \
    case LARGE: MPI_##name(arguments, plan->comm); break; \
    case LARGE_LATER: MPI_I##lower(arguments, plan->comm, &request); break;
#endif
#define CALL(name, lower, arguments, large)                    \
    switch (form) {                                            \
    case HOST_FORM: PMPI_##name(arguments, plan->comm); break; \
    case BLOCKING: MPI_##name(arguments, plan->comm); break;   \
    case LATER:                                                \
        MPI_I##lower(arguments, plan->comm, &request);         \
        break;                                                 \
        FOUR(name, lower, LIST(arguments), LIST(large))        \
    default: break;                                            \
    }                                                          \
    break

void perform(const struct plan *plan, enum form form, void *out, void *in) {
    const struct lists *o = &plan->out, *i = &plan->in;
    int n = plan->count, root = plan->root;
    MPI_Datatype t = plan->type->type;
    MPI_Op op = plan->operation->op;
    MPI_Request request = MPI_REQUEST_NULL;
    if (plan->in_place) out = MPI_IN_PLACE;
    switch (plan->what) {
    case REDUCE: CALL(Reduce, reduce, LIST(out, in, n, t, op, root), LIST(out, in, n, t, op, root));
    case ALLREDUCE: CALL(Allreduce, allreduce, LIST(out, in, n, t, op), LIST(out, in, n, t, op));
    case SCAN: CALL(Scan, scan, LIST(out, in, n, t, op), LIST(out, in, n, t, op));
    case EXSCAN: CALL(Exscan, exscan, LIST(out, in, n, t, op), LIST(out, in, n, t, op));
    case REDUCE_SCATTER:
        CALL(Reduce_scatter, reduce_scatter, LIST(out, in, i->counts, t, op),
             LIST(out, in, i->large_counts, t, op));
    case REDUCE_SCATTER_BLOCK:
        CALL(Reduce_scatter_block, reduce_scatter_block, LIST(out, in, n, t, op), LIST(out, in, n, t, op));
    case REDUCE_LOCAL:
        if (form == HOST_FORM)
            PMPI_Reduce_local(out, in, n, t, op);
        else
            MPI_Reduce_local(out, in, n, t, op);
        break;
    case BCAST: CALL(Bcast, bcast, LIST(in, n, t, root), LIST(in, n, t, root));
    case GATHER: CALL(Gather, gather, LIST(out, n, t, in, n, t, root), LIST(out, n, t, in, n, t, root));
    case GATHERV:
        CALL(Gatherv, gatherv, LIST(out, o->counts[0], t, in, i->counts, i->places, t, root),
             LIST(out, o->counts[0], t, in, i->large_counts, i->large_places, t, root));
    case SCATTER: {
        // In place is what the root receives.
        void *from = form == HOST_FORM ? plan->sent.expected : plan->sent.address;
        void *to = plan->in_place ? MPI_IN_PLACE : in;
        CALL(Scatter, scatter, LIST(from, n, t, to, n, t, root), LIST(from, n, t, to, n, t, root));
    }
    case SCATTERV: {
        void *from = form == HOST_FORM ? plan->sent.expected : plan->sent.address;
        void *to = plan->in_place ? MPI_IN_PLACE : in;
        CALL(Scatterv, scatterv, LIST(from, o->counts, o->places, t, to, i->counts[0], t, root),
             LIST(from, o->large_counts, o->large_places, t, to, i->counts[0], t, root));
    }
    case ALLGATHER: CALL(Allgather, allgather, LIST(out, n, t, in, n, t), LIST(out, n, t, in, n, t));
    case ALLGATHERV:
        CALL(Allgatherv, allgatherv, LIST(out, o->counts[0], t, in, i->counts, i->places, t),
             LIST(out, o->counts[0], t, in, i->large_counts, i->large_places, t));
    case ALLTOALL: CALL(Alltoall, alltoall, LIST(out, n, t, in, n, t), LIST(out, n, t, in, n, t));
    case ALLTOALLV:
        CALL(Alltoallv, alltoallv, LIST(out, o->counts, o->places, t, in, i->counts, i->places, t),
             LIST(out, o->large_counts, o->large_places, t, in, i->large_counts, i->large_places, t));
    case ALLTOALLW:
        CALL(Alltoallw, alltoallw,
             LIST(out, o->counts, o->places, o->types, in, i->counts, i->places, i->types),
             LIST(out, o->large_counts, o->large_places, o->types, in, i->large_counts, i->large_places,
                  i->types));
    case NEIGHBOR_ALLGATHER:
        CALL(Neighbor_allgather, neighbor_allgather, LIST(out, n, t, in, n, t), LIST(out, n, t, in, n, t));
    case NEIGHBOR_ALLGATHERV:
        CALL(Neighbor_allgatherv, neighbor_allgatherv, LIST(out, n, t, in, i->counts, i->places, t),
             LIST(out, n, t, in, i->large_counts, i->large_places, t));
    case NEIGHBOR_ALLTOALL:
        CALL(Neighbor_alltoall, neighbor_alltoall, LIST(out, n, t, in, n, t), LIST(out, n, t, in, n, t));
    case NEIGHBOR_ALLTOALLV:
        CALL(Neighbor_alltoallv, neighbor_alltoallv,
             LIST(out, o->counts, o->places, t, in, i->counts, i->places, t),
             LIST(out, o->large_counts, o->large_places, t, in, i->large_counts, i->large_places, t));
    case NEIGHBOR_ALLTOALLW:
        CALL(Neighbor_alltoallw, neighbor_alltoallw,
             LIST(out, o->counts, o->large_places, o->types, in, i->counts, i->large_places, i->types),
             LIST(out, o->large_counts, o->large_places, o->types, in, i->large_counts, i->large_places,
                  i->types));
    default: break;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}
