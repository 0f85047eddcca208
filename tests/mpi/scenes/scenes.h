// Scenes of messages: the interface between the files of this program.
#ifndef SCENES_H
#define SCENES_H

#include <mpi.h>
#include <stddef.h>

#include "gpu.h"

enum { LONG = 3 << 20 };

extern int rank, ranks;
// The name of the scene that is played.
extern const char *scene;

// Ends all ranks with these words, unless it is right.
void must(int is_right, const char *what, ...);
// Memory on a GPU, full of bytes that follow from a number.
char *filled(enum memory memory, size_t bytes, int number);
// The memory must hold such bytes.
void must_hold(const char *address, size_t bytes, int number);

// messages.c
void while_blocked(void);
void while_in_barrier(int synchronous);
void traffic(void);
void any_source(void);
void any_probe(void);
void gaps(void);
void structures(void);
void exchange(void);
void large(void);
void default_stream(void);
void matched(void);

// types.c
void pieces(void);
void both_kinds(void);

// staged.c
void partitioned(void);
void external(void);
void persistent_collectives(void);
void buffered(void);

// requests.c
void mixed_requests(void);
void persistent(void);
void many_persistent(void);

// handles.c
void handles(void);

// errors.c
void errors(void);
void arguments(void);
void refused(void);

// files.c
void files(void);

// processes.c
void connection(void);
void spawned(void);
void child(void);
void descriptors(void);

// failures.c
void death(void);
void death_in_transfer(void);
void checked(void);
void lengths(void);
void death_in_call(void);
void recovery(void);

#endif
