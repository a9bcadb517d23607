/* `plan` with plan.operations: the kernels of one training step as CSV, in the order in which a GPU
 * runs them. benchmarks/gpu_page compares them with a profile. */
#include "app/plan_time.h"

#include <stdio.h>

#include "config/options.h"
#include "core/csv.h"

static const char header[] =
    "model,batch,precision,call,unit,operation,kernel_family,result,shape,flops,bytes";

/* Matrix products have a shape: rows x columns x inner, or heads x tokens x head width. */
static void shape_write(struct csv *csv, const struct counted *counted)
{
    char shape[96] = "";
    if (counted->flops > 0)
        snprintf(shape, sizeof shape, "%.6gx%.0fx%.0f", counted->size[0], counted->size[1],
                 counted->size[2]);
    csv_text(csv, shape);
}

static bool kernel_write(struct csv *csv, const struct session *session,
                         const struct rehearsed *event, int call,
                         const struct counted_kernel *kernel, struct error *error)
{
    csv_text(csv, session->options->model.name);
    csv_integer(csv, session->batch * session->options->train.accumulate);
    csv_text(csv, type_name(session->compute));
    csv_integer(csv, call);
    csv_text(csv, event->unit < 0 ? "" : session->model->units[event->unit].name);
    csv_text(csv, operation_name[event->counted.operation]);
    csv_text(csv, kernel->family);
    csv_text(csv, kernel->result);
    shape_write(csv, &event->counted);
    csv_number(csv, kernel->flops);
    csv_number(csv, kernel->bytes);
    return csv_end_row(csv, error);
}

static bool script_write(const struct step_script *script, const struct session *session,
                         const char *path, struct error *error)
{
    struct csv csv;
    bool good = csv_open(&csv, path, header, 0, 0, error);
    for (int i = 0; good && i < script->count; i++) {
        const struct rehearsed *event = &script->event[i];
        const struct counted *counted = &event->counted;
        for (int k = 0; good && k < counted->kernels; k++)
            good = kernel_write(&csv, session, event, i, &counted->kernel[k], error);
    }
    good = good && csv_flush(&csv, error);
    csv_close(&csv);
    return good;
}

bool plan_operations_write(const struct plan *plan, const char *path, struct error *error)
{
    struct session session;
    struct step_script script = {0};
    bool good =
        plan_script(plan, &session, &script, error) && script_write(&script, &session, path, error);
    step_script_close(&script);
    session_close(&session);
    return good;
}
