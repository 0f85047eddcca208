// InfiniBand verbs on the GPU: kernels write work requests of a network card themselves, ring its doorbell and
// read its completions. The paper's names: post_send, post_recv, poll_cq.
//
// The host makes queue pairs and completion queues by causeway/verbs.h, and gives a kernel their addresses. The
// book's page is docs/src/concepts/gpu_verbs.md.
//
//   header            question
//   mlx5.h            what does the card read and write?
//   verbs_layout.h    what do kernels and the host know of the same bytes?
//   verbs_post.cuh    how does a kernel hand requests to the card?
//   verbs_poll.cuh    how does it learn that they are done?
#pragma once

#include "verbs_poll.cuh"
#include "verbs_post.cuh"
