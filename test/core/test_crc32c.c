// SPDX-License-Identifier: BSD-3-Clause
/* CRC32C against published sums (RFC 3720, B.4), in one piece and in many. */
#include "core/crc32c.h"

#include "test.h"

TEST(published_sums)
{
    unsigned char data[32];
    assert_int_equal(crc32c_update(0, "123456789", 9), 0xe3069283);
    memset(data, 0, sizeof data);
    assert_int_equal(crc32c_update(0, data, sizeof data), 0x8a9136aa);
    memset(data, 0xff, sizeof data);
    assert_int_equal(crc32c_update(0, data, sizeof data), 0x62a8ab43);
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)i;
    assert_int_equal(crc32c_update(0, data, sizeof data), 0x46dd794e);
    assert_int_equal(crc32c_update(0, data, 0), 0);
}

TEST(goes_on_where_it_was)
{
    static const char text[] = "123456789";
    for (size_t cut = 0; cut <= 9; cut++) {
        const uint32_t first = crc32c_update(0, text, cut);
        assert_int_equal(crc32c_update(first, text + cut, 9 - cut), 0xe3069283);
    }
}

TEST_MAIN()
