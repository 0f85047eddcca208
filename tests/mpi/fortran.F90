! Messages, collective calls, files and windows of memory on a GPU from Fortran, by mpif.h, or by mpi_f08 where that is
! defined: fortran FILE.
! Every rank prints "fortran: ok" or what is wrong.
program fortran
#ifdef MPI_F08
    use mpi_f08
#endif
    use iso_c_binding
    implicit none
#ifdef MPI_F08
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: statuses(2), status
    type(MPI_Datatype) :: column, absolute
    type(MPI_File) :: file
    type(MPI_Win) :: window
#else
    include 'mpif.h'
    integer :: requests(2), statuses(MPI_STATUS_SIZE, 2), status(MPI_STATUS_SIZE), column, absolute, file, window
#endif
    interface
        subroutine gpu_start() bind(c)
        end subroutine
        function gpu_allocate(kind, bytes) result(address) bind(c)
            import
            integer(c_int), value :: kind
            integer(c_size_t), value :: bytes
            type(c_ptr) :: address
        end function
        subroutine gpu_copy(to, from, bytes) bind(c)
            import
            type(c_ptr), value :: to, from
            integer(c_size_t), value :: bytes
        end subroutine
    end interface
    integer, parameter :: device = 1, most = 60000
    integer :: rank, ranks, error, next, previous, at, count, index, lengths(1)
    integer(kind=MPI_ADDRESS_KIND) :: place(1)
    integer, pointer :: a(:), b(:)
    integer, target :: host(most)
    type(c_ptr) :: a_address, b_address
    logical :: flag
    character(len=1000) :: path
    integer(kind=MPI_OFFSET_KIND) :: offset
    integer(kind=MPI_ADDRESS_KIND) :: value

    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    call gpu_start()
    a_address = gpu_allocate(device, int(4 * most, c_size_t))
    b_address = gpu_allocate(device, int(4 * most, c_size_t))
    call c_f_pointer(a_address, a, [most])
    call c_f_pointer(b_address, b, [most])
    next = mod(rank + 1, ranks)
    previous = mod(rank + ranks - 1, ranks)

    ! Messages around a ring, short and long ones.
    count = 10
    do while (count <= most)
        call fill(a_address, rank * 1000)
        call MPI_Irecv(b, count, MPI_INTEGER, previous, 5, MPI_COMM_WORLD, requests(1), error)
        call MPI_Isend(a, count, MPI_INTEGER, next, 5, MPI_COMM_WORLD, requests(2), error)
        call MPI_Waitall(2, requests, statuses, error)
        call must_hold(b_address, count, previous * 1000, 'a message')
#ifdef MPI_F08
        call must(statuses(1)%MPI_SOURCE == previous, 'the source of a status')
#else
        call must(statuses(MPI_SOURCE, 1) == previous, 'the source of a status')
#endif
        count = count * 20
    end do
    call MPI_Sendrecv(a, 100, MPI_INTEGER, next, 6, b, 100, MPI_INTEGER, previous, 6, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE, error)
    call must_hold(b_address, 100, previous * 1000, 'an exchange')
    call MPI_Irecv(b, 2000, MPI_INTEGER, previous, 7, MPI_COMM_WORLD, requests(1), error)
    call MPI_Send(a, 2000, MPI_INTEGER, next, 7, MPI_COMM_WORLD, error)
    call MPI_Waitany(1, requests, index, status, error)
    call must(index == 1, 'the index of a request')
    call MPI_Get_count(status, MPI_INTEGER, count, error)
    call must(count == 2000, 'the count of a status')

    ! In place, at once and later.
    call fill(b_address, rank)
    call MPI_Allreduce(MPI_IN_PLACE, b, most, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
    call must_hold(b_address, most, ranks - 1, 'MPI_Allreduce in place')
    call fill(b_address, rank)
    call MPI_Iallreduce(MPI_IN_PLACE, b, 500, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, requests(1), error)
    flag = .false.
    do while (.not. flag)
        call MPI_Test(requests(1), flag, MPI_STATUS_IGNORE, error)
    end do
    call must_hold(b_address, 500, 0, 'MPI_Iallreduce in place')
    call fill(b_address, rank)
    call MPI_Bcast(b, most, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
    call must_hold(b_address, most, ranks - 1, 'MPI_Bcast')

    ! Gaps, and displacements that are addresses.
    call MPI_Type_vector(1000, 1, 2, MPI_INTEGER, column, error)
    call MPI_Type_commit(column, error)
    call fill(a_address, rank)
    call MPI_Sendrecv(a, 1, column, next, 8, b, 1000, MPI_INTEGER, previous, 8, MPI_COMM_WORLD, status, error)
    call gpu_copy(c_loc(host), b_address, int(4000, c_size_t))
    do at = 1, 1000
        call must(host(at) == previous + 2 * (at - 1), 'an element of a vector')
    end do
    call MPI_Type_free(column, error)
    lengths(1) = 3000
    place(1) = transfer(b_address, place(1))
    call MPI_Type_create_hindexed(1, lengths, place, MPI_INTEGER, absolute, error)
    call MPI_Type_commit(absolute, error)
    call fill(b_address, rank * 7)
    call MPI_Bcast(MPI_BOTTOM, 1, absolute, 1, MPI_COMM_WORLD, error)
    call must_hold(b_address, 3000, 7, 'MPI_BOTTOM')
    call MPI_Type_free(absolute, error)

    ! Files: each rank writes its part, and reads that of the previous one.
    call get_command_argument(1, path)
    call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, error)
    offset = rank * 4000
    call fill(a_address, rank * 1000)
    call MPI_File_write_at(file, offset, a, 500, MPI_INTEGER, status, error)
    call MPI_Get_count(status, MPI_INTEGER, count, error)
    call must(count == 500, 'the count of what was written')
    call gpu_copy(a_address, c_loc(host(501)), int(2000, c_size_t))
    offset = offset + 2000
    call MPI_File_write_at_all_begin(file, offset, a, 500, MPI_INTEGER, error)
    call MPI_File_write_at_all_end(file, a, status, error)
    call MPI_File_sync(file, error)
    call MPI_Barrier(MPI_COMM_WORLD, error)
    offset = previous * 4000
    call MPI_File_iread_at(file, offset, b, 1000, MPI_INTEGER, requests(1), error)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE, error)
    call must_hold(b_address, 1000, previous * 1000, 'what was read')
    call MPI_File_seek(file, offset, MPI_SEEK_SET, error)
    call fill(b_address, 7)
    call MPI_File_read_all(file, b, 1000, MPI_INTEGER, MPI_STATUS_IGNORE, error)
    call must_hold(b_address, 1000, previous * 1000, 'what all have read')
    call MPI_File_close(file, error)

    ! One-sided calls: from a window of the host's memory into a GPU's, and to a window of a GPU's.
    call fill(b_address, 7)
    call fill(a_address, rank * 1000)
    call MPI_Win_create(host, int(4 * most, MPI_ADDRESS_KIND), 4, MPI_INFO_NULL, MPI_COMM_WORLD, window, error)
    call MPI_Win_fence(0, window, error)
    call MPI_Get(b, 900, MPI_INTEGER, previous, 0_MPI_ADDRESS_KIND, 900, MPI_INTEGER, window, error)
    call MPI_Win_fence(0, window, error)
    call must_hold(b_address, 900, previous * 1000, 'MPI_Get')
    call MPI_Win_free(window, error)
    call MPI_Win_create(b, int(4 * most, MPI_ADDRESS_KIND), 4, MPI_INFO_NULL, MPI_COMM_WORLD, window, error)
    call MPI_Win_get_attr(window, MPI_WIN_SIZE, value, flag, error)
    call must(flag .and. value == 4 * most, 'the size of a window')
    call MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window, error)
    call MPI_Put(a, 800, MPI_INTEGER, next, 0_MPI_ADDRESS_KIND, 800, MPI_INTEGER, window, error)
    call MPI_Win_unlock(next, window, error)
    call MPI_Barrier(MPI_COMM_WORLD, error)
    call must_hold(b_address, 800, previous * 1000, 'MPI_Put')
    call MPI_Win_free(window, error)
    call MPI_Finalize(error)
    print '(a)', 'fortran: ok'

contains

    subroutine fill(address, first)
        type(c_ptr), intent(in) :: address
        integer, intent(in) :: first
        integer :: element
        do element = 1, most
            host(element) = first + element - 1
        end do
        call gpu_copy(address, c_loc(host), int(4 * most, c_size_t))
    end subroutine

    subroutine must_hold(address, elements, first, what)
        type(c_ptr), intent(in) :: address
        integer, intent(in) :: elements, first
        character(*), intent(in) :: what
        integer :: element
        call gpu_copy(c_loc(host), address, int(4 * elements, c_size_t))
        do element = 1, elements
            call must(host(element) == first + element - 1, what)
        end do
    end subroutine

    subroutine must(is_right, what)
        logical, intent(in) :: is_right
        character(*), intent(in) :: what
        if (is_right) return
        print '(a, i0, 2a)', 'fortran: rank ', rank, ': wrong: ', what
        call MPI_Abort(MPI_COMM_WORLD, 1, error)
    end subroutine
end program
