/*
 * fuzz_onnx.c - any bytes as an ONNX file: refused in one line, or a network whose parameters lie
 * inside the file and every value of which has its producer. Nothing is leaked.
 */
#include <mem/support.h>

#include <convert/read/onnx.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static void count_issue(void *ctx, const dunlin_model_issue *issue)
{
    int32_t *n = ctx;
    require(issue->node != NULL && issue->op != NULL && issue->attribute != NULL);
    require(issue->reason != NULL && issue->reason[0] != '\0');
    require(issue->n_nodes > 0 && issue->way_out != NULL);
    (*n)++;
}

static void check_network(const dunlin_net *net, size_t size)
{
    require(net->n_nodes > 0 && net->input < net->n_values && net->output < net->n_values);
    require(net->values[net->output].shape.n_dims <= 3); /* an image of classes */
    for (size_t i = 0; i < net->n_params; i++) {
        const dunlin_net_param *param = &net->params[i];
        require(param->n_elements > 0);
        if (param->origin == DUNLIN_PARAM_VALUES) {
            require(param->values != NULL &&
                    (param->is_fixed_by_file || param->role != DUNLIN_PARAMETER_TRAINABLE));
            continue;
        }
        require(param->origin == DUNLIN_PARAM_FILE);
        require(param->file_offset + (uint64_t)param->n_elements * sizeof(float) <= size);
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        require(node->output < net->n_values);
        /* Of an input the shape alone may be of use: then nothing reads its part of an example. */
        require(net->values[node->output].n_consumers > 0 || node->kind == DUNLIN_OP_RESHAPE);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            uint32_t producer = net->values[node->inputs[j]].producer;
            require(producer == DUNLIN_NET_NONE ? node->inputs[j] == net->input : producer < i);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_error error = {0};
    dunlin_net net;
    int32_t n_told = 0;
    int32_t n_issues = -1;
    const dunlin_onnx_input input = {
        .place = {.bytes = data, .n_bytes = size},
        .alloc = &counter.hooks,
        .issue_fn = count_issue,
        .ctx = &n_told,
    };
    dunlin_status status = dunlin__onnx_read(&input, &n_issues, &net, &error);
    require(n_issues == n_told);
    if (status == DUNLIN_OK) {
        require(n_issues == 0);
        check_network(&net, size);
        dunlin__net_free(&net);
    } else {
        require(error.status == status && error.text[0] != '\0');
        for (const char *c = error.text; *c != '\0'; c++) {
            require((unsigned char)*c >= 0x20);
        }
    }
    require(counter.now_bytes == 0);
    return 0;
}
