// The list of MPI's calls that access files, for the entry points in C and in Fortran.
//
// Each is one of a file's own position (HERE) or at an offset (THERE); it is blocking, has a request (LATER),
// or begins a split call (BEGIN), which END ends. Who includes this defines these macros; what follows the
// suffix is handed to them.
#ifndef CAUSEWAY_FILE_CALLS_H
#define CAUSEWAY_FILE_CALLS_H

#define FILE_CALLS(verb, suffix, ...)                     \
    HERE(verb##suffix, __VA_ARGS__)                       \
    HERE(verb##_all##suffix, __VA_ARGS__)                 \
    HERE(verb##_shared##suffix, __VA_ARGS__)              \
    HERE(verb##_ordered##suffix, __VA_ARGS__)             \
    THERE(verb##_at##suffix, __VA_ARGS__)                 \
    THERE(verb##_at_all##suffix, __VA_ARGS__)             \
    LATER_HERE(i##verb##suffix, __VA_ARGS__)              \
    LATER_HERE(i##verb##_all##suffix, __VA_ARGS__)        \
    LATER_HERE(i##verb##_shared##suffix, __VA_ARGS__)     \
    LATER_THERE(i##verb##_at##suffix, __VA_ARGS__)        \
    LATER_THERE(i##verb##_at_all##suffix, __VA_ARGS__)    \
    BEGIN_HERE(verb##_all_begin##suffix, __VA_ARGS__)     \
    BEGIN_HERE(verb##_ordered_begin##suffix, __VA_ARGS__) \
    BEGIN_THERE(verb##_at_all_begin##suffix, __VA_ARGS__)
#define FILE_ENDS(verb, ...)             \
    END(verb##_all_end, __VA_ARGS__)     \
    END(verb##_ordered_end, __VA_ARGS__) \
    END(verb##_at_all_end, __VA_ARGS__)

#endif
