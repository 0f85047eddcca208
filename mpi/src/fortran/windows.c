// One-sided calls from Fortran. With MPICH those with a buffer go to the entry points in C.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "fortran.h"

#if HAS_FORTRAN

#define WIN(handle) PMPI_Win_f2c(*(handle))
#define GROUP(handle) PMPI_Group_f2c(*(handle))

// Epochs.

FORTRAN(win_fence, (MPI_Fint *assertion, MPI_Fint *w, MPI_Fint *error), MPI_Win_fence(*assertion, WIN(w)))
FORTRAN(win_post, (MPI_Fint *group, MPI_Fint *assertion, MPI_Fint *w, MPI_Fint *error),
        MPI_Win_post(GROUP(group), *assertion, WIN(w)))
FORTRAN(win_start, (MPI_Fint *group, MPI_Fint *assertion, MPI_Fint *w, MPI_Fint *error),
        MPI_Win_start(GROUP(group), *assertion, WIN(w)))
FORTRAN(win_complete, (MPI_Fint *w, MPI_Fint *error), MPI_Win_complete(WIN(w)))
FORTRAN(win_lock, (MPI_Fint *kind, MPI_Fint *to, MPI_Fint *assertion, MPI_Fint *w, MPI_Fint *error),
        MPI_Win_lock(*kind, *to, *assertion, WIN(w)))
FORTRAN(win_lock_all, (MPI_Fint *assertion, MPI_Fint *w, MPI_Fint *error),
        MPI_Win_lock_all(*assertion, WIN(w)))
FORTRAN(win_unlock, (MPI_Fint *to, MPI_Fint *w, MPI_Fint *error), MPI_Win_unlock(*to, WIN(w)))
FORTRAN(win_unlock_all, (MPI_Fint *w, MPI_Fint *error), MPI_Win_unlock_all(WIN(w)))
FORTRAN(win_flush, (MPI_Fint *to, MPI_Fint *w, MPI_Fint *error), MPI_Win_flush(*to, WIN(w)))
FORTRAN(win_flush_all, (MPI_Fint *w, MPI_Fint *error), MPI_Win_flush_all(WIN(w)))
FORTRAN(win_flush_local, (MPI_Fint *to, MPI_Fint *w, MPI_Fint *error), MPI_Win_flush_local(*to, WIN(w)))
FORTRAN(win_flush_local_all, (MPI_Fint *w, MPI_Fint *error), MPI_Win_flush_local_all(WIN(w)))
FORTRAN(win_sync, (MPI_Fint *w, MPI_Fint *error), MPI_Win_sync(WIN(w)))

// Windows.

static int store_window(int error, MPI_Win window, MPI_Fint *to) {
    if (error == MPI_SUCCESS) *to = PMPI_Win_c2f(window);
    return error;
}

static int make_dynamic(MPI_Fint *i, MPI_Fint *c, MPI_Fint *w) {
    MPI_Win window = MPI_WIN_NULL;
    int error = MPI_Win_create_dynamic(PMPI_Info_f2c(*i), COMM(c), &window);
    return store_window(error, window, w);
}
FORTRAN(win_create_dynamic, (MPI_Fint *i, MPI_Fint *c, MPI_Fint *w, MPI_Fint *error), make_dynamic(i, c, w))

static int free_one(MPI_Fint *w) {
    MPI_Win window = WIN(w);
    int error = MPI_Win_free(&window);
    return store_window(error, window, w);
}
FORTRAN(win_free, (MPI_Fint *w, MPI_Fint *error), free_one(w))

// Attributes that Fortran has set are other ones in C, so the MPI's own Fortran finds those that are not the
// interposer's.
#ifdef OPEN_MPI
enum { AFTER_C = 0 };
#define THEIRS "mpi_win_get_attr_"
#else
// Keys of attributes are greater by one in Fortran.
enum { AFTER_C = 1 };
#define THEIRS "pmpir_win_get_attr_f08_"
#endif

static int attribute_of(const char *name, MPI_Fint *w, MPI_Fint *key, MPI_Aint *value, MPI_Fint *flag) {
    MPI_Fint error = MPI_ERR_OTHER;
    int number = *key, keys[] = {MPI_WIN_BASE, MPI_WIN_SIZE, MPI_WIN_DISP_UNIT};
    void *found = NULL;
    int is_known = 0;
    for (int at = 0; at < 3; at++) {
        if (number != keys[at] && number != keys[at] + AFTER_C) continue;
        int result = MPI_Win_get_attr(WIN(w), keys[at], &found, &is_known);
        *flag = is_known != 0;
        if (result != MPI_SUCCESS || !is_known) return result;
        *value = at == 0 ? (MPI_Aint)found : at == 1 ? *(MPI_Aint *)found : *(int *)found;
        return result;
    }
    void (*theirs)(MPI_Fint *, MPI_Fint *, MPI_Aint *, MPI_Fint *, MPI_Fint *);
    *(void **)&theirs = dlsym(RTLD_NEXT, name);
    if (theirs != NULL) theirs(w, key, value, flag, &error);
    return error;
}
FORTRAN(win_get_attr, (MPI_Fint *w, MPI_Fint *key, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *error),
        attribute_of(THEIRS, w, key, value, flag))

#ifndef OPEN_MPI
// With mpif.h this call does not go to the entry point in C either.
EXPORT void mpi_win_get_attr_(MPI_Fint *, MPI_Fint *, MPI_Aint *, MPI_Fint *, MPI_Fint *);
FORTRAN_BODY(mpi_win_get_attr_,
             (MPI_Fint *w, MPI_Fint *key, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *error),
             attribute_of("pmpi_win_get_attr_", w, key, value, flag))
#else

static int make_window(void *b, MPI_Aint n, int unit, MPI_Fint *i, MPI_Fint *c, MPI_Fint *w) {
    MPI_Win window = MPI_WIN_NULL;
    int error = MPI_Win_create(b, n, unit, PMPI_Info_f2c(*i), COMM(c), &window);
    return store_window(error, window, w);
}
FORTRAN(win_create,
        (void *b, MPI_Aint *n, MPI_Fint *unit, MPI_Fint *i, MPI_Fint *c, MPI_Fint *w, MPI_Fint *error),
        make_window(b, *n, *unit, i, c, w))
FORTRAN(win_attach, (MPI_Fint *w, void *b, MPI_Aint *n, MPI_Fint *error), MPI_Win_attach(WIN(w), b, *n))
FORTRAN(win_detach, (MPI_Fint *w, void *b, MPI_Fint *error), MPI_Win_detach(WIN(w), b))

// Accesses.

#define F_OWN void *s, MPI_Fint *n, MPI_Fint *t
#define C_OWN buffer_of(s), *n, TYPE(t)
#define F_RESULT void *r, MPI_Fint *k, MPI_Fint *v
#define C_RESULT buffer_of(r), *k, TYPE(v)
#define F_TARGET MPI_Fint *to, MPI_Aint *at, MPI_Fint *m, MPI_Fint *u
#define C_TARGET *to, *at, *m, TYPE(u)

// Each at once, and with a request.
#define ACCESS(name, lower, upper, parameters, arguments)                                     \
    FORTRAN(name, (parameters, MPI_Fint *w, MPI_Fint *error), MPI_##upper(arguments, WIN(w))) \
    FORTRAN(r##name, (parameters, MPI_Fint *w, MPI_Fint *q, MPI_Fint *error), ({              \
                MPI_Request request = MPI_REQUEST_NULL;                                       \
                int made = MPI_R##lower(arguments, WIN(w), &request);                         \
                store_request(made, request, q);                                              \
            }))
#define BOTH(first, ...) first, __VA_ARGS__
ACCESS(put, put, Put, BOTH(F_OWN, F_TARGET), BOTH(C_OWN, C_TARGET))
ACCESS(get, get, Get, BOTH(F_OWN, F_TARGET), BOTH(C_OWN, C_TARGET))
ACCESS(accumulate, accumulate, Accumulate, BOTH(F_OWN, F_TARGET, MPI_Fint *o), BOTH(C_OWN, C_TARGET, OP(o)))
ACCESS(get_accumulate, get_accumulate, Get_accumulate, BOTH(F_OWN, F_RESULT, F_TARGET, MPI_Fint *o),
       BOTH(C_OWN, C_RESULT, C_TARGET, OP(o)))
FORTRAN(fetch_and_op,
        (void *s, void *r, MPI_Fint *t, MPI_Fint *to, MPI_Aint *at, MPI_Fint *o, MPI_Fint *w,
         MPI_Fint *error),
        MPI_Fetch_and_op(buffer_of(s), buffer_of(r), TYPE(t), *to, *at, OP(o), WIN(w)))
FORTRAN(compare_and_swap,
        (void *s, void *x, void *r, MPI_Fint *t, MPI_Fint *to, MPI_Aint *at, MPI_Fint *w, MPI_Fint *error),
        MPI_Compare_and_swap(buffer_of(s), buffer_of(x), buffer_of(r), TYPE(t), *to, *at, WIN(w)))

#endif
#endif
