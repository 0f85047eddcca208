// What the files of an operation share.
#ifndef CAUSEWAY_OPERATION_H
#define CAUSEWAY_OPERATION_H

#include "../shim.h"

// memory.c: the memory that an operation has besides the user's.

// Memory of the host that costs nothing until it is touched, or null.
void *map_memory(uint64_t bytes);
// Gives the MPI other memory than the user's. What a descriptor fits into lies in the operation itself.
bool replace_memory(struct operation *operation, uint64_t bytes);
// Elements with gaps on a GPU get memory there in which they lie one behind the other, and from which they
// are sent or into which they are received. Gives the words of an error, or null.
const char *pack_elements(struct operation *operation);
// Brings what has been received to the elements that have gaps.
void unpack_elements(struct operation *operation);
void release_memory(struct operation *operation);

// arrive.c: what becomes of a message that has come.

// A message has come, of so many bytes, which begin at `start`: in the user's memory, or elsewhere.
void arrive(struct operation *operation, const void *start, uint64_t length);
// The MPI's part has come to its end.
void end_inner(struct operation *operation, int error);

// progress.c: what moves operations on.

// Nanoseconds of a clock that only goes on.
long now(void);
// How long the last copy of something short to the host took.
extern long copied_in;
// The operation whose request this is, if it is under way; null otherwise. Needs the lock.
struct operation *operation_with(MPI_Request request);

#endif
