// SPDX-License-Identifier: BSD-3-Clause
// devices: gpu
/* Hopper's asynchronous products: one of each form against sums in double precision. */
#include "device_test.h"

enum { SIZE = 64, FORMS_WIDTH = 144 };

/* Of cuda/attention_wgmma.cu. */
static bool (*wgmma_forms)(struct stream *stream, enum data_type type, const void *left,
                           const void *rows, float *sums);

TEST(products_of_each_form_are_right)
{
    *(void **)&wgmma_forms = device_module_symbol("wgmma_forms", &error);
    assert_non_null(wgmma_forms);
    for (enum data_type type = TYPE_BF16; type <= TYPE_FP16; type++) {
        DEVICE_TEST(test, 1);
        const void *left = device_test_random(&test, type, SIZE * SIZE, 1, 1);
        const void *rows = device_test_random(&test, type, SIZE * SIZE, 1, 2);
        float *sums = device_test_zeros(&test, TYPE_FP32, SIZE * FORMS_WIDTH);
        if (!wgmma_forms(test.stream, type, left, rows, sums))
            SKIP_BECAUSE("only for compute capability 9.0");
        device_test_wait(&test);
        const double *a = device_test_given(&test, left), *b = device_test_given(&test, rows);
        double *expected = device_test_expected(&test, SIZE * FORMS_WIDTH);
        for (int i = 0; i < SIZE; i++)
            for (int j = 0; j < FORMS_WIDTH; j++)
                for (int k = 0; k < SIZE; k++)
                    expected[i * FORMS_WIDTH + j] +=
                        a[i * SIZE + k] * (j < 64   ? b[j * SIZE + k]
                                           : j < 80 ? b[(j - 64 + 16) * SIZE + k]
                                                    : b[k * SIZE + j - 80]);
        device_test_near(&test, "sums", sums, expected, 1e-5, 1);
    }
}

int main(void)
{
    if (!device_test_of_gpu())
        return 0;
    setenv("VITTRAIN_TEST_DEVICE", "cuda", 1);
    return TESTS_RUN();
}
