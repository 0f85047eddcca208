// What mlx5 network cards (ConnectX-4 and later, BlueField) read and write in memory: work requests,
// completions, doorbells. The one file that knows these layouts, for C, C++, CUDA and NVRTC, without includes.
//
// The facts are public: NVIDIA's "Programmer's Reference Manual" of these adapters, and rdma-core's
// <infiniband/mlx5dv.h>. All numbers in these structures are big-endian. A request is a row of segments of 16
// bytes, in one or more slots of 64:
//
//   write, read      control, remote address, data
//   send             control, data
//   atomic           control, remote address, atomic, data (where the old value goes)
//   inline           control, [remote address], 4 bytes of length, the bytes themselves
//   receive          data, in a ring of its own whose slots have the size that the queue says
#ifndef CAUSEWAY_MLX5_H
#define CAUSEWAY_MLX5_H

#if defined(__CUDACC__) || defined(__CUDA__) // nvcc, clang
#define CAUSEWAY_MLX5_FUNCTION static __host__ __device__ inline
#else
#define CAUSEWAY_MLX5_FUNCTION static inline
#endif

// Operations of send queues, in the lowest byte of a control segment and the highest of a completion's
// `operation_and_queue`.
enum {
    CAUSEWAY_MLX5_RDMA_WRITE = 0x08,
    CAUSEWAY_MLX5_RDMA_WRITE_IMM = 0x09,
    CAUSEWAY_MLX5_SEND = 0x0a,
    CAUSEWAY_MLX5_SEND_IMM = 0x0b,
    CAUSEWAY_MLX5_RDMA_READ = 0x10,
    CAUSEWAY_MLX5_ATOMIC_CS = 0x11,
    CAUSEWAY_MLX5_ATOMIC_FA = 0x12,
};

// Bits of a control segment's `flags`.
enum {
    CAUSEWAY_MLX5_SOLICITED = 1 << 1,
    CAUSEWAY_MLX5_CQ_UPDATE = 2 << 2, // write a completion
    CAUSEWAY_MLX5_FENCE = 4 << 5,     // begin after the reads and atomic operations before
};

// What a completion is of: the high four bits of `opcode_and_owner`.
enum {
    CAUSEWAY_MLX5_CQE_REQUESTER = 0,
    CAUSEWAY_MLX5_CQE_WRITE_IMM = 1, // a receive that a write with immediate data took
    CAUSEWAY_MLX5_CQE_RECEIVE = 2,
    CAUSEWAY_MLX5_CQE_RECEIVE_IMM = 3,
    CAUSEWAY_MLX5_CQE_REQUESTER_ERROR = 13,
    CAUSEWAY_MLX5_CQE_RESPONDER_ERROR = 14,
    CAUSEWAY_MLX5_CQE_INVALID = 15, // the card has never written here
};

// Bits of `opcode_and_owner` below: whose turn it is, and whether a receive's bytes are in the completion.
enum { CAUSEWAY_MLX5_CQE_OWNER = 1, CAUSEWAY_MLX5_CQE_SCATTERED = 0xc };

// Why a request has failed.
enum {
    CAUSEWAY_MLX5_LOCAL_LENGTH = 0x01,
    CAUSEWAY_MLX5_LOCAL_QP_OPERATION = 0x02,
    CAUSEWAY_MLX5_LOCAL_PROTECTION = 0x04,
    CAUSEWAY_MLX5_FLUSHED = 0x05, // an earlier one had failed
    CAUSEWAY_MLX5_BAD_RESPONSE = 0x10,
    CAUSEWAY_MLX5_LOCAL_ACCESS = 0x11,
    CAUSEWAY_MLX5_REMOTE_INVALID_REQUEST = 0x12,
    CAUSEWAY_MLX5_REMOTE_ACCESS = 0x13,
    CAUSEWAY_MLX5_REMOTE_OPERATION = 0x14,
    CAUSEWAY_MLX5_RETRY_EXCEEDED = 0x15,
    CAUSEWAY_MLX5_RNR_RETRY_EXCEEDED = 0x16,
    CAUSEWAY_MLX5_REMOTE_ABORTED = 0x22,
};

enum {
    CAUSEWAY_MLX5_SLOT_BYTES = 64,    // of a send queue
    CAUSEWAY_MLX5_SEGMENT_BYTES = 16, // of every segment
    CAUSEWAY_MLX5_RECEIVE_RECORD = 0, // of the two numbers of a doorbell record
    CAUSEWAY_MLX5_SEND_RECORD = 1,
    CAUSEWAY_MLX5_INVALID_KEY = 0x100, // ends the segments of a receive
    CAUSEWAY_MLX5_MAX_SEGMENTS = 63,   // that a request can say it has
};

#define CAUSEWAY_MLX5_INLINE 0x80000000u // in an inline segment's length

struct causeway_mlx5_control {
    unsigned int index_and_opcode;   // modifier 8, index of the request's first slot 16, operation 8
    unsigned int queue_and_segments; // queue pair 24, segments of the request 8
    unsigned char signature;
    unsigned char stream[2];
    unsigned char flags;
    unsigned int immediate;
};

struct causeway_mlx5_remote {
    unsigned long long address;
    unsigned int key;
    unsigned int reserved;
};

struct causeway_mlx5_data {
    unsigned int bytes;
    unsigned int key;
    unsigned long long address;
};

struct causeway_mlx5_atomic {
    unsigned long long swap_or_add;
    unsigned long long compare;
};

// A completion: the last 64 bytes of an entry, also where entries have 128.
struct causeway_mlx5_cqe {
    unsigned char reserved[32];
    unsigned int shared_queue;
    unsigned int immediate;
    unsigned char application[4];
    unsigned int bytes;
    unsigned char reserved_of_error[6]; // of a completion without error the first 8 are a time
    unsigned char vendor_syndrome;
    unsigned char syndrome;
    unsigned int operation_and_queue; // operation 8, queue pair 24
    unsigned short slot;              // index of the request's first slot
    unsigned char signature;
    unsigned char opcode_and_owner;
};

// A segment as two words, as the processor that writes them has them.
struct causeway_mlx5_segment {
    unsigned long long words[2];
};

// To big-endian, and back. All processors with such cards and GPUs are little-endian.
CAUSEWAY_MLX5_FUNCTION unsigned int causeway_mlx5_be32(unsigned int value) {
    return value << 24 | (value & 0xff00) << 8 | (value >> 8 & 0xff00) | value >> 24;
}

CAUSEWAY_MLX5_FUNCTION unsigned long long causeway_mlx5_be64(unsigned long long value) {
    return (unsigned long long)causeway_mlx5_be32((unsigned int)value) << 32 |
           causeway_mlx5_be32((unsigned int)(value >> 32));
}

CAUSEWAY_MLX5_FUNCTION struct causeway_mlx5_segment causeway_mlx5_pair(unsigned int first, unsigned int second,
                                                                      unsigned long long third) {
    struct causeway_mlx5_segment segment;
    segment.words[0] = causeway_mlx5_be32(first) | (unsigned long long)causeway_mlx5_be32(second) << 32;
    segment.words[1] = third;
    return segment;
}

// The first segment of a request. Its first 8 bytes are what the doorbell is told, too.
CAUSEWAY_MLX5_FUNCTION struct causeway_mlx5_segment
causeway_mlx5_control_segment(unsigned int queue_pair, unsigned int slot, unsigned int operation,
                              unsigned int segments, unsigned int flags, unsigned int immediate) {
    unsigned long long rest =
        (unsigned long long)flags << 24 | (unsigned long long)causeway_mlx5_be32(immediate) << 32;
    return causeway_mlx5_pair((slot & 0xffff) << 8 | operation, queue_pair << 8 | segments, rest);
}

CAUSEWAY_MLX5_FUNCTION struct causeway_mlx5_segment causeway_mlx5_remote_segment(unsigned long long address,
                                                                                unsigned int key) {
    struct causeway_mlx5_segment segment;
    segment.words[0] = causeway_mlx5_be64(address);
    segment.words[1] = causeway_mlx5_be32(key);
    return segment;
}

CAUSEWAY_MLX5_FUNCTION struct causeway_mlx5_segment
causeway_mlx5_data_segment(unsigned long long address, unsigned int bytes, unsigned int key) {
    return causeway_mlx5_pair(bytes, key, causeway_mlx5_be64(address));
}

CAUSEWAY_MLX5_FUNCTION struct causeway_mlx5_segment causeway_mlx5_atomic_segment(unsigned long long swap_or_add,
                                                                                unsigned long long compare) {
    struct causeway_mlx5_segment segment;
    segment.words[0] = causeway_mlx5_be64(swap_or_add);
    segment.words[1] = causeway_mlx5_be64(compare);
    return segment;
}

// Whether an entry is a new completion: the card turns the owner bit with every round of the ring.
CAUSEWAY_MLX5_FUNCTION int causeway_mlx5_is_new(unsigned int opcode_and_owner, unsigned long long index,
                                                unsigned long long entries) {
    unsigned int owner = (index & entries) != 0;
    return opcode_and_owner >> 4 != CAUSEWAY_MLX5_CQE_INVALID &&
           (opcode_and_owner & CAUSEWAY_MLX5_CQE_OWNER) == owner;
}

#undef CAUSEWAY_MLX5_FUNCTION
#endif
