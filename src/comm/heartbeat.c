/* Who is still there? Each rank's communication thread tells two judges about once a second that it
 * lives and what its rank is doing: rank 0, and for the case that rank 0 is the lost one a second
 * rank, on another node where there is one. Who has not been heard of for too long (a machine that
 * is off, a cable that is out, a process that is stopped) ends the job, with a line that names all
 * such ranks. Rank 0 answers; ranks that hear nothing of it, nor of an end, end by themselves, so
 * that nothing is left on a node that is cut off. A message is a few bytes, there are two a rank,
 * and the more ranks there are the rarer they come. Errors of MPI count as silence. */
#include "comm/internal.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"

enum { TAG_BEAT = 3, TAG_ECHO = 4 }; /* the watch's communicator has more */
enum { JUDGES = 2 };
enum { RANKS_MOST = 65536 }; /* that a guard can tell of */

/* What a judge knows of a rank. */
struct heard {
    _Atomic double at; /* clock */
    struct status status;
    char host[HOST_NAME];
};

/* Shared with the guard, which tells who was silent when the launcher ended the job; atomic where
 * the handler of a signal reads it. */
struct table {
    _Atomic int size;
    int rank, backup;
    _Atomic double turned, period, silence; /* turned: the newest turn, clock */
    struct heard rank_heard[];
};

struct beat {
    MPI_Request request;
    struct status status;
};

static struct {
    struct table *table;
    bool shared;
    MPI_Comm communicator;
    bool open;
    struct beat beat[JUDGES];
    double next_beat, root_heard; /* clock; root_heard: an echo of rank 0 */
} heart;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one turn at a time */
static _Atomic double wanted_silence;

static size_t table_bytes(int ranks)
{
    return sizeof(struct table) + (size_t)ranks * sizeof(struct heard);
}

void comm_set_silence(double seconds)
{
    wanted_silence = seconds;
}

/* Pages are taken when they are written to: by judges. */
void heartbeat_share(void)
{
    void *memory = mmap(NULL, table_bytes(RANKS_MOST), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return;
    heart.table = memory;
    heart.shared = true;
}

/* ---- the start */

/* The first rank of another node than rank 0's, else rank 1. */
static int backup_choose(int size)
{
    for (int rank = 1; rank < size; rank++)
        if (strcmp(world_host(rank), world_host(0)) != 0)
            return rank;
    return 1;
}

static bool is_judge(const struct table *table)
{
    return table->rank == 0 || table->rank == table->backup;
}

void heartbeat_open(MPI_Comm communicator, int rank, int size)
{
    if (heart.table == NULL || size > RANKS_MOST) {
        heart.table = calloc(1, table_bytes(size));
        ENSURE(heart.table != NULL, "no memory for signs of life of %d ranks", size);
        heart.shared = false;
    }
    struct table *table = heart.table;
    table->rank = rank;
    table->backup = backup_choose(size);
    table->turned = clock_now();
    for (int r = 0; is_judge(table) && r < size; r++)
        strcpy(table->rank_heard[r].host, world_host(r));
    heart.communicator = communicator;
    for (int j = 0; j < JUDGES; j++)
        heart.beat[j].request = MPI_REQUEST_NULL;
    table->size = size; /* from here on the guard looks at it */
    heart.open = true;
}

/* All ranks have come to their end, with their threads running. */
void heartbeat_close(void)
{
    pthread_mutex_lock(&lock);
    heart.open = false;
    pthread_mutex_unlock(&lock);
    if (heart.table == NULL)
        return;
    for (int j = 0; j < JUDGES; j++)
        if (heart.beat[j].request != MPI_REQUEST_NULL)
            MPI_Request_free(&heart.beat[j].request); /* sent, or nobody waits for it */
    heart.table->size = 0;
    if (!heart.shared)
        free(heart.table);
    heart.table = NULL;
}

/* From now on silence counts. */
static void silence_set(struct table *table, double now)
{
    const double often = 1, ranks_a_second = 1000;
    table->silence = wanted_silence;
    table->period = fmax(often, table->size / ranks_a_second);
    table->period = fmin(table->period, table->silence / 4);
    heart.root_heard = heart.next_beat = now;
    for (int rank = 0; is_judge(table) && rank < table->size; rank++)
        table->rank_heard[rank].at = now;
}

/* ---- messages */

static void beats_send(const struct table *table, double now)
{
    const int judge[JUDGES] = {0, table->backup};
    if (now < heart.next_beat)
        return;
    heart.next_beat = now + table->period;
    for (int j = 0; j < JUDGES; j++) {
        struct beat *beat = &heart.beat[j];
        int over = 1;
        if (judge[j] == table->rank)
            continue;
        if (beat->request != MPI_REQUEST_NULL &&
            MPI_Test(&beat->request, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            beat->request = MPI_REQUEST_NULL;
        if (!over)
            continue; /* nobody takes it */
        beat->status = status_read(now);
        if (MPI_Isend(&beat->status, (int)sizeof beat->status, MPI_BYTE, judge[j], TAG_BEAT,
                      heart.communicator, &beat->request) != MPI_SUCCESS)
            beat->request = MPI_REQUEST_NULL;
    }
}

/* Is there a message? Then takes it. */
static bool message_take(int tag, void *data, size_t bytes, int *from)
{
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, heart.communicator, &there, &status) != MPI_SUCCESS ||
        !there)
        return false;
    *from = status.MPI_SOURCE;
    return MPI_Recv(data, (int)bytes, MPI_BYTE, *from, tag, heart.communicator,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

static void messages_take(struct table *table, double now)
{
    int from = 0;
    struct status status;
    char nothing = 0;
    while (is_judge(table) && message_take(TAG_BEAT, &status, sizeof status, &from)) {
        table->rank_heard[from].at = now;
        table->rank_heard[from].status = status;
        /* Short, and to one that has just been heard: leaves at once. */
        if (table->rank == 0)
            MPI_Send(&nothing, 1, MPI_BYTE, from, TAG_ECHO, heart.communicator);
    }
    while (table->rank != 0 && message_take(TAG_ECHO, &nothing, 1, &from))
        heart.root_heard = now;
}

/* ---- who is silent */

/* Judges hear themselves. */
static double silence_of(const struct table *table, int rank, double now)
{
    return rank == table->rank ? 0 : now - table->rank_heard[rank].at;
}

static double longest_silence(const struct table *table, double now)
{
    double longest = 0;
    for (int rank = 0; rank < table->size; rank++)
        longest = fmax(longest, silence_of(table, rank, now));
    return longest;
}

struct text {
    char *at;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void text_add(struct text *text, const char *format,
                                                           ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at + text->used, text->size - text->used, format, arguments);
    va_end(arguments);
    text->used += length > 0 ? (size_t)length : 0;
    if (text->used >= text->size)
        text->used = text->size - 1;
}

static bool is_silent_on(const struct table *table, int rank, double least, double now,
                         const char *host)
{
    return silence_of(table, rank, now) >= least && strcmp(table->rank_heard[rank].host, host) == 0;
}

/* "4-7 on node2": the silent ranks of a host. */
static void host_describe(const struct table *table, int first, double least, double now,
                          struct text *text)
{
    const char *host = table->rank_heard[first].host;
    for (int rank = first; rank < table->size; rank++) {
        if (!is_silent_on(table, rank, least, now, host))
            continue;
        int last = rank;
        while (last + 1 < table->size && is_silent_on(table, last + 1, least, now, host))
            last++;
        text_add(text, rank == first ? "%d" : ", %d", rank);
        if (last > rank)
            text_add(text, "-%d", last);
        rank = last;
    }
    text_add(text, " on %s", host);
}

static bool host_is_listed(const struct table *table, int rank, double least, double now)
{
    for (int before = 0; before < rank; before++)
        if (is_silent_on(table, before, least, now, table->rank_heard[rank].host))
            return true;
    return false;
}

/* All that have been silent for `least` seconds; false: none. */
static bool silent_describe(const struct table *table, double least, double now, char *buffer,
                            size_t size)
{
    enum { DOINGS = 8 };
    int count = 0, first = -1, told = 0;
    double longest = 0;
    struct text text = {.at = buffer, .size = size};
    for (int rank = 0; rank < table->size; rank++) {
        double silence = silence_of(table, rank, now);
        if (silence < least)
            continue;
        count++;
        first = first < 0 ? rank : first;
        longest = fmax(longest, silence);
    }
    if (count == 0)
        return false;
    text_add(&text, count == 1 ? "rank " : "ranks ");
    for (int rank = first; rank < table->size; rank++)
        if (silence_of(table, rank, now) >= least && !host_is_listed(table, rank, least, now)) {
            text_add(&text, rank == first ? "" : ", ");
            host_describe(table, rank, least, now, &text);
        }
    text_add(&text, " ha%s not been heard of for %.1f s; last:", count == 1 ? "s" : "ve", longest);
    for (int rank = first; rank < table->size && told < DOINGS; rank++) {
        char doing[256];
        if (silence_of(table, rank, now) < least)
            continue;
        status_describe(&table->rank_heard[rank].status, doing, sizeof doing);
        text_add(&text, "%s rank %d in %s", told++ > 0 ? ";" : "", rank, doing);
    }
    return true;
}

/* Three messages that did not come. */
static double silence_least(const struct table *table)
{
    return 3 * fmax(table->period, 1);
}

bool heartbeat_hears_silence(void)
{
    const struct table *table = heart.table;
    if (table == NULL || table->size == 0 || table->silence <= 0 || !is_judge(table))
        return false;
    double least = silence_least(table), longest = longest_silence(table, table->turned);
    /* Of two judges rank 0 says it, if it can. */
    return longest >= least && (table->rank == 0 || silence_of(table, 0, table->turned) >= least);
}

bool heartbeat_describe_silent(char *text, size_t size)
{
    const struct table *table = heart.table;
    return heartbeat_hears_silence() &&
           silent_describe(table, silence_least(table), table->turned, text, size);
}

bool heartbeat_has_spoken_of(double tickless)
{
    return heart.table != NULL && heart.table->silence > 0 && tickless >= heart.table->silence;
}

/* ---- the verdict */

static _Noreturn void job_end(const char *text)
{
    char line[4400];
    int length = snprintf(line, sizeof line, "vittrain: failure: %s; see mesh.silence\n", text);
    status_set_ending(STATUS_SAID); /* else SIGTERM would have the guard say it again */
    if (text[0] != '\0')
        length = (int)write(STDERR_FILENO, line, (size_t)length);
    (void)length;
    failure_end();
}

/* Seconds that a judge leaves to the one before it. */
static const double PRECEDENCE = 3;

/* Before a launcher that has lost a machine, too, ends the job: what is said then may get lost. */
static void suspicion_say(const struct table *table, double longest, double now)
{
    const double suspicious = 5;
    static bool said;
    char text[3072];
    /* The second judge speaks where the first cannot. */
    bool speaks = table->rank == 0 || silence_of(table, 0, now) >= suspicious;
    double least = fmax(suspicious - 2 * table->period, suspicious / 2);
    if (!said && speaks && longest >= suspicious &&
        silent_describe(table, least, now, text, sizeof text))
        log_alarm("%s", text);
    else if (said && longest < suspicious)
        log_alarm("all ranks are heard of again");
    said = longest >= suspicious && (said || speaks);
}

static void judge(const struct table *table, double now)
{
    char text[4096];
    double patience = table->silence + (table->rank == 0 ? 0 : PRECEDENCE);
    double longest = longest_silence(table, now);
    suspicion_say(table, longest, now);
    if (longest < patience)
        return;
    /* Ranks of one node fall silent together and are heard at different moments. */
    double least = fmax(table->silence - 2 * table->period, table->silence / 2);
    if (silent_describe(table, least, now, text, sizeof text))
        job_end(text);
}

/* This node is cut off, or no judge is left. */
static void root_follow(const struct table *table, double now)
{
    char text[512] = "";
    double silence = now - heart.root_heard;
    bool speaks = true;
    if (table->rank == 0 || silence < table->silence + 2 * PRECEDENCE)
        return;
    for (int rank = 0; rank < table->rank; rank++)
        speaks = speaks && strcmp(world_host(rank), world_host(table->rank)) != 0;
    if (speaks)
        snprintf(text, sizeof text,
                 "rank %d on %s has heard nothing of rank 0 on %s for %.1f s: the ranks of %s end",
                 table->rank, world_host(table->rank), world_host(0), silence,
                 world_host(table->rank));
    job_end(text);
}

/* Who has not run itself does not blame others for it. */
static void pause_forgive(struct table *table, double seconds)
{
    heart.root_heard += seconds;
    for (int rank = 0; is_judge(table) && rank < table->size; rank++)
        table->rank_heard[rank].at = table->rank_heard[rank].at + seconds;
}

void heartbeat_turn(double now)
{
    const double pause = 1;
    status_tick(now);
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    struct table *table = heart.table;
    if (heart.open) {
        if (now - table->turned > pause)
            pause_forgive(table, now - table->turned);
        table->turned = now;
        if (table->silence != wanted_silence)
            silence_set(table, now);
        if (table->silence > 0)
            beats_send(table, now);
        messages_take(table, now);
        if (table->silence > 0 && is_judge(table))
            judge(table, now);
        if (table->silence > 0)
            root_follow(table, now);
    }
    pthread_mutex_unlock(&lock);
}
