// SPDX-License-Identifier: BSD-3-Clause
/* Damaged copies of valid input for readers of files: the same ones in each run. */
#ifndef VITTRAIN_TEST_MUTATE_H
#define VITTRAIN_TEST_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* Return a number below `below`, which depends on the other two only. */
uint32_t draw_below(uint32_t number, uint32_t turn, uint32_t below);

/* Change the bytes at one to six places: replace a byte, flip a bit, insert a byte, double or
 * remove a piece, or cut off the rest. Return the new size, at most `room`. */
size_t mutate(void *bytes, size_t size, size_t room, uint32_t number);

#endif
