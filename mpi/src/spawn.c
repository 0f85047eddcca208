// Spawned processes: they get the interposer, as the program's own ranks have it. Open MPI 5 gives them the
// environment of its daemon, and what a key of the info names; MPICH and Open MPI 4 give them that of
// the first ranks.

#include <stdlib.h>
#include <string.h>

#include "operation/operation.h"

#ifdef OPEN_MPI

// The keys of an info whose values are variables, one a line, with the one to use last. Open MPI 5 warns its
// user of `env`.
#if OMPI_MAJOR_VERSION >= 5
static const char *const KEYS[] = {"env", "PMIX_ENVAR"};
#else
static const char *const KEYS[] = {"env"};
#endif
enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

// A copy of the program's info, with the library to preload. It must be freed; the program's own if there is
// none.
static MPI_Info with_interposer(MPI_Info info) {
    static const char NAME[] = "LD_PRELOAD=";
    const char *preload = getenv("LD_PRELOAD");
    char before[MPI_MAX_INFO_VAL] = "", all[MPI_MAX_INFO_VAL];
    int has_before = 0;
    MPI_Info made;
    if (preload == NULL) return info;
    for (int at = 0; at < KEY_COUNT && info != MPI_INFO_NULL; at++) {
        before[0] = '\0';
        PMPI_Info_get(info, KEYS[at], (int)sizeof before - 1, before, &has_before);
        // The program's setting has precedence.
        if (strstr(before, NAME) != NULL) return info;
    }
    if (strlen(before) + strlen(NAME) + strlen(preload) + 2 > sizeof all) return info;
    strcpy(all, before);
    if (has_before) strcat(all, "\n");
    strcat(strcat(all, NAME), preload);
    int error = info == MPI_INFO_NULL ? PMPI_Info_create(&made) : PMPI_Info_dup(info, &made);
    if (error != MPI_SUCCESS) return info;
    PMPI_Info_set(made, KEYS[KEY_COUNT - 1], all);
    return made;
}

EXPORT int MPI_Comm_spawn(const char *command, char *argv[], int count, MPI_Info info, int root,
                          MPI_Comm comm, MPI_Comm *children, int errors[]) {
    finish_fetches();
    MPI_Info extended = with_interposer(info);
    int error = PMPI_Comm_spawn(command, argv, count, extended, root, comm, children, errors);
    if (extended != info) PMPI_Info_free(&extended);
    return error;
}

EXPORT int MPI_Comm_spawn_multiple(int count, char *commands[], char **argv[], const int counts[],
                                   const MPI_Info infos[], int root, MPI_Comm comm, MPI_Comm *children,
                                   int errors[]) {
    int rank = 0;
    finish_fetches();
    PMPI_Comm_rank(comm, &rank);
    // Only the root's arguments are used.
    size_t some = rank == root && count > 0 ? (size_t)count : 0;
    MPI_Info *extended = calloc(some + 1, sizeof(MPI_Info));
    if (extended == NULL) abort();
    for (size_t at = 0; at < some; at++) extended[at] = with_interposer(infos[at]);
    int error = PMPI_Comm_spawn_multiple(count, commands, argv, counts, some > 0 ? extended : infos, root,
                                         comm, children, errors);
    for (size_t at = 0; at < some; at++)
        if (extended[at] != infos[at]) PMPI_Info_free(&extended[at]);
    free(extended);
    return error;
}

#endif
