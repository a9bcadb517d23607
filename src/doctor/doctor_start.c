/* What `train` looks at when it begins: of doctor's checks those that take no time. They never
 * refuse a run; what cannot work is an error of its own elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "doctor/doctor.h"
#include "doctor/doctor_network.h"
#include "train/session.h"

/* When the run has its shared memory, /dev/shm may be full of that: what counts is whether it has.
 */
static void look_transport(const struct session *session, struct doctor_row *row)
{
    char text[256];
    mesh_describe_transport(&session->mesh, text, sizeof text);
    if (strstr(text, "/dev/shm") != NULL)
        doctor_say(row, DOCTOR_WARN,
                   "remove what lies in /dev/shm or make it larger: mount -o "
                   "remount,size=1g /dev/shm; docker run --shm-size=1g",
                   "ranks of a node do not share memory, but send messages: %s", text);
}

static void row_warn(const struct doctor_row *row)
{
    if (row->verdict > DOCTOR_PASS)
        log_warn("doctor: %s: %s%s%s", row->check, row->found, row->advice[0] != '\0' ? ": " : "",
                 row->advice);
}

void doctor_start(const struct session *session)
{
    static const struct {
        const char *name;
        doctor_look *look;
    } checks[] = {{"cores", doctor_look_cores},
                  {"binding", doctor_look_binding},
                  {"space", doctor_look_space},
                  {"clock", doctor_look_clock}};
    struct doctor_row transport = {.check = "shared memory"};
    struct doctor *doctor = calloc(1, sizeof *doctor);
    ENSURE(doctor != NULL, "no memory to look at the nodes");
    doctor->options = session->options;
    doctor->flat = &session->flat;
    doctor->world = session->mesh.world;
    doctor->node = session->mesh.node;
    doctor->node_index = session->mesh.node_index;
    doctor->node_count = session->mesh.node_count;
    doctor_gather_facts(doctor);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        doctor->row[i].check = checks[i].name;
        checks[i].look(doctor, &doctor->row[i]);
        row_warn(&doctor->row[i]);
    }
    look_transport(session, &transport);
    row_warn(&transport);
    doctor_free_facts(doctor);
    free(doctor->network);
    free(doctor);
}
