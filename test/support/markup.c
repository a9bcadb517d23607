// SPDX-License-Identifier: BSD-3-Clause
/* The parser needs only a stack of open elements. */
#include "markup.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MOST = 64, NAME_SIZE = 32 };

struct markup {
    const char *at;
    int depth;
    char open[DEPTH_MOST][NAME_SIZE];
};

static char fault[256];

static const char *complain(const char *what, const char *at)
{
    snprintf(fault, sizeof fault, "%s: %.80s", what, at);
    return fault;
}

static bool is_void(const char *name)
{
    return strcmp(name, "meta") == 0 || strcmp(name, "img") == 0;
}

static void name_read(struct markup *markup, char name[NAME_SIZE])
{
    int length = 0;
    while ((isalnum((unsigned char)*markup->at) || *markup->at == '-' || *markup->at == ':') &&
           length < NAME_SIZE - 1)
        name[length++] = *markup->at++;
    name[length] = '\0';
}

/* Parse an attribute: a name, then a quoted value; HTML permits a name without a value. */
static const char *attribute_read(struct markup *markup)
{
    char name[NAME_SIZE];
    const char *from = markup->at;
    name_read(markup, name);
    if (name[0] == '\0')
        return complain("no attribute", from);
    if (*markup->at != '=')
        return NULL;
    if (*++markup->at != '"')
        return complain("a value without quotes", from);
    markup->at += 1 + strcspn(markup->at + 1, "\"<");
    if (*markup->at != '"')
        return complain("< in a value, or its end is missing", from);
    markup->at++;
    return NULL;
}

static const char *tag_close(struct markup *markup)
{
    char name[NAME_SIZE];
    const char *from = markup->at;
    markup->at += 2;
    name_read(markup, name);
    if (*markup->at++ != '>')
        return complain("no end of a tag", from);
    if (markup->depth == 0 || strcmp(markup->open[--markup->depth], name) != 0)
        return complain("closes what is not open", from);
    return NULL;
}

static const char *tag_open(struct markup *markup)
{
    char name[NAME_SIZE];
    const char *from = markup->at++;
    name_read(markup, name);
    if (name[0] == '\0')
        return complain("< that begins no tag", from);
    while (isspace((unsigned char)*markup->at)) {
        markup->at += strspn(markup->at, " \n");
        const char *wrong =
            *markup->at == '>' || *markup->at == '/' ? NULL : attribute_read(markup);
        if (wrong != NULL)
            return wrong;
    }
    if (strncmp(markup->at, "/>", 2) == 0) {
        markup->at += 2;
        return NULL;
    }
    if (*markup->at++ != '>')
        return complain("no end of a tag", from);
    if (is_void(name))
        return NULL;
    if (markup->depth == DEPTH_MOST)
        return complain("too deep", from);
    strcpy(markup->open[markup->depth++], name);
    if (strcmp(name, "style") == 0) /* the text of <style> is not markup */
        markup->at = strstr(markup->at, "</style>");
    return markup->at == NULL ? complain("style without end", from) : NULL;
}

static const char *entity_read(struct markup *markup)
{
    static const char *const known[] = {"&lt;",  "&gt;",     "&amp;", "&quot;",
                                        "&#39;", "&middot;", NULL};
    for (int i = 0; known[i] != NULL; i++)
        if (strncmp(markup->at, known[i], strlen(known[i])) == 0) {
            markup->at += strlen(known[i]);
            return NULL;
        }
    return complain("& that begins nothing known", markup->at);
}

const char *markup_fault(const char *text)
{
    struct markup markup = {.at = text};
    const char *wrong = NULL;
    if (strncmp(text, "<!DOCTYPE html>", 15) == 0)
        markup.at += 15;
    while (wrong == NULL && *markup.at != '\0') {
        if (strncmp(markup.at, "</", 2) == 0)
            wrong = tag_close(&markup);
        else if (*markup.at == '<')
            wrong = tag_open(&markup);
        else if (*markup.at == '&')
            wrong = entity_read(&markup);
        else if ((unsigned char)*markup.at < ' ' && *markup.at != '\n')
            wrong = complain("a control character", markup.at);
        else
            markup.at++;
    }
    if (wrong == NULL && markup.depth > 0)
        return complain("never closed", markup.open[markup.depth - 1]);
    return wrong;
}

int text_count(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        count++;
    return count;
}
