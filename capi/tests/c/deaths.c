// Workers that are killed at every stage of a program's life: it gets codes, and goes on; with recovery, the right results.
#define _GNU_SOURCE

#include <sys/eventfd.h>
#include <sys/mman.h>
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
    BEFORE_ASKING,
    BEFORE_COMPILING,
    BEFORE_EXECUTION,
    BEFORE_COMPUTING,
    BEFORE_COMPUTING_AGAIN,
    WITHIN_COMPUTING,
    BEFORE_BURST,
    BEFORE_FIRST_OF_BURST,
    WITHIN_BURST,
    BEHIND_FENCES,
    BEHIND_FENCES_INTO_MEMORY,
    BEFORE_DEVICE_MEMORY,
    BEFORE_COPYING_IN,
    BEFORE_READING_DEVICE_MEMORY,
    BEFORE_COPYING_OUT,
    BEFORE_FREEING,
    STAGES
} Stage;

// What a program lives through.
typedef struct {
    Stage stage;
    // Whether it compiles for one device that it names.
    int is_named;
    // Whether what dies is to be recovered.
    int is_recovered;
    ANeuralNetworksCompilation* compilation;
    ANeuralNetworksExecution* execution;
    float sum[4];
} Life;

static void kill_at(const Life* life, Stage stage) {
    if (life->stage == stage) {
        kill_workers();
    }
}

static int is_two(const float* values) {
    return values[0] == 2 && values[1] == 2 && values[2] == 2 && values[3] == 2;
}

// Whether the CPU cannot take over: an execution had been handed to the driver with its fences, or what it reads was in the
// device.
static int is_beyond_the_cpu(Stage stage) {
    return stage == BEHIND_FENCES_INTO_MEMORY || stage == BEFORE_COPYING_IN || stage == BEFORE_READING_DEVICE_MEMORY ||
           stage == BEFORE_COPYING_OUT;
}

// Whether the CPU computes what a process died of.
static int is_on_cpu(void) {
    const char* recovery = getenv("NNHAL_RECOVERY");
    return recovery != NULL && strcmp(recovery, "cpu") == 0;
}

// A computation ends with the right result, or, where nothing is recovered and nobody takes over, with the news that the
// device is gone.
static void expect_told(const Life* life, int code) {
    int is_right = code == ANEURALNETWORKS_NO_ERROR && is_two(life->sum);
    int may_be_gone =
        !life->is_recovered && (!is_on_cpu() || life->is_named || is_beyond_the_cpu(life->stage));
    int is_told = may_be_gone && code == ANEURALNETWORKS_DEAD_OBJECT;
    expectations++;
    if (!is_right && !is_told) {
        failures++;
        fprintf(stderr, "stage %d, %s, %s: code %d, sum %g, %s\n", life->stage,
                life->is_named ? "named device" : "all devices", life->is_recovered ? "recovered" : "not recovered",
                code, life->sum[0], nnhal_last_error());
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

static ANeuralNetworksMemory* new_memory(float** mapped) {
    ANeuralNetworksMemory* memory = NULL;
    int fd = memfd_create("test", MFD_CLOEXEC);
    EXPECT_TRUE(fd >= 0 && ftruncate(fd, 16) == 0);
    OK(ANeuralNetworksMemory_createFromFd(16, PROT_READ | PROT_WRITE, fd, 0, &memory));
    *mapped = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_TRUE(*mapped != MAP_FAILED);
    close(fd);
    return memory;
}

// Starts it behind a fence, kills the workers, and opens the way.
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
    EXPECT_TRUE(ANeuralNetworksEvent_wait(ended) == code);
    ANeuralNetworksEvent_free(ended);
    ANeuralNetworksEvent_free(opened);
    close(gate);
    return code;
}

// A stage in which arguments are set by the function itself is computed with an execution of its own.
static int compute_into_memory(Life* life) {
    float* shared = NULL;
    ANeuralNetworksMemory* memory = new_memory(&shared);
    ANeuralNetworksExecution* execution = new_execution(life->compilation);
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, 16));
    OK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 0, 16));
    int code = start_and_wait(execution);
    memcpy(life->sum, shared, 16);
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksMemory_free(memory);
    munmap(shared, 16);
    return code;
}

static int copy_and_compute(Life* life, ANeuralNetworksMemory* memory) {
    float* shared = NULL;
    ANeuralNetworksMemory* plain = new_memory(&shared);
    memcpy(shared, ONES, 16);
    kill_at(life, BEFORE_COPYING_IN);
    int code = ANeuralNetworksMemory_copy(plain, memory);
    if (code == ANEURALNETWORKS_NO_ERROR && life->stage == BEFORE_COPYING_OUT) {
        memset(shared, 0, 16);
        kill_workers();
        code = ANeuralNetworksMemory_copy(memory, plain);
        for (int at = 0; at < 4; at++) {
            life->sum[at] = 2 * shared[at];
        }
    } else if (code == ANEURALNETWORKS_NO_ERROR) {
        ANeuralNetworksExecution* execution = new_execution(life->compilation);
        OK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, 0));
        OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, life->sum, 16));
        kill_at(life, BEFORE_READING_DEVICE_MEMORY);
        code = ANeuralNetworksExecution_compute(execution);
        ANeuralNetworksExecution_free(execution);
    }
    ANeuralNetworksMemory_free(plain);
    munmap(shared, 16);
    return code;
}

static int compute_from_device_memory(Life* life) {
    ANeuralNetworksMemoryDesc* desc = NULL;
    ANeuralNetworksMemory* memory = NULL;
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, life->compilation, 0, 1));
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    kill_at(life, BEFORE_DEVICE_MEMORY);
    int code = ANeuralNetworksMemory_createFromDesc(desc, &memory);
    if (code == ANEURALNETWORKS_NO_ERROR) {
        code = copy_and_compute(life, memory);
    }
    ANeuralNetworksMemory_free(memory);
    ANeuralNetworksMemoryDesc_free(desc);
    return code;
}

static int compute_by_burst(Life* life) {
    ANeuralNetworksBurst* burst = NULL;
    kill_at(life, BEFORE_BURST);
    OK(ANeuralNetworksBurst_create(life->compilation, &burst));
    kill_at(life, BEFORE_FIRST_OF_BURST);
    // The third time a reusable execution is a request that the driver knows.
    for (int round = 0; round < 3 && life->stage == WITHIN_BURST; round++) {
        OK(ANeuralNetworksExecution_burstCompute(life->execution, burst));
        EXPECT_TRUE(is_two(life->sum));
        memset(life->sum, 0, 16);
    }
    kill_at(life, WITHIN_BURST);
    int code = ANeuralNetworksExecution_burstCompute(life->execution, burst);
    ANeuralNetworksBurst_free(burst);
    return code;
}

static int compute(Life* life) {
    switch (life->stage) {
        case BEFORE_BURST:
        case BEFORE_FIRST_OF_BURST:
        case WITHIN_BURST:
            return compute_by_burst(life);
        case BEHIND_FENCES:
            return start_and_wait(life->execution);
        case BEHIND_FENCES_INTO_MEMORY:
            return compute_into_memory(life);
        case BEFORE_DEVICE_MEMORY:
        case BEFORE_COPYING_IN:
        case BEFORE_READING_DEVICE_MEMORY:
        case BEFORE_COPYING_OUT:
            return compute_from_device_memory(life);
        case BEFORE_COMPUTING_AGAIN:
            OK(ANeuralNetworksExecution_compute(life->execution));
            memset(life->sum, 0, 16);
            kill_workers();
            return ANeuralNetworksExecution_compute(life->execution);
        default:
            kill_at(life, BEFORE_COMPUTING);
            return ANeuralNetworksExecution_compute(life->execution);
    }
}

// sum = x + 1 by a loop that counts for a while first, so that it can be killed while it computes: operands of the loop are
// the number to count to, the count and x.
static ANeuralNetworksModel* slow_add(void) {
    static const uint32_t one[1] = {1};
    const int32_t step = 1, none = ANEURALNETWORKS_FUSED_NONE;
    ANeuralNetworksOperandType number = type_of(ANEURALNETWORKS_TENSOR_INT32, 1, one, 0, 0);
    ANeuralNetworksOperandType floats = type_of(ANEURALNETWORKS_TENSOR_FLOAT32, 1, FOUR, 0, 0);
    ANeuralNetworksModel *condition = new_model(), *body = new_model(), *model = new_model();
    const uint32_t carried[2] = {0, 1}, compared[2] = {0, 3}, holds = 2;
    OK(add_operand(condition, number));
    OK(add_operand(condition, floats));
    OK(add_operand(condition, type_of(ANEURALNETWORKS_TENSOR_BOOL8, 1, one, 0, 0)));
    OK(add_operand(condition, number));
    const int32_t limit = 30000;
    OK(ANeuralNetworksModel_setOperandValue(condition, 3, &limit, sizeof limit));
    OK(ANeuralNetworksModel_addOperation(condition, ANEURALNETWORKS_LESS, 2, compared, 1, &holds));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(condition, 2, carried, 1, &holds));
    OK(ANeuralNetworksModel_finish(condition));

    const uint32_t added[3] = {0, 2, 3}, next[2] = {4, 5}, count = 4, same = 5, x = 1;
    OK(add_operand(body, number));
    OK(add_operand(body, floats));
    OK(add_operand(body, number));
    OK(add_operand(body, type_of(ANEURALNETWORKS_INT32, 0, NULL, 0, 0)));
    OK(add_operand(body, number));
    OK(add_operand(body, floats));
    OK(ANeuralNetworksModel_setOperandValue(body, 2, &step, sizeof step));
    OK(ANeuralNetworksModel_setOperandValue(body, 3, &none, sizeof none));
    OK(ANeuralNetworksModel_addOperation(body, ANEURALNETWORKS_ADD, 3, added, 1, &count));
    OK(ANeuralNetworksModel_addOperation(body, ANEURALNETWORKS_ABS, 1, &x, 1, &same));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(body, 2, carried, 2, next));
    OK(ANeuralNetworksModel_finish(body));

    const uint32_t loop[4] = {1, 2, 3, 0}, results[2] = {4, 5}, sum[3] = {5, 6, 7}, output = 8, input = 0;
    const int32_t zero = 0;
    OK(add_operand(model, floats));
    OK(add_operand(model, type_of(ANEURALNETWORKS_MODEL, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_MODEL, 0, NULL, 0, 0)));
    OK(add_operand(model, number));
    OK(add_operand(model, number));
    OK(add_operand(model, floats));
    OK(add_operand(model, floats));
    OK(add_operand(model, type_of(ANEURALNETWORKS_INT32, 0, NULL, 0, 0)));
    OK(add_operand(model, floats));
    OK(ANeuralNetworksModel_setOperandValueFromModel(model, 1, condition));
    OK(ANeuralNetworksModel_setOperandValueFromModel(model, 2, body));
    OK(ANeuralNetworksModel_setOperandValue(model, 3, &zero, sizeof zero));
    OK(ANeuralNetworksModel_setOperandValue(model, 6, ONES, sizeof ONES));
    OK(ANeuralNetworksModel_setOperandValue(model, 7, &none, sizeof none));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_WHILE, 4, loop, 2, results));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, sum, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    ANeuralNetworksModel_free(condition);
    ANeuralNetworksModel_free(body);
    return model;
}

// Kills the workers while they compute.
static int compute_slowly(Life* life) {
    ANeuralNetworksEvent* ended = NULL;
    OK(ANeuralNetworksExecution_setLoopTimeout(life->execution, UINT64_MAX));
    OK(ANeuralNetworksExecution_startCompute(life->execution, &ended));
    kill_workers();
    int code = ANeuralNetworksEvent_wait(ended);
    ANeuralNetworksEvent_free(ended);
    return code;
}

// The device serves whoever compiles for it anew, after any death.
static void expect_service(ANeuralNetworksModel* model) {
    float sum[4] = {0};
    OK(ANeuralNetworksDevice_wait(test_device()));
    ANeuralNetworksCompilation* compilation = finished(compilation_of(model, 1));
    ANeuralNetworksExecution* execution = new_execution(compilation);
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, 16));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 16));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(is_two(sum));
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
}

static void live(Life life) {
    ANeuralNetworksModel *model = add_model(), *slow = slow_add();
    const ANeuralNetworksDevice* device = test_device();
    bool supported[1] = {false};
    kill_at(&life, BEFORE_ASKING);
    OK(ANeuralNetworksModel_getSupportedOperationsForDevices(model, &device, 1, supported));
    EXPECT_TRUE(supported[0]);
    life.compilation = compilation_of(life.stage == WITHIN_COMPUTING ? slow : model, life.is_named);
    if (life.is_recovered && !getenv("NNHAL_RECOVERY")) {
        OK(nnhal_compilation_set_recovery(life.compilation, 2));
    }
    kill_at(&life, BEFORE_COMPILING);
    // What has died by then is connected to anew, whatever the program wants recovered.
    OK(ANeuralNetworksCompilation_finish(life.compilation));
    EXPECT(BAD_STATE, nnhal_compilation_set_recovery(life.compilation, 2));
    kill_at(&life, BEFORE_EXECUTION);
    life.execution = new_execution(life.compilation);
    OK(ANeuralNetworksExecution_setReusable(life.execution, true));
    OK(ANeuralNetworksExecution_setInput(life.execution, 0, NULL, ONES, 16));
    OK(ANeuralNetworksExecution_setOutput(life.execution, 0, NULL, life.sum, 16));
    expect_told(&life, life.stage == WITHIN_COMPUTING ? compute_slowly(&life) : compute(&life));
    kill_at(&life, BEFORE_FREEING);
    ANeuralNetworksExecution_free(life.execution);
    ANeuralNetworksCompilation_free(life.compilation);
    expect_service(model);
    ANeuralNetworksModel_free(model);
    ANeuralNetworksModel_free(slow);
}

static void live_through(int is_named, int is_recovered) {
    for (Stage stage = 0; stage < STAGES; stage++) {
        Life life = {stage, is_named, is_recovered, NULL, NULL, {0}};
        live(life);
    }
}

static void named(void) {
    live_through(1, 0);
}

static void all(void) {
    live_through(0, 0);
}

static void named_recovered(void) {
    live_through(1, 1);
}

static void all_recovered(void) {
    live_through(0, 1);
}

// A setting that says nothing is not passed over.
static void bad_setting(void) {
    uint32_t count = 0;
    EXPECT(BAD_DATA, ANeuralNetworks_getDeviceCount(&count));
    EXPECT_TRUE(strstr(nnhal_last_error(), "NNHAL_RECOVERY is often") != NULL);
}

int main(int count, char** names) {
    static const Case cases[] = {
        {"named", named},
        {"all", all},
        {"named_recovered", named_recovered},
        {"all_recovered", all_recovered},
        {"bad_setting", bad_setting},
    };
    return run_cases(count, names, cases, sizeof cases / sizeof *cases);
}
