// SPDX-License-Identifier: BSD-3-Clause
/* CRC32C by isa-l, whose crc32_iscsi takes and gives the bare register: the inversions before and
 * after are ours. It counts bytes in an int, so long data goes in pieces. */
#include "base/base.h"

#include <isa-l/crc.h>

uint32_t crc32c_update(uint32_t crc, const void *data, size_t bytes)
{
    enum { PIECE = 1 << 30 };
    /* isa-l does not write to its buffer, but its declaration has no const. */
    unsigned char *next = (unsigned char *)(uintptr_t)data;
    uint32_t sum = ~crc;
    while (bytes > 0) {
        const int piece = bytes < PIECE ? (int)bytes : PIECE;
        sum = crc32_iscsi(next, piece, sum);
        next += piece;
        bytes -= (size_t)piece;
    }
    return ~sum;
}
