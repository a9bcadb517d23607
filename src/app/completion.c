// SPDX-License-Identifier: BSD-3-Clause
/* Completion for bash and zsh. A word section.key=... completes to the values of the option, or to
 * files; other words to commands, flags, "section.key=" and files. */
#include "app/completion.h"

#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/option.h"
#include "model/registry.h"

enum { WORDS = 4096 };

static const char bash_begin[] =
    "# Completion of vittrain for bash, written by `vittrain --completion bash`.\n"
    "_vittrain() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} prefix='' words='' cur key=''\n"
    "    cur=${line##*[[:space:]]}\n"
    "    case $cur in\n"
    "    [a-z]*.*=*)\n"
    "        key=${cur%%=*} cur=${cur#*=}\n"
    "        # If '=' separates words, bash keeps the text before it.\n"
    "        [[ $COMP_WORDBREAKS == *=* ]] || prefix=$key=\n"
    "        case $key in\n";

static const char bash_end[] =
    "    esac\n"
    "    mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -W \"$words\" -- \"$cur\")\n"
    "    if [ -n \"$key\" ] && [ -n \"$words\" ]; then return; fi\n"
    "    if [[ ${COMPREPLY[0]} == *[.=] ]]; then compopt -o nospace 2>/dev/null; fi\n"
    "    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -P \"$prefix\" -f -- \"$cur\")\n"
    "    compopt -o filenames 2>/dev/null\n"
    "}\n"
    "complete -F _vittrain vittrain ./vittrain\n";

static const char zsh_begin[] =
    "#compdef vittrain\n"
    "# Completion of vittrain for zsh, written by `vittrain --completion zsh`.\n"
    "_vittrain() {\n"
    "    local -a vittrain_commands vittrain_keys\n"
    "    if compset -P '[a-z]*.*='; then\n"
    "        case $IPREFIX in\n";

static const char zsh_end[] =
    "    (( CURRENT == 2 )) || [[ $words[2] == help ]] && _describe command vittrain_commands\n"
    "    _describe option vittrain_keys -q -S =\n"
    "    _files\n"
    "}\n"
    "_vittrain \"$@\"\n";

static void word_add(char words[WORDS], const char *word)
{
    const size_t used = strlen(words);
    ENSURE(used + strlen(word) + 2 <= WORDS, "the list of words is too long");
    snprintf(words + used, WORDS - used, "%s%s", used > 0 ? " " : "", word);
}

/* Write the values of an option, separated by spaces. Return false if it has no list of values. */
static bool option_words(const struct option_entry *entry, char words[WORDS])
{
    words[0] = '\0';
    if (entry->kind == OPTION_IS_SWITCH)
        word_add(words, "on off");
    if (strcmp(entry->name, "model.name") == 0)
        for (const char *const *name = model_names(); *name != NULL; name++)
            word_add(words, *name);
    for (const struct option_choice *choice = entry->choices;
         choice != NULL && choice->word != NULL; choice++)
        word_add(words, choice->word);
    return words[0] != '\0';
}

static void flags_print(FILE *file)
{
    for (int i = 0; command_flags[i] != NULL; i++)
        fprintf(file, " %s", command_flags[i]);
}

static void bash_print(FILE *file)
{
    char words[WORDS];
    fputs(bash_begin, file);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        if (option_words(entry, words))
            fprintf(file, "        %s) words='%s' ;;\n", entry->name, words);
    fputs("        esac ;;\n    -*) words='", file);
    flags_print(file);
    fputs("' ;;\n    *.*) words='", file);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        fprintf(file, " %s=", entry->name);
    fputs("' ;;\n    *)\n        words='", file);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        if (option_begins_section(entry))
            fprintf(file, " %.*s", (int)(option_key(entry) - entry->name), entry->name);
    fputs("'\n        [ $COMP_CWORD -gt 1 ] || words+=' help", file);
    for (int i = 0; app_commands[i] != NULL; i++)
        fprintf(file, " %s", app_commands[i]->name);
    fputs("' ;;\n", file);
    fputs(bash_end, file);
}

/* Print "name:description" in single quotes; the description is the first sentence of `text`. */
static void zsh_describe(FILE *file, const char *name, const char *text)
{
    const char *end = strstr(text, ". ");
    fprintf(file, "        '%s:", name);
    for (const char *c = text; *c != '\0' && c != end; c++)
        fprintf(file, *c == '\'' ? "'\\''" : "%c", *c);
    fputs("'\n", file);
}

static void zsh_print(FILE *file)
{
    char words[WORDS];
    fputs(zsh_begin, file);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        if (option_words(entry, words))
            fprintf(file, "        %s=) compadd %s ;;\n", entry->name, words);
    fputs("        *) _files ;;\n        esac\n        return\n    fi\n"
          "    if [[ $PREFIX == -* ]]; then\n        compadd --",
          file);
    flags_print(file);
    fputs("\n        return\n    fi\n    vittrain_commands=(\n", file);
    for (int i = 0; app_commands[i] != NULL; i++)
        zsh_describe(file, app_commands[i]->name, app_commands[i]->summary);
    fputs("    )\n    vittrain_keys=(\n", file);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        zsh_describe(file, entry->name, entry->help);
    fputs("    )\n", file);
    fputs(zsh_end, file);
}

bool completion_print(const char *shell, FILE *file, struct error *error)
{
    if (shell != NULL && strcmp(shell, "bash") == 0)
        bash_print(file);
    else if (shell != NULL && strcmp(shell, "zsh") == 0)
        zsh_print(file);
    else
        return error_set(error, ERROR_USAGE, "--completion%s%s: must be bash or zsh",
                         shell != NULL ? " " : "", shell != NULL ? shell : "");
    return true;
}
