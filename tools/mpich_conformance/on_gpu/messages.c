// Messages, and packing. N is the type of counts.

#include "on_gpu.h"

#define SEND_PARAMETERS(N) const void *b, N n, MPI_Datatype t, int to, int tag, MPI_Comm c
#define RECEIVE_PARAMETERS(N) void *b, N n, MPI_Datatype t, int from, int tag, MPI_Comm c

#define SEND(name, N)                                                                 \
    EXPORT int MPI_##name(SEND_PARAMETERS(N)) {                                       \
        struct moved *m = to == MPI_PROC_NULL ? NULL : move_elements(b, n, t, false); \
        int error = NEXT(MPI_##name)(moved_address(m, b), n, t, to, tag, c);          \
        end_moved(m);                                                                 \
        return error;                                                                 \
    }
#define SEND_LATER(name, N, is_persistent)                                            \
    EXPORT int MPI_##name(SEND_PARAMETERS(N), MPI_Request *q) {                       \
        struct moved *m = to == MPI_PROC_NULL ? NULL : move_elements(b, n, t, false); \
        int error = NEXT(MPI_##name)(moved_address(m, b), n, t, to, tag, c, q);       \
        remember(*q, error, is_persistent, m, NULL);                                  \
        return error;                                                                 \
    }
#define RECEIVE_LATER(name, N, is_persistent)                                          \
    EXPORT int MPI_##name(RECEIVE_PARAMETERS(N), MPI_Request *q) {                     \
        struct moved *m = from == MPI_PROC_NULL ? NULL : move_elements(b, n, t, true); \
        int error = NEXT(MPI_##name)(moved_address(m, b), n, t, from, tag, c, q);      \
        remember(*q, error, is_persistent, NULL, m);                                   \
        return error;                                                                  \
    }

// Both directions at once: `last` is the last parameter, and `ending` what becomes of what was moved.
#define EXCHANGE(name, N, last, argument, ending)                                                            \
    EXPORT int MPI_##name(const void *b, N n, MPI_Datatype t, int to, int tag, void *r, N k, MPI_Datatype u, \
                          int from, int other, MPI_Comm c, last) {                                           \
        struct moved *m = to == MPI_PROC_NULL ? NULL : move_elements(b, n, t, false);                        \
        struct moved *i = from == MPI_PROC_NULL ? NULL : move_elements(r, k, u, true);                       \
        int error = NEXT(MPI_##name)(moved_address(m, b), n, t, to, tag, moved_address(i, r), k, u, from,    \
                                     other, c, argument);                                                    \
        ending;                                                                                              \
        return error;                                                                                        \
    }
#define REPLACE(name, N, last, argument, ending)                                                          \
    EXPORT int MPI_##name(void *b, N n, MPI_Datatype t, int to, int tag, int from, int other, MPI_Comm c, \
                          last) {                                                                         \
        struct moved *m = move_elements(b, n, t, true);                                                   \
        int error = NEXT(MPI_##name)(moved_address(m, b), n, t, to, tag, from, other, c, argument);       \
        ending;                                                                                           \
        return error;                                                                                     \
    }
#define MESSAGES(suffix, N)                                                                              \
    SEND(Send##suffix, N)                                                                                \
    SEND(Ssend##suffix, N)                                                                               \
    SEND(Rsend##suffix, N)                                                                               \
    SEND(Bsend##suffix, N)                                                                               \
    SEND_LATER(Isend##suffix, N, false)                                                                  \
    SEND_LATER(Issend##suffix, N, false)                                                                 \
    SEND_LATER(Irsend##suffix, N, false)                                                                 \
    SEND_LATER(Ibsend##suffix, N, false)                                                                 \
    SEND_LATER(Send_init##suffix, N, true)                                                               \
    SEND_LATER(Ssend_init##suffix, N, true)                                                              \
    SEND_LATER(Rsend_init##suffix, N, true)                                                              \
    SEND_LATER(Bsend_init##suffix, N, true)                                                              \
    RECEIVE_LATER(Irecv##suffix, N, false)                                                               \
    RECEIVE_LATER(Recv_init##suffix, N, true)                                                            \
    EXPORT int MPI_Recv##suffix(RECEIVE_PARAMETERS(N), MPI_Status *s) {                                  \
        struct moved *m = from == MPI_PROC_NULL ? NULL : move_elements(b, n, t, true);                   \
        int error = NEXT(MPI_Recv##suffix)(moved_address(m, b), n, t, from, tag, c, s);                  \
        end_moved(m);                                                                                    \
        return error;                                                                                    \
    }                                                                                                    \
    EXPORT int MPI_Mrecv##suffix(void *b, N n, MPI_Datatype t, MPI_Message *g, MPI_Status *s) {          \
        struct moved *m = *g == MPI_MESSAGE_NO_PROC ? NULL : move_elements(b, n, t, true);               \
        int error = NEXT(MPI_Mrecv##suffix)(moved_address(m, b), n, t, g, s);                            \
        end_moved(m);                                                                                    \
        return error;                                                                                    \
    }                                                                                                    \
    EXPORT int MPI_Imrecv##suffix(void *b, N n, MPI_Datatype t, MPI_Message *g, MPI_Request *q) {        \
        struct moved *m = *g == MPI_MESSAGE_NO_PROC ? NULL : move_elements(b, n, t, true);               \
        int error = NEXT(MPI_Imrecv##suffix)(moved_address(m, b), n, t, g, q);                           \
        remember(*q, error, false, NULL, m);                                                             \
        return error;                                                                                    \
    }                                                                                                    \
    EXCHANGE(Sendrecv##suffix, N, MPI_Status *s, s, (end_moved(m), end_moved(i)))                        \
    REPLACE(Sendrecv_replace##suffix, N, MPI_Status *s, s, end_moved(m))                                 \
    EXPORT int MPI_Pack##suffix(const void *b, N n, MPI_Datatype t, void *r, N k, N *at, MPI_Comm c) {   \
        struct moved *m = move_elements(b, n, t, false);                                                 \
        struct moved *i = move_elements(r, k, MPI_BYTE, true);                                           \
        int error = NEXT(MPI_Pack##suffix)(moved_address(m, b), n, t, moved_address(i, r), k, at, c);    \
        end_moved(m);                                                                                    \
        end_moved(i);                                                                                    \
        return error;                                                                                    \
    }                                                                                                    \
    EXPORT int MPI_Unpack##suffix(const void *b, N k, N *at, void *r, N n, MPI_Datatype t, MPI_Comm c) { \
        struct moved *m = move_elements(b, k, MPI_BYTE, false);                                          \
        struct moved *i = move_elements(r, n, t, true);                                                  \
        int error = NEXT(MPI_Unpack##suffix)(moved_address(m, b), k, at, moved_address(i, r), n, t, c);  \
        end_moved(m);                                                                                    \
        end_moved(i);                                                                                    \
        return error;                                                                                    \
    }

MESSAGES(, int)
#if MPI_VERSION >= 4
#define EXCHANGES_LATER(suffix, N)                                                      \
    EXCHANGE(Isendrecv##suffix, N, MPI_Request *q, q, remember(*q, error, false, m, i)) \
    REPLACE(Isendrecv_replace##suffix, N, MPI_Request *q, q, remember(*q, error, false, NULL, m))
MESSAGES(_c, MPI_Count)
EXCHANGES_LATER(, int)
EXCHANGES_LATER(_c, MPI_Count)
#endif
