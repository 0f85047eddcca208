// Operations: the interface between the files of this folder.
#ifndef CAUSEWAY_OPERATION_H
#define CAUSEWAY_OPERATION_H

#include "../interposer.h"

// request.c: the memory that an operation has besides the user's.

// Maps host memory whose pages cost nothing until they are touched; null for an error.
void *map_memory(uint64_t bytes);
// Replaces the user's memory by another buffer for the MPI. For a descriptor it is in the operation itself.
bool replace_memory(struct operation *operation, uint64_t bytes);
// Strided elements on a GPU get contiguous memory there, from which they are sent or into which they are received.
// Returns the message of an error, or null.
const char *pack_elements(struct operation *operation);
// Unpacks what has been received into the strided elements.
void unpack_elements(struct operation *operation);
void release_memory(struct operation *operation);

// start.c: delivery of received messages.

// Delivers a received message of so many bytes, which begin at `start`: in the user's memory, or in another buffer.
void arrive(struct operation *operation, const void *start, uint64_t length);
// The MPI's request has completed.
void end_inner(struct operation *operation, int error);

// progress.c: progress of operations.

// Nanoseconds of a monotonic clock.
long now(void);
// The duration of the last copy of a short message to the host.
extern long copied_in;
// The operation in flight with this request, or null. Needs the lock.
struct operation *operation_with(MPI_Request request);

#endif
