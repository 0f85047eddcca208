"""Tests of what is read from headers."""

import unittest

from headers import Enumeration, Function, Structure, read

HEADER = """\
// About the header.
#pragma once

namespace causeway {

// What came
// of it.
enum class Status : u32 {
    ok = 0,
    lost = 0x1, // not found
};
enum class Kind : u32 { set = 0, add = 1 };

// A pair.
struct Pair {
    u32 left; // the first
};

namespace detail {
// Not for programs.
__device__ inline void hidden(u32 number) {}
} // namespace detail

// Puts one
// there.
template <class Scope = Thread>
__device__ inline Status put(const Pair &pair,
                                u64 bytes) {
    if (bytes) return Status::ok;
}
__device__ inline void bare() {}

// Opens and closes.
int causeway_open(const char *name,
   int number);
void causeway_close(int number);

} // namespace causeway
"""


class Read(unittest.TestCase):
    def test_what_programs_use_with_its_comments(self):
        self.assertEqual(
            read(HEADER),
            [
                Enumeration("Status", "What came of it.", [("ok", ""), ("lost", "not found")]),
                Enumeration("Kind", "", [("set", ""), ("add", "")]),
                Structure("Pair", "A pair.", "struct Pair {\n    u32 left; // the first\n};"),
                Function(
                    ["template <class Scope = Thread>\nStatus put(const Pair &pair,\n           u64 bytes);"],
                    "Puts one there.",
                ),
                Function(["void bare();"], ""),
                Function(
                    [
                        "int causeway_open(const char *name,\n                  int number);",
                        "void causeway_close(int number);",
                    ],
                    "Opens and closes.",
                ),
            ],
        )


if __name__ == "__main__":
    unittest.main()
