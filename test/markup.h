/* Is it well-formed HTML or XML? Stricter than browsers: every element is closed in its turn. */
#ifndef VITTRAIN_TEST_MARKUP_H
#define VITTRAIN_TEST_MARKUP_H

/* What is wrong, with what follows; NULL: nothing. The text lives until the next call. */
const char *markup_fault(const char *text);

/* How often `part` stands in the text. */
int text_count(const char *text, const char *part);

#endif
