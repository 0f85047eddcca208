// Files of elements of any type, and files through views.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random_calls.h"

static MPI_File open_file(struct group *group, char name[4096]) {
    MPI_File file;
    snprintf(name, 4096, "%s/elements-%d", group->folder, group->number);
    if (MPI_File_open(group->comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) !=
        MPI_SUCCESS) {
        is_wrong(group, "%s cannot be opened", name);
        exit(1);
    }
    return file;
}

static void flush(struct group *group, MPI_File file) {
    MPI_File_sync(file);
    MPI_Barrier(group->comm);
    MPI_File_sync(file);
}

static void close_file(struct group *group, MPI_File *file, const char *name) {
    MPI_File_close(file);
    if (group->rank == 0) MPI_File_delete(name, MPI_INFO_NULL);
    MPI_Barrier(group->comm);
}

void write_elements(struct group *group) {
    char name[4096];
    struct known_type type;
    make_type(group, &type);
    // MPIs alone take types whose elements lie elsewhere for some at the address, if there are no gaps.
    while (type.base != 0) {
        free_type(&type);
        make_type(group, &type);
    }
    size_t count = below(group, 1 + 60000 / type.size), bytes = span_of(&type, count), found;
    uint64_t seed = below(group, 1000);
    int before = (group->rank + group->ranks - 1) % group->ranks;
    enum memory out = some_memory(group), in = some_memory(group);
    bool is_collective = below(group, 2);
    unsigned char *here = malloc(bytes + 1), *written = gpu_allocate(out, bytes),
                  *read = gpu_allocate(in, bytes);
    fill_elements(&type, count, seed + (uint64_t)group->rank, here, bytes);
    copy_bytes(written, here, bytes);
    memset(here, 0x5a, bytes);
    copy_bytes(read, here, bytes);
    struct elements elements = elements_of(&type, (enum handle)below(group, ABSOLUTE), written, count);
    MPI_File file = open_file(group, name);
    MPI_Offset each = (MPI_Offset)(count * type.size);
    if (is_collective)
        MPI_File_write_at_all(file, group->rank * each, elements.address, elements.count, elements.type,
                              MPI_STATUS_IGNORE);
    else
        MPI_File_write_at(file, group->rank * each, elements.address, elements.count, elements.type,
                          MPI_STATUS_IGNORE);
    drop_elements(&elements);
    flush(group, file);
    void *to = address_of(&type, read);
    if (is_collective)
        MPI_File_read_at_all(file, before * each, to, (int)count, type.type, MPI_STATUS_IGNORE);
    else
        MPI_File_read_at(file, before * each, to, (int)count, type.type, MPI_STATUS_IGNORE);
    copy_bytes(here, read, bytes);
    found = count_wrong(&type, count, seed + (uint64_t)before, here, bytes);
    if (found > 0)
        is_wrong(group, "a file of %zu elements of %zu bytes (%s, %s): %zu wrong", count, type.size,
                 gpu_name(out), gpu_name(in), found);
    close_file(group, &file, name);
    gpu_free(out, written, bytes);
    gpu_free(in, read, bytes);
    free(here);
    free_type(&type);
}

// The blocks of all ranks take turns in the file.
static void see_blocks_of(struct group *group, MPI_File file, int rank, size_t block) {
    MPI_Datatype one, blocks;
    MPI_Type_contiguous((int)block, MPI_INT, &one);
    MPI_Type_create_resized(one, 0, (MPI_Aint)(block * sizeof(int)) * group->ranks, &blocks);
    MPI_Type_commit(&blocks);
    MPI_File_set_view(file, (MPI_Offset)(rank * block * sizeof(int)), MPI_INT, blocks, "native",
                      MPI_INFO_NULL);
    MPI_Type_free(&one);
    MPI_Type_free(&blocks);
}

void write_through_view(struct group *group) {
    char name[4096];
    size_t block = 1 + below(group, 300), count = block * (1 + below(group, 40));
    uint64_t seed = below(group, 1000);
    int before = (group->rank + group->ranks - 1) % group->ranks;
    struct numbers out = take(some_memory(group), count), in = take(some_memory(group), count);
    fill_with(&out, group->rank, seed);
    MPI_File file = open_file(group, name);
    see_blocks_of(group, file, group->rank, block);
    if (below(group, 2)) {
        MPI_File_write_all(file, out.there, (int)count, MPI_INT, MPI_STATUS_IGNORE);
    } else {
        // By two calls, of which the second goes on where the first ended.
        MPI_File_write(file, out.there, (int)block, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_write(file, out.there + block, (int)(count - block), MPI_INT, MPI_STATUS_IGNORE);
    }
    flush(group, file);
    see_blocks_of(group, file, before, block);
    MPI_File_read_all(file, in.there, (int)count, MPI_INT, MPI_STATUS_IGNORE);
    must_be(group, &in, before, seed, "what was read through a view");
    close_file(group, &file, name);
    give_back(&out);
    give_back(&in);
}
