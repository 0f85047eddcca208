// Table of the windows that have memory on GPUs, and errors of windows.

#include <stdio.h>

#include "window.h"

int window_count;
static struct window *first;

struct window *find_window(MPI_Win handle) {
    if (__atomic_load_n(&window_count, __ATOMIC_RELAXED) == 0) return NULL;
    lock();
    struct window *window = first;
    while (window != NULL && window->handle != handle) window = window->next;
    unlock();
    return window;
}

void add_window(struct window *window) {
    lock();
    window->next = first;
    first = window;
    __atomic_add_fetch(&window_count, 1, __ATOMIC_RELAXED);
    unlock();
}

void forget_window(struct window *window) {
    lock();
    struct window **at = &first;
    while (*at != NULL && *at != window) at = &(*at)->next;
    if (*at != NULL) {
        *at = window->next;
        __atomic_sub_fetch(&window_count, 1, __ATOMIC_RELAXED);
    }
    unlock();
}

int raise_code_in_window(MPI_Win window, int code) {
    PMPI_Win_call_errhandler(window, code);
    return code;
}

int raise_in_window(MPI_Win window, const char *call, const char *message) {
    fprintf(stderr, "causeway: %s: %s\n", call, message);
    return raise_code_in_window(window, error_code(call, message));
}
