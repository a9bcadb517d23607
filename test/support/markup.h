// SPDX-License-Identifier: BSD-3-Clause
/* Checks that HTML or XML is well-formed. Stricter than browsers: every element must be closed in
 * order. */
#ifndef VITTRAIN_TEST_MARKUP_H
#define VITTRAIN_TEST_MARKUP_H

/* Return a description of the first error and the text after it, or NULL. The text is valid until
 * the next call. */
const char *markup_fault(const char *text);

/* Return the number of occurrences of `part` in the text. */
int text_count(const char *text, const char *part);

#endif
