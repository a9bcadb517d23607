// SPDX-License-Identifier: BSD-3-Clause
/* Minimax fits and constants for GELU, written once for the vectors of the CPU and the threads of a
 * GPU; both agree to a few ulp. The functions are 1/2 + x p / q with x = sqrt(t). Each
 * macro declares p and q, for any type with multiplication and addition. */
#ifndef VITTRAIN_DEVICE_GELU_FIT_H
#define VITTRAIN_DEVICE_GELU_FIT_H

/* Standard normal cumulative distribution function Phi, absolute error 1.7e-7 for |x| <=
 * NORMAL_FIT_END; beyond that it is 0 or 1 to that accuracy. */
#define NORMAL_FIT_END 5.3f
#define NORMAL_FIT(number, t, p, q)                                                                \
    number p = t * 1.21139461e-10f - 2.25143168e-8f;                                               \
    p = p * t + 3.03359639e-6f;                                                                    \
    p = p * t + 1.47807116e-4f;                                                                    \
    p = p * t + 4.36267847e-3f;                                                                    \
    p = p * t + 3.36627800e-2f;                                                                    \
    p = p * t + 3.98942204e-1f;                                                                    \
    number q = t * 5.51530196e-5f + 1.69802055e-3f;                                                \
    q = q * t + 2.77791656e-2f;                                                                    \
    q = q * t + 2.51045403e-1f;                                                                    \
    q = q * t + 1.0f

/* Derivative of x Phi(x), absolute error 2e-7 for |x| <= GELU_SLOPE_FIT_END. */
#define GELU_SLOPE_FIT_END 6.0f
#define GELU_SLOPE_FIT(number, t, p, q)                                                            \
    number p = t * -1.53916896e-11f + 2.79184839e-9f;                                              \
    p = p * t - 1.01732904e-7f;                                                                    \
    p = p * t + 3.29936020e-5f;                                                                    \
    p = p * t - 1.48496053e-4f;                                                                    \
    p = p * t + 1.45301207e-2f;                                                                    \
    p = p * t - 4.15402663e-2f;                                                                    \
    p = p * t + 7.97884771e-1f;                                                                    \
    number q = t * 5.54456895e-6f + 1.50116881e-4f;                                                \
    q = q * t + 2.95077482e-3f;                                                                    \
    q = q * t + 3.69624726e-2f;                                                                    \
    q = q * t + 2.81272678e-1f;                                                                    \
    q = q * t + 1.0f

/* The tanh approximation of GELU is x s with s = 1 / (1 + exp(-x (a + b x^2))). */
#define GELU_TANH_A 1.59576912f    /* 2 sqrt(2 / pi) */
#define GELU_TANH_B 7.13548163e-2f /* 0.044715 a */

#endif
