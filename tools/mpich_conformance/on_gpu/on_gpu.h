// A library that is preloaded in front of the interposer. It gives MPI programs that know of no GPU memory on
// one: each buffer that a program hands to its MPI is copied to the GPU, the next library's call gets the
// copy, and what came is copied back when the program may look at it.
//
// ON_GPU_MEMORY says which kind of memory that is: `device` (the default), or `mixed` for any, by random.
// ON_GPU_REPORT names a file: each process adds a line to it with the number of buffers that went to the GPU,
// and of those that stayed where they were.
#ifndef ON_GPU_H
#define ON_GPU_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>

#include "collective/collective.h"

// The next library's function of this name.
#define NEXT(name)                                          \
    ({                                                      \
        static void *found;                                 \
        if (found == NULL) found = dlsym(RTLD_NEXT, #name); \
        if (found == NULL) abort();                         \
        (__typeof__(&name))found;                           \
    })

// moved.c: a buffer whose elements are on the GPU.

struct moved;
// Takes a layout's elements to the GPU; the layout's blocks are taken over. Null where they stay: there are
// none, or they lie where the type's addresses say.
struct moved *move(const void *address, struct layout layout);
// The same for elements of one type.
struct moved *move_elements(const void *address, MPI_Count count, MPI_Datatype type, bool is_written);
// Whether a layout's elements from an address on are among a buffer's.
bool lies_within(const struct moved *moved, const void *address, const struct layout *layout);
// What a call is given instead of the program's address, which is the buffer's or lies within it.
void *moved_address(const struct moved *moved, const void *address);
// Brings the elements to the GPU once more, and what came there back to the program.
void bring_up(struct moved *moved);
void bring_down(struct moved *moved);
// The same for some of its bytes, counted from the program's address on; what is not there is left out.
void bring_up_part(struct moved *moved, size_t from, size_t bytes);
void bring_down_part(struct moved *moved, size_t from, size_t bytes);
// Gives the memory back.
void drop_moved(struct moved *moved);
// The end of a call.
void end_moved(struct moved *moved);
void write_report(void);

// requests.c: buffers of calls that have not come to their end.

void remember(MPI_Request request, int error, bool is_persistent, struct moved *out, struct moved *in);
// The same of a one-sided call, which may come to its end by a call for its window, too: for a target, or for
// ALL.
enum { ALL = -1 };
void remember_access(MPI_Request request, int error, MPI_Win window, int target, struct moved *out,
                     struct moved *in);
void end_requests(MPI_Win window, int target);
// The same of a partitioned message, whose partitions have so many bytes each, gaps included.
void remember_parts(MPI_Request request, int error, size_t bytes, struct moved *out, struct moved *in);
// Brings partitions of what a request sends to the GPU, or one that it has received back to the program.
void bring_out(MPI_Request request, int first, int count);
void bring_in(MPI_Request request, int partition);

#endif
