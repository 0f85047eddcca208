// Calls that all ranks make together and that move none of the program's data. This rank may wait in them for
// one that waits for the end of a copy from it, which is made here: so that ends first.

#include "../shim.h"

#define TOGETHER(name, parameters, arguments) \
    EXPORT int MPI_##name parameters {        \
        finish_fetches();                     \
        return PMPI_##name arguments;         \
    }

TOGETHER(Comm_dup, (MPI_Comm c, MPI_Comm *n), (c, n))
TOGETHER(Comm_dup_with_info, (MPI_Comm c, MPI_Info i, MPI_Comm *n), (c, i, n))
TOGETHER(Comm_create, (MPI_Comm c, MPI_Group g, MPI_Comm *n), (c, g, n))
TOGETHER(Comm_create_group, (MPI_Comm c, MPI_Group g, int tag, MPI_Comm *n), (c, g, tag, n))
TOGETHER(Comm_split, (MPI_Comm c, int color, int key, MPI_Comm *n), (c, color, key, n))
TOGETHER(Comm_split_type, (MPI_Comm c, int kind, int key, MPI_Info i, MPI_Comm *n), (c, kind, key, i, n))
TOGETHER(Comm_disconnect, (MPI_Comm * c), (c))
TOGETHER(Intercomm_create, (MPI_Comm c, int leader, MPI_Comm peers, int other, int tag, MPI_Comm *n),
         (c, leader, peers, other, tag, n))
TOGETHER(Intercomm_merge, (MPI_Comm c, int high, MPI_Comm *n), (c, high, n))
TOGETHER(Cart_create, (MPI_Comm c, int d, const int s[], const int p[], int reorder, MPI_Comm *n),
         (c, d, s, p, reorder, n))
TOGETHER(Cart_sub, (MPI_Comm c, const int d[], MPI_Comm *n), (c, d, n))
TOGETHER(Graph_create, (MPI_Comm c, int k, const int x[], const int e[], int reorder, MPI_Comm *n),
         (c, k, x, e, reorder, n))
TOGETHER(Dist_graph_create,
         (MPI_Comm c, int k, const int s[], const int g[], const int d[], const int w[], MPI_Info i,
          int reorder, MPI_Comm *n),
         (c, k, s, g, d, w, i, reorder, n))
TOGETHER(Dist_graph_create_adjacent,
         (MPI_Comm c, int k, const int s[], const int v[], int l, const int d[], const int w[], MPI_Info i,
          int reorder, MPI_Comm *n),
         (c, k, s, v, l, d, w, i, reorder, n))
