// Files that are written from GPUs and read into them, in all forms of their calls.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scenes.h"

enum { BYTES = 6000, FORMS = 8 };

static void write_form(MPI_File file, int form, MPI_Offset at, char *memory, MPI_Status *status) {
    MPI_Request request;
    MPI_File_seek(file, at, MPI_SEEK_SET);
    switch (form) {
    case 0: MPI_File_write(file, memory, BYTES, MPI_BYTE, status); return;
    case 1: MPI_File_write_all(file, memory, BYTES, MPI_BYTE, status); return;
    case 2: MPI_File_write_at(file, at, memory, BYTES, MPI_BYTE, status); return;
    case 3: MPI_File_write_at_all(file, at, memory, BYTES, MPI_BYTE, status); return;
    case 4: MPI_File_iwrite(file, memory, BYTES, MPI_BYTE, &request); break;
    case 5: MPI_File_iwrite_at_all(file, at, memory, BYTES, MPI_BYTE, &request); break;
    case 6:
        MPI_File_write_all_begin(file, memory, BYTES, MPI_BYTE);
        MPI_File_write_all_end(file, memory, status);
        return;
    default:
        MPI_File_write_at_all_begin(file, at, memory, BYTES, MPI_BYTE);
        MPI_File_write_at_all_end(file, memory, status);
        return;
    }
    MPI_Wait(&request, status);
}

static void read_form(MPI_File file, int form, MPI_Offset at, char *memory, MPI_Status *status) {
    MPI_Request request;
    MPI_File_seek(file, at, MPI_SEEK_SET);
    switch (form) {
    case 0: MPI_File_read(file, memory, BYTES, MPI_BYTE, status); return;
    case 1: MPI_File_read_all(file, memory, BYTES, MPI_BYTE, status); return;
    case 2: MPI_File_read_at(file, at, memory, BYTES, MPI_BYTE, status); return;
    case 3: MPI_File_read_at_all(file, at, memory, BYTES, MPI_BYTE, status); return;
    case 4: MPI_File_iread(file, memory, BYTES, MPI_BYTE, &request); break;
    case 5: MPI_File_iread_at_all(file, at, memory, BYTES, MPI_BYTE, &request); break;
    case 6:
        MPI_File_read_all_begin(file, memory, BYTES, MPI_BYTE);
        MPI_File_read_all_end(file, memory, status);
        return;
    default:
        MPI_File_read_at_all_begin(file, at, memory, BYTES, MPI_BYTE);
        MPI_File_read_at_all_end(file, memory, status);
        return;
    }
    MPI_Wait(&request, status);
}

static void must_tell(MPI_Status *status, int bytes, const char *what, int form) {
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    must(count == bytes, "a status of %s, form %d, tells of %d bytes, not %d", what, form, count, bytes);
}

// One rank has not the memory that it names: it hears of that, and the others, which wait for it, go on.
static void write_too_much(MPI_File file) {
    enum { TOO_MUCH = 256 << 20 };
    char *out = filled(DEVICE, BYTES, 1);
    int count = rank == 0 ? TOO_MUCH : BYTES, errors[3];
    MPI_Offset at = (MPI_Offset)rank * BYTES;
    MPI_Request request;
    MPI_Status status;
    errors[0] = MPI_File_write_at_all(file, at, out, count, MPI_BYTE, &status);
    MPI_File_iwrite_at_all(file, at, out, count, MPI_BYTE, &request);
    errors[1] = MPI_Wait(&request, &status);
    MPI_File_write_at_all_begin(file, at, out, count, MPI_BYTE);
    errors[2] = MPI_File_write_at_all_end(file, out, &status);
    for (int form = 0; form < 3; form++)
        must((errors[form] != MPI_SUCCESS) == (rank == 0), "form %d has error %d", form, errors[form]);
    gpu_free(DEVICE, out, BYTES);
}

// Collective accesses in flight at the same time, each of other memory. Some ranks wait for the last one
// first.
static void overlap(MPI_File file) {
    enum { ACCESSES = 5, PIECE = 64 };
    MPI_Request requests[ACCESSES];
    MPI_Datatype column, pieces;
    char *out[ACCESSES], *in[ACCESSES];
    // Ranks have every so many pieces of the file, so that they exchange them.
    MPI_Type_vector(BYTES / PIECE, PIECE, PIECE * ranks, MPI_BYTE, &column);
    MPI_Type_create_resized(column, 0, (MPI_Aint)(BYTES / PIECE) * PIECE * ranks, &pieces);
    MPI_Type_commit(&pieces);
    MPI_File_set_view(file, (MPI_Offset)rank * PIECE, MPI_BYTE, pieces, "native", MPI_INFO_NULL);
    enum { LENGTH = BYTES / PIECE * PIECE };
    for (int writes = 1; writes >= 0; writes--) {
        for (int access = 0; access < ACCESSES; access++) {
            enum memory memory = (access + rank) % 3 == 0 ? HOST : DEVICE;
            MPI_Offset at = (MPI_Offset)access * LENGTH;
            if (writes) {
                out[access] = filled(memory, LENGTH, access + rank);
                in[access] = filled(memory, LENGTH, 99);
                MPI_File_iwrite_at_all(file, at, out[access], LENGTH, MPI_BYTE, &requests[access]);
            } else {
                MPI_File_iread_at_all(file, at, in[access], LENGTH, MPI_BYTE, &requests[access]);
            }
        }
        if (rank % 2) MPI_Wait(&requests[ACCESSES - 1], MPI_STATUS_IGNORE);
        MPI_Waitall(ACCESSES, requests, MPI_STATUSES_IGNORE);
    }
    for (int access = 0; access < ACCESSES; access++) {
        enum memory memory = (access + rank) % 3 == 0 ? HOST : DEVICE;
        must_hold(in[access], LENGTH, access + rank);
        gpu_free(memory, out[access], LENGTH);
        gpu_free(memory, in[access], LENGTH);
    }
    MPI_Type_free(&pieces);
    MPI_Type_free(&column);
}

void files(void) {
    char name[] = "/tmp/causeway-scenes-XXXXXX";
    MPI_File file;
    MPI_Status status;
    if (rank == 0) close(mkstemp(name));
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    int mode = MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    must(MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS, "no file opens");
    for (int form = 0; form < FORMS; form++) {
        // Of one rank alone the memory is on a GPU in some rounds.
        enum memory memory = form % 2 && rank > 0 ? HOST : form % 3 ? DEVICE : MANAGED;
        MPI_Offset at = (MPI_Offset)(form * ranks + rank) * BYTES;
        char *out = filled(memory, BYTES, form + rank), *in = filled(memory, BYTES, 99);
        write_form(file, form, at, out, &status);
        must_tell(&status, BYTES, "a write", form);
        read_form(file, form, at, in, &status);
        must_tell(&status, BYTES, "a read", form);
        must_hold(in, BYTES, form + rank);
        gpu_free(memory, out, BYTES);
        gpu_free(memory, in, BYTES);
    }
    // Behind the end there is nothing, and what is not read stays.
    char *rest = filled(DEVICE, BYTES, 7);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_read_at(file, (MPI_Offset)FORMS * ranks * BYTES, rest, BYTES, MPI_BYTE, &status);
    must_tell(&status, 0, "a read behind the end", 0);
    must_hold(rest, BYTES, 7);
    gpu_free(DEVICE, rest, BYTES);
    write_too_much(file);
    overlap(file);
    MPI_File_close(&file);
}
