// Kernels of ranks that communicate, for the tests of the headers in device/include. Compiled to PTX, which
// crates/comm/tests/device runs on the software GPU, each rank as a thread of one process.
#include <causeway/device.cuh>

#include "device_litmus.cuh"
#include "device_stencil.cuh"
#include "device_verbs.cuh"

// The operations by their C names, as Numba and Triton call them.
#include "../../device/numba/operations.cu"

using namespace causeway;

// A step of a random program. The test's side is `Step` in crates/comm/tests/device/programs.rs.
struct Step {
    u32 what, scope, peer, wish;
    u32 to, from; // which of the two data windows
    u64 to_offset, from_offset, bytes, value, cell;
};

enum { PUT, GET, PUT_SIGNAL, SIGNAL_ADD, WAIT, ADD, CAS, FETCH, SEND, RECEIVE, BARRIER, DELAY, QUIET, TEST };

__device__ static void delay(u64 turns) {
    for (u64 turn = 0; turn < turns; turn++) asm volatile("" ::: "memory");
}

// The words that a program answers: status, and what it has read.
template <class Scope>
__device__ static Status run(const Team &team, const Step &step, const Window *data, const Window &words,
                             u64 *answer) {
    const Window &to = data[step.to], &from = data[step.from];
    Initiator wish = static_cast<Initiator>(step.wish);
    switch (step.what) {
    case PUT:
        return put<Scope>(team, step.peer, to, step.to_offset, from, step.from_offset, step.bytes, wish);
    case GET:
        return get<Scope>(team, step.peer, to, step.to_offset, from, step.from_offset, step.bytes, wish);
    case PUT_SIGNAL:
        return put_signal<Scope>(team, step.peer, to, step.to_offset, from, step.from_offset, step.bytes,
                                 words, step.cell, step.value, SignalKind::set, wish);
    case SIGNAL_ADD: return signal<Scope>(team, step.peer, words, step.cell, step.value, SignalKind::add);
    case WAIT: return signal_wait<Scope>(team, words, step.cell, Compare::at_least, step.value);
    case TEST:
        while (!signal_test<Scope>(team, words, step.cell, Compare::at_least, step.value)) {
        }
        return team_status<Scope>(team);
    case ADD: return atomic_add<Scope>(team, step.peer, words, step.cell, step.value);
    case CAS: { // an addition in another way
        u64 before = 0, expected;
        Status status = fetch<Scope>(team, step.peer, words, step.cell, &before);
        do {
            expected = before;
            if (status != Status::ok) return status;
            status = atomic_cas<Scope>(team, step.peer, words, step.cell, expected, expected + step.value,
                                       &before);
        } while (before != expected);
        return status;
    }
    case FETCH: return fetch<Scope>(team, step.peer, words, step.cell, answer);
    case SEND: return send<Scope>(team, step.peer, from, step.from_offset, step.bytes);
    case RECEIVE: return receive<Scope>(team, step.peer, to, step.to_offset, step.bytes, answer);
    case BARRIER: return barrier<Scope>(team, static_cast<u32>(step.value));
    case QUIET: return step.value == 0 ? quiet<Scope>(team) : fence<Scope>(team);
    default: delay(step.value); return Status::ok;
    }
}

// One block. A step of one thread or warp is the first one's; the others come to the next step with it.
extern "C" __global__ void random_program(Team team, Window first, Window second, Window words,
                                          const Step *steps, u64 count, u64 *answers) {
    Window data[2] = {first, second};
    for (u64 at = 0; at < count; at++) {
        const Step &step = steps[at];
        Status status = Status::ok;
        u64 answer = 0;
        if (step.scope == 2) status = run<Block>(team, step, data, words, &answer);
        else if (step.scope == 1 && threadIdx.x < 32) status = run<Warp>(team, step, data, words, &answer);
        else if (step.scope == 0 && threadIdx.x == 0) status = run<Thread>(team, step, data, words, &answer);
        if (threadIdx.x == 0) {
            answers[2 * at] = static_cast<u64>(status);
            answers[2 * at + 1] = answer;
        }
        if (__syncthreads_or(status != Status::ok)) return;
    }
}

// What must be refused. Every thread of the block makes the same mistake.
enum {
    PUT_BEYOND,
    PUT_FAR_BEYOND,
    GET_BEYOND,
    SIGNAL_BEYOND,
    MISALIGNED,
    OTHER_TEAM,
    NO_SUCH_RANK,
    LONG_MESSAGE,
    NO_SIGNAL,
    NO_BARRIER,
    FROM_BEYOND,
    UNSUPPORTED_ADD,
    POLL_OF_FAILED,
    POLL,
    ADD_ATOMICALLY,
    ADD_BY_SIGNAL
};

extern "C" __global__ void mistake(Team team, Window window, Window others, u32 which, u64 *answer) {
    u64 bytes = window.bytes;
    u32 peer = (team.rank + 1) % team.ranks;
    Status status = Status::ok;
    switch (which) {
    case PUT_BEYOND: status = put<Block>(team, peer, window, bytes - 8, window, 0, 16); break;
    case PUT_FAR_BEYOND: status = put<Block>(team, peer, window, ~0ull - 7, window, 0, 16); break;
    case FROM_BEYOND: status = put<Block>(team, peer, window, 0, window, bytes - 8, 16); break;
    case GET_BEYOND: status = get<Block>(team, peer, window, 0, window, bytes, 1); break;
    case SIGNAL_BEYOND: status = signal<Block>(team, peer, window, bytes, 1); break;
    case MISALIGNED: status = atomic_add<Block>(team, peer, window, 4, 1); break;
    case OTHER_TEAM: status = put<Block>(team, peer, others, 0, window, 0, 8); break;
    case NO_SUCH_RANK: status = put<Block>(team, team.ranks, window, 0, window, 0, 8); break;
    case LONG_MESSAGE:
        if (team.rank == 0) status = send<Block>(team, peer, window, 0, 100);
        if (team.rank == 1) status = receive<Block>(team, 0, window, 0, 99);
        break;
    case NO_SIGNAL: status = signal_wait<Block>(team, window, 0, Compare::equal, 77); break;
    case NO_BARRIER: status = team.rank == 0 ? barrier<Block>(team) : Status::ok; break;
    case UNSUPPORTED_ADD:
        status = signal<Block>(team, peer, window, 0, 1, SignalKind::add, Initiator::proxy);
        break;
    case ADD_ATOMICALLY: status = atomic_add<Block>(team, peer, window, 0, 1); break;
    case ADD_BY_SIGNAL: status = signal<Block>(team, peer, window, 0, 1, SignalKind::add); break;
    case POLL_OF_FAILED:
        if (team.rank == 1) {
            status = put<Block>(team, peer, window, bytes - 8, window, 0, 16);
            break;
        }
        [[fallthrough]];
    case POLL:
        while (!signal_test<Block>(team, window, 0, Compare::equal, 77)) {
        }
        status = team_status<Block>(team);
        break;
    }
    if (threadIdx.x == 0) *answer = static_cast<u64>(status);
}

// Every thread counts up a word of the next rank so many times, all by the proxy: more requests than a queue
// holds.
extern "C" __global__ void count_up(Team team, Window words, u32 times) {
    u32 peer = (team.rank + 1) % team.ranks;
    for (u32 time = 0; time < times; time++)
        if (signal(team, peer, words, 8ull * (threadIdx.x % 4), 1, SignalKind::add) != Status::ok) return;
    quiet(team);
}

// Every round the last thread of the scope writes a word, which all put together: it has to be there when the
// first thread loads it. Counts what else comes.
template <class Scope> __device__ static void put_word_of_another(const Team &team, const Window &data,
                                                                  const Window &signals, u32 rounds, u64 seed,
                                                                  u64 *wrong) {
    u32 peer = (team.rank + 1) % team.ranks, before = (team.rank + team.ranks - 1) % team.ranks;
    u64 *own = reinterpret_cast<u64 *>(data.base);
    for (u32 round = 1; round <= rounds; round++) {
        if (Scope::rank() == Scope::size() - 1) own[0] = seed * round + team.rank;
        Status status = put_signal<Scope>(team, peer, data, 8, data, 0, 8, signals, 0, round);
        if (status == Status::ok) status = signal_wait<Scope>(team, signals, 0, Compare::at_least, round);
        if (status != Status::ok) return;
        if (Scope::rank() == 0 && order::load_relaxed(own + 1) != seed * round + before) *wrong += 1;
        if (barrier<Scope>(team) != Status::ok) return;
    }
}

extern "C" __global__ void words_of_others(Team team, Window data, Window signals, u32 rounds, u32 by_block,
                                           u64 seed, u64 *wrong) {
    if (by_block) put_word_of_another<Block>(team, data, signals, rounds, seed, wrong);
    else if (threadIdx.x < 32) put_word_of_another<Warp>(team, data, signals, rounds, seed, wrong);
}

// Rank 0 puts a word to rank 1 and tells rank 2, which asks rank 1 for it: what was posted before a signal is
// there, at whichever rank. Counts what else comes.
extern "C" __global__ void told_by_a_third(Team team, Window data, Window signals, u32 rounds, u64 *wrong) {
    u64 *own = reinterpret_cast<u64 *>(data.base);
    Initiator by = Initiator::proxy;
    for (u32 round = 1; round <= rounds; round++) {
        if (team.rank == 0) {
            own[0] = round;
            if (put(team, 1, data, 8, data, 0, 8, by) != Status::ok) return;
            if (signal(team, 2, signals, 0, round, SignalKind::set, by) != Status::ok) return;
        } else if (team.rank == 2) {
            if (signal_wait(team, signals, 0, Compare::at_least, round) != Status::ok) return;
            if (get(team, 1, data, 16, data, 8, 8, by) != Status::ok || quiet(team) != Status::ok) return;
            if (order::load_relaxed(own + 2) != round) *wrong += 1;
        }
        if (barrier(team) != Status::ok) return;
    }
}

// Every rank puts its bytes to the next one and gets that one's, both by the proxy and at the same time.
extern "C" __global__ void put_and_get(Team team, Window data, Window put_to, Window get_to) {
    u32 peer = (team.rank + 1) % team.ranks;
    u64 bytes = data.bytes;
    if (put<Block>(team, peer, put_to, 0, data, 0, bytes, Initiator::proxy) != Status::ok) return;
    if (get<Block>(team, peer, get_to, 0, data, 0, bytes, Initiator::proxy) != Status::ok) return;
    if (quiet<Block>(team) == Status::ok) barrier<Block>(team);
}

// Gets a word of the next rank, and looks at it behind `quiet`, so many times. Counts what else is there.
extern "C" __global__ void get_and_look(Team team, Window data, u32 rounds, u32 wish, u64 *wrong) {
    u64 *own = reinterpret_cast<u64 *>(data.base);
    u32 peer = (team.rank + 1) % team.ranks;
    for (u32 round = 0; round < rounds; round++) {
        order::store_relaxed(own + 1, 0ull);
        if (get(team, peer, data, 8, data, 0, 8, static_cast<Initiator>(wish)) != Status::ok) return;
        if (quiet(team) != Status::ok) return;
        if (order::load_relaxed(own + 1) != 1000 + peer) *wrong += 1;
    }
}

// Rank 0 puts its part's first half into the second one of rank 1 by one initiator, and behind a fence signals by
// another one. Counts words that are not there behind the signal.
extern "C" __global__ void put_fence_signal(Team team, Window data, Window signals, u32 rounds, u32 put_by, u32 signal_by,
                                            u64 *wrong) {
    u64 *own = reinterpret_cast<u64 *>(data.base), half = data.bytes / 2;
    for (u32 round = 1; round <= rounds; round++) {
        if (team.rank == 0) {
            for (u64 at = threadIdx.x; at < half / 8; at += blockDim.x) own[at] = round;
            if (put<Block>(team, 1, data, half, data, 0, half, static_cast<Initiator>(put_by)) != Status::ok) return;
            if (fence<Block>(team) != Status::ok) return;
            Initiator by = static_cast<Initiator>(signal_by);
            if (signal<Block>(team, 1, signals, 0, round, SignalKind::set, by) != Status::ok) return;
        } else if (team.rank == 1) {
            if (signal_wait<Block>(team, signals, 0, Compare::at_least, round) != Status::ok) return;
            for (u64 at = threadIdx.x; at < half / 8; at += blockDim.x)
                if (order::load_relaxed(own + half / 8 + at) != round) atomicAdd(wrong, 1ull);
        }
        if (barrier<Block>(team) != Status::ok) return;
    }
}

// Puts the first half of this rank's part into the second half of the next one's, so many bytes at a time, and ends
// without a wait.
extern "C" __global__ void put_and_leave(Team team, Window data, u32 bytes) {
    u32 peer = (team.rank + 1) % team.ranks;
    for (u64 at = 0; at < data.bytes / 2; at += bytes)
        if (put(team, peer, data, data.bytes / 2 + at, data, at, bytes) != Status::ok) return;
}

// All steps of a stencil; alone, if the team has one rank.
extern "C" __global__ void stencil_steps(Team team, Window data, Window words, u32 width, u32 height, u32 planes,
                                         u32 steps) {
    stencil::all_steps(team, data, words, {width, height, planes}, steps);
}

// All ranks meet.
extern "C" __global__ void meet(Team team) { barrier<Block>(team); }

// Ping-pong: `rounds` times there and back, for the first two ranks.
extern "C" __global__ void ping_pong(Team team, Window data, Window signals, u64 bytes, u32 rounds,
                                     u32 wish) {
    if (team.rank > 1) return;
    u32 peer = 1 - team.rank;
    Initiator by = static_cast<Initiator>(wish);
    for (u32 round = 1; round <= rounds; round++) {
        if (team.rank == 0) {
            put_signal<Block>(team, peer, data, 0, data, 0, bytes, signals, 0, round, SignalKind::set, by);
            if (signal_wait<Block>(team, signals, 0, Compare::at_least, round) != Status::ok) return;
        } else {
            if (signal_wait<Block>(team, signals, 0, Compare::at_least, round) != Status::ok) return;
            put_signal<Block>(team, peer, data, 0, data, 0, bytes, signals, 0, round, SignalKind::set, by);
        }
    }
}

// Verbs by the names of other languages, all threads of the block together: posts a request, waits for its
// completion in one queue and polls another one, which stays empty.
extern "C" __global__ void verbs_by_name(verbs::QueuePair *qp, verbs::CompletionQueue *cq,
                                         verbs::CompletionQueue *other, verbs::SendRequest request,
                                         verbs::ReceiveRequest receive, verbs::WorkCompletion *completion,
                                         u32 *answers) {
    u64 queue_pair = reinterpret_cast<u64>(qp), to = reinterpret_cast<u64>(completion);
    // Of the whole block: the last thread's, which the first one's request sends.
    if (threadIdx.x == blockDim.x - 1) *reinterpret_cast<u64 *>(request.address) = ~request.wr_id;
    u32 received =
        causeway_post_recv_block(queue_pair, receive.wr_id, receive.address, receive.bytes, receive.lkey);
    u32 posted = causeway_post_send_block(queue_pair, static_cast<u32>(request.operation), request.flags,
                                          request.wr_id, request.address, request.bytes, request.lkey,
                                          request.remote_address, request.rkey, request.immediate,
                                          request.compare_add, request.swap);
    u32 waited = causeway_wait_cq_block(reinterpret_cast<u64>(cq), to);
    u32 polled = causeway_poll_cq_block(reinterpret_cast<u64>(other), 1, to + sizeof *completion);
    // Each thread reads what the first one has polled.
    bool is_its = completion->wr_id == request.wr_id && completion->syndrome == 0;
    answers[threadIdx.x] = received << 24 | posted << 16 | waited << 8 | polled << 4 | (is_its ? 0 : 1);
}
