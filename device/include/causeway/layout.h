// What kernels, the proxy and the host know of the same bytes: a team, its windows, its queues of requests.
//
// The host's side is crates/comm/src/device/layout.rs. A test compares the numbers of the static_asserts here
// with the offsets there. Without includes, so that NVRTC takes it as it is.
#pragma once

namespace causeway {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;

// Ranks of a team, windows of a team, queues of a rank, barriers of a team that may be under way at the same
// time.
constexpr u32 MAX_RANKS = 64;
constexpr u32 MAX_WINDOWS = 64;
constexpr u32 MAX_QUEUES = 8;
constexpr u32 BARRIERS = 16;

// Bytes of a window are fewer than this, and of one request at most that many.
constexpr u64 MAX_WINDOW_BYTES = 1ull << 36;
constexpr u64 MAX_REQUEST_BYTES = 1ull << 30;

// Who moves a message's bytes: the kernel's threads, a thread of the host, or the network card, which the kernel
// asks itself.
enum class Initiator : u32 { automatic = 0, direct = 1, proxy = 2, verbs = 3 };
constexpr u32 INITIATORS = 4;

// Why that one: a message is counted by both.
enum class Reason : u32 {
    table = 0,  // the table of costs says so
    named = 1,  // the program names it
    only = 2,   // no other reaches the memory
    signal = 3, // no other can send the signal behind it
    network = 4, // the table of costs for peers that a network card reaches says so
};
constexpr u32 REASONS = 5;

// Copies by threads of so many bytes and more are timed, by which the host corrects what they cost.
constexpr u64 TIMED_BYTES = 16384;

// What came of an operation. All but `ok` are in the team's error record, too, and end the team.
enum class Status : u32 {
    ok = 0,
    out_of_bounds = 1, // the bytes do not lie in the window
    other_team = 2,    // the window belongs to another team
    no_such_rank = 3,  // the team has no such rank
    misaligned = 4,    // a signal or an atomic operation needs an address that is a multiple of 8
    unsupported = 5,   // no initiator can do this with this window
    timed_out = 6,     // what was waited for has not come within the team's limit
    aborted = 7,       // the host has ended the team, or another thread of this rank has failed
    truncated = 8,     // a message is longer than the room for it
    queue_full = 9,    // no request has been taken within the team's limit
    nic_failed = 10,   // the network card has ended a request with an error
};

// What a request asks of the proxy.
enum class Verb : u32 {
    none = 0,
    put = 1,
    get = 2,
    store = 3,      // 8 bytes that are in the request
    signal_set = 4, // the same, after all that the queue has been given before
    signal_add = 5,
    atomic_add = 6, // the last three are answered
    atomic_cas = 7,
    fetch = 8,
    operand = 9, // what the next request compares with
    wait = 10,   // never in a request: the error record says so of waits
    barrier = 11,
    send = 12,
    receive = 13,
};

// 16 bytes. Each half has a phase bit of its own at the top, which changes with every round of the queue: the
// proxy takes a slot when both are those of its round. So nothing depends on whether 16 bytes arrive at once.
// From the top:
//   word 0: phase 1, verb 4, peer 6, window 6, offset 36, low 11 bits of the length (value: 10 unused, its
//   top bit) word 1: phase 1, local window 6, local offset 36, high 21 bits of the length (value: its low 63
//   bits)
struct alignas(16) Request {
    u64 words[2];
};

// An answer of the proxy, in the slot of the request's number. `number` is the request's plus 1, and `taken`
// is so when the kernel has read it: then the slot may be used again.
struct alignas(32) Response {
    u64 value;
    u64 number;
    u64 taken;
    u64 brought; // the proxy's own
};

// The proxy's side of a queue, in pinned host memory: how many requests it has taken, and how many are done.
// A line each, as one is polled by whoever finds the queue full, and the other by whoever waits for
// completion.
struct QueueCounters {
    alignas(128) u64 accepted;
    alignas(128) u64 completed;
    // Answers follow, one a slot.
};

// The kernel's side of a queue. The second line changes.
struct Queue {
    Request *slots;          // pinned host memory
    QueueCounters *counters; // pinned host memory
    u64 capacity;            // a power of two
    alignas(64) u64 head;    // requests so far
    u64 accepted;            // what was last seen of the counters
    u64 completed;
};

// Why the team has come to an end, in pinned host memory. `code` is written last.
struct ErrorRecord {
    u32 code;
    u32 verb;
    u32 peer;
    u32 window;
    u64 offset;
    u64 bytes;
    u32 block;
    u32 thread;
    // Of `nic_failed`: the queue pair's number, its operation and the card's cause (mlx5.h).
    u32 queue_pair;
    u32 operation;
    u32 syndrome;
    u32 reserved;
};

// What the host and kernels tell each other, in pinned host memory.
struct HostControl {
    u32 abort; // the host's: not 0 ends all waits
    alignas(128) ErrorRecord error;
};

// A window of one rank: where it lies at every peer, as this rank reaches it. 0: it does not.
struct WindowState {
    u32 team;
    u32 id;
    u64 bytes;
    u32 in_host; // whether it is memory of the host
    // Whether the owner's proxy makes all changes that are to be atomic, though it is memory of GPUs: some
    // ranks are on other hosts.
    u32 atomics_by_proxy;
    u64 peers[MAX_RANKS];
    // A bit for each peer whose part is on a GPU on which this one has no atomic operations: over PCIe, for
    // instance.
    u64 without_atomics;
    // The network card's key of this rank's part, if that has one, and whether cards make all changes that are to
    // be atomic: every rank reaches every other one by its card, and itself.
    u32 local_key;
    u32 is_registered;
    u32 atomics_by_verbs;
    u32 reserved;
    // Where each rank's part lies as this rank's card names it, 0 where that does not reach it, and the keys.
    u64 remote[MAX_RANKS];
    u32 keys[MAX_RANKS];
};

// What a kernel is given. 32 bytes, by value.
struct Window {
    u64 base; // this rank's own part
    u64 bytes;
    const WindowState *state;
    u32 id;
    u32 team;
};

namespace verbs {
struct QueuePair;
struct CompletionQueue;
} // namespace verbs

// The queue pair of a rank's kernels for a peer that its network card reaches. A line of its own.
struct alignas(64) VerbsPeer {
    verbs::QueuePair *queue_pair;        // null: no card reaches the peer
    verbs::CompletionQueue *completions; // of this queue pair alone
    u64 flush;                         // a word of the peer's GPU; 0 where cards do not reach its memory
    u64 sink;                            // a word of the peer's host, for writes that mean nothing
    u32 flush_key;
    u32 sink_key;
    u32 written; // not 0 once the peer's GPU memory has been written
    u32 filled;  // not 0 once memory of this GPU has been filled by reads
    u64 fenced;  // slots before which `fence` was called
    u64 marked;  // where the last request ends for which `quiet` waits
};

// Words that cards write for the kernels of a rank: what was in a peer's word before. The first is of answers that
// nobody reads.
constexpr u32 VERBS_RESULTS = 256;

// What the host and kernels tell each other of peers that a network card reaches, in pinned host memory.
struct NetworkChoice {
    u32 version; // the host's: changes with the rows, behind them
    u32 reserved;
    u64 timed[2]; // the kernels': requests that were waited for alone, and the nanoseconds that took
    u64 rows[40]; // by class of size, as `TeamState::choice`; one thread posts for all of a scope
};

// What kernels of a rank need to post for peers, in its device memory.
struct TeamVerbs {
    u64 flush; // a word of this GPU; 0 where the card does not reach its memory
    u64 results;   // pinned host memory
    u32 flush_key;
    u32 results_key;
    NetworkChoice *shared;
    u64 timed[2];
    u32 version;   // of the rows that are here
    u32 has_long;  // not 0 once a long transfer was posted behind the last wait for all
    alignas(64) u64 next; // the word that is tried next
    u64 choice[40];
    u32 is_taken[VERBS_RESULTS];
    VerbsPeer peers[MAX_RANKS];
};

// What a rank knows of its team, in its device memory.
struct TeamState {
    u32 id;
    u32 rank;
    u32 ranks;
    u32 queues;
    HostControl *host;
    u64 limit;      // how long a wait takes at most, in nanoseconds
    Window control; // cells of barriers and messages
    u32 failure;    // the first error of this rank's kernels
    u32 control_by; // the initiator for everybody's control window, where that is mapped
    TeamVerbs *verbs; // null where no peer is reached by a network card
    alignas(128) u64 epochs[BARRIERS];
    u64 sent[MAX_RANKS];
    u64 received[MAX_RANKS];
    // By scope and class of size: eight initiators, a byte each, by how many requests are in flight.
    u64 choice[3][40];
    // Bytes by initiator.
    u64 moved[INITIATORS];
    // By scope, bytes of copies that were timed, and the nanoseconds that they took.
    u64 timed[3][2];
    // Messages by scope, class of size, initiator and reason.
    u64 counts[3][40][INITIATORS][REASONS];
    alignas(128) Queue queues_of[MAX_QUEUES];
};

// What a kernel is given. 24 bytes, by value.
struct Team {
    TeamState *state;
    u32 rank;
    u32 ranks;
    u32 id;
    u8 direct_below[3]; // by scope: messages of a smaller class go direct, whatever else is in flight
    u8 shape;           // how many queues, and ON_ONE_GPU
};

// In `Team::shape`: the number of queues, and whether kernels of all ranks are this process's on one GPU, so
// that what they tell each other need not be ordered for anybody outside of it.
constexpr u8 QUEUES_OF_SHAPE = 0x0f;
constexpr u8 ON_ONE_GPU = 0x80;

// The control window: an epoch for each barrier and rank; of messages how many pieces have come from each
// rank, and how many each rank has taken of this one's; and room for eight pieces of each rank. A piece
// begins with the bytes of its message and those before it in the message.
constexpr u64 ARRIVED_AT = 8ull * BARRIERS * MAX_RANKS;
constexpr u64 TAKEN_AT = ARRIVED_AT + 8 * MAX_RANKS;
constexpr u64 INBOX_AT = 16384;
constexpr u32 PIECES = 8;
constexpr u64 PIECE_BYTES = 2048;
constexpr u64 PIECE_HEAD = 16;
constexpr u64 CONTROL_BYTES_OF_RANK = PIECES * PIECE_BYTES;

static_assert(sizeof(Request) == 16);
static_assert(sizeof(Response) == 32);
static_assert(sizeof(QueueCounters) == 256);
static_assert(sizeof(Queue) == 128);
static_assert(sizeof(ErrorRecord) == 56);
static_assert(sizeof(HostControl) == 256);
static_assert(sizeof(WindowState) == 1328);
static_assert(sizeof(Window) == 32);
static_assert(sizeof(Team) == 24);
static_assert(sizeof(VerbsPeer) == 64);
static_assert(sizeof(NetworkChoice) == 344);
static_assert(sizeof(TeamVerbs) == 5568);
static_assert(sizeof(TeamState) == 22656);
#ifndef __CUDACC_RTC__ // which has no offsetof
static_assert(__builtin_offsetof(QueueCounters, completed) == 128);
static_assert(__builtin_offsetof(Queue, head) == 64);
static_assert(__builtin_offsetof(HostControl, error) == 128);
static_assert(__builtin_offsetof(WindowState, peers) == 24);
static_assert(__builtin_offsetof(WindowState, local_key) == 544);
static_assert(__builtin_offsetof(WindowState, remote) == 560);
static_assert(__builtin_offsetof(WindowState, keys) == 1072);
static_assert(__builtin_offsetof(VerbsPeer, fenced) == 48);
static_assert(__builtin_offsetof(NetworkChoice, rows) == 24);
static_assert(__builtin_offsetof(TeamVerbs, shared) == 24);
static_assert(__builtin_offsetof(TeamVerbs, next) == 64);
static_assert(__builtin_offsetof(TeamVerbs, choice) == 72);
static_assert(__builtin_offsetof(TeamVerbs, peers) == 1472);
static_assert(__builtin_offsetof(TeamState, control) == 32);
static_assert(__builtin_offsetof(TeamState, failure) == 64);
static_assert(__builtin_offsetof(TeamState, verbs) == 72);
static_assert(__builtin_offsetof(TeamState, epochs) == 128);
static_assert(__builtin_offsetof(TeamState, sent) == 256);
static_assert(__builtin_offsetof(TeamState, received) == 768);
static_assert(__builtin_offsetof(TeamState, choice) == 1280);
static_assert(__builtin_offsetof(TeamState, moved) == 2240);
static_assert(__builtin_offsetof(TeamState, timed) == 2272);
static_assert(__builtin_offsetof(TeamState, counts) == 2320);
static_assert(__builtin_offsetof(TeamState, queues_of) == 21632);
#endif

} // namespace causeway
