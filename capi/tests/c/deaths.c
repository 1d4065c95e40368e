// Workers that are killed at every stage of a program's life: it gets codes, and goes on.
#define _GNU_SOURCE

#include <sys/eventfd.h>
#include <unistd.h>

#include "support.h"

// Has the test that started this program kill the workers, and waits until it has.
static void kill_workers(void) {
    puts("kill");
    fflush(stdout);
    EXPECT_TRUE(getchar() == '\n');
}

// When the workers are killed.
typedef enum {
    BEFORE_COMPILING,
    BEFORE_EXECUTION,
    BEFORE_COMPUTING,
    BEFORE_BURST,
    WITHIN_BURST,
    BEFORE_COMPUTING_AGAIN,
    BEHIND_FENCES,
    STAGES
} Stage;

static int is_two(const float* values) {
    return values[0] == 2 && values[1] == 2 && values[2] == 2 && values[3] == 2;
}

// A computation ends with the right result, or, where the device was named, with the news that it is gone.
static void expect_told(int code, const float* sum, int is_named, Stage stage) {
    int is_right = code == ANEURALNETWORKS_NO_ERROR && is_two(sum);
    int is_told = is_named && code == ANEURALNETWORKS_DEAD_OBJECT;
    expectations++;
    if (!is_right && !is_told) {
        failures++;
        fprintf(stderr, "stage %d, %s: code %d, %s\n", stage, is_named ? "named device" : "all devices", code,
                nnhal_last_error());
    }
}

static int start_and_wait(ANeuralNetworksExecution* execution) {
    int gate = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const uint64_t one = 1;
    ANeuralNetworksEvent *opened = NULL, *ended = NULL;
    OK(ANeuralNetworksEvent_createFromSyncFenceFd(gate, &opened));
    const ANeuralNetworksEvent* dependencies[1] = {opened};
    OK(ANeuralNetworksExecution_startComputeWithDependencies(execution, dependencies, 1, 0, &ended));
    kill_workers();
    EXPECT_TRUE(write(gate, &one, sizeof one) == sizeof one);
    int code = ANeuralNetworksEvent_wait(ended);
    ANeuralNetworksEvent_free(ended);
    ANeuralNetworksEvent_free(opened);
    close(gate);
    return code;
}

static int compute(ANeuralNetworksCompilation* compilation, ANeuralNetworksExecution* execution, float* sum,
                   Stage stage) {
    ANeuralNetworksBurst* burst = NULL;
    int code = ANEURALNETWORKS_NO_ERROR;
    switch (stage) {
        case BEFORE_BURST:
        case WITHIN_BURST:
            OK(ANeuralNetworksBurst_create(compilation, &burst));
            if (stage == WITHIN_BURST) {
                OK(ANeuralNetworksExecution_burstCompute(execution, burst));
                EXPECT_TRUE(is_two(sum));
                memset(sum, 0, 16);
            }
            kill_workers();
            code = ANeuralNetworksExecution_burstCompute(execution, burst);
            ANeuralNetworksBurst_free(burst);
            return code;
        case BEFORE_COMPUTING_AGAIN:
            OK(ANeuralNetworksExecution_compute(execution));
            memset(sum, 0, 16);
            kill_workers();
            return ANeuralNetworksExecution_compute(execution);
        case BEHIND_FENCES:
            return start_and_wait(execution);
        case BEFORE_COMPUTING:
            kill_workers();
            return ANeuralNetworksExecution_compute(execution);
        default:
            return ANeuralNetworksExecution_compute(execution);
    }
}

static ANeuralNetworksCompilation* compilation_of(ANeuralNetworksModel* model, int is_named) {
    ANeuralNetworksCompilation* compilation = NULL;
    if (is_named) {
        return new_compilation(model);
    }
    OK(ANeuralNetworksCompilation_create(model, &compilation));
    return compilation;
}

static void live(Stage stage, int is_named) {
    float sum[4] = {0};
    ANeuralNetworksModel* model = add_model();
    ANeuralNetworksCompilation* compilation = compilation_of(model, is_named);
    if (stage == BEFORE_COMPILING) {
        kill_workers();
    }
    int code = ANeuralNetworksCompilation_finish(compilation);
    if (code == ANEURALNETWORKS_NO_ERROR) {
        if (stage == BEFORE_EXECUTION) {
            kill_workers();
        }
        ANeuralNetworksExecution* execution = new_execution(compilation);
        OK(ANeuralNetworksExecution_setReusable(execution, true));
        OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, 16));
        OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 16));
        code = compute(compilation, execution, sum, stage);
        ANeuralNetworksExecution_free(execution);
    }
    expect_told(code, sum, is_named, stage);
    ANeuralNetworksCompilation_free(compilation);

    // The device serves whoever compiles for it anew.
    OK(ANeuralNetworksDevice_wait(test_device()));
    compilation = finished(compilation_of(model, 1));
    ANeuralNetworksExecution* execution = new_execution(compilation);
    memset(sum, 0, sizeof sum);
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, 16));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 16));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(is_two(sum));
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
}

static void named(void) {
    for (Stage stage = 0; stage < STAGES; stage++) {
        live(stage, 1);
    }
}

static void all(void) {
    for (Stage stage = 0; stage < STAGES; stage++) {
        live(stage, 0);
    }
}

int main(int count, char** names) {
    static const Case cases[] = {{"named", named}, {"all", all}};
    return run_cases(count, names, cases, sizeof cases / sizeof *cases);
}
