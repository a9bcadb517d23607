// SPDX-License-Identifier: BSD-3-Clause
/* Read a few thousand damaged decks (the same ones each time): the reader must return, report
 * errors in one line, and leave options that can be written and read again. */
#include "core/random.h"

#include "config/options.h"
#include "test.h"

enum { CASES = 3000, CHANGES = 6 };

static uint32_t draw(uint32_t number, uint32_t turn, uint32_t below)
{
    return random_block_at(1, RANDOM_SYNTHETIC, 0, 0, number, turn).word[0] % below;
}

/* Replaces, inserts, doubles or removes a piece of text; it keeps within `size`. */
static void damage(char *text, size_t size, uint32_t number, uint32_t turn)
{
    static const char signs[] = "[]=:;#+-. \t\n\r,0e9nx\\\"\x80\xff";
    const uint32_t length = (uint32_t)strlen(text);
    if (length < 2)
        return;
    const uint32_t at = draw(number, 10 * turn, length);
    const char sign = signs[draw(number, 10 * turn + 1, sizeof signs - 1)];
    uint32_t piece = 1 + draw(number, 10 * turn + 2, 40);
    piece = at + piece > length ? length - at : piece;
    switch (draw(number, 10 * turn + 3, 4)) {
    case 0:
        text[at] = sign;
        break;
    case 1:
        if (length + 1 < size) {
            memmove(text + at + 1, text + at, length - at + 1);
            text[at] = sign;
        }
        break;
    case 2:
        if (length + piece < size)
            memmove(text + at + piece, text + at, length - at + 1);
        break;
    default:
        memmove(text + at, text + at + piece, length - at - piece + 1);
    }
}

TEST(damaged_decks_do_no_harm)
{
    static struct options options, again;
    options_default(&options);
    char *whole = options_to_run_deck(&options);
    const size_t size = 2 * strlen(whole);
    char *text = malloc(size);
    assert_non_null(text);
    int refused = 0;
    for (uint32_t number = 0; number < CASES; number++) {
        struct error error = {0};
        strcpy(text, whole);
        const uint32_t changes = 1 + draw(number, 0, CHANGES);
        for (uint32_t turn = 1; turn <= changes; turn++)
            damage(text, size, number, turn);
        options_default(&options);
        if (!options_read_text(text, "fuzz.ini", &options, &error)) {
            refused++;
            assert_int_equal(error.kind, ERROR_USAGE);
            assert_true(strncmp(error.text, "fuzz.ini:", 9) == 0);
            assert_null(strchr(error.text, '\n'));
        }
        char *resolved = options_to_run_deck(&options);
        struct error second = {0};
        options_default(&again);
        if (!options_read_text(resolved, "again.ini", &again, &second))
            fail_msg("deck %u: %s", number, second.text);
        assert_memory_equal(&options, &again, sizeof options);
        free(resolved);
    }
    assert_in_range(refused, CASES / 4, CASES - 1);
    free(text);
    free(whole);
}

TEST_MAIN()
