// SPDX-License-Identifier: BSD-3-Clause
#include "mutate.h"

#include <stdbool.h>
#include <string.h>

#include "base/random.h"

enum { HEADER = 700, PIECE = 40 };

uint32_t draw_below(uint32_t number, uint32_t turn, uint32_t below)
{
    const struct random_block block = random_block_at(7, RANDOM_SYNTHETIC, 0, 0, number, turn);
    return (uint32_t)(((uint64_t)block.word[0] * below) >> 32);
}

/* Replace `removed` bytes by `added` ones, unless the result is larger than the room. */
static size_t splice(uint8_t *at, size_t left, size_t removed, const uint8_t *bytes, size_t added,
                     size_t room)
{
    if (left - removed + added > room)
        return left;
    memmove(at + added, at + removed, left - removed);
    memmove(at, bytes, added);
    return left - removed + added;
}

size_t mutate(void *bytes, size_t size, size_t room, uint32_t number)
{
    /* Signs of texts, and bytes with a meaning in JPEG files. */
    static const uint8_t special[] = "[]=:;#+-. \t\n\r,0e9nx\\\"\xff\xd8\xd9\xda\xc2\x7f\x80";
    const uint32_t changes = 1 + draw_below(number, 0, 6);
    for (uint32_t turn = 1; turn <= changes && size > 1; turn++) {
        /* Half of the changes are in the header. */
        const bool in_header = size > HEADER && draw_below(number, 8 * turn, 2) == 0;
        const size_t at = draw_below(number, 8 * turn + 1, in_header ? HEADER : (uint32_t)size);
        const size_t left = size - at, piece = 1 + draw_below(number, 8 * turn + 2, PIECE);
        const size_t length = piece < left ? piece : left;
        uint8_t *place = (uint8_t *)bytes + at, copy[PIECE], value;
        memcpy(copy, place, length);
        value = draw_below(number, 8 * turn + 3, 2) == 0
                    ? special[draw_below(number, 8 * turn + 4, sizeof special)]
                    : (uint8_t)draw_below(number, 8 * turn + 4, 256);
        /* Insert a byte, double a piece, remove it, flip a bit, cut off the rest, or replace a
         * byte. */
        const uint32_t kind = draw_below(number, 8 * turn + 5, 9);
        const size_t removed = kind < 2 ? 0 : kind == 2 ? length : kind == 4 ? left : 1;
        const size_t added = kind == 1 ? length : kind == 2 || kind == 4 ? 0 : 1;
        if (kind == 3)
            value = *place ^ (uint8_t)(1 << draw_below(number, 8 * turn + 4, 8));
        size = at + splice(place, left, removed, kind == 1 ? copy : &value, added, room - at);
    }
    return size;
}
