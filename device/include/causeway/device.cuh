// Kernels that communicate: put, get, signals, atomic operations, barriers and messages, called by a kernel.
//
// The book's page is docs/src/concepts/kernels.md. The host makes teams and windows by causeway/team.h.
//
//   header        question
//   layout.h      what do kernels, the proxy and the host know of the same bytes?
//   order.cuh     which loads, stores and fences do other ranks see, and in what order?
//   scope.cuh     who calls together: a thread, a warp, a block?
//   failure.cuh   what goes wrong, and how does a wait come to an end?
//   direct.cuh    how do threads move bytes themselves?
//   proxy.cuh     how does a kernel ask the proxy to?
//   team_verbs.cuh   how does it ask the network card?
//   choice.cuh    which of them takes a message?
//   put.cuh, atomics.cuh, barrier.cuh, messages.cuh   the operations
#pragma once

#include "atomics.cuh"
#include "barrier.cuh"
#include "messages.cuh"
#include "put.cuh"
