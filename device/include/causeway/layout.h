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

// Who moves a message's bytes. `verbs` has its place and no code yet.
enum class Initiator : u32 { automatic = 0, direct = 1, proxy = 2, verbs = 3 };
constexpr u32 INITIATORS = 4;

// Why that one: a message is counted by both.
enum class Reason : u32 {
    table = 0,  // the table of costs says so
    named = 1,  // the program names it
    only = 2,   // no other reaches the memory
    signal = 3, // no other can send the signal behind it
};
constexpr u32 REASONS = 4;

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
    queue_full = 9,    // the proxy has taken no request within the team's limit
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
};

// What a kernel is given. 32 bytes, by value.
struct Window {
    u64 base; // this rank's own part
    u64 bytes;
    const WindowState *state;
    u32 id;
    u32 team;
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
static_assert(sizeof(ErrorRecord) == 40);
static_assert(sizeof(HostControl) == 256);
static_assert(sizeof(WindowState) == 544);
static_assert(sizeof(Window) == 32);
static_assert(sizeof(Team) == 24);
static_assert(sizeof(TeamState) == 18816);
#ifndef __CUDACC_RTC__ // which has no offsetof
static_assert(__builtin_offsetof(QueueCounters, completed) == 128);
static_assert(__builtin_offsetof(Queue, head) == 64);
static_assert(__builtin_offsetof(HostControl, error) == 128);
static_assert(__builtin_offsetof(WindowState, peers) == 24);
static_assert(__builtin_offsetof(TeamState, control) == 32);
static_assert(__builtin_offsetof(TeamState, failure) == 64);
static_assert(__builtin_offsetof(TeamState, epochs) == 128);
static_assert(__builtin_offsetof(TeamState, sent) == 256);
static_assert(__builtin_offsetof(TeamState, received) == 768);
static_assert(__builtin_offsetof(TeamState, choice) == 1280);
static_assert(__builtin_offsetof(TeamState, moved) == 2240);
static_assert(__builtin_offsetof(TeamState, timed) == 2272);
static_assert(__builtin_offsetof(TeamState, counts) == 2320);
static_assert(__builtin_offsetof(TeamState, queues_of) == 17792);
#endif

} // namespace causeway
