// Datatypes of messages: the bytes of elements, their location, and elements with gaps.
#ifndef CAUSEWAY_DATATYPE_H
#define CAUSEWAY_DATATYPE_H

#include "../interposer.h"

// datatype/flatten.c: the bytes of a datatype.

uint64_t bytes_of(MPI_Count count, MPI_Datatype type);
// The numbers of integers, addresses, large counts and types that make a type. There are large counts if it
// was made by a call for them (_c).
struct envelope {
    MPI_Count integers, addresses, large, types;
};
// How a type is made (MPI_COMBINER_*).
int combiner_of(MPI_Datatype type, struct envelope *envelope);
// Whether a type is predefined, and must not be freed. Those of Fortran with a given precision
// (MPI_Type_create_f90_real) are.
bool is_predefined(MPI_Datatype type);
// Whether such elements are contiguous, in the order in which they are sent.
bool is_contiguous(MPI_Datatype type);
// Whether such elements are received as bytes, and put to their places afterwards. In a job all messages are,
// since one may be a descriptor. Under MPICH those with gaps are in any case: a message from a GPU, or a
// buffered one, is of bytes, and MPICH 4.0.3 has errors for structures where pieces of it end within a
// number.
bool is_received_as_bytes(MPI_Datatype type);
// If the MPI counts with an int and there are more bytes (the type is MPI_BYTE): makes them one element of a
// type that must be freed. Whether it did.
bool make_narrow(MPI_Count *count, MPI_Datatype *type);

// datatype/pack.c: elements with gaps.

struct runs;
// A type's runs, which must be dropped; null if they cannot be determined, for the reason NO_RUNS.
struct runs *hold_runs(MPI_Datatype type);
void drop_runs(struct runs *runs);
// Frees a type that may have runs, as MPI_Type_free does.
int free_type(MPI_Datatype *type);
extern const char NO_RUNS[];
bool has_no_gaps(const struct runs *runs);
// Whether so many bytes may be a number of whole elements of the predefined types of the type.
bool may_be_whole(const struct runs *runs, uint64_t bytes);
// Packs so many bytes of elements on a GPU into contiguous memory, or unpacks them. Returns the message of an
// error, or null.
const char *copy_runs(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack);
// The same in host memory.
void copy_runs_on_host(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack);
// The same if some of the bytes are on a GPU, and others in host memory, as the packed ones are.
const char *copy_runs_anywhere(const struct runs *runs, void *typed, void *packed, uint64_t bytes,
                               bool is_pack);
// The offset of the first byte of an element.
MPI_Aint first_of(MPI_Datatype type);
// Location of elements. One type may have bytes in both: a structure whose members are anywhere, MPI_BOTTOM.
enum memory_location { IN_HOST, ON_GPU, IN_BOTH };
enum memory_location location_of(const void *address, MPI_Count count, MPI_Datatype type);
// Whether any byte of them is on a GPU.
static inline bool is_on_gpu(const void *address, MPI_Count count, MPI_Datatype type) {
    return location_of(address, count, type) != IN_HOST;
}
// Whether the type may be sent: a query of the MPI, which raises the error.
int check_type(MPI_Datatype type, MPI_Comm comm);

// Packs elements anywhere into contiguous memory, or unpacks them. Returns the message of an error.
const char *copy_elements(void *typed, MPI_Count count, MPI_Datatype type, void *packed, bool is_pack);

// support.c

// Whether there are elements that the MPI cannot access.
bool is_inaccessible(const void *address, MPI_Count count, MPI_Datatype type);

#endif
